#include "net/rdma/long_message.h"

#include <string.h>

#include "net/rdma/conn_table.h"
#include "net/rdma/end.h"
#include "net/rdma/packet_builder.h"
#include "net/rdma/reply_buffer.h"
#include "net/rdma/wake.h"

/* The memory of a payload, read by the peer or by the device that writes to the peer. */
struct source {
    struct sl_rdma_conn *conn;
    struct sl_rdma_block *blocks; /* copies */
    enum sl_rdma_use use;
    uint32_t count;
    struct sl_rdma_local_sge spans[SL_RDMA_REMOTE_SGES];
};

enum outcome {
    FOUND,
    LATER,  /* all blocks are in use by other frames */
    REFUSED /* memory can be neither registered nor copied now */
};

static uint32_t rdma_long_message_frame_bytes(const struct sl_rdma_view *view)
{
    return view->head_bytes + view->tail_bytes;
}

static struct sl_frame header_of(const struct sl_rdma_view *view)
{
    struct sl_frame header;
    memcpy(&header, view->head, sizeof header);
    return header;
}

static bool has_reply_buffer(const struct sl_rdma_view *view)
{
    const struct sl_transport_frame *frame = &view->entry->frame;
    return frame->reply_buffer != NULL && frame->reply_buffer_bytes >= SL_RDMA_LONG_BYTES;
}

/* The reply buffer for this frame; NULL: it is no reply, is short, or has no reply buffer. */
static const struct sl_rdma_remote_sge *target_of(const struct sl_rdma_conn *conn,
                                                  const struct sl_rdma_view *view, uint32_t *count)
{
    uint32_t payload_bytes = rdma_long_message_frame_bytes(view) - SL_FRAME_HEADER_BYTES;
    if (conn->send->reply_buffers == NULL || payload_bytes < SL_RDMA_LONG_BYTES) {
        return NULL;
    }
    struct sl_frame header = header_of(view);
    return header.type == SL_FRAME_REPLY
               ? sl_rdma_reply_buffer_find(conn, header.request_id, payload_bytes, count)
               : NULL;
}

bool sl_rdma_long_is(const struct sl_rdma_conn *conn, const struct sl_rdma_view *view)
{
    uint32_t count;
    return sizeof(struct sl_rdma_packet) + (uint64_t)view->head_bytes + view->tail_bytes >
               SL_RDMA_PACKET_BYTES ||
           has_reply_buffer(view) || target_of(conn, view, &count) != NULL;
}

/* The source of the payload */

static void put_blocks(struct sl_rdma_block **blocks)
{
    while (*blocks != NULL) {
        struct sl_rdma_block *block = *blocks;
        *blocks = block->next;
        sl_rdma_pool_unlend(block);
    }
}

void sl_rdma_long_drop(struct sl_rdma_entry *entry)
{
    put_blocks(&entry->blocks);
}

static bool find_keys(struct source *source, const uint8_t *at, uint32_t bytes)
{
    if (source->count == SL_RDMA_REMOTE_SGES) {
        return false;
    }
    const uint32_t count =
        sl_rdma_memory_find(source->conn->nic, at, bytes, source->use,
                            source->spans + source->count, SL_RDMA_REMOTE_SGES - source->count);
    source->count += count;
    return count > 0;
}

/* Copies a part into blocks. The peer may leave them unread for long, while it waits for blocks
 * itself: so a part of the blocks is never used for this. */
