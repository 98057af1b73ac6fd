#include "net/tcp/liveness.h"

#include "net/tcp/conn.h"
#include "net/tcp/receive.h"
#include "net/tcp/socket.h"

/* Linux does not answer the same probe sooner (tcp_invalid_ratelimit) */
#define SAME_ANSWER_MS 500

/* Counts bytes in the kernel as progress, since a large receive may be in flight. */
static void watch_frame(struct sl_tcp_conn *conn, const struct sl_tcp_progress *progress,
                        uint64_t now_ns)
{
    struct sl_tcp_watch *watch = &conn->watch;
    if (!sl_tcp_receive_owed(conn) || progress->received != watch->received) {
        watch->received = progress->received;
        sl_silence_restart(&watch->silence, now_ns);
    } else if (sl_silence_lasts(&watch->silence, now_ns,
                                sl_transport_patience_ns(conn->base.transport))) {
        sl_conn_fail(&conn->base, SL_ERR_DEADLINE, "it began a frame and did not go on in time");
    }
}

/* TCP_USER_TIMEOUT also ends a connection whose peer answers but keeps its window closed, because
 * it is out of memory. That may last: the timeout is extended while the peer answers. */
static void watch_window(struct sl_tcp_conn *conn, const struct sl_tcp_progress *progress,
                         uint64_t now_ns)
{
    struct sl_tcp_watch *watch = &conn->watch;
    uint32_t timeout_ms = conn->base.transport->peer_timeout_ms;
    uint64_t patience_ms = timeout_ms;
    if (!progress->window_closed || progress->acked != watch->acked ||
        watch->window_since_ns == 0) {
        watch->acked = progress->acked;
        watch->window_since_ns = now_ns;
    }
    if (progress->window_closed) {
        if (progress->since_ack_ms >= (uint64_t)timeout_ms + SAME_ANSWER_MS) {
            return;
        }
        /* The window may have closed one check earlier. */
        patience_ms +=
            (now_ns - watch->window_since_ns + conn->tcp->liveness.round_ns) / SL_CLOCK_NS_PER_MS;
    }
    if (patience_ms != watch->patience_ms) {
        watch->patience_ms = patience_ms < UINT32_MAX ? (uint32_t)patience_ms : UINT32_MAX;
        sl_tcp_socket_set_patience(conn->fd, watch->patience_ms);
    }
}

static void visit_open(struct sl_tcp_conn *conn, uint64_t now_ns)
{
    struct sl_tcp_progress progress;
    bool listens = conn->receive.flight != SL_TCP_FLIGHT_NONE; /* it will report the end */
    if (listens && !conn->send.in_doubt && !sl_tcp_receive_owed(conn)) {
        return;
    }
    if (!sl_tcp_socket_progress(conn->fd, &progress)) {
        return;
    }
    if (!listens && progress.over) {
        sl_tcp_conn_end(conn, sl_tcp_socket_end_err(conn->fd));
        return;
    }
    conn->base.taken_bytes = progress.acked;
    watch_window(conn, &progress, now_ns);
    conn->send.in_doubt = conn->send.in_flight || !progress.all_arrived;
    watch_frame(conn, &progress, now_ns);
}

static void visit_connecting(struct sl_tcp_conn *conn, uint64_t now_ns)
{
    const struct sl_transport *base = conn->base.transport;
    const uint64_t limit_ns =
        conn->connecting ? sl_transport_patience_ns(base) : sl_liveness_handshake_ns(base);
    if (sl_silence_lasts(&conn->watch.silence, now_ns, limit_ns)) {
        sl_conn_fail(&conn->base, SL_ERR_DEADLINE,
                     conn->connecting ? "it was asked to connect and did not go on in time"
                                      : "the TLS handshake began and did not go on in time");
    }
}

static void tcp_liveness_visit(struct sl_list_link *link, uint64_t now_ns)
{
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(link, struct sl_tcp_conn, alive);
    if (conn->life != SL_TCP_LIFE_LIVE) {
        return; /* another timer limits it, or it ends soon */
    }
    if (conn->base.state == SL_CONN_OPEN) {
        visit_open(conn, now_ns);
    } else {
        visit_connecting(conn, now_ns);
    }
    sl_tcp_conn_check(conn);
}

void sl_tcp_liveness_init(struct sl_tcp *tcp)
{
    sl_liveness_init(&tcp->liveness, tcp->base.reactor,
                     tcp->tls != NULL ? sl_liveness_handshake_ns(&tcp->base)
                                      : sl_transport_patience_ns(&tcp->base),
                     tcp_liveness_visit);
}
