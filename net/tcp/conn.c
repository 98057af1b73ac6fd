#include "net/tcp/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/fork.h"
#include "core/reason.h"
#include "net/tcp/receive.h"
#include "net/tcp/send.h"
#include "net/tcp/socket.h"

#define DRAIN_NS SL_CLOCK_NS_PER_S

/* Creation and end */

static void on_receive(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags);
static void tcp_conn_on_sent(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags);

static void tcp_conn_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    sl_tcp_conn_end(SL_CONTAINER_OF(timer, struct sl_tcp_conn, timer), SL_ERR_CLOSED);
}

static void start_timer(struct sl_tcp_conn *conn)
{
    sl_reactor_arm(conn->tcp->base.reactor, &conn->timer, DRAIN_NS);
}

static void stop_timer(struct sl_tcp_conn *conn)
{
    sl_reactor_disarm(conn->tcp->base.reactor, &conn->timer);
}

/* Keeps the staging block: the receiver may still read a message of the previous connection in it.
 * The arrays are not cleared, so that unused memory is never touched. */
static void tcp_conn_reset(struct sl_tcp_conn *conn, int fd)
{
    conn->fd = fd;
    conn->ops_in_flight = 0;
    conn->life = SL_TCP_LIFE_LIVE;
    conn->end_err = 0;
    conn->accept_pending = false;
    conn->tls = NULL;
    conn->moved = NULL;
    conn->spare_next = NULL;
    conn->alive = conn->sending = conn->waiting = (struct sl_list_link){0};
    conn->timer = (struct sl_timer){.run = tcp_conn_on_timer};
    conn->connecting = false;
    conn->watch = (struct sl_tcp_watch){0};
    conn->long_until_ns = 0;
    conn->receive =
        (struct sl_tcp_receive){.op.complete = on_receive, .phase = SL_TCP_PHASE_HEADER};
    conn->send.op.complete = tcp_conn_on_sent;
    conn->send.in_flight = conn->send.wants_room = conn->send.in_doubt = false;
    conn->send.write = SL_TCP_WRITE_OPEN;
    conn->send.piece_head = conn->send.piece_tail = 0;
    conn->send.run_head = conn->send.run_tail = 0;
    conn->send.run_sent = 0;
}

static struct sl_tcp_conn *tcp_conn_allocate(void)
{
    struct sl_tcp_conn *conn = aligned_alloc(_Alignof(struct sl_tcp_conn), sizeof *conn);
    if (conn != NULL) {
        conn->staging.rx_buf = (struct sl_tcp_rx_buf){.kind = SL_TCP_RX_BUF_OWNED};
        conn->held = 0;
    }
    return conn;
}

static void tcp_conn_link_to(struct sl_tcp *tcp, struct sl_tcp_conn *conn)
{
    conn->tcp = tcp;
    conn->watch.patience_ms = tcp->base.peer_timeout_ms;
    sl_silence_restart(&conn->watch.silence, sl_reactor_now_ns(tcp->base.reactor));
    sl_liveness_add(&tcp->liveness, &conn->alive);
    sl_cell_add(&tcp->base.cells->connections, 1);
}

static void unlink_and_spare(struct sl_tcp_conn *conn)
{
    struct sl_tcp *tcp = conn->tcp;
    sl_liveness_remove(&tcp->liveness, &conn->alive);
    sl_list_remove(&conn->sending);
    sl_list_remove(&conn->waiting);
    sl_cell_subtract(&tcp->base.cells->connections, 1);
    conn->spare_next = tcp->spare;
    tcp->spare = conn;
    tcp->spare_count++;
    tcp->spares_grew = true;
}

static struct sl_tcp_conn *take_spare(struct sl_tcp *tcp)
{
    struct sl_tcp_conn *conn = tcp->spare;
    if (conn != NULL) {
        tcp->spare = conn->spare_next;
        tcp->spare_count--;
    }
    return conn;
}

