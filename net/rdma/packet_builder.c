#include "net/rdma/packet_builder.h"

#include <string.h>

#include "core/bytes.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/credit.h"

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
            sl_cell_add(&conn->rdma->base.cells->copied_bytes, part->bytes);
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
