/* Work requests of one queue pair, posted together. Owner reactor. */
#ifndef SL_NET_RDMA_SEND_BATCH_H
#define SL_NET_RDMA_SEND_BATCH_H

#include "net/rdma/send.h"

#define SL_RDMA_SEND_BATCH      32U
#define SL_RDMA_SEND_BATCH_SGES 160U
#define SL_RDMA_FRONT_BYTES     (sizeof(struct sl_rdma_packet) + 2 * SL_RDMA_REMOTE_SGES * 16)

/* Work requests, and the data of inline ones. On the stack, not cleared. */
struct sl_rdma_send_batch {
    struct sl_rdma_conn *conn;
    uint32_t count, sge_count;
    bool wants_signal; /* something waits for the last one */
    struct ibv_send_wr requests[SL_RDMA_SEND_BATCH];
    struct ibv_sge sges[SL_RDMA_SEND_BATCH_SGES];
    uint8_t fronts[SL_RDMA_SEND_BATCH][SL_RDMA_FRONT_BYTES];
};

static inline void sl_rdma_send_batch_begin(struct sl_rdma_send_batch *batch,
                                            struct sl_rdma_conn *conn)
{
    batch->conn = conn;
    batch->count = batch->sge_count = 0;
    batch->wants_signal = false;
}

/* Ensures room for so many work requests and SGEs; posts the batch if they do not fit. False:
 * the send queue is full, or the connection has ended. */
bool sl_rdma_send_batch_reserve(struct sl_rdma_send_batch *batch, uint32_t requests, uint32_t sges);

/* Adds a work request without SGEs. kind: SL_RDMA_WR_*. */
struct ibv_send_wr *sl_rdma_send_batch_add(struct sl_rdma_send_batch *batch, uint32_t kind,
                                           enum ibv_wr_opcode opcode);
void sl_rdma_send_batch_add_piece(struct sl_rdma_send_batch *batch, const void *at, uint32_t bytes,
                                  uint32_t key);

/* Value of sends_completed at which the last added request is complete. */
static inline uint32_t sl_rdma_send_batch_number(const struct sl_rdma_send_batch *batch)
{
    return batch->conn->link.sends_posted + batch->count;
}

/* Posts the batch. False: an error, and the connection has ended. */
bool sl_rdma_send_batch_post(struct sl_rdma_send_batch *batch);

/* Frees the block when the last added request is complete. */
void sl_rdma_send_batch_keep_block(struct sl_rdma_send_batch *batch, struct sl_rdma_block *block);

#endif
