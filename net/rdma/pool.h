/* The transport's own registered memory on a NIC, in blocks, and the receive buffers and queue
 * entries that connections have reserved. Owner reactor. */
#ifndef SL_NET_RDMA_POOL_H
#define SL_NET_RDMA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "core/limits.h"
#include "net/rdma/memory.h"

#define SL_RDMA_STAGING_BYTES SL_LIMIT_INLINE_PAYLOAD_BYTES

struct sl_rdma_conn;
struct sl_rdma_nic;

enum sl_rdma_block_kind {
    SL_RDMA_BLOCK_RECEIVE, /* SL_RDMA_PACKET_BYTES */
    SL_RDMA_BLOCK_STAGING, /* payload of a LONG packet up to SL_RDMA_STAGING_BYTES; copies of
                              unregistered memory */
    SL_RDMA_BLOCK_SEND     /* SL_RDMA_PACKET_BYTES: an outgoing packet */
};

/* A block of registered memory; also the token of messages that lie in it. */
struct sl_rdma_block {
    enum sl_rdma_block_kind kind;
    uint32_t refs;       /* messages not released, plus one while receive.c uses it */
    uint32_t key;        /* local */
    uint32_t remote_key; /* STAGING: peers may read it */
    uint32_t counted;    /* RECEIVE: credit that its release gives back, 0 or 1 */
    struct sl_rdma_conn
        *conn; /* RECEIVE: its connection; valid for credit only while conn_serial matches: */
    uint64_t conn_serial;
    struct sl_rdma_nic *nic;
    struct sl_rdma_block *next; /* while free; SEND: next of the same work request */
    uint8_t *at;                /* aligned to 64 */
};

struct sl_rdma_slab; /* pool.c */

struct sl_rdma_pool {
    struct sl_rdma_slab *slabs;
    struct sl_rdma_block *free[3]; /* by kind */
    struct sl_rdma_block *again;   /* receive buffers to be posted again */
    uint32_t again_count;
    uint32_t reserved;                  /* receive buffers granted to connections */
    uint32_t posted;                    /* to the shared receive queue */
    uint32_t total[3];                  /* by kind */
    uint32_t lent;                      /* STAGING blocks with data that peers are to read */
    struct sl_rdma_refusal refusals[3]; /* by kind */
};

/* Allocates the first blocks of each kind. Errors, logged: NO_MEMORY. */
int sl_rdma_pool_open(struct sl_rdma_nic *nic);

/* Deregisters the blocks. Their memory stays until close: messages may lie in it. */
void sl_rdma_pool_unpin(struct sl_rdma_nic *nic);
void sl_rdma_pool_close(struct sl_rdma_nic *nic);

/* Reserves for a connection: room in the completion queue (for SL_RDMA_SENDS too) and window +
 * SL_RDMA_SPARE receive buffers, which are posted. Or changes an existing reservation. False: no
 * memory, or a limit; the reservation stays as it was. */
bool sl_rdma_pool_reserve(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn, uint32_t window);

/* Whether the queues are at their maximal size and have no room for another connection. */
bool sl_rdma_pool_is_full(const struct sl_rdma_nic *nic);

/* Returns the reservation. The queue pair is destroyed, or never existed. */
void sl_rdma_pool_release(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn);

/* The block of a receive completion, successful or not. The caller owns the block and puts it. */
struct sl_rdma_block *sl_rdma_pool_take(struct sl_rdma_nic *nic, const struct ibv_wc *completion);

/* Posts returned receive buffers. Call in each flush before limits are sent to peers; between
 * two calls a batch of 16 is posted at once. */
void sl_rdma_pool_flush(struct sl_rdma_nic *nic);

/* From liveness: posts free receive buffers that the device refused earlier. */
void sl_rdma_pool_refill(struct sl_rdma_nic *nic);

/* A free block; NULL: none. */
struct sl_rdma_block *sl_rdma_pool_get(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind);

/* A STAGING block for data that the peer is to read, which may take long. The last block is
 * never lent: it is kept for receiving. Return it with unlend. */
struct sl_rdma_block *sl_rdma_pool_lend(struct sl_rdma_nic *nic);
void sl_rdma_pool_unlend(struct sl_rdma_block *block);
void sl_rdma_pool_put(struct sl_rdma_block *block); /* refs 0; RECEIVE: posts it again */

#endif
