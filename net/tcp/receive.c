#include "net/tcp/receive.h"

#include <errno.h>
#include <string.h>

#include "net/tcp/socket.h"

/* Queue of received bytes */

static void push_rx_buf(struct sl_tcp_receive *receive, struct sl_tcp_rx_buf *rx_buf)
{
    rx_buf->next = NULL;
    if (receive->last != NULL) {
        receive->last->next = rx_buf;
    } else {
        receive->first = rx_buf;
    }
    receive->last = rx_buf;
}

static void pop_rx_buf(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    struct sl_tcp_rx_buf *rx_buf = receive->first;
    receive->first = rx_buf->next;
    if (receive->first == NULL) {
        receive->last = NULL;
    }
    sl_tcp_buffers_put(&conn->tcp->buffers, rx_buf);
}

static void tcp_receive_consume(struct sl_tcp_conn *conn, uint32_t bytes)
{
    struct sl_tcp_rx_buf *rx_buf = conn->receive.first;
    rx_buf->at += bytes;
    rx_buf->left -= bytes;
    if (rx_buf->left == 0) {
        pop_rx_buf(conn);
    }
}

/* Returns up to `wanted` decrypted bytes; 0 if more input is needed, or at the end. */
static uint32_t take_decrypted(struct sl_tcp_conn *conn, uint8_t *to, uint32_t wanted)
{
    uint32_t bytes;
    int err = sl_tcp_tls_read(conn->tls, to, wanted, &bytes);
    if (err == 0) {
        sl_cell_add(&conn->tcp->base.cells->bytes_received, bytes);
        return bytes;
    }
    conn->receive.input = err == SL_ERR_CLOSED ? SL_TCP_INPUT_ENDED : SL_TCP_INPUT_DRY;
    if (err != SL_ERR_CLOSED && err != SL_ERR_AGAIN) {
        sl_conn_fail(&conn->base, err, conn->tls->reason);
    }
    return 0;
}

/* Moves up to `wanted` received bytes to `to`; returns the number. */
static uint32_t tcp_receive_take(struct sl_tcp_conn *conn, uint8_t *to, uint32_t wanted)
{
    if (conn->tls != NULL) {
        return take_decrypted(conn, to, wanted);
    }
    struct sl_tcp_rx_buf *rx_buf = conn->receive.first;
    uint32_t bytes = rx_buf->left < wanted ? rx_buf->left : wanted;
    memcpy(to, rx_buf->at, bytes);
    sl_cell_add(&conn->tcp->base.cells->copied_bytes, bytes);
    tcp_receive_consume(conn, bytes);
    return bytes;
}

/* Without memory from the upper layer, or without a buffer, this side delays the peer. */
bool sl_tcp_receive_owed(const struct sl_tcp_conn *conn)
{
    const struct sl_tcp_receive *receive = &conn->receive;
    bool begun = receive->phase != SL_TCP_PHASE_HEADER || receive->header_have > 0;
    if (!begun && conn->tls != NULL) {
        begun = sl_tcp_tls_has_part(conn->tls);
    }
    /* A receive from before memory ran short may still be completing. */
    return begun && receive->flight != SL_TCP_FLIGHT_NONE && !receive->wait_memory;
}

void sl_tcp_receive_drop(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    while (receive->first != NULL) {
        pop_rx_buf(conn);
    }
    if (receive->staging != NULL) {
        sl_tcp_buffers_put(&conn->tcp->buffers, &receive->staging->rx_buf);
        receive->staging = NULL;
    }
    if (conn->tls != NULL) {
        sl_tcp_tls_discard(conn->tls);
    }
}

/* Parser. A step handles one header, one part of a payload, or one call of `sink`. It returns
 * whether another step may follow. */

static bool tcp_receive_readable(const struct sl_tcp_conn *conn)
{
    return conn->life == SL_TCP_LIFE_LIVE && conn->base.state == SL_CONN_OPEN;
}

