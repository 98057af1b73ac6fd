#include "core/list.h"
#include "core/log.h"
#include "net/tcp/internal.h"

#define ROUNDS_PER_TIMEOUT 4 /* a timeout is detected at most a quarter late */
#define HANDSHAKE_NS_MAX   (10 * SL_CLOCK_NS_PER_S)
/* Linux does not answer the same probe sooner (tcp_invalid_ratelimit) */
#define SAME_ANSWER_MS     500
#define CONNECTIONS_A_TURN 256 /* each may take a system call */

static uint64_t timeout_ns(const struct sl_tcp *tcp)
{
    return tcp->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
}

static uint64_t handshake_ns(const struct sl_tcp *tcp)
{
    return timeout_ns(tcp) < HANDSHAKE_NS_MAX ? timeout_ns(tcp) : HANDSHAKE_NS_MAX;
}

static uint64_t round_ns(const struct sl_tcp *tcp)
{
    return (tcp->tls != NULL ? handshake_ns(tcp) : timeout_ns(tcp)) / ROUNDS_PER_TIMEOUT;
}

static void end_silent(struct sl_tcp_conn *conn, const char *what)
{
    if (sl_tcp_may_log(conn->tcp)) {
        sl_log_warn("%s: closed, since %s and did not go on in time", conn->base.peer, what);
    }
    sl_tcp_conn_end(conn, SL_ERR_DEADLINE);
}

/* Counts bytes in the kernel as progress, since a large receive may be in flight. Requires a whole
 * timeout of checks without progress: while this thread was stopped, the peer may have sent
 * everything. */
static void watch_frame(struct sl_tcp_conn *conn, const struct sl_tcp_progress *progress,
                        uint64_t now_ns)
{
    struct sl_tcp_watch *watch = &conn->watch;
    if (!sl_tcp_receive_owed(conn) || progress->received != watch->received) {
        watch->received = progress->received;
        watch->quiet_since_ns = now_ns;
        watch->quiet_rounds = 0;
    } else if (++watch->quiet_rounds >= ROUNDS_PER_TIMEOUT &&
               now_ns - watch->quiet_since_ns >= timeout_ns(conn->tcp)) {
        end_silent(conn, "it began a frame");
    }
}

/* TCP_USER_TIMEOUT also ends a connection whose peer answers but keeps its window closed, because
 * it is out of memory. That may last: the timeout is extended while the peer answers. */
static void watch_window(struct sl_tcp_conn *conn, const struct sl_tcp_progress *progress,
                         uint64_t now_ns)
{
    struct sl_tcp_watch *watch = &conn->watch;
    uint32_t timeout_ms = conn->tcp->peer_timeout_ms;
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
        patience_ms += (now_ns - watch->window_since_ns + round_ns(conn->tcp)) / SL_CLOCK_NS_PER_MS;
    }
    if (patience_ms != watch->patience_ms) {
        watch->patience_ms = patience_ms < UINT32_MAX ? (uint32_t)patience_ms : UINT32_MAX;
        sl_tcp_socket_set_patience(conn->fd, watch->patience_ms);
    }
}

static void visit_open(struct sl_tcp_conn *conn, uint64_t now_ns)
{
    struct sl_tcp_progress progress;
    bool listens = conn->receive.in_flight; /* it will report the end */
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

static void visit(struct sl_tcp_conn *conn, uint64_t now_ns)
{
    if (conn->phase != SL_TCP_LIVE) {
        return; /* another timer limits it, or it ends soon */
    }
    if (conn->base.state == SL_CONN_OPEN) {
        visit_open(conn, now_ns);
        return;
    }
    uint64_t waited_ns = now_ns - conn->watch.quiet_since_ns;
    if (++conn->watch.quiet_rounds < ROUNDS_PER_TIMEOUT) {
        return; /* this thread may have been stopped: the answer may be there */
    }
    if (conn->connecting && waited_ns >= timeout_ns(conn->tcp)) {
        end_silent(conn, "it was asked to connect");
    } else if (conn->tls != NULL && !conn->tls->done && waited_ns >= handshake_ns(conn->tcp)) {
        end_silent(conn, "the TLS handshake began");
    }
}

static void arm(struct sl_tcp *tcp, uint64_t due_ns)
{
    sl_timer_arm(sl_reactor_timers(tcp->base.reactor), &tcp->sweep, due_ns);
}

/* Checked connections move to the end of the list, where new ones are, too. So a round over several
 * turns only stores how many are left. */
static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_tcp *tcp = SL_CONTAINER_OF(timer, struct sl_tcp, sweep);
    if (tcp->sweep_left == 0) {
        tcp->sweep_begun_ns = now_ns;
        tcp->sweep_left = tcp->stats.connections;
    }
    uint32_t left = tcp->sweep_left < CONNECTIONS_A_TURN ? tcp->sweep_left : CONNECTIONS_A_TURN;
    tcp->sweep_left -= left;
    for (; left > 0 && !sl_list_empty(&tcp->all); left--) {
        struct sl_list_link *link = sl_list_pop(&tcp->all);
        sl_list_append(&tcp->all, link);
        visit(SL_CONTAINER_OF(link, struct sl_tcp_conn, all), now_ns);
    }
    if (tcp->stats.connections == 0) {
        tcp->sweep_left = 0;
    } else {
        arm(tcp, tcp->sweep_left > 0 ? now_ns : tcp->sweep_begun_ns + round_ns(tcp));
    }
}

void sl_tcp_liveness_open(struct sl_tcp *tcp)
{
    tcp->sweep.run = on_timer;
}

void sl_tcp_liveness_close(struct sl_tcp *tcp)
{
    if (sl_timer_armed(&tcp->sweep)) {
        sl_timer_disarm(sl_reactor_timers(tcp->base.reactor), &tcp->sweep);
    }
}

void sl_tcp_liveness_add(struct sl_tcp *tcp, struct sl_tcp_conn *conn)
{
    uint64_t now_ns = sl_reactor_now_ns(tcp->base.reactor);
    conn->watch.quiet_since_ns = now_ns;
    conn->watch.quiet_rounds = 0;
    conn->watch.patience_ms = tcp->peer_timeout_ms;
    if (!sl_timer_armed(&tcp->sweep)) {
        arm(tcp, now_ns + round_ns(tcp));
    }
}
