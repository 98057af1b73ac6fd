/* Packets to work requests. Owner reactor. */
#ifndef SL_NET_RDMA_PACKET_BUILDER_H
#define SL_NET_RDMA_PACKET_BUILDER_H

#include "net/rdma/send_batch.h"

/* A shorter part of a packet is copied: that costs less than a key, another SGE, and a
 * completion that `sent` must wait for. */
#define SL_RDMA_GATHER_BYTES 1024U
#define SL_RDMA_PARTS        48U /* of a packet */

/* A packet under construction. */
struct sl_rdma_packet_builder {
    enum sl_rdma_packet_kind kind;
    uint8_t flags;
    uint8_t remote_sge_count, reply_buffer_count;
    uint32_t frame_bytes, part_count;
    struct sl_rdma_block
        *block; /* SEND: for a packet that does not fit inline; NULL: taken on demand */
    struct sl_rdma_remote_sge remote_sges[SL_RDMA_REMOTE_SGES], reply_buffer[SL_RDMA_REMOTE_SGES];
    struct sl_rdma_part {
        const uint8_t *at;
        uint32_t bytes;
    } parts[SL_RDMA_PARTS];
};

void sl_rdma_packet_builder_add(struct sl_rdma_packet_builder *builder, const uint8_t *at,
                                uint32_t bytes);

static inline uint32_t sl_rdma_packet_builder_bytes(const struct sl_rdma_packet_builder *builder)
{
    return (uint32_t)sizeof(struct sl_rdma_packet) +
           (uint32_t)sizeof(struct sl_rdma_remote_sge) *
               (builder->remote_sge_count + builder->reply_buffer_count) +
           builder->frame_bytes;
}

/* Adds the packet to the batch, which has room for one work request with all SGEs. False: no
 * SEND block. *by_reference: parts stay where they are until the request is complete. */
bool sl_rdma_packet_builder_emit(struct sl_rdma_send_batch *batch,
                                 struct sl_rdma_packet_builder *builder, bool *by_reference);

#endif