static bool tcp_receive_deliver(struct sl_tcp_conn *conn, const uint8_t *payload, void *token)
{
    struct sl_tcp_receive *receive = &conn->receive;
    struct sl_transport_message message = {
        .header = receive->frame, .payload = payload, .token = token};
    receive->phase = SL_TCP_PHASE_HEADER;
    sl_cell_add(&conn->tcp->base.cells->frames_received, 1);
    conn->held += token != NULL;
    sl_conn_report_received(&conn->base, &message);
    return tcp_receive_readable(conn);
}

/* Copies unparsed data out of the ring buffers: a connection that may wait for long must not hold
 * buffers that all connections need. Only data received before the cancel is copied; the rest stays
 * with the peer. Returns false without memory: the connection ends. */
static bool copy_unplaced(struct sl_tcp_conn *conn)
{
    struct sl_tcp_buffers *buffers = &conn->tcp->buffers;
    for (struct sl_tcp_rx_buf **at = &conn->receive.first; *at != NULL; at = &(*at)->next) {
        struct sl_tcp_rx_buf *next = (*at)->next;
        if ((*at)->kind == SL_TCP_RX_BUF_BUFFER) {
            struct sl_tcp_rx_buf *unplaced = sl_tcp_buffers_copy_unplaced(buffers, *at);
            if (unplaced == NULL) {
                return false;
            }
            *at = unplaced;
            unplaced->next = next;
        }
        conn->receive.last = *at;
    }
    return true;
}

/* Makes the connection wait for memory; later polls retry. */
static bool stall(struct sl_tcp_conn *conn)
{
    if (!copy_unplaced(conn)) {
        return sl_conn_fail(&conn->base, SL_ERR_NO_MEMORY,
                            "there is no memory for its frame, nor for the part that has come");
    }
    conn->receive.wait_memory = true;
    sl_list_append(&conn->tcp->wait_memory_asked, &conn->waiting);
    return false;
}

/* Whether the next bytes lie in one buffer and need not be assembled. */
static bool lies_here(const struct sl_tcp_conn *conn, uint32_t bytes)
{
    return conn->tls == NULL && conn->receive.first->left >= bytes;
}

static bool step_header(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    int err;
    if (receive->header_have == 0 && lies_here(conn, SL_FRAME_HEADER_BYTES)) {
        err = sl_frame_decode_received(receive->first->at, &receive->frame);
        tcp_receive_consume(conn, SL_FRAME_HEADER_BYTES);
    } else {
        if (receive->header_have < SL_FRAME_HEADER_BYTES) {
            receive->header_have += tcp_receive_take(conn, receive->header + receive->header_have,
                                                     SL_FRAME_HEADER_BYTES - receive->header_have);
        }
        if (receive->header_have < SL_FRAME_HEADER_BYTES) {
            return true;
        }
        receive->header_have = 0;
        err = sl_frame_decode_received(receive->header, &receive->frame);
    }
    if (err != 0) {
        return sl_conn_fail(&conn->base, err, "it sent a frame header that is not ours");
    }
    if (receive->frame.payload_bytes == 0) {
        struct sl_tcp_rx_buf *empty = &conn->tcp->buffers.empty;
        return tcp_receive_deliver(conn, (const uint8_t *)empty, empty);
    }
    receive->payload_have = 0;
    receive->phase = receive->frame.payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES
                         ? SL_TCP_PHASE_SINK
                         : SL_TCP_PHASE_INLINE;
    return true;
}