static struct sl_tcp_conn *tcp_conn_create(struct sl_tcp *tcp, int fd,
                                           const struct sl_transport_events *events, void *ctx)
{
    struct sl_tcp_conn *conn = take_spare(tcp);
    if (conn == NULL) {
        conn = tcp_conn_allocate();
    }
    if (conn == NULL) {
        return NULL;
    }
    tcp_conn_reset(conn, fd);
    sl_conn_init(&conn->base, &tcp->base, events, ctx);
    tcp_conn_link_to(tcp, conn);
    return conn;
}

void sl_tcp_conn_free_spares(struct sl_tcp *tcp)
{
    struct sl_tcp_conn *conn;
    while ((conn = take_spare(tcp)) != NULL) {
        free(conn);
    }
}

void sl_tcp_conn_trim_spares(struct sl_tcp *tcp)
{
    struct sl_tcp_conn **at = &tcp->spare;
    tcp->spares_grew = false;
    while (tcp->spare_count > SL_TCP_SPARES && *at != NULL) {
        struct sl_tcp_conn *conn = *at;
        if (conn->held > 0) {
            at = &conn->spare_next;
        } else {
            *at = conn->spare_next;
            tcp->spare_count--;
            free(conn);
        }
    }
}

static void cancel_all(struct sl_tcp_conn *conn)
{
    if (conn->connecting) {
        sl_ring_cancel(conn->tcp->ring, &conn->connect_op);
    }
    if (conn->receive.flight != SL_TCP_FLIGHT_NONE) {
        sl_ring_cancel(conn->tcp->ring, &conn->receive.op);
    }
    if (conn->send.in_flight) {
        /* A long send waits in a kernel thread for the peer's window. A cancel may only restart it
         * there; the shutdown ends it. */
        (void)shutdown(conn->fd, SHUT_RDWR);
        sl_ring_cancel(conn->tcp->ring, &conn->send.op);
    }
}

void sl_tcp_conn_end(struct sl_tcp_conn *conn, int err)
{
    if (conn->life == SL_TCP_LIFE_ENDING || conn->life == SL_TCP_LIFE_LEAVING) {
        return;
    }
    if (conn->life != SL_TCP_LIFE_DRAINING) {
        conn->end_err = err;
    }
    conn->life = SL_TCP_LIFE_ENDING;
    conn->base.state = SL_CONN_CLOSING;
    stop_timer(conn);
    sl_list_remove(&conn->sending);
    sl_list_remove(&conn->waiting);
    cancel_all(conn);
    if (conn->ops_in_flight == 0) {
        sl_list_append(&conn->tcp->ended, &conn->waiting);
    }
}

void sl_tcp_conn_check(struct sl_tcp_conn *conn)
{
    if (conn->base.failure != 0) {
        sl_conn_log_failure(&conn->base);
        sl_tcp_conn_end(conn, conn->base.failure);
    }
}

void sl_tcp_conn_abort(struct sl_tcp_conn *conn)
{
    sl_tcp_conn_end(conn, SL_ERR_CANCELLED);
    conn->end_err = SL_ERR_CANCELLED;
}

void sl_tcp_conn_finish(struct sl_tcp_conn *conn)
{
    sl_assert(conn->life == SL_TCP_LIFE_ENDING);
    sl_assert(conn->ops_in_flight == 0);
    sl_tcp_receive_drop(conn);
    sl_tcp_tls_destroy(&conn->tls);
    sl_fork_close(conn->fd);
    conn->fd = -1;
    if (!conn->accept_pending) {
        sl_conn_report_closed(&conn->base, conn->end_err);
    }
    unlink_and_spare(conn);
}

/* Connect */

static int connect_err(int error)
{
    switch (error) {
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL:
        return SL_ERR_NOT_FOUND;
    default:
        return sl_err_from_errno(error);
    }
}

