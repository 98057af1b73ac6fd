/* The connections of a transport, by index and by queue pair. A work request names its connection
 * in its wr_id. Owner reactor. */
#ifndef SL_NET_RDMA_CONN_TABLE_H
#define SL_NET_RDMA_CONN_TABLE_H

#include "net/rdma/state.h"

/* wr_id of a receive: address of the block, with bit 0 set. Else, from the top: generation (24
 * bits), kind (2: SL_RDMA_WR_*), number (20), index of the connection (17), zero (1). */
#define SL_RDMA_WR_SEND    0
#define SL_RDMA_WR_READ    1
#define SL_RDMA_WR_NUMBERS 0xfffffU /* numbers of work requests are known modulo this plus one */

static inline uint64_t sl_rdma_wr_id(const struct sl_rdma_conn *conn, uint32_t kind,
                                     uint32_t number)
{
    return (uint64_t)(conn->link.generation & 0xffffff) << 40 | (uint64_t)kind << 38 |
           (uint64_t)(number & SL_RDMA_WR_NUMBERS) << 18 | (uint64_t)conn->index << 1;
}

static inline uint32_t sl_rdma_wr_kind(uint64_t wr_id)
{
    return wr_id >> 38 & 3;
}

static inline uint32_t sl_rdma_wr_number(uint64_t wr_id)
{
    return wr_id >> 18 & SL_RDMA_WR_NUMBERS;
}

/* Gives the connection an index and a serial. False: no memory, or no index is free. */
bool sl_rdma_conn_table_add(struct sl_rdma *rdma, struct sl_rdma_conn *conn);
void sl_rdma_conn_table_remove(struct sl_rdma_conn *conn);

/* Enters the queue pair of link.id, or removes it. */
void sl_rdma_conn_table_add_queue_pair(struct sl_rdma_conn *conn);
void sl_rdma_conn_table_remove_queue_pair(struct sl_rdma_conn *conn);

/* The connection of a completion; NULL: of an earlier queue pair. */
struct sl_rdma_conn *sl_rdma_conn_of(struct sl_rdma *rdma, uint64_t wr_id);
struct sl_rdma_conn *sl_rdma_conn_of_queue_pair(const struct sl_rdma_nic *nic, uint32_t number);

#endif
