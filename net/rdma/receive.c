#include "net/rdma/receive.h"

#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "net/rdma/credit.h"
#include "net/rdma/end.h"
#include "net/rdma/read.h"
#include "net/rdma/reply_buffer.h"

/* Token of a message in the caller's memory: nothing to release. */
static const char nothing;
#define NOTHING ((void *)(uintptr_t)&nothing)

int sl_rdma_receive_open(struct sl_rdma_conn *conn)
{
    conn->receive = malloc(sizeof *conn->receive);
    if (conn->receive == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(conn->receive, 0, offsetof(struct sl_rdma_receive, items));
    return 0;
}

bool sl_rdma_receive_is_done(const struct sl_rdma_conn *conn)
{
    return conn->receive->head == conn->receive->tail;
}

/* Blocks */

/* The last reference returns the packet's credit, if its connection still exists. */
static void rdma_receive_put_block(struct sl_rdma_block *block)
{
    if (--block->refs > 0) {
        return;
    }
    struct sl_rdma_conn *conn = block->conn;
    if (block->counted != 0 && conn->serial == block->conn_serial && conn->phase != SL_RDMA_ENDED) {
        sl_rdma_credit_consumed(conn);
    }
    sl_rdma_pool_put(block);
}

void sl_rdma_receive_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    if (message->token != NOTHING) {
        rdma_receive_put_block(message->token);
    }
}

/* The device no longer reads. */
void sl_rdma_receive_close(struct sl_rdma_conn *conn)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (receive == NULL) {
        return;
    }
    for (; receive->head != receive->tail; receive->head++) {
        struct sl_rdma_item *item = sl_rdma_item_at(receive, receive->head);
        item->state = SL_RDMA_ITEM_READ;
        (void)sl_rdma_read_drop(conn, item);
        rdma_receive_put_block(item->block);
    }
    free(receive);
    conn->receive = NULL;
}

/* Delivery */

static bool rdma_receive_readable(const struct sl_rdma_conn *conn)
{
    return conn->base.state == SL_CONN_OPEN && conn->phase != SL_RDMA_ENDED;
}

static void rdma_receive_deliver(struct sl_rdma_conn *conn, const struct sl_frame *frame,
                                 const uint8_t *payload, void *token)
{
    struct sl_transport_message message = {.header = *frame, .payload = payload, .token = token};
    sl_cell_add(&conn->rdma->base.cells->frames_received, 1);
    sl_cell_add(&conn->rdma->base.cells->bytes_received,
                SL_FRAME_HEADER_BYTES + (uint64_t)frame->payload_bytes);
    if (frame->type == SL_FRAME_REPLY) {
        sl_rdma_reply_buffer_unexport(conn, frame->request_id);
    }
    sl_conn_report_received(&conn->base, &message);
}

/* Decodes the next frame of a packet and returns its payload. NULL: invalid, the connection has
 * ended. */
static const uint8_t *next_frame(struct sl_rdma_conn *conn, struct sl_bytes *cursor,
                                 struct sl_frame *frame)
{
    const uint8_t *header = sl_bytes_take(cursor, SL_FRAME_HEADER_BYTES);
    int err = header == NULL ? SL_ERR_PROTOCOL : sl_frame_decode_received(header, frame);
    if (err != 0) {
        sl_rdma_conn_refuse(conn, "it sent a frame header that is not ours", err);
        return NULL;
    }
    const uint8_t *payload = sl_bytes_take(cursor, frame->payload_bytes);
    size_t pad = sl_bytes_pad8(frame->payload_bytes) - frame->payload_bytes;
    if (payload == NULL || (cursor->left > 0 && sl_bytes_take(cursor, pad) == NULL)) {
        sl_rdma_conn_refuse(conn, "it sent a frame that is cut off", SL_ERR_PROTOCOL);
        return NULL;
    }
    return payload;
}

static void remember_reply_buffer(struct sl_rdma_conn *conn, const struct sl_rdma_item *item,
                                  const struct sl_frame *frame)
{
    struct sl_rdma_remote_sge remote_sges[SL_RDMA_REMOTE_SGES];
    if (item->head.reply_buffer_count > 0) {
        memcpy(remote_sges,
               item->block->at + sizeof(struct sl_rdma_packet) +
                   item->head.remote_sge_count * sizeof remote_sges[0],
               item->head.reply_buffer_count * sizeof remote_sges[0]);
        sl_rdma_reply_buffer_remember(conn, frame->request_id, remote_sges,
                                      item->head.reply_buffer_count);
    }
}

static struct sl_rdma_item rdma_receive_take_item(struct sl_rdma_conn *conn)
{
    return *sl_rdma_item_at(conn->receive, conn->receive->head++);
}

/* One item each; true: the item is done. */