static void on_connect(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(op, struct sl_tcp_conn, connect_op);
    conn->connecting = false;
    sl_tcp_op_end(conn);
    if (conn->life != SL_TCP_LIFE_LIVE) {
        return;
    }
    if (result < 0) {
        sl_tcp_conn_end(conn, connect_err(-result));
    } else if (sl_tcp_socket_is_own_peer(conn->fd)) {
        sl_tcp_conn_end(conn, SL_ERR_REFUSED);
    } else {
        if (conn->tls == NULL) {
            sl_conn_report_connected(&conn->base);
        }
        sl_silence_restart(&conn->watch.silence, sl_reactor_now_ns(conn->tcp->base.reactor));
        sl_tcp_conn_advance(conn);
    }
}

static int open_socket(struct sl_tcp *tcp, const struct sl_endpoint *endpoint,
                       struct sockaddr_storage *address, socklen_t *address_bytes, int *out_fd)
{
    struct sl_reason reason;
    int err = sl_endpoint_resolve(endpoint, false, address, address_bytes, &reason);
    if (err != 0) {
        sl_transport_warn(&tcp->base, "cannot connect to %s: %s", endpoint->host, reason.text);
        return err;
    }
    err = sl_tcp_socket_open(tcp, address->ss_family, out_fd);
    if (err == 0 && endpoint->device[0] != '\0' &&
        (err = sl_tcp_socket_bind(*out_fd, endpoint->device)) != 0) {
        sl_transport_warn(&tcp->base, "cannot connect to %s from %s: %s", endpoint->host,
                          endpoint->device, sl_err_name(err));
        close(*out_fd);
    }
    return err;
}

int sl_tcp_conn_connect(struct sl_transport *transport, const struct sl_endpoint *endpoint,
                        uint32_t target, const struct sl_transport_events *events, void *ctx,
                        struct sl_conn **out)
{
    struct sl_tcp *tcp = (struct sl_tcp *)transport;
    struct sockaddr_storage address;
    socklen_t address_bytes;
    int fd;
    int err = open_socket(tcp, endpoint, &address, &address_bytes, &fd);
    if (err != 0) {
        return err;
    }
    struct sl_tcp_conn *conn = tcp_conn_create(tcp, fd, events, ctx);
    if (conn == NULL) {
        close(fd);
        return SL_ERR_NO_MEMORY;
    }
    const char *host = endpoint->name[0] != '\0' ? endpoint->name : endpoint->host;
    if (tcp->tls != NULL && sl_tcp_tls_create(tcp->tls, host, &conn->tls) != 0) {
        close(fd);
        unlink_and_spare(conn);
        return SL_ERR_NO_MEMORY;
    }
    sl_fork_register(fd);
    sl_endpoint_format(endpoint, conn->base.peer, sizeof conn->base.peer);
    conn->address = address;
    conn->connecting = true;
    conn->connect_op.complete = on_connect;
    struct io_uring_sqe *sqe = sl_ring_sqe(tcp->ring, &conn->connect_op);
    io_uring_prep_connect(sqe, fd, (struct sockaddr *)&conn->address, address_bytes);
    sl_tcp_op_begin(conn);
    *out = &conn->base;
    return 0;
}

int sl_tcp_conn_accept(struct sl_tcp *tcp, int fd, const char *peer,
                       const struct sl_transport_events *events, void *ctx)
{
    struct sl_tcp_conn *conn = tcp_conn_create(tcp, fd, events, ctx);
    if (conn == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(conn->base.peer, peer, sizeof conn->base.peer);
    if (tcp->tls == NULL) {
        sl_conn_report_accepted(&conn->base);
    } else {
        conn->accept_pending = true;
        if (sl_tcp_tls_create(tcp->tls, NULL, &conn->tls) != 0) {
            sl_tcp_conn_end(conn, SL_ERR_NO_MEMORY);
            return 0;
        }
    }
    sl_tcp_conn_advance(conn);
    return 0;
}

/* Disconnect */

void sl_tcp_conn_disconnect(struct sl_conn *base)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    if (base->state == SL_CONN_CLOSING && !base->is_abrupt) {
        return;
    }
    if (base->state == SL_CONN_CONNECTING || base->is_abrupt) {
        sl_tcp_conn_end(conn, SL_OK);
        return;
    }
    base->state = SL_CONN_CLOSING;
    conn->life = SL_TCP_LIFE_DRAINING;
    if (conn->send.write == SL_TCP_WRITE_BROKEN) {
        sl_tcp_conn_end(conn, SL_OK);
        return;
    }
    start_timer(conn);
    /* This may be an upcall of the connection's own receive: received data is dropped after it, or
     * in the next poll. */
    sl_list_append(&conn->tcp->pending, &conn->waiting);
}

