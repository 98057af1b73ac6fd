#include <string.h>

#include "core/bytes.h"
#include "net/rdma/send.h"

static const uint8_t zeros[8];

void sl_rdma_packet_builder_add(struct sl_rdma_packet_builder *builder, const uint8_t *at,
                                uint32_t bytes)
{
    if (bytes == 0) {
        return;
    }
    struct sl_rdma_part *last =
        builder->part_count > 0 ? &builder->parts[builder->part_count - 1] : NULL;
    builder->frame_bytes += bytes;
    if (last != NULL && last->at + last->bytes == at) {
        last->bytes += bytes;
        return;
    }
    sl_assert(builder->part_count < SL_RDMA_PARTS);
    builder->parts[builder->part_count++] = (struct sl_rdma_part){.at = at, .bytes = bytes};
}

/* From packet to work request */

/* Writes head and pieces. Returns their length. */
static uint32_t write_front(struct sl_rdma_conn *conn, const struct sl_rdma_packet_builder *builder,
                            uint8_t *to)
{
    struct sl_rdma_packet head = {.kind = (uint8_t)builder->kind,
                                  .flags = builder->flags,
                                  .remote_sge_count = builder->remote_sge_count,
                                  .reply_buffer_count = builder->reply_buffer_count,
                                  .frame_bytes = builder->frame_bytes};
    sl_rdma_credit_tell(conn, &head);
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, SL_RDMA_FRONT_BYTES);
    sl_bytes_put(&writer, &head, sizeof head);
    sl_bytes_put(&writer, builder->remote_sges,
                 builder->remote_sge_count * sizeof builder->remote_sges[0]);
    sl_bytes_put(&writer, builder->reply_buffer,
                 builder->reply_buffer_count * sizeof builder->reply_buffer[0]);
    return (uint32_t)(SL_RDMA_FRONT_BYTES - writer.left);
}

static void emit_inline(struct sl_rdma_send_batch *batch,
                        const struct sl_rdma_packet_builder *builder)
{
    struct ibv_send_wr *request = sl_rdma_send_batch_add(batch, SL_RDMA_WR_SEND, IBV_WR_SEND);
    uint8_t *front = batch->fronts[batch->count - 1];
    request->send_flags |= IBV_SEND_INLINE;
    sl_rdma_send_batch_add_piece(batch, front, write_front(batch->conn, builder, front), 0);
    for (uint32_t i = 0; i < builder->part_count; i++) {
        sl_rdma_send_batch_add_piece(batch, builder->parts[i].at, builder->parts[i].bytes, 0);
    }
}

/* A SEND through a block. The block holds head, pieces and all parts that are short or not
 * registered; other parts are gathered from where they are. */
struct gather {
    struct sl_rdma_send_batch *batch;
    struct sl_rdma_block *block;
    uint32_t filled, given; /* bytes of the block: written, and added as SGEs */
    uint32_t remote_sges, limit;
};

static void give_filled(struct gather *gather)
{
    if (gather->filled != gather->given) {
        sl_rdma_send_batch_add_piece(gather->batch, gather->block->at + gather->given,
                                     gather->filled - gather->given, gather->block->key);
        gather->given = gather->filled;
        gather->remote_sges++;
    }
}

/* Needs up to 4 SGEs: the block's bytes so far, the part (2 at a chunk border), and the bytes
 * that follow. */
static bool give_part(struct gather *gather, const struct sl_rdma_part *part)
{
    struct sl_rdma_local_sge spans[2];
    if (part->bytes < SL_RDMA_GATHER_BYTES || gather->remote_sges + 4 > gather->limit) {
        return false;
    }
    uint32_t count = sl_rdma_memory_find(gather->batch->conn->nic, part->at, part->bytes,
                                         SL_RDMA_USE_SEND, spans, 2);
    if (count == 0) {
        return false;
    }
    give_filled(gather);
    for (uint32_t i = 0; i < count; i++) {
        sl_rdma_send_batch_add_piece(gather->batch, spans[i].at, spans[i].bytes,
                                     spans[i].local_key);
        gather->remote_sges++;
    }
    return true;
}

static bool emit_block(struct sl_rdma_send_batch *batch,
                       const struct sl_rdma_packet_builder *builder, struct sl_rdma_block *block)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct gather gather = {.batch = batch, .block = block, .limit = conn->nic->caps.sge_max};
    bool by_reference = false;
    (void)sl_rdma_send_batch_add(batch, SL_RDMA_WR_SEND, IBV_WR_SEND);
    gather.filled = write_front(conn, builder, block->at);
    for (uint32_t i = 0; i < builder->part_count; i++) {
        const struct sl_rdma_part *part = &builder->parts[i];
        if (give_part(&gather, part)) {
            by_reference = true;
        } else {
            memcpy(block->at + gather.filled, part->at, part->bytes);
            gather.filled += part->bytes;
            conn->rdma->stats.copied_bytes += part->bytes;
        }
    }
    give_filled(&gather);
    sl_rdma_send_batch_keep_block(batch, block);
    return by_reference;
}

bool sl_rdma_packet_builder_emit(struct sl_rdma_send_batch *batch,
                                 struct sl_rdma_packet_builder *builder, bool *by_reference)
{
    const struct sl_rdma_caps *can = &batch->conn->nic->caps;
    *by_reference = false;
    if (sl_rdma_packet_builder_bytes(builder) <= can->inline_max &&
        1 + builder->part_count <= can->sge_max) {
        emit_inline(batch, builder);
    } else {
        struct sl_rdma_block *block = builder->block;
        builder->block = NULL;
        if (block == NULL) {
            block = sl_rdma_pool_get(batch->conn->nic, SL_RDMA_BLOCK_SEND);
        }
        if (block == NULL) {
            return false;
        }
        *by_reference = emit_block(batch, builder, block);
    }
    return true;
}

