#include "net/tcp/send.h"

static_assert((SL_TCP_SEND_RUNS & (SL_TCP_SEND_RUNS - 1)) == 0, "a power of two");
static_assert((SL_TCP_SEND_PIECES & (SL_TCP_SEND_PIECES - 1)) == 0, "a power of two");

/* Queue */

static struct iovec *piece_at(struct sl_tcp_send *send, uint32_t index)
{
    return &send->pieces[index & (SL_TCP_SEND_PIECES - 1)];
}

static bool tcp_send_has_room(const struct sl_tcp_send *send)
{
    return send->run_tail - send->run_head < SL_TCP_SEND_RUNS &&
           send->piece_tail - send->piece_head <= SL_TCP_SEND_PIECES - 2;
}

static struct sl_tcp_run *run_at(struct sl_tcp_send *send, uint32_t index)
{
    return &send->runs[index & (SL_TCP_SEND_RUNS - 1)];
}

/* Extends the last piece if it is adjacent, also while that is being sent: the new bytes go out
 * with the next send. */
static inline void add_piece(struct sl_tcp_send *send, const void *base, uint32_t bytes)
{
    if (send->piece_tail != send->piece_head) {
        struct iovec *last = piece_at(send, send->piece_tail - 1);
        if ((const char *)last->iov_base + last->iov_len == base) {
            last->iov_len += bytes;
            return;
        }
    }
    struct iovec *piece = piece_at(send, send->piece_tail++);
    piece->iov_base = (void *)(uintptr_t)base;
    piece->iov_len = bytes;
}

static void add_frame(struct sl_tcp_send *send, const struct sl_transport_frame *frame)
{
    add_piece(send, frame->head, frame->head_bytes);
    if (__builtin_expect(frame->payload_bytes > 0, 0)) {
        add_piece(send, frame->payload, frame->payload_bytes);
    }
    uint32_t bytes = frame->head_bytes + frame->payload_bytes;
    if (frame->cookie == SL_TRANSPORT_COALESCED) {
        sl_assert(send->run_tail != send->run_head);
        struct sl_tcp_run *run = run_at(send, send->run_tail - 1);
        sl_assert(bytes <= UINT32_MAX - run->bytes);
        run->bytes += bytes;
        run->frames++;
    } else {
        *run_at(send, send->run_tail++) =
            (struct sl_tcp_run){.cookie = frame->cookie, .bytes = bytes, .frames = 1};
    }
}

uint32_t sl_tcp_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    struct sl_tcp_send *send = &conn->send;
    if (base->state != SL_CONN_OPEN || send->write == SL_TCP_WRITE_BROKEN) {
        return 0;
    }
    uint32_t taken = 0;
    while (taken < count && tcp_send_has_room(send)) {
        add_frame(send, &frames[taken]);
        taken++;
    }
    if (taken < count) {
        send->wants_room = true;
    }
    if (taken > 0 && !send->in_flight && !sl_list_linked(&conn->sending)) {
        sl_list_append(&conn->tcp->sending, &conn->sending);
    }
    return taken;
}

/* Sent frames */

static void drop_pieces(struct sl_tcp_send *send, size_t bytes)
{
    while (bytes > 0) {
        struct iovec *piece = piece_at(send, send->piece_head);
        if (bytes < piece->iov_len) {
            piece->iov_base = (char *)piece->iov_base + bytes;
            piece->iov_len -= bytes;
            return;
        }
        bytes -= piece->iov_len;
        send->piece_head++;
    }
}

/* Removes and reports the runs that are sent. The upcall may queue more, or end the connection,
 * which stops the reports. */
static void complete_runs(struct sl_tcp_conn *conn)
{
    struct sl_tcp_send *send = &conn->send;
    while (send->run_head != send->run_tail && conn->life != SL_TCP_LIFE_ENDING) {
        const struct sl_tcp_run *run = run_at(send, send->run_head);
        if (send->run_sent < run->bytes) {
            break;
        }
        void *cookie = run->cookie;
        send->run_sent -= run->bytes;
        send->run_head++;
        sl_cell_add(&conn->tcp->base.cells->frames_sent, run->frames);
        sl_conn_report_sent(&conn->base, cookie);
    }
}

/* With TLS, frames count as sent when all output is: then it is known which frames that was. */
static uint32_t sent_frame_bytes(struct sl_tcp_tls *tls, uint32_t bytes)
{
    sl_tcp_tls_take_output(tls, bytes);
    const uint32_t sealed = sl_tcp_tls_output_bytes(tls) == 0 ? tls->sealed : 0;
    tls->sealed -= sealed;
    return sealed;
}

void sl_tcp_send_complete(struct sl_tcp_conn *conn, uint32_t bytes)
{
    struct sl_tcp_send *send = &conn->send;
    if (conn->tls != NULL) {
        bytes = sent_frame_bytes(conn->tls, bytes);
    }
    if (conn->life == SL_TCP_LIFE_LEAVING) {
        return;
    }
    sl_cell_add(&conn->tcp->base.cells->bytes_sent, bytes);
    drop_pieces(send, bytes);
    send->run_sent += bytes;
    complete_runs(conn);
    if (conn->life == SL_TCP_LIFE_ENDING) {
        return;
    }
    if (send->piece_head != send->piece_tail) {
        sl_list_append(&conn->tcp->sending, &conn->sending);
    } else { /* reuse the same entries, which are in the cache */
        send->piece_head = send->piece_tail = 0;
        send->run_head = send->run_tail = 0;
    }
    sl_tcp_send_tls_output(conn);
    if (send->wants_room && conn->base.state == SL_CONN_OPEN && tcp_send_has_room(send)) {
        send->wants_room = false;
        sl_conn_report_writable(&conn->base);
    }
}