static bool step_inline(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    uint32_t payload_bytes = receive->frame.payload_bytes;
    if (receive->staging == NULL && lies_here(conn, payload_bytes) &&
        (uintptr_t)receive->first->at % 8 == 0) {
        struct sl_tcp_rx_buf *rx_buf = receive->first;
        const uint8_t *payload = rx_buf->at;
        rx_buf->refs++;
        tcp_receive_consume(conn, payload_bytes);
        return tcp_receive_deliver(conn, payload, rx_buf);
    }
    if (receive->staging == NULL) {
        receive->staging = sl_tcp_buffers_stage(&conn->tcp->buffers, &conn->staging);
        if (receive->staging == NULL) {
            return stall(conn);
        }
    }
    struct sl_tcp_staging *staging = receive->staging;
    receive->payload_have += tcp_receive_take(conn, staging->payload + receive->payload_have,
                                              payload_bytes - receive->payload_have);
    if (receive->payload_have < payload_bytes) {
        return true;
    }
    receive->staging = NULL;
    return tcp_receive_deliver(conn, staging->payload, &staging->rx_buf);
}

static bool step_sink(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    void *memory = sl_conn_ask_sink(&conn->base, &receive->frame);
    if (!tcp_receive_readable(conn)) {
        return false;
    }
    if (memory == NULL) {
        return stall(conn);
    }
    receive->payload = memory;
    receive->phase = SL_TCP_PHASE_LONG;
    return true;
}

static bool tcp_receive_deliver_long(struct sl_tcp_conn *conn)
{
    conn->receive.mode = SL_TCP_RECEIVE_PEEK;
    return tcp_receive_deliver(conn, conn->receive.payload, NULL);
}

static bool step_long(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    receive->payload_have += tcp_receive_take(conn, receive->payload + receive->payload_have,
                                              receive->frame.payload_bytes - receive->payload_have);
    return receive->payload_have < receive->frame.payload_bytes || tcp_receive_deliver_long(conn);
}

/* Fast path: delivers plain short frames that lie whole in the buffer. The steps handle all
 * else. */
static bool deliver_whole(struct sl_tcp_conn *conn)
{
    struct sl_tcp_rx_buf *rx_buf = conn->receive.first;
    struct sl_transport_message message = {.token = rx_buf};
    uint32_t frames = 0;
    while (rx_buf->left > SL_FRAME_HEADER_BYTES && (uintptr_t)rx_buf->at % 8 == 0) {
        if (!sl_frame_decode_plain(rx_buf->at, &message.header)) {
            break;
        }
        uint32_t payload_bytes = message.header.payload_bytes;
        if (payload_bytes == 0 || payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES ||
            payload_bytes > rx_buf->left - SL_FRAME_HEADER_BYTES) {
            break;
        }
        message.payload = rx_buf->at + SL_FRAME_HEADER_BYTES;
        rx_buf->at = message.payload + payload_bytes;
        rx_buf->left -= SL_FRAME_HEADER_BYTES + payload_bytes;
        rx_buf->refs++;
        conn->held++;
        frames++;
        conn->base.ahead = rx_buf->at;
        conn->base.ahead_bytes = rx_buf->left;
        sl_conn_report_received(&conn->base, &message);
        if (!tcp_receive_readable(conn)) {
            break;
        }
    }
    conn->base.ahead_bytes = 0;
    sl_cell_add(&conn->tcp->base.cells->frames_received, frames);
    if (!tcp_receive_readable(conn)) {
        return false;
    }
    if (rx_buf->left == 0) {
        pop_rx_buf(conn);
    }
    if (message.payload != NULL) {
        sl_tcp_note_short(conn);
    }
    return true;
}

static bool may_be_whole(const struct sl_tcp_conn *conn)
{
    return conn->receive.phase == SL_TCP_PHASE_HEADER && conn->receive.header_have == 0 &&
           conn->tls == NULL;
}

static bool step(struct sl_tcp_conn *conn)
{
    switch (conn->receive.phase) {
    case SL_TCP_PHASE_HEADER:
        return step_header(conn);
    case SL_TCP_PHASE_INLINE:
        return step_inline(conn);
    case SL_TCP_PHASE_SINK:
        return step_sink(conn);
    case SL_TCP_PHASE_LONG:
        return step_long(conn);
    }
    return false;
}