/* From the queue */

/* A position in the queue. */
struct cursor {
    uint32_t next, offset;
};

static uint32_t payload_bytes_of(const uint8_t *head)
{
    uint32_t bytes;
    memcpy(&bytes, head + offsetof(struct sl_frame, payload_bytes), sizeof bytes);
    return bytes;
}

/* The frame at the cursor: all that is left of its entry, unless more frames follow in the
 * entry's head. */
static struct sl_rdma_view view_at(struct sl_rdma_send *send, const struct cursor *cursor)
{
    struct sl_rdma_entry *entry = sl_rdma_entry_at(send, cursor->next);
    const struct sl_transport_frame *frame = &entry->frame;
    struct sl_rdma_view view = {.entry = entry,
                                .head = (const uint8_t *)frame->head + cursor->offset,
                                .tail = frame->payload,
                                .head_bytes = frame->head_bytes - cursor->offset,
                                .tail_bytes = frame->payload_bytes,
                                .head_left = frame->head_bytes - cursor->offset};
    uint64_t bytes = (uint64_t)SL_FRAME_HEADER_BYTES + payload_bytes_of(view.head);
    if (view.head_left > bytes && view.head_left - bytes >= SL_FRAME_HEADER_BYTES) {
        view.head_bytes = (uint32_t)bytes;
        view.tail_bytes = 0;
    }
    return view;
}

static void step_over(struct cursor *cursor, const struct sl_rdma_view *view)
{
    cursor->offset += view->head_bytes;
    if (view->head_bytes == view->head_left) {
        cursor->next++;
        cursor->offset = 0;
    }
}

/* False: the frame does not fit. */
static bool add_frame(struct sl_rdma_conn *conn, struct sl_rdma_packet_builder *builder,
                      const struct sl_rdma_view *view)
{
    uint32_t pad = (uint32_t)sl_bytes_pad8(builder->frame_bytes) - builder->frame_bytes;
    if (builder->part_count + 3 > SL_RDMA_PARTS ||
        sl_rdma_packet_builder_bytes(builder) + pad + view->head_bytes + view->tail_bytes >
            SL_RDMA_PACKET_BYTES ||
        sl_rdma_long_is(conn, view)) {
        return false;
    }
    sl_rdma_packet_builder_add(builder, zeros, pad);
    sl_rdma_packet_builder_add(builder, view->head, view->head_bytes);
    sl_rdma_packet_builder_add(builder, view->tail, view->tail_bytes);
    return true;
}

/* A reply in a FRAMES packet uses up its request's reply buffer. */
static void forget_reply_buffer(struct sl_rdma_conn *conn, const struct sl_rdma_view *view)
{
    struct sl_frame header;
    if (conn->send->reply_buffers != NULL) {
        memcpy(&header, view->head, sizeof header);
        if (header.type == SL_FRAME_REPLY) {
            sl_rdma_reply_buffer_forget(conn, header.request_id);
        }
    }
}

/* The frames up to `to` are in the last packet. */
static void advance(struct sl_rdma_send_batch *batch, const struct cursor *to, bool by_reference)
{
    struct sl_rdma_send *send = batch->conn->send;
    uint32_t end = to->offset > 0 ? to->next + 1 : to->next;
    for (uint32_t i = send->next; by_reference && i != end; i++) {
        struct sl_rdma_entry *entry = sl_rdma_entry_at(send, i);
        entry->waits_device = true;
        entry->device_due = sl_rdma_send_batch_number(batch);
    }
    send->next = to->next;
    send->offset = to->offset;
    batch->conn->counted_sent++;
}

static bool pack_short(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_send *send = conn->send;
    struct sl_rdma_packet_builder builder;
    builder.kind = SL_RDMA_FRAMES;
    builder.remote_sge_count = builder.reply_buffer_count = 0;
    builder.frame_bytes = builder.part_count = 0;
    builder.block = NULL;
    struct cursor cursor = {.next = send->next, .offset = send->offset};
    uint32_t frames = 0;
    while (cursor.next != send->tail) {
        struct sl_rdma_view view = view_at(send, &cursor);
        if (!add_frame(conn, &builder, &view)) {
            break;
        }
        forget_reply_buffer(conn, &view);
        step_over(&cursor, &view);
        frames++;
    }
    bool stalls = conn->counted_sent + 1 == conn->limit_theirs && cursor.next != send->tail;
    builder.flags = stalls ? SL_RDMA_STALLED : 0;
    bool by_reference;
    if (!sl_rdma_packet_builder_emit(batch, &builder, &by_reference)) {
        send->wait_buffer = true;
        return false;
    }
    conn->rdma->stats.frames_sent += frames;
    advance(batch, &cursor, by_reference);
    return true;
}

bool sl_rdma_pack(struct sl_rdma_send_batch *batch)
{
    struct sl_rdma_conn *conn = batch->conn;
    struct sl_rdma_send *send = conn->send;
    if (send->next == send->tail || !sl_rdma_credit_left(conn)) {
        return false;
    }
    struct cursor cursor = {.next = send->next, .offset = send->offset};
    struct sl_rdma_view view = view_at(send, &cursor);
    if (!sl_rdma_long_is(conn, &view)) {
        return sl_rdma_send_batch_reserve(batch, 1, conn->nic->caps.sge_max) && pack_short(batch);
    }
    step_over(&cursor, &view);
    if (!sl_rdma_long_pack(batch, &view, cursor.next != send->tail)) {
        return false;
    }
    conn->rdma->stats.frames_sent++;
    advance(batch, &cursor, false);
    return true;
}