static enum outcome copy_part(struct source *source, const uint8_t *at, uint32_t bytes)
{
    struct sl_rdma *rdma = source->conn->rdma;
    struct sl_rdma_pool *pool = &source->conn->nic->pool;
    uint32_t needed = (bytes + SL_RDMA_STAGING_BYTES - 1) / SL_RDMA_STAGING_BYTES;
    if (needed > SL_RDMA_REMOTE_SGES - source->count) {
        sl_assert(bytes <= SL_TRANSPORT_UNREGISTERED_BYTES_MAX ||
                  sl_rdma_memory_is_registered(source->conn->nic, at, bytes));
        return REFUSED;
    }
    if (pool->lent > 0 && pool->lent + needed > rdma->options.buffers_max / 2) {
        return LATER;
    }
    while (bytes > 0) {
        struct sl_rdma_block *block = sl_rdma_pool_lend(source->conn->nic);
        if (block == NULL) {
            bool is_full = pool->total[SL_RDMA_BLOCK_STAGING] >= rdma->options.buffers_max;
            return is_full && pool->lent > source->count ? LATER : REFUSED;
        }
        uint32_t some = bytes < SL_RDMA_STAGING_BYTES ? bytes : SL_RDMA_STAGING_BYTES;
        memcpy(block->at, at, some);
        block->next = source->blocks;
        source->blocks = block;
        source->spans[source->count++] =
            (struct sl_rdma_local_sge){.at = block->at,
                                       .bytes = some,
                                       .local_key = block->key,
                                       .remote_key = block->remote_key};
        sl_cell_add(&rdma->base.cells->copied_bytes, some);
        at += some;
        bytes -= some;
    }
    return FOUND;
}

static enum outcome add_part(struct source *source, const uint8_t *at, uint32_t bytes)
{
    if (bytes == 0) {
        return FOUND;
    }
    if (bytes >= SL_RDMA_GATHER_BYTES && find_keys(source, at, bytes)) {
        return FOUND;
    }
    return copy_part(source, at, bytes);
}

/* Finds the payload except its first `skip` bytes, which are in the packet. */
static enum outcome find_source(struct source *source, const struct sl_rdma_view *view,
                                uint32_t skip)
{
    source->count = 0;
    source->blocks = NULL;
    uint32_t begin = SL_FRAME_HEADER_BYTES + skip;
    enum outcome outcome = add_part(source, view->head + begin, view->head_bytes - begin);
    if (outcome == FOUND) {
        outcome = add_part(source, view->tail, view->tail_bytes);
    }
    source->conn->send->refusal.is_set = source->conn->send->refusal.is_set && outcome != FOUND;
    if (outcome != FOUND) {
        bool awake = source->conn->rdma->awake;
        put_blocks(&source->blocks);
        source->conn->rdma->awake =
            awake; /* returned blocks are too few for other waiting frames, too */
    }
    return outcome;
}

/* Memory may be released by others, also on other devices: retry in each round. All later frames
 * of the connection wait meanwhile, so the connection ends after the peer timeout. */
static void wait_for_memory(struct sl_rdma_conn *conn)
{
    struct sl_rdma *rdma = conn->rdma;
    struct sl_rdma_send *send = conn->send;
    const uint64_t now_ns = sl_reactor_now_ns(rdma->base.reactor);
    if (!send->refusal.is_set) {
        send->refusal.is_set = true;
        send->refusal.since_ns = now_ns;
    }
    send->refusal.round = rdma->retry.count;
    if (now_ns - send->refusal.since_ns < sl_transport_patience_ns(&rdma->base)) {
        send->wait_buffer = true;
        sl_rdma_wake_retry(rdma);
        return;
    }
    sl_transport_warn(
        &rdma->base,
        "%s: closed, since for %u ms memory for what is sent could not be registered: "
        "raise the limit of locked memory (ulimit -l), see starling-ps doctor",
        conn->base.peer, rdma->base.peer_timeout_ms);
    sl_rdma_conn_end(conn, SL_ERR_NO_MEMORY);
}

/* Whether this round has already tried. */
static bool waits_for_memory(struct sl_rdma_conn *conn)
{
    struct sl_rdma_send *send = conn->send;
    bool waits = send->refusal.is_set && send->refusal.round == conn->rdma->retry.count;
    send->wait_buffer = send->wait_buffer || waits;
    return waits;
}

static void rdma_long_message_fail(struct sl_rdma_conn *conn, enum outcome outcome)
{
    if (outcome == LATER) {
        conn->send->wait_buffer = true;
    } else {
        wait_for_memory(conn);
    }
}

/* An entry collects the copies of all its frames. */
static void rdma_long_message_keep(struct sl_rdma_entry *entry, struct source *source)
{
    struct sl_rdma_block **end = &source->blocks;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = entry->blocks;
    entry->blocks = source->blocks;
}

/* Packets */

