#include "net/tcp/internal.h"

#include <errno.h>

#include "core/assert.h"

static_assert((SL_TCP_SEND_FRAMES & (SL_TCP_SEND_FRAMES - 1)) == 0, "a power of two");

static uint32_t room(const struct sl_tcp_send *send)
{
    return SL_TCP_SEND_FRAMES - (send->tail - send->head);
}

uint32_t sl_tcp_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    struct sl_tcp_send *send = &conn->send;
    if (base->state != SL_CONN_OPEN || send->broken) {
        return 0;
    }
    uint32_t taken = count < room(send) ? count : room(send);
    for (uint32_t i = 0; i < taken; i++) {
        *sl_tcp_send_frame_at(send, send->tail + i) = frames[i];
    }
    send->tail += taken;
    if (taken < count) {
        send->wants_room = true;
    }
    if (taken > 0 && !send->in_flight && !sl_tcp_list_linked(&conn->sending)) {
        sl_tcp_list_append(&conn->tcp->sending, &conn->sending);
    }
    return taken;
}

/* The pieces of a send, merged where one ends as the next begins. */
struct gathering {
    struct iovec *pieces;
    size_t count;
    size_t bytes;
    uint64_t skip; /* of what is added next: it was sent before */
};

static void add_piece(struct gathering *gathering, const void *base, uint32_t bytes)
{
    if (gathering->skip >= bytes) {
        gathering->skip -= bytes;
        return;
    }
    const char *from = (const char *)base + gathering->skip;
    size_t left = bytes - gathering->skip;
    gathering->skip = 0;
    gathering->bytes += left;
    struct iovec *last = gathering->count > 0 ? &gathering->pieces[gathering->count - 1] : NULL;
    if (last != NULL && (const char *)last->iov_base + last->iov_len == from) {
        last->iov_len += left;
        return;
    }
    gathering->pieces[gathering->count].iov_base = (void *)(uintptr_t)from;
    gathering->pieces[gathering->count].iov_len = left;
    gathering->count++;
}

static void gather(struct sl_tcp_send *send, struct gathering *out)
{
    *out = (struct gathering){.pieces = send->pieces, .skip = send->offset};
    for (uint32_t i = send->head; i != send->tail; i++) {
        if (out->count + 2 > SL_TCP_SEND_PIECES || out->bytes >= SL_TCP_SEND_BYTES) {
            break;
        }
        const struct sl_transport_frame *frame = sl_tcp_send_frame_at(send, i);
        add_piece(out, frame->head, frame->head_bytes);
        add_piece(out, frame->payload, frame->payload_bytes);
    }
}

/* Takes the frames that are sent whole out of the queue, and says so. The upcall may queue more,
 * and may end the connection: then nothing more is said. */
static void complete_frames(struct sl_tcp_conn *conn, uint32_t sent_bytes)
{
    struct sl_tcp_send *send = &conn->send;
    send->offset += sent_bytes;
    conn->tcp->stats.bytes_sent += sent_bytes;
    while (send->head != send->tail && conn->life != SL_TCP_ENDING) {
        const struct sl_transport_frame *frame = sl_tcp_send_frame_at(send, send->head);
        uint64_t frame_bytes = (uint64_t)frame->head_bytes + frame->payload_bytes;
        if (send->offset < frame_bytes) {
            break;
        }
        void *cookie = frame->cookie;
        send->offset -= frame_bytes;
        send->head++;
        conn->tcp->stats.frames_sent++;
        sl_conn_report_sent(&conn->base, cookie);
    }
}

void sl_tcp_send_advance(struct sl_tcp_conn *conn, uint32_t bytes)
{
    struct sl_tcp_send *send = &conn->send;
    complete_frames(conn, bytes);
    if (conn->life == SL_TCP_ENDING) {
        return;
    }
    if (send->head != send->tail) {
        sl_tcp_list_append(&conn->tcp->sending, &conn->sending);
    } else {
        send->head = send->tail = 0; /* the same few entries stay in the cache */
    }
    if (conn->tls != NULL) {
        sl_tcp_secure_queue(conn);
    }
    if (send->wants_room && conn->base.state == SL_CONN_OPEN && room(send) > 0) {
        send->wants_room = false;
        sl_conn_report_writable(&conn->base);
    }
    sl_tcp_conn_drain(conn);
}

bool sl_tcp_send_complete(struct sl_tcp_conn *conn, int32_t result)
{
    conn->send.in_flight = false;
    sl_tcp_conn_op_end(conn);
    if (conn->life == SL_TCP_ENDING) {
        return false;
    }
    if (result >= 0 || result == -EINTR || result == -EAGAIN) {
        return true;
    }
    int err = sl_tcp_socket_err(-result);
    if (err == SL_ERR_DEADLINE) {
        sl_tcp_conn_end(conn, err); /* the receive will not say it again */
    } else {
        sl_tcp_conn_send_broke(conn);
    }
    return conn->life == SL_TCP_LEAVING; /* its new reactor will find out */
}

static void on_sent(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    (void)cqe_flags;
    struct sl_tcp_conn *conn =
        (struct sl_tcp_conn *)((char *)op - offsetof(struct sl_tcp_conn, send.op));
    if (sl_tcp_send_complete(conn, result)) {
        sl_tcp_send_advance(conn, result > 0 ? (uint32_t)result : 0);
    }
}

struct io_uring_sqe *sl_tcp_send_begin(struct sl_tcp_conn *conn)
{
    sl_assert(!conn->send.in_flight);
    conn->send.in_flight = conn->send.in_doubt = true;
    sl_tcp_conn_op_begin(conn);
    conn->tcp->stats.send_calls++;
    return sl_ring_sqe(conn->tcp->ring, &conn->send.op);
}

void sl_tcp_send_start(struct sl_tcp_conn *conn)
{
    if (conn->tls != NULL) {
        sl_tcp_secure_send(conn);
        return;
    }
    struct sl_tcp_send *send = &conn->send;
    struct gathering gathering;
    gather(send, &gathering);
    int flags = MSG_NOSIGNAL | sl_tcp_wait_all(conn->tcp);
    send->op.complete = on_sent;
    struct io_uring_sqe *sqe = sl_tcp_send_begin(conn);
    if (gathering.count == 1) {
        io_uring_prep_send(sqe, conn->fd, send->pieces[0].iov_base, send->pieces[0].iov_len, flags);
    } else {
        send->message = (struct msghdr){.msg_iov = send->pieces, .msg_iovlen = gathering.count};
        io_uring_prep_sendmsg(sqe, conn->fd, &send->message, (unsigned)flags);
    }
}
