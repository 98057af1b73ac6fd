/* RDMA reads of long payloads. Only this file and long_message.c decide that the receiver reads
 * a push, instead of the sender writing it to granted memory. */
#include "net/rdma/read.h"

#include <string.h>

#include "core/bytes.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/send_batch.h"

#define REQUESTS_MAX                                                                               \
    (2 * SL_RDMA_REMOTE_SGES) /* per payload: pieces of the peer, spans of this side */

static bool is_short(const struct sl_rdma_item *item)
{
    return item->frame.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES;
}

/* A range of the payload bytes in the pieces. */
struct range {
    uint32_t from, bytes;
};

static void add_read(struct sl_rdma_send_batch *batch, const struct sl_rdma_remote_sge *remote_sge,
                     uint32_t from, const struct sl_rdma_local_sge *to, uint32_t bytes)
{
    struct ibv_send_wr *request = sl_rdma_send_batch_add(batch, SL_RDMA_WR_READ, IBV_WR_RDMA_READ);
    request->wr.rdma.remote_addr = remote_sge->at + from;
    request->wr.rdma.rkey = remote_sge->key;
    sl_rdma_send_batch_add_piece(batch, to->at, bytes, to->local_key);
}

/* Reads the range from the peer's pieces to the spans, which have the same total length. */
static void add_reads(struct sl_rdma_send_batch *batch, const struct sl_rdma_item *item,
                      struct range range, const struct sl_rdma_local_sge *spans)
{
    struct sl_bytes cursor =
        sl_bytes_over(item->block->at + sizeof(struct sl_rdma_packet),
                      item->head.remote_sge_count * sizeof(struct sl_rdma_remote_sge));
    struct sl_rdma_local_sge to = *spans;
    while (range.bytes > 0) {
        struct sl_rdma_remote_sge remote_sge;
        sl_bytes_copy(&cursor, &remote_sge, sizeof remote_sge);
        sl_assert(!cursor.bad);
        if (range.from >= remote_sge.bytes) {
            range.from -= remote_sge.bytes;
            continue;
        }
        while (range.bytes > 0 && range.from < remote_sge.bytes) {
            uint32_t left = remote_sge.bytes - range.from;
            uint32_t some = left < to.bytes ? left : to.bytes;
            some = some < range.bytes ? some : range.bytes;
            add_read(batch, &remote_sge, range.from, &to, some);
            range.from += some;
            range.bytes -= some;
            to.at += some;
            to.bytes -= some;
            if (to.bytes == 0 && range.bytes > 0) {
                to = *++spans;
            }
        }
        range.from = 0;
    }
}

/* False: retry later. */
static bool post_reads(struct sl_rdma_conn *conn, struct sl_rdma_item *item, struct range range,
                       const struct sl_rdma_local_sge *spans)
{
    struct sl_rdma_send_batch batch;
    sl_rdma_send_batch_begin(&batch, conn);
    if (!sl_rdma_may_post(conn) ||
        !sl_rdma_send_batch_reserve(&batch, REQUESTS_MAX, REQUESTS_MAX)) {
        sl_rdma_mark_waiting(conn);
        return false;
    }
    add_reads(&batch, item, range, spans);
    batch.wants_signal = true;
    item->read_end = sl_rdma_send_batch_number(&batch);
    item->state = SL_RDMA_ITEM_READING;
    conn->receive->reading++;
    return sl_rdma_send_batch_post(&batch);
}

/* Short payloads */

static bool has_reads_left(const struct sl_rdma_conn *conn)
{
    uint32_t ours = conn->nic->caps.reads_max;
    uint32_t limit = ours < conn->reads_peer ? ours : conn->reads_peer;
    return conn->receive->reading == 0 || conn->receive->reading < limit;
}

static void read_begin_short(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    if (!has_reads_left(conn)) {
        return;
    }
    struct sl_rdma_block *staging = sl_rdma_pool_get(conn->nic, SL_RDMA_BLOCK_STAGING);
    if (staging == NULL) {
        sl_rdma_mark_waiting(conn);
        return;
    }
    uint32_t prefix = sl_rdma_item_prefix(item);
    uint32_t bytes = item->frame.payload_bytes - prefix;
    struct sl_rdma_local_sge local_sge = {
        .at = staging->at + prefix, .bytes = bytes, .local_key = staging->key};
    memcpy(staging->at, sl_rdma_item_frames(item) + SL_FRAME_HEADER_BYTES, prefix);
    item->staging = staging;
    if (!post_reads(conn, item, (struct range){.bytes = bytes}, &local_sge) &&
        item->state == SL_RDMA_ITEM_WAITS) {
        bool awake = conn->rdma->awake;
        item->staging = NULL;
        sl_rdma_pool_put(staging);
        conn->rdma->awake = awake; /* nobody waits for this block */
    }
}