static bool has_more(const struct sl_tcp_conn *conn)
{
    return conn->tls == NULL ? conn->receive.first != NULL
                             : conn->receive.input == SL_TCP_INPUT_OPEN;
}

static bool can_step(const struct sl_tcp_conn *conn)
{
    return has_more(conn) || conn->receive.phase == SL_TCP_PHASE_SINK ||
           conn->receive.header_have == SL_FRAME_HEADER_BYTES;
}

void sl_tcp_receive_parse(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    if (receive->wait_memory) {
        receive->wait_memory = false;
        sl_list_remove(&conn->waiting);
    }
    bool more = tcp_receive_readable(conn);
    while (more && can_step(conn)) {
        more = may_be_whole(conn) ? deliver_whole(conn) : true;
        if (more && can_step(conn)) {
            more = step(conn);
        }
    }
}

/* Next receive */

static struct io_uring_sqe *tcp_receive_begin(struct sl_tcp_conn *conn)
{
    conn->receive.flight = SL_TCP_FLIGHT_RECEIVING;
    sl_cell_add(&conn->tcp->base.cells->receive_calls, 1);
    sl_tcp_op_begin(conn);
    return sl_ring_sqe(conn->tcp->ring, &conn->receive.op);
}

/* Sets the low-water mark. Returns false if the kernel refuses. */
static bool await_bytes(struct sl_tcp_conn *conn, uint32_t bytes)
{
    struct sl_tcp_receive *receive = &conn->receive;
    bool known = receive->low_bytes == bytes || sl_tcp_socket_set_low(conn->fd, bytes);
    receive->low_bytes = known ? bytes : receive->low_bytes;
    return known;
}

/* The mark must not exceed the rest of the payload: the peer may never send more. */
static bool await_most(struct sl_tcp_conn *conn, size_t bytes)
{
    return conn->tcp->ring->multishot_recv && /* an older kernel may lack POLL_FIRST */
           await_bytes(conn, bytes < SL_TCP_PATIENT_BYTES ? (uint32_t)bytes : SL_TCP_PATIENT_BYTES);
}

/* The header behind the payload comes with it: a stream of long frames costs one call a frame, and
 * does not change the low-water mark. */
static void receive_direct(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    receive->mode = SL_TCP_RECEIVE_DIRECT;
    const uint32_t left = receive->frame.payload_bytes - receive->payload_have;
    size_t bytes = sl_tcp_slice(conn, left);
    bool patient = await_most(conn, bytes);
    struct io_uring_sqe *sqe = tcp_receive_begin(conn);
    uint8_t *to = receive->payload + receive->payload_have;
    if (bytes < left) {
        io_uring_prep_recv(sqe, conn->fd, to, bytes, 0);
    } else {
        receive->parts[0] = (struct iovec){.iov_base = to, .iov_len = bytes};
        receive->parts[1] =
            (struct iovec){.iov_base = receive->header, .iov_len = sizeof receive->header};
        receive->message = (struct msghdr){.msg_iov = receive->parts, .msg_iovlen = 2};
        io_uring_prep_recvmsg(sqe, conn->fd, &receive->message, 0);
    }
    if (patient) {
        sqe->ioprio |= IORING_RECVSEND_POLL_FIRST;
    }
}

static bool is_sliced(struct sl_tcp_conn *conn)
{
    uint32_t left = conn->receive.frame.payload_bytes - conn->receive.payload_have;
    return sl_tcp_slice(conn, left) < left;
}

/* While connections wait for memory, data received behind the header of a long frame must be copied
 * to the heap: receive little. */
static bool is_crowded(const struct sl_tcp *tcp)
{
    return !sl_list_empty(&tcp->wait_memory) || !sl_list_empty(&tcp->wait_memory_asked);
}