static bool begin_builder(struct sl_rdma_conn *conn, bool more,
                          struct sl_rdma_packet_builder *builder)
{
    bool stalls = more && conn->credit.counted_sent + 1 == conn->credit.limit_theirs;
    builder->flags = stalls ? SL_RDMA_STALLED : 0;
    builder->remote_sge_count = builder->reply_buffer_count = 0;
    builder->frame_bytes = builder->part_count = 0;
    builder->block = sl_rdma_pool_get(conn->nic, SL_RDMA_BLOCK_SEND);
    conn->send->wait_buffer = conn->send->wait_buffer || builder->block == NULL;
    return builder->block != NULL;
}

static void end_builder(struct sl_rdma_packet_builder *builder)
{
    if (builder->block != NULL) {
        sl_rdma_pool_put(builder->block);
    }
}

/* Cannot fail: the builder has a block. */
static void rdma_long_message_emit(struct sl_rdma_send_batch *batch,
                                   struct sl_rdma_packet_builder *builder,
                                   struct sl_rdma_entry *entry)
{
    bool by_reference;
    bool done = sl_rdma_packet_builder_emit(batch, builder, &by_reference);
    sl_assert(done);
    if (by_reference) {
        entry->waits_device = true;
        entry->device_due = sl_rdma_send_batch_number(batch);
    }
    end_builder(builder);
}

/* A frame that the peer reads. Payload that lies with the header is sent in the packet, which
 * saves a read. */
static bool builder_long(struct sl_rdma_conn *conn, const struct sl_rdma_view *view,
                         struct sl_rdma_packet_builder *builder)
{
    uint32_t first_bytes = view->head_bytes - SL_FRAME_HEADER_BYTES;
    uint32_t prefix_bytes =
        view->tail_bytes > 0 && first_bytes <= SL_RDMA_GATHER_BYTES ? first_bytes : 0;
    struct source source = {.conn = conn, .use = SL_RDMA_USE_READ};
    enum outcome outcome = find_source(&source, view, prefix_bytes);
    if (outcome != FOUND) {
        rdma_long_message_fail(conn, outcome);
        return false;
    }
    rdma_long_message_keep(view->entry, &source);
    builder->kind = SL_RDMA_LONG;
    builder->remote_sge_count = (uint8_t)source.count;
    for (uint32_t i = 0; i < source.count; i++) {
        builder->remote_sges[i] = (struct sl_rdma_remote_sge){.at = (uintptr_t)source.spans[i].at,
                                                              .key = source.spans[i].remote_key,
                                                              .bytes = source.spans[i].bytes};
    }
    sl_rdma_packet_builder_add(builder, view->head, SL_FRAME_HEADER_BYTES + prefix_bytes);
    view->entry->waits_peer = true;
    view->entry->peer_due = ++conn->credit.longs_sent;
    return true;
}

/* Whether the frame fits a packet, with room for reply buffer pieces. */
static bool fits_packet(const struct sl_rdma_view *view)
{
    size_t front =
        sizeof(struct sl_rdma_packet) +
        (has_reply_buffer(view) ? SL_RDMA_REMOTE_SGES * sizeof(struct sl_rdma_remote_sge) : 0);
    return front + (uint64_t)rdma_long_message_frame_bytes(view) <= SL_RDMA_PACKET_BYTES;
}

static void lend_reply_buffer(struct sl_rdma_conn *conn, const struct sl_rdma_view *view,
                              uint64_t request_id, struct sl_rdma_packet_builder *builder)
{
    const struct sl_transport_frame *frame = &view->entry->frame;
    sl_assert(view->head_bytes == view->head_left); /* the entry has no other frame */
    builder->reply_buffer_count = sl_rdma_reply_buffer_export(
        conn, request_id, frame->reply_buffer, frame->reply_buffer_bytes, builder->reply_buffer);
}

/* A frame that the peer reads, or a request with a reply buffer, or both; or a plain frame if
 * the reply buffer cannot be used. The payload is found first: the frame goes without its reply
 * buffer if memory suffices for one of them only. */