static bool deliver_frames(struct sl_rdma_conn *conn)
{
    struct sl_rdma_item item = rdma_receive_take_item(conn);
    struct sl_bytes cursor = sl_bytes_over(sl_rdma_item_frames(&item), item.head.frame_bytes);
    struct sl_frame frame;
    while (cursor.left > 0 && rdma_receive_readable(conn)) {
        const uint8_t *payload = next_frame(conn, &cursor, &frame);
        if (payload == NULL) {
            break;
        }
        remember_reply_buffer(conn, &item, &frame);
        item.block->refs++;
        rdma_receive_deliver(conn, &frame, payload, item.block);
    }
    rdma_receive_put_block(item.block);
    return true;
}

static void count_read(struct sl_rdma_conn *conn)
{
    conn->credit.reads_done++;
    sl_rdma_mark_dirty(conn);
}

static bool deliver_long(struct sl_rdma_conn *conn)
{
    struct sl_rdma_receive *receive = conn->receive;
    struct sl_rdma_item *at = sl_rdma_item_at(receive, receive->head);
    if (!sl_rdma_read_next(conn, at)) {
        return false;
    }
    struct sl_rdma_item item = rdma_receive_take_item(conn);
    uint8_t *sink = receive->sink;
    receive->sink = NULL;
    count_read(conn);
    remember_reply_buffer(conn, &item, &item.frame);
    if (item.staging != NULL) {
        item.staging->refs = 1;
        item.staging->counted = 0;
        rdma_receive_deliver(conn, &item.frame, item.staging->at, item.staging);
    } else {
        rdma_receive_deliver(conn, &item.frame, sink, NULL);
    }
    rdma_receive_put_block(item.block);
    return true;
}

/* The peer has written the payload to the reply buffer. `sink` may name another place. */
static bool deliver_written(struct sl_rdma_conn *conn)
{
    struct sl_rdma_item *at = sl_rdma_item_at(conn->receive, conn->receive->head);
    uint32_t bytes = at->frame.payload_bytes, reply_buffer_bytes;
    uint8_t *reply_buffer =
        sl_rdma_reply_buffer_lent(conn, at->frame.request_id, &reply_buffer_bytes);
    if (reply_buffer == NULL || reply_buffer_bytes < bytes || at->frame.type != SL_FRAME_REPLY) {
        sl_rdma_conn_refuse(conn, "it answered in a place that it was not given", SL_ERR_PROTOCOL);
        return false;
    }
    uint8_t *payload = reply_buffer;
    if (bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        payload = sl_conn_ask_sink(&conn->base, &at->frame);
        if (payload == NULL || !rdma_receive_readable(conn)) {
            sl_rdma_mark_waiting(conn);
            return false;
        }
    }
    if (payload != reply_buffer) {
        memcpy(payload, reply_buffer, bytes);
        sl_cell_add(&conn->rdma->base.cells->copied_bytes, bytes);
    }
    struct sl_rdma_item item = rdma_receive_take_item(conn);
    rdma_receive_deliver(conn, &item.frame, payload,
                         bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES ? NULL : NOTHING);
    rdma_receive_put_block(item.block);
    return true;
}

/* After disconnect items are dropped, but counted as done for the peer. */
static bool drop_item(struct sl_rdma_conn *conn)
{
    struct sl_rdma_item *at = sl_rdma_item_at(conn->receive, conn->receive->head);
    if (!sl_rdma_read_drop(conn, at)) {
        return false;
    }
    struct sl_rdma_item item = rdma_receive_take_item(conn);
    if (item.head.kind == SL_RDMA_LONG) {
        count_read(conn);
    }
    rdma_receive_put_block(item.block);
    return true;
}

static bool take_next(struct sl_rdma_conn *conn)
{
    if (!rdma_receive_readable(conn)) {
        return conn->phase == SL_RDMA_DRAINING && drop_item(conn);
    }
    switch (sl_rdma_item_at(conn->receive, conn->receive->head)->head.kind) {
    case SL_RDMA_LONG:
        return deliver_long(conn);
    case SL_RDMA_WRITTEN:
        return deliver_written(conn);
    default:
        return deliver_frames(conn);
    }
}

bool sl_rdma_receive_visit(struct sl_rdma_conn *conn)
{
    struct sl_rdma_receive *receive = conn->receive;
    bool work = false;
    while (receive->head != receive->tail && take_next(conn)) {
        work = true;
    }
    if (rdma_receive_readable(conn) && receive->head != receive->tail) {
        sl_rdma_read_ahead(conn);
    }
    return work;
}

void sl_rdma_receive_read_done(struct sl_rdma_conn *conn, uint32_t number)
{
    sl_rdma_read_complete(conn, number);
    if (conn->phase != SL_RDMA_ENDED) {
        (void)sl_rdma_receive_visit(conn);
    }
}

/* Arriving packets */