void sl_rdma_read_ahead(struct sl_rdma_conn *conn)
{
    struct sl_rdma_receive *receive = conn->receive;
    for (uint32_t i = receive->head; i != receive->tail && has_reads_left(conn); i++) {
        struct sl_rdma_item *item = sl_rdma_item_at(receive, i);
        if (item->head.kind == SL_RDMA_LONG && item->state == SL_RDMA_ITEM_WAITS &&
            is_short(item)) {
            read_begin_short(conn, item);
            if (item->state == SL_RDMA_ITEM_WAITS) {
                return;
            }
        }
    }
}

/* Payloads with a sink */

static bool name_sink(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    void *sink = sl_conn_ask_sink(&conn->base, &item->frame);
    if (sink == NULL || conn->base.state != SL_CONN_OPEN || conn->phase == SL_RDMA_ENDED) {
        sl_rdma_mark_waiting(conn);
        return false;
    }
    receive->sink = sink;
    receive->has_keys = false;
    receive->local_sge_count = receive->in_hand = 0;
    receive->have = sl_rdma_item_prefix(item);
    memcpy(sink, sl_rdma_item_frames(item) + SL_FRAME_HEADER_BYTES, receive->have);
    return true;
}

static void find_keys(struct sl_rdma_conn *conn, const struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (!receive->has_keys) {
        receive->has_keys = true;
        receive->local_sge_count = sl_rdma_memory_find(
            conn->nic, receive->sink + receive->have, item->frame.payload_bytes - receive->have,
            SL_RDMA_USE_SINK, receive->spans, SL_RDMA_REMOTE_SGES);
    }
}

/* An unregistered sink: block by block. */
static void begin_block(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (item->staging == NULL) {
        item->staging = sl_rdma_pool_get(conn->nic, SL_RDMA_BLOCK_STAGING);
    }
    if (item->staging == NULL) {
        sl_rdma_mark_waiting(conn);
        return;
    }
    uint32_t left = item->frame.payload_bytes - receive->have;
    uint32_t bytes = left < SL_RDMA_STAGING_BYTES ? left : SL_RDMA_STAGING_BYTES;
    struct sl_rdma_local_sge local_sge = {
        .at = item->staging->at, .bytes = bytes, .local_key = item->staging->key};
    struct range range = {.from = receive->have - sl_rdma_item_prefix(item), .bytes = bytes};
    if (post_reads(conn, item, range, &local_sge)) {
        receive->in_hand = bytes;
    }
}

static void begin_long(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (receive->sink == NULL && !name_sink(conn, item)) {
        return;
    }
    find_keys(conn, item);
    if (receive->local_sge_count == 0) {
        begin_block(conn, item);
        return;
    }
    struct range range = {.bytes = item->frame.payload_bytes - receive->have};
    if (post_reads(conn, item, range, receive->spans)) {
        receive->have = item->frame.payload_bytes;
    }
}

bool sl_rdma_read_next(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    if (item->state == SL_RDMA_ITEM_WAITS) {
        if (is_short(item)) {
            read_begin_short(conn, item);
        } else {
            begin_long(conn, item);
        }
    }
    return item->state == SL_RDMA_ITEM_READ;
}

/* Completed reads */

static void drop_staging(struct sl_rdma_item *item)
{
    if (item->staging != NULL) {
        sl_rdma_pool_put(item->staging);
        item->staging = NULL;
    }
}

/* True: the payload is complete. */
static bool end_long(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    struct sl_rdma_receive *receive = conn->receive;
    if (receive->in_hand > 0) {
        memcpy(receive->sink + receive->have, item->staging->at, receive->in_hand);
        sl_cell_add(&conn->rdma->base.cells->copied_bytes, receive->in_hand);
        receive->have += receive->in_hand;
        receive->in_hand = 0;
    }
    if (receive->have != item->frame.payload_bytes && conn->base.state == SL_CONN_OPEN) {
        return false;
    }
    drop_staging(item);
    return true;
}

void sl_rdma_read_complete(struct sl_rdma_conn *conn, uint32_t number)
{
    struct sl_rdma_receive *receive = conn->receive;
    sl_rdma_send_completed(conn, number);
    if (conn->phase == SL_RDMA_ENDED) {
        return;
    }
    for (uint32_t i = receive->head; i != receive->tail && receive->reading > 0; i++) {
        struct sl_rdma_item *item = sl_rdma_item_at(receive, i);
        if (item->state == SL_RDMA_ITEM_READING &&
            (item->read_end & SL_RDMA_WR_NUMBERS) == number) {
            receive->reading--;
            item->state =
                is_short(item) || end_long(conn, item) ? SL_RDMA_ITEM_READ : SL_RDMA_ITEM_WAITS;
        }
    }
}

bool sl_rdma_read_drop(struct sl_rdma_conn *conn, struct sl_rdma_item *item)
{
    if (item->state == SL_RDMA_ITEM_READING) {
        return false;
    }
    drop_staging(item);
    if (conn->receive->sink != NULL &&
        item == sl_rdma_item_at(conn->receive, conn->receive->head)) {
        conn->receive->sink = NULL;
    }
    return true;
}