/* DRAINING: takes the next step of closing, if nothing is in flight for it. */
static void tcp_conn_drain(struct sl_tcp_conn *conn)
{
    if (conn->life != SL_TCP_LIFE_DRAINING || !sl_tcp_send_idle(conn)) {
        return;
    }
    if (conn->tls != NULL && conn->tls->state != SL_TCP_TLS_SHAKING && !conn->tls->notified &&
        conn->receive.input != SL_TCP_INPUT_ENDED) {
        sl_tcp_tls_notify(conn->tls);
        sl_tcp_send_tls_output(conn);
        return;
    }
    if (conn->receive.input == SL_TCP_INPUT_ENDED) {
        sl_tcp_conn_end(conn, SL_OK);
    } else if (conn->send.write != SL_TCP_WRITE_SHUT) {
        conn->send.write = SL_TCP_WRITE_SHUT;
        (void)shutdown(conn->fd, SHUT_WR); /* if the peer is gone, the receive fails */
    }
}

/* Migration */

int sl_tcp_conn_migrate(struct sl_conn *base, struct sl_transport *to,
                        const struct sl_transport_events *events, void *ctx, void *user)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    sl_assert(conn->life == SL_TCP_LIFE_LIVE);
    /* TLS's own messages may be queued or in flight. */
    sl_assert(conn->tls != NULL ? conn->send.run_head == conn->send.run_tail
                                : sl_tcp_send_idle(conn));
    struct sl_tcp_conn *moved = tcp_conn_allocate();
    if (moved == NULL) {
        sl_tcp_conn_end(conn, SL_ERR_NO_MEMORY);
        return SL_ERR_NO_MEMORY;
    }
    tcp_conn_reset(moved, conn->fd);
    sl_conn_init(&moved->base, to, events, ctx);
    moved->base.user = user;
    moved->receive.low_bytes = conn->receive.low_bytes; /* the socket keeps the setting */
    memcpy(moved->base.peer, base->peer, sizeof moved->base.peer);
    conn->moved = moved;
    conn->bound_for = to->reactor; /* may outlive its transport */
    conn->life = SL_TCP_LIFE_LEAVING;
    base->state = SL_CONN_CLOSED;
    stop_timer(conn);
    sl_list_remove(&conn->waiting);
    return 0; /* the receive that made the upcall continues */
}