/* Adds up the pieces. False: a piece is empty, or the packet is too short. */
static bool add_up(struct sl_bytes *cursor, uint32_t count, uint64_t *bytes)
{
    bool good = true;
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_rdma_remote_sge remote_sge;
        sl_bytes_copy(cursor, &remote_sge, sizeof remote_sge);
        good = good && remote_sge.bytes > 0;
        *bytes += remote_sge.bytes;
    }
    return good && !cursor->bad;
}

/* Checks a packet of one frame. Errors: PROTOCOL, or those of decode. */
static int check_single(struct sl_rdma_item *item)
{
    const struct sl_rdma_packet *head = &item->head;
    struct sl_bytes cursor = sl_bytes_over(item->block->at, item->bytes);
    uint64_t bytes, reply_buffer_bytes;
    (void)sl_bytes_take(&cursor, sizeof *head);
    if (!add_up(&cursor, head->remote_sge_count, &bytes) ||
        !add_up(&cursor, head->reply_buffer_count, &reply_buffer_bytes)) {
        return SL_ERR_PROTOCOL;
    }
    const uint8_t *header = sl_bytes_take(&cursor, SL_FRAME_HEADER_BYTES);
    int err = header == NULL ? SL_ERR_PROTOCOL : sl_frame_decode_received(header, &item->frame);
    if (err != 0) {
        return err;
    }
    bool is_whole = item->head.kind == SL_RDMA_WRITTEN
                        ? cursor.left == 0
                        : cursor.left + bytes == item->frame.payload_bytes;
    return is_whole ? 0 : SL_ERR_PROTOCOL;
}

static bool has_right_counts(const struct sl_rdma_packet *head)
{
    bool remote_sges = head->remote_sge_count > 0, reply_buffer = head->reply_buffer_count > 0;
    if (head->remote_sge_count > SL_RDMA_REMOTE_SGES ||
        head->reply_buffer_count > SL_RDMA_REMOTE_SGES) {
        return false;
    }
    switch (head->kind) {
    case SL_RDMA_FRAMES:
    case SL_RDMA_WRITTEN:
        return !remote_sges && !reply_buffer && head->frame_bytes >= SL_FRAME_HEADER_BYTES;
    case SL_RDMA_REPLY_BUFFER:
        return !remote_sges && reply_buffer;
    case SL_RDMA_LONG:
        return remote_sges;
    case SL_RDMA_CREDIT_UPDATE:
    case SL_RDMA_FIN:
        return !remote_sges && !reply_buffer && head->frame_bytes == 0;
    default:
        return false;
    }
}

static int check(struct sl_rdma_item *item)
{
    struct sl_bytes cursor = sl_bytes_over(item->block->at, item->bytes);
    struct sl_rdma_packet *head = &item->head;
    sl_bytes_copy(&cursor, head, sizeof *head);
    if (cursor.bad || !has_right_counts(head)) {
        return SL_ERR_PROTOCOL;
    }
    uint64_t remote_sges = (uint64_t)head->remote_sge_count + head->reply_buffer_count;
    if (cursor.left != remote_sges * sizeof(struct sl_rdma_remote_sge) + head->frame_bytes) {
        return SL_ERR_PROTOCOL;
    }
    bool is_single = head->kind == SL_RDMA_REPLY_BUFFER || head->kind == SL_RDMA_LONG ||
                     head->kind == SL_RDMA_WRITTEN;
    return is_single ? check_single(item) : 0;
}

static void take_uncounted(struct sl_rdma_conn *conn, const struct sl_rdma_item *item)
{
    rdma_receive_put_block(item->block);
    if (item->head.kind == SL_RDMA_FIN) {
        sl_rdma_conn_sent_fin(conn);
    }
}

static void take_packet(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (item->head.kind > SL_RDMA_WRITTEN) {
        take_uncounted(conn, item);
        return;
    }
    if (conn->credit.counted_received == conn->credit.limit_ours) {
        rdma_receive_put_block(item->block);
        sl_rdma_conn_refuse(conn, "it sent more than there is room for", SL_ERR_PROTOCOL);
        return;
    }
    conn->credit.counted_received++;
    item->block->counted = 1;
    *sl_rdma_item_at(receive, receive->tail++) = *item;
    (void)sl_rdma_receive_visit(conn);
}

void sl_rdma_receive_block(struct sl_rdma_conn *conn, struct sl_rdma_block *block, uint32_t bytes)
{
    struct sl_rdma_item item = {.block = block, .bytes = bytes, .state = SL_RDMA_ITEM_WAITS};
    block->refs = 1;
    block->counted = 0;
    block->conn = conn;
    block->conn_serial = conn->serial;
    if (conn->end.fin_received) {
        rdma_receive_put_block(block); /* FIN was the last packet */
        return;
    }
    int err = check(&item);
    if (err == 0) {
        err = sl_rdma_credit_heard(conn, &item.head);
    }
    if (err != 0) {
        rdma_receive_put_block(block);
        sl_rdma_conn_refuse(conn, "it sent a packet that is not ours", err);
        return;
    }
    take_packet(conn, &item);
}
