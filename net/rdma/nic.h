/* One device as used by one reactor: open verbs objects, the transport's own buffers, and keys
 * of registered memory. Included by internal.h. Owner reactor. */
#ifndef SL_NET_RDMA_NIC_H
#define SL_NET_RDMA_NIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/rdma/device.h"
#include "net/rdma/library.h"
#include "net/rdma/packet.h"
#include "net/transport.h"

#define SL_RDMA_POLL_BATCH 32

struct sl_rdma;
struct sl_rdma_conn;
struct sl_rdma_nic;

enum sl_rdma_block_kind {
    SL_RDMA_BLOCK_RECEIVE, /* SL_RDMA_PACKET_BYTES */
    SL_RDMA_BLOCK_STAGING, /* payload of a LONG packet up to SL_RDMA_STAGING_BYTES; copies of
                              unregistered memory */
    SL_RDMA_BLOCK_SEND     /* SL_RDMA_PACKET_BYTES: an outgoing packet */
};

/* A block of the transport's registered memory; also the token of messages that lie in it. */
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

/* A refused registration: as many bytes, or more, are not tried again in the same round
 * (sl_rdma_wake_retry). */
struct sl_rdma_refusal {
    uint32_t round;
    size_t bytes; /* 0: none */
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
#define SL_RDMA_STAGING_BYTES SL_LIMIT_INLINE_PAYLOAD_BYTES

/* Capabilities of the device, determined once. */
struct sl_rdma_caps {
    bool on_demand;      /* the device supports on-demand paging (logged only) */
    bool relaxed_order;  /* accepts IBV_ACCESS_RELAXED_ORDERING */
    uint32_t inline_max; /* bytes of an inline work request */
    uint32_t sge_max;    /* SGEs of a SEND, at most SL_RDMA_REMOTE_SGES + 2 */
    uint32_t reads_max;  /* outstanding reads of a queue pair */
    uint32_t srq_max;    /* entries of a shared receive queue, at least 1 */
    uint32_t cqe_max;
    bool resizes; /* completion queues can be resized */
};

struct sl_rdma_nic {
    struct sl_rdma *rdma;
    struct sl_rdma_nic *next;
    struct ibv_context *verbs; /* opened by librdmacm, shared by all reactors */
    char name[64];
    struct ibv_pd *pd; /* NULL: the device is gone, and everything is closed */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct sl_rdma_caps caps;
    struct sl_rdma_pool pool;
    struct sl_rdma_chunks *chunks; /* memory.c */
    uint32_t events_unacknowledged;
    uint32_t cq_entries, srq_entries;
    uint32_t cq_promised;           /* completions that may be outstanding */
    uint32_t promises;              /* connections with a reservation */
    uint32_t seen_next, seen_count; /* of `seen`: polled completions that are not handled */
    uint32_t empties;               /* times the completion queue was found empty; wraps */
    bool armed;                     /* the next completion wakes the reactor */
    bool gone;                      /* the device was removed, or reported a fatal error */
    struct sl_rdma_member member;   /* entry in the list of users of the device */
    bool limit_told;                /* the memlock limit was logged */
    struct ibv_wc seen[SL_RDMA_POLL_BATCH];
};
/* nic.c, caps.c, pool.c */

/* The NIC of a device, opened at its first use. Errors, logged: NO_MEMORY, UNSUPPORTED (iWARP;
 * no shared receive queue), IO. */
int sl_rdma_nic_get(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out);
void sl_rdma_nic_close_all(struct sl_rdma *rdma); /* no queue pair and no message is left */

/* Handles asynchronous events of the device, when one of the NIC's descriptors is readable: sets
 * last_wqe, ends failed connections. An event read by another reactor is passed on by device.c. */
void sl_rdma_nic_read_events(struct sl_rdma_nic *nic);

/* The device failed: every connection on it ends with IO. */
void sl_rdma_nic_lose(struct sl_rdma_nic *nic, const char *why);

/* The device was removed: every connection on it ends with IO, on other reactors too. Ignores
 * unknown devices. */
void sl_rdma_nic_remove(struct sl_rdma *rdma, const struct ibv_context *verbs);

/* Closes NICs of removed devices that no connection uses: the kernel waits for that. Not from
 * inside a connection's work, which may hold memory there. */
void sl_rdma_nic_close_gone(struct sl_rdma *rdma);

/* caps.c: asks the device; then tries (needs pd and cq). Errors, logged: IO, UNSUPPORTED. */
int sl_rdma_caps_ask(struct sl_rdma_nic *nic);
int sl_rdma_caps_try(struct sl_rdma_nic *nic);

/* Allocates the first blocks of each kind. Errors, logged: NO_MEMORY. */
int sl_rdma_pool_open(struct sl_rdma_nic *nic);

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

/* Deregisters the blocks. Their memory stays until close: messages may lie in it. */
void sl_rdma_pool_unpin(struct sl_rdma_nic *nic);
void sl_rdma_pool_close(struct sl_rdma_nic *nic);

/* A free block; NULL: none. */
struct sl_rdma_block *sl_rdma_pool_get(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind);

/* A STAGING block for data that the peer is to read, which may take long. The last block is
 * never lent: it is kept for receiving. Return it with unlend. */
struct sl_rdma_block *sl_rdma_pool_lend(struct sl_rdma_nic *nic);
void sl_rdma_pool_unlend(struct sl_rdma_block *block);
void sl_rdma_pool_put(struct sl_rdma_block *block); /* refs 0; RECEIVE: posts it again */

/* memory.c */

int sl_rdma_memory_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_rdma_memory_unregister(struct sl_transport *transport, void *base);

enum sl_rdma_use {
    SL_RDMA_USE_SEND,        /* the device reads it: SEND, RDMA WRITE */
    SL_RDMA_USE_READ,        /* peers read it */
    SL_RDMA_USE_SINK,        /* target of this side's RDMA reads */
    SL_RDMA_USE_REPLY_BUFFER /* peers write it */
};

/* Registers memory with the device, with relaxed ordering if supported. NULL: see errno. */
struct ibv_mr *sl_rdma_memory_pin(struct sl_rdma_nic *nic, void *at, size_t bytes, int access);

/* Whether this errno means a shortage, which may pass. */
bool sl_rdma_memory_is_short(int reason);

/* A registration failed with errno: remembers it, and starts a round of retries. The first time
 * on a NIC, logs the limit and the remedy. */
void sl_rdma_memory_refused(struct sl_rdma_nic *nic, struct sl_rdma_refusal *refusal, size_t bytes);
bool sl_rdma_memory_is_refused(const struct sl_rdma_nic *nic, const struct sl_rdma_refusal *refusal,
                               size_t bytes);

/* One part of a range, under one key. */
struct sl_rdma_local_sge {
    uint8_t *at;
    uint32_t bytes;
    uint32_t local_key, remote_key;
};

/* Keys for a range: writes at most local_sge_max spans that cover it, in order, and returns
 * their count. 0: the layers above have not registered the range, no more memory can be locked,
 * or there are too many spans. Memory is registered with the device at its first use, in chunks.
 * Peers can write a chunk only after its first use as a reply buffer, and then for good. */
uint32_t sl_rdma_memory_find(struct sl_rdma_nic *nic, const void *at, uint32_t bytes,
                             enum sl_rdma_use use, struct sl_rdma_local_sge *spans,
                             uint32_t local_sge_max);

/* Whether the layers above have registered the range. */
bool sl_rdma_memory_is_registered(struct sl_rdma_nic *nic, const void *at, uint32_t bytes);

int sl_rdma_memory_open(struct sl_rdma_nic *nic);
void sl_rdma_memory_close(struct sl_rdma_nic *nic);

#endif