/* Copies all unparsed data into one block; *out is NULL if there is none. */
static int collect(struct sl_tcp_conn *conn, struct sl_tcp_rx_buf **out)
{
    uint32_t bytes = conn->receive.header_have;
    for (struct sl_tcp_rx_buf *rx_buf = conn->receive.first; rx_buf != NULL;
         rx_buf = rx_buf->next) {
        bytes += rx_buf->left;
    }
    *out = NULL;
    if (bytes == 0) {
        return 0;
    }
    uint8_t *to;
    *out = sl_tcp_buffers_heap(bytes, &to);
    if (*out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memcpy(to, conn->receive.header, conn->receive.header_have);
    to += conn->receive.header_have;
    for (struct sl_tcp_rx_buf *rx_buf = conn->receive.first; rx_buf != NULL;
         rx_buf = rx_buf->next) {
        memcpy(to, rx_buf->at, rx_buf->left);
        to += rx_buf->left;
    }
    sl_cell_add(&conn->tcp->base.cells->copied_bytes, bytes);
    return 0;
}

/* Reuses a spare if there is one. Else a reactor that only receives migrated connections would
 * collect the memory of all of them. */
static struct sl_tcp_conn *settle(struct sl_tcp *tcp, struct sl_tcp_conn *moved)
{
    struct sl_tcp_conn *conn = take_spare(tcp);
    if (conn == NULL) {
        return moved;
    }
    tcp_conn_reset(conn, moved->fd);
    conn->base = moved->base;
    conn->tls = moved->tls;
    conn->receive.first = moved->receive.first;
    conn->receive.last = moved->receive.last;
    conn->receive.low_bytes = moved->receive.low_bytes;
    free(moved);
    return conn;
}

/* Runs on the target reactor. */
static void tcp_conn_arrive(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_tcp_conn *moved = ctx;
    struct sl_tcp *tcp = (struct sl_tcp *)moved->base.transport;
    struct sl_tcp_conn *conn = settle(tcp, moved);
    tcp_conn_link_to(tcp, conn);
    sl_list_append(&tcp->pending, &conn->waiting);
    sl_tcp_send_tls_output(conn);
}

/* The target reactor has stopped. */
static void tcp_conn_drop(void *ctx)
{
    struct sl_tcp_conn *moved = ctx;
    sl_fork_close(moved->fd);
    sl_tcp_tls_destroy(&moved->tls);
    free(moved->receive.first); /* one heap block, or NULL */
    free(moved);
}

/* Moves the connection to its reactor when no operation is in flight. */
static void tcp_conn_depart(struct sl_tcp_conn *conn)
{
    if (conn->send.in_flight || conn->receive.flight != SL_TCP_FLIGHT_NONE) {
        return;
    }
    struct sl_tcp_conn *moved = conn->moved;
    struct sl_reactor *from = conn->tcp->base.reactor;
    struct sl_reactor *to = conn->bound_for;
    /* Without memory for the unparsed data the stream would have a gap: close it for the peer and
     * the new owner. */
    if (collect(conn, &moved->receive.first) != 0) {
        (void)shutdown(conn->fd, SHUT_RDWR);
    }
    moved->receive.last = moved->receive.first;
    moved->tls = conn->tls;
    conn->tls = NULL;
    sl_tcp_receive_drop(conn);
    unlink_and_spare(conn);
    if (from == to) {
        tcp_conn_arrive(moved, 0, 0);
    } else {
        sl_reactor_post(
            from, sl_reactor_index(to),
            (struct sl_mail){.run = tcp_conn_arrive, .ctx = moved, .drop = tcp_conn_drop});
    }
}

/* Handshake of TLS */

/* Sends the alert to the peer; then `closed` follows with REFUSED. */
static void refuse(struct sl_tcp_conn *conn, const char *reason)
{
    sl_transport_warn(&conn->tcp->base, "%s: no TLS connection, since %s", conn->base.peer, reason);
    if (conn->send.write == SL_TCP_WRITE_BROKEN) {
        sl_tcp_conn_end(conn, SL_ERR_REFUSED);
        return;
    }
    conn->base.state = SL_CONN_CLOSING;
    conn->life = SL_TCP_LIFE_DRAINING;
    conn->end_err = SL_ERR_REFUSED;
    start_timer(conn);
}

static void shake(struct sl_tcp_conn *conn)
{
    int err = sl_tcp_tls_shake(conn->tls);
    if (err == SL_ERR_AGAIN && conn->receive.input == SL_TCP_INPUT_ENDED) {
        refuse(conn, "it closed the connection in the handshake: is TLS on at both ends?");
    } else if (err == SL_ERR_AGAIN) {
        conn->receive.input = SL_TCP_INPUT_DRY;
    } else if (err != 0) {
        refuse(conn, conn->tls->reason);
    } else if (conn->accept_pending) {
        conn->accept_pending = false;
        sl_conn_report_accepted(&conn->base);
    } else {
        sl_conn_report_connected(&conn->base);
    }
}

/* Receiving */

/* The error of an ended stream. The kernel reports a timeout once only, possibly to a send that was
 * cut short and returned its byte count instead. */
static int stream_end_err(const struct sl_tcp_conn *conn)
{
    struct sl_tcp_progress progress;
    if (conn->tls != NULL && conn->tls->state == SL_TCP_TLS_ENDED) {
        return SL_ERR_CLOSED;
    }
    if (sl_tcp_socket_progress(conn->fd, &progress) && progress.over &&
        progress.since_ack_ms >= conn->tcp->base.peer_timeout_ms) {
        return SL_ERR_DEADLINE;
    }
    return conn->tls != NULL ? SL_ERR_IO : SL_ERR_CLOSED;
}

void sl_tcp_conn_advance(struct sl_tcp_conn *conn)
{
    const struct sl_tcp_receive *receive = &conn->receive;
    sl_tcp_conn_check(conn);
    if (conn->tls != NULL && conn->tls->state == SL_TCP_TLS_SHAKING &&
        conn->life == SL_TCP_LIFE_LIVE) {
        shake(conn);
    }
    sl_tcp_receive_parse(conn);
    sl_tcp_conn_check(conn);
    if (conn->life == SL_TCP_LIFE_DRAINING) {
        sl_tcp_receive_drop(conn);
        tcp_conn_drain(conn);
    }
    if (conn->life == SL_TCP_LIFE_ENDING) {
        return;
    }
    sl_tcp_send_tls_output(conn);
    if (receive->flight != SL_TCP_FLIGHT_NONE || receive->wait_memory) {
        sl_tcp_receive_start(conn);
    } else if (conn->life == SL_TCP_LIFE_LEAVING) {
        tcp_conn_depart(conn);
    } else if (receive->input != SL_TCP_INPUT_ENDED) {
        sl_tcp_receive_start(conn);
    } else if (conn->life == SL_TCP_LIFE_LIVE) {
        sl_tcp_conn_end(conn, stream_end_err(conn));
    }
}

static void on_receive(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(op, struct sl_tcp_conn, receive.op);
    sl_tcp_receive_complete(conn, result, cqe_flags);
    if (conn->life != SL_TCP_LIFE_ENDING) {
        sl_tcp_conn_advance(conn);
    }
}

/* Called by poll. */
void sl_tcp_conn_resume(struct sl_tcp_conn *conn)
{
    if (conn->base.state == SL_CONN_CONNECTING) {
        sl_conn_report_accepted(&conn->base); /* it migrated here */
    }
    sl_tcp_conn_advance(conn);
}

/* Sending */

void sl_tcp_conn_send(struct sl_tcp_conn *conn)
{
    sl_tcp_send_start(conn);
    sl_tcp_conn_check(conn);
}

/* Reads what the peer sent before for at most DRAIN_NS; then the connection ends with CLOSED, or OK
 * after disconnect. */
static void send_failed(struct sl_tcp_conn *conn, int error)
{
    if (sl_tcp_socket_err(error) == SL_ERR_DEADLINE) {
        sl_tcp_conn_end(conn, SL_ERR_DEADLINE); /* the receive will not report it */
        return;
    }
    conn->send.write = SL_TCP_WRITE_BROKEN;
    sl_list_remove(&conn->sending);
    if (conn->life == SL_TCP_LIFE_DRAINING || conn->receive.input == SL_TCP_INPUT_ENDED) {
        sl_tcp_conn_end(conn, SL_ERR_CLOSED);
    } else if (conn->life == SL_TCP_LIFE_LIVE) {
        start_timer(conn);
    }
}

static void tcp_conn_on_sent(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(op, struct sl_tcp_conn, send.op);
    conn->send.in_flight = false;
    sl_tcp_op_end(conn);
    if (conn->life == SL_TCP_LIFE_ENDING) {
        return;
    }
    if (result < 0 && result != -EINTR && result != -EAGAIN) {
        send_failed(conn, -result);
        if (conn->life != SL_TCP_LIFE_LEAVING) {
            return; /* LEAVING: the new reactor will notice */
        }
    }
    sl_tcp_send_complete(conn, result > 0 ? (uint32_t)result : 0);
    if (conn->life == SL_TCP_LIFE_LEAVING) {
        tcp_conn_depart(conn);
    } else {
        tcp_conn_drain(conn);
    }
}
