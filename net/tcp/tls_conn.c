#include <errno.h>

#include "core/assert.h"
#include "core/list.h"
#include "core/log.h"
#include "net/tcp/internal.h"

/* Handshake */

int sl_tcp_tls_conn_begin(struct sl_tcp_conn *conn, const char *host)
{
    return sl_tcp_tls_create(conn->tcp->tls, host, &conn->tls);
}

static void refuse(struct sl_tcp_conn *conn, const char *reason)
{
    if (sl_tcp_may_log(conn->tcp)) {
        sl_log_warn("%s: no TLS connection, since %s", conn->base.peer, reason);
    }
    sl_tcp_conn_refuse(conn);
}

void sl_tcp_tls_conn_shake(struct sl_tcp_conn *conn)
{
    int err = sl_tcp_tls_shake(conn->tls);
    if (err == SL_ERR_AGAIN && conn->receive.eof) {
        refuse(conn, "it closed the connection in the handshake: is TLS on at both ends?");
    } else if (err == SL_ERR_AGAIN) {
        conn->receive.dry = true;
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

uint32_t sl_tcp_tls_conn_take(struct sl_tcp_conn *conn, uint8_t *to, uint32_t wanted)
{
    uint32_t bytes;
    int err = sl_tcp_tls_read(conn->tls, to, wanted, &bytes);
    if (err == 0) {
        conn->tcp->stats.bytes_received += bytes;
        return bytes;
    }
    conn->receive.dry = true;
    if (err == SL_ERR_CLOSED) {
        conn->receive.eof = true;
    } else if (err != SL_ERR_AGAIN) {
        if (sl_tcp_may_log(conn->tcp)) {
            sl_log_warn("%s: closed, since %s", conn->base.peer, conn->tls->reason);
        }
        sl_tcp_conn_end(conn, err);
    }
    return 0;
}

static void on_input(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    (void)cqe_flags;
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(op, struct sl_tcp_conn, receive.op);
    sl_tcp_receive_complete(conn, result);
    if (result > 0 && (conn->phase == SL_TCP_LIVE || conn->phase == SL_TCP_LEAVING)) {
        sl_tcp_tls_add_input(conn->tls, (uint32_t)result);
        conn->receive.dry = false;
    }
    if (conn->phase != SL_TCP_ENDING) {
        sl_tcp_receive_advance(conn);
    }
}

void sl_tcp_tls_conn_receive(struct sl_tcp_conn *conn)
{
    conn->receive.op.complete = on_input;
    conn->receive.direct = conn->receive.multishot = false;
    io_uring_prep_recv(sl_tcp_receive_begin(conn), conn->fd, sl_tcp_tls_input(conn->tls),
                       SL_TCP_TLS_INPUT_BYTES, 0);
}

/* Sending */

void sl_tcp_tls_conn_queue(struct sl_tcp_conn *conn)
{
    if (sl_tcp_tls_output_bytes(conn->tls) > 0 && !conn->send.in_flight &&
        !sl_list_linked(&conn->sending)) {
        sl_list_append(&conn->tcp->sending, &conn->sending);
    }
}

/* Encrypts as much of the queue as fits. The pieces stay queued until they are sent. */
static int seal_pieces(struct sl_tcp_conn *conn)
{
    struct sl_tcp_send *send = &conn->send;
    uint32_t room = sl_tcp_tls_room(conn->tls);
    int err = 0;
    for (uint32_t i = send->piece_head; i != send->piece_tail && err == 0 && room > 0; i++) {
        const struct iovec *piece = sl_tcp_send_piece_at(send, i);
        uint32_t bytes = piece->iov_len < room ? (uint32_t)piece->iov_len : room;
        err = sl_tcp_tls_write(conn->tls, piece->iov_base, bytes);
        room -= bytes;
    }
    return err == 0 ? sl_tcp_tls_flush(conn->tls) : err;
}

static void on_output(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    (void)cqe_flags;
    struct sl_tcp_conn *conn = SL_CONTAINER_OF(op, struct sl_tcp_conn, send.op);
    if (!sl_tcp_send_complete(conn, result)) {
        return;
    }
    struct sl_tcp_tls *tls = conn->tls;
    if (result > 0) {
        sl_tcp_tls_take_output(tls, (uint32_t)result);
    }
    if (conn->phase == SL_TCP_LEAVING) {
        if (!conn->receive.in_flight) {
            sl_tcp_conn_depart(conn);
        }
        return;
    }
    uint32_t sealed = 0;
    if (sl_tcp_tls_output_bytes(tls) == 0) {
        sealed = tls->sealed;
        tls->sealed = 0;
    }
    sl_tcp_send_advance(conn, sealed);
}

/* Encrypts more only when all output is sent: then it is known which frames that was. */
void sl_tcp_tls_conn_send(struct sl_tcp_conn *conn)
{
    struct sl_tcp_tls *tls = conn->tls;
    int err = tls->sealed == 0 ? seal_pieces(conn) : 0;
    if (err != 0) {
        if (sl_tcp_may_log(conn->tcp)) {
            sl_log_warn("%s: closed, since %s", conn->base.peer, tls->reason);
        }
        sl_tcp_conn_end(conn, err);
        return;
    }
    uint32_t bytes = sl_tcp_tls_output_bytes(tls);
    if (bytes == 0) {
        return;
    }
    conn->send.op.complete = on_output;
    io_uring_prep_send(sl_tcp_send_begin(conn), conn->fd, tls->out + tls->out_at, bytes,
                       MSG_NOSIGNAL | sl_tcp_wait_all(conn->tcp));
}