static void receive_buffers(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    struct sl_tcp_buffers *buffers = &conn->tcp->buffers;
    if (receive->low_bytes > 1) {
        (void)await_bytes(conn, 1);
    }
    const bool peek = receive->mode == SL_TCP_RECEIVE_PEEK || is_crowded(conn->tcp);
    receive->mode = SL_TCP_RECEIVE_BUFFERS;
    const bool multishot = conn->tcp->ring->multishot_recv && !peek;
    struct io_uring_sqe *sqe = tcp_receive_begin(conn);
    if (multishot) {
        io_uring_prep_recv_multishot(sqe, conn->fd, NULL, 0, 0);
    } else {
        bool little = peek && SL_TCP_PEEK_BYTES < buffers->buffer_bytes;
        io_uring_prep_recv(sqe, conn->fd, NULL, little ? SL_TCP_PEEK_BYTES : buffers->buffer_bytes,
                           0);
    }
    sqe->flags |= IOSQE_BUFFER_SELECT;
    sqe->buf_group = buffers->group;
}

/* Whether to receive the rest of a long payload in place: if it is long, if that has begun, or if
 * the ring is empty, so that a connection with memory never waits for connections without. */
static bool wants_direct(const struct sl_tcp_conn *conn)
{
    const struct sl_tcp_receive *receive = &conn->receive;
    return conn->tls == NULL && conn->life == SL_TCP_LIFE_LIVE &&
           receive->phase == SL_TCP_PHASE_LONG &&
           (receive->mode == SL_TCP_RECEIVE_DIRECT ||
            receive->frame.payload_bytes - receive->payload_have >= SL_TCP_DIRECT_BYTES ||
            conn->tcp->buffers.offered == 0 || receive->empty_ring);
}

/* Cancels the receive in flight if another kind is needed. */
static void reconsider(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    bool unwanted = conn->life == SL_TCP_LIFE_LEAVING || receive->wait_memory || wants_direct(conn);
    if (unwanted && receive->mode != SL_TCP_RECEIVE_DIRECT &&
        receive->flight != SL_TCP_FLIGHT_CANCELLING) {
        receive->flight = SL_TCP_FLIGHT_CANCELLING;
        sl_ring_cancel(conn->tcp->ring, &receive->op);
    }
}

static void receive_encrypted(struct sl_tcp_conn *conn)
{
    conn->receive.mode = SL_TCP_RECEIVE_BUFFERS;
    io_uring_prep_recv(tcp_receive_begin(conn), conn->fd, sl_tcp_tls_input(conn->tls),
                       SL_TCP_TLS_INPUT_BYTES, 0);
}

void sl_tcp_receive_start(struct sl_tcp_conn *conn)
{
    struct sl_tcp_receive *receive = &conn->receive;
    if (receive->flight != SL_TCP_FLIGHT_NONE) {
        reconsider(conn);
    } else if (receive->wait_memory) {
        return; /* a later poll retries */
    } else if (conn->tls != NULL) {
        receive_encrypted(conn);
    } else if (wants_direct(conn) && is_sliced(conn)) {
        sl_list_append(&conn->tcp->sliced, &conn->waiting);
    } else if (wants_direct(conn)) {
        receive_direct(conn);
    } else if (receive->empty_ring) {
        sl_list_append(&conn->tcp->wait_buffer, &conn->waiting);
    } else {
        receive_buffers(conn);
    }
}

/* The kernel executes submissions in order: a slice submitted before the turn's short sends would
 * delay them by its copy. */
void sl_tcp_receive_slices(struct sl_tcp *tcp)
{
    SL_LIST_TAKE (struct sl_tcp_conn, conn, waiting, &tcp->sliced) {
        receive_direct(conn);
    }
}

void sl_tcp_receive_feed(struct sl_tcp *tcp)
{
    uint32_t offered = tcp->buffers.offered;
    while (offered > 0 && !sl_list_empty(&tcp->wait_buffer)) {
        struct sl_tcp_conn *conn =
            SL_CONTAINER_OF(sl_list_pop(&tcp->wait_buffer), struct sl_tcp_conn, waiting);
        conn->receive.empty_ring = false;
        sl_tcp_receive_start(conn);
        offered--;
    }
}