/* Sends */

static struct io_uring_sqe *tcp_send_begin(struct sl_tcp_conn *conn)
{
    sl_assert(!conn->send.in_flight);
    conn->send.in_flight = conn->send.in_doubt = true;
    sl_tcp_op_begin(conn);
    sl_cell_add(&conn->tcp->base.cells->send_calls, 1);
    return sl_ring_sqe(conn->tcp->ring, &conn->send.op);
}

void sl_tcp_send_tls_output(struct sl_tcp_conn *conn)
{
    if (conn->tls != NULL && sl_tcp_tls_output_bytes(conn->tls) > 0 && !conn->send.in_flight &&
        !sl_list_linked(&conn->sending)) {
        sl_list_append(&conn->tcp->sending, &conn->sending);
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Limits a call to at most `bytes`. */
static struct msghdr cut(struct sl_tcp_send *send, struct msghdr call, size_t bytes)
{
    size_t whole = 0;
    while (call.msg_iov[whole].iov_len <= bytes) {
        bytes -= call.msg_iov[whole].iov_len;
        whole++;
    }
    if (whole > 1) {
        call.msg_iovlen = whole;
        return call;
    }
    send->cut[0] = call.msg_iov[0];
    send->cut[whole] = call.msg_iov[whole];
    send->cut[whole].iov_len = bytes;
    return (struct msghdr){.msg_iov = send->cut, .msg_iovlen = whole + 1};
}

/* Collects the pieces for one call; the last may be cut. */
static struct msghdr gather(struct sl_tcp_conn *conn)
{
    struct sl_tcp_send *send = &conn->send;
    uint32_t first = send->piece_head & (SL_TCP_SEND_PIECES - 1);
    uint32_t count_max = send->piece_tail - send->piece_head;
    count_max = least(count_max, least(SL_TCP_SEND_PIECES - first, SL_TCP_CALL_PIECES));
    struct msghdr call = {.msg_iov = &send->pieces[first]};
    size_t bytes = 0;
    while (call.msg_iovlen < count_max && bytes < SL_TCP_CALL_BYTES) {
        bytes += call.msg_iov[call.msg_iovlen].iov_len;
        call.msg_iovlen++;
    }
    size_t allowed = sl_tcp_slice(conn, bytes);
    return allowed < bytes ? cut(send, call, allowed) : call;
}

/* Encrypts as much of the queue as fits. The pieces stay queued until they are sent. */
static int seal_pieces(struct sl_tcp_conn *conn)
{
    struct sl_tcp_send *send = &conn->send;
    uint32_t room = sl_tcp_tls_room(conn->tls);
    int err = 0;
    for (uint32_t i = send->piece_head; i != send->piece_tail && err == 0 && room > 0; i++) {
        const struct iovec *piece = piece_at(send, i);
        uint32_t bytes = piece->iov_len < room ? (uint32_t)piece->iov_len : room;
        err = sl_tcp_tls_write(conn->tls, piece->iov_base, bytes);
        room -= bytes;
    }
    return err == 0 ? sl_tcp_tls_flush(conn->tls) : err;
}

/* Encrypts more only when all output is sent. */
static void send_encrypted(struct sl_tcp_conn *conn, int flags)
{
    struct sl_tcp_tls *tls = conn->tls;
    int err = tls->sealed == 0 ? seal_pieces(conn) : 0;
    uint32_t bytes = sl_tcp_tls_output_bytes(tls);
    if (err != 0) {
        sl_conn_fail(&conn->base, err, tls->reason);
    } else if (bytes > 0) {
        io_uring_prep_send(tcp_send_begin(conn), conn->fd, tls->out + tls->out_at, bytes, flags);
    }
}

void sl_tcp_send_start(struct sl_tcp_conn *conn)
{
    const int flags = MSG_NOSIGNAL | sl_tcp_wait_all(conn->tcp);
    if (conn->tls != NULL) {
        send_encrypted(conn, flags);
        return;
    }
    struct sl_tcp_send *send = &conn->send;
    struct msghdr call = gather(conn);
    struct io_uring_sqe *sqe = tcp_send_begin(conn);
    if (call.msg_iovlen == 1) {
        io_uring_prep_send(sqe, conn->fd, call.msg_iov->iov_base, call.msg_iov->iov_len, flags);
    } else {
        send->message = call;
        io_uring_prep_sendmsg(sqe, conn->fd, &send->message, (unsigned)flags);
    }
}

/* A call without waiting, since the kernel must not read the parts later. An error is left to the
 * next send of the queue. */
uint32_t sl_tcp_send_now(struct sl_conn *base, const struct iovec *parts, uint32_t count)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    struct sl_tcp_send *send = &conn->send;
    if (base->state != SL_CONN_OPEN || send->write == SL_TCP_WRITE_BROKEN ||
        !sl_tcp_send_idle(conn)) {
        return 0;
    }
    struct msghdr call = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += parts[i].iov_len;
    }
    const size_t allowed = sl_tcp_slice(conn, bytes);
    call = allowed < bytes ? cut(send, call, allowed) : call;
    const ssize_t sent = sendmsg(conn->fd, &call, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) {
        return 0;
    }
    send->in_doubt = true;
    struct sl_transport_cells *cells = conn->tcp->base.cells;
    sl_cell_add(&cells->send_calls, 1);
    sl_cell_add(&cells->frames_sent, 1);
    sl_cell_add(&cells->bytes_sent, (uint64_t)sent);
    return (uint32_t)sent;
}