static bool pack_alone(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view, bool more)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_packet_builder builder;
    struct sl_frame header = header_of(view);
    if (!sl_rdma_send_batch_reserve(batch, 1, conn->nic->caps.sge_max) ||
        !begin_builder(conn, more, &builder)) {
        return false;
    }
    bool fits = fits_packet(view);
    if (!fits && !builder_long(conn, view, &builder)) {
        end_builder(&builder);
        return false;
    }
    if (has_reply_buffer(view)) {
        lend_reply_buffer(conn, view, header.request_id, &builder);
    }
    if (fits) {
        builder.kind = builder.reply_buffer_count > 0 ? SL_RDMA_REPLY_BUFFER : SL_RDMA_FRAMES;
        sl_rdma_packet_builder_add(&builder, view->head, view->head_bytes);
        sl_rdma_packet_builder_add(&builder, view->tail, view->tail_bytes);
    }
    if (header.type == SL_FRAME_REPLY) {
        sl_rdma_reply_buffer_forget(conn, header.request_id);
    }
    rdma_long_message_emit(batch, &builder, view->entry);
    return true;
}

/* Replies to reply buffers */

#define WRITES_MAX (2 * SL_RDMA_REMOTE_SGES)

/* Adds one RDMA WRITE: as much of the source as fits one work request and the target. Advances
 * both. */
static void add_write(struct sl_rdma_send_batch *batch, struct sl_rdma_local_sge **local_sge,
                      struct sl_rdma_remote_sge *target, uint32_t *left)
{
    struct ibv_send_wr *request = sl_rdma_send_batch_add(batch, SL_RDMA_WR_SEND, IBV_WR_RDMA_WRITE);
    uint32_t sge_max = batch->conn->nic->caps.sge_max;
    request->wr.rdma.remote_addr = target->at;
    request->wr.rdma.rkey = target->key;
    while (*left > 0 && target->bytes > 0 && (uint32_t)request->num_sge < sge_max) {
        struct sl_rdma_local_sge *from = *local_sge;
        uint32_t bytes = from->bytes < target->bytes ? from->bytes : target->bytes;
        sl_rdma_send_batch_add_piece(batch, from->at, bytes, from->local_key);
        from->at += bytes;
        from->bytes -= bytes;
        target->at += bytes;
        target->bytes -= bytes;
        *left -= bytes;
        if (from->bytes == 0) {
            (*local_sge)++;
        }
    }
}

static void write_all(struct sl_rdma_send_batch *batch, struct source *source,
                      const struct sl_rdma_remote_sge *targets, uint32_t bytes)
{
    struct sl_rdma_local_sge *local_sge = source->spans;
    while (bytes > 0) {
        struct sl_rdma_remote_sge target = *targets++;
        while (bytes > 0 && target.bytes > 0) {
            add_write(batch, &local_sge, &target, &bytes);
        }
    }
}

/* The WRITEs, then the header: they arrive in this order. */
static bool pack_written(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view,
                         bool more, const struct sl_rdma_remote_sge *targets)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_packet_builder builder;
    uint32_t sge_max = conn->nic->caps.sge_max;
    if (!sl_rdma_send_batch_reserve(batch, WRITES_MAX + 1, WRITES_MAX + sge_max) ||
        !begin_builder(conn, more, &builder)) {
        return false;
    }
    struct source source = {.conn = conn, .use = SL_RDMA_USE_SEND};
    enum outcome outcome = find_source(&source, view, 0);
    if (outcome != FOUND) {
        rdma_long_message_fail(conn, outcome);
        end_builder(&builder);
        return false;
    }
    rdma_long_message_keep(view->entry, &source);
    write_all(batch, &source, targets, rdma_long_message_frame_bytes(view) - SL_FRAME_HEADER_BYTES);
    sl_rdma_reply_buffer_forget(conn, header_of(view).request_id);
    builder.kind = SL_RDMA_WRITTEN;
    sl_rdma_packet_builder_add(&builder, view->head, SL_FRAME_HEADER_BYTES);
    rdma_long_message_emit(batch, &builder, view->entry);
    view->entry->waits_device = true;
    view->entry->device_due = sl_rdma_send_batch_number(batch);
    batch->wants_signal = true;
    return true;
}

bool sl_rdma_long_pack(struct sl_rdma_send_batch *batch, const struct sl_rdma_view *view, bool more)
{
    uint32_t count;
    if (waits_for_memory(batch->conn)) {
        return false;
    }
    const struct sl_rdma_remote_sge *targets = target_of(batch->conn, view, &count);
    return targets != NULL ? pack_written(batch, view, more, targets)
                           : pack_alone(batch, view, more);
}