/* Completions */

/* Handles a receive without data. */
static void note_result(struct sl_tcp_conn *conn, int32_t result)
{
    struct sl_tcp_receive *receive = &conn->receive;
    if (result == 0) {
        receive->input = SL_TCP_INPUT_ENDED;
    } else if (result == -ENOBUFS) {
        receive->empty_ring = true;
    } else if (result != -ECANCELED && result != -EINTR && result != -EAGAIN) {
        int err = sl_tcp_socket_err(-result);
        if (err == SL_ERR_CLOSED && conn->tls != NULL && conn->tls->state == SL_TCP_TLS_SHAKING) {
            receive->input = SL_TCP_INPUT_ENDED; /* the handshake failed */
        } else {
            sl_conn_fail(&conn->base, err, NULL);
        }
    }
}

static void take_buffer(struct sl_tcp_conn *conn, uint32_t bytes, uint32_t cqe_flags)
{
    struct sl_tcp_buffers *buffers = &conn->tcp->buffers;
    if ((cqe_flags & IORING_CQE_F_BUFFER) == 0) {
        return;
    }
    struct sl_tcp_rx_buf *rx_buf = sl_tcp_buffers_take(buffers, cqe_flags, bytes);
    sl_cell_add(&conn->tcp->base.cells->bytes_received, bytes);
    if (bytes == 0 || conn->life == SL_TCP_LIFE_ENDING || conn->life == SL_TCP_LIFE_DRAINING) {
        sl_tcp_buffers_put(buffers, rx_buf);
    } else {
        push_rx_buf(&conn->receive, rx_buf);
    }
}

static void take_direct(struct sl_tcp_conn *conn, uint32_t bytes)
{
    struct sl_tcp_receive *receive = &conn->receive;
    const uint32_t left = receive->frame.payload_bytes - receive->payload_have;
    sl_cell_add(&conn->tcp->base.cells->bytes_received, bytes);
    receive->payload_have += bytes < left ? bytes : left;
    if (!tcp_receive_readable(conn) || bytes < left) {
        return;
    }
    receive->header_have = bytes - left;
    tcp_receive_deliver_long(conn);
    receive->mode =
        receive->header_have < SL_FRAME_HEADER_BYTES ? SL_TCP_RECEIVE_PEEK : SL_TCP_RECEIVE_DIRECT;
}

static void take_encrypted(struct sl_tcp_conn *conn, uint32_t bytes)
{
    if (conn->life == SL_TCP_LIFE_LIVE || conn->life == SL_TCP_LIFE_LEAVING) {
        sl_tcp_tls_add_input(conn->tls, bytes);
        conn->receive.input = SL_TCP_INPUT_OPEN;
    }
}

void sl_tcp_receive_complete(struct sl_tcp_conn *conn, int32_t result, uint32_t cqe_flags)
{
    const uint32_t bytes = result > 0 ? (uint32_t)result : 0;
    if ((cqe_flags & IORING_CQE_F_MORE) == 0) {
        conn->receive.flight = SL_TCP_FLIGHT_NONE;
        sl_tcp_op_end(conn);
        if (bytes == 0) {
            note_result(conn, result);
        }
    }
    if (conn->tls == NULL && conn->receive.mode != SL_TCP_RECEIVE_DIRECT) {
        take_buffer(conn, bytes, cqe_flags);
    } else if (bytes > 0 && conn->tls == NULL) {
        take_direct(conn, bytes);
    } else if (bytes > 0) {
        take_encrypted(conn, bytes);
    }
}

void sl_tcp_receive_release(struct sl_conn *base, const struct sl_transport_message *message)
{
    struct sl_tcp_conn *conn = (struct sl_tcp_conn *)base;
    sl_assert(conn->held > 0);
    conn->held--;
    sl_tcp_buffers_put(&conn->tcp->buffers, message->token);
}
