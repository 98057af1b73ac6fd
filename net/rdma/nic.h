/* A device as one reactor uses it: what is open there, the buffers that the transport receives into
 * and sends from, and the keys of memory that is others'. A part of internal.h. Owner reactor. */
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
    SL_RDMA_BLOCK_STAGING, /* a payload that `sink` is not asked for, and that fits no packet */
    SL_RDMA_BLOCK_SEND,    /* SL_RDMA_PACKET_BYTES: packets that are copied together */
    SL_RDMA_BLOCK_COPY     /* no pool's: a packet that came before its connection did */
};

/* Registered memory of the transport's own; also the token of a message that lies in it. */
struct sl_rdma_block {
    enum sl_rdma_block_kind kind;
    uint32_t refs;             /* messages delivered and not released, and whoever reads it now */
    uint32_t key;              /* local */
    uint32_t remote_key;       /* STAGING: peers may read it */
    uint32_t counted;          /* RECEIVE: credit that its release gives back, 0 or 1 */
    struct sl_rdma_conn *conn; /* RECEIVE: that it came by; for credit, while its serial is: */
    uint64_t conn_serial;
    struct sl_rdma_nic *nic;
    struct sl_rdma_block *next; /* while free; SEND: of those of one work request */
    uint8_t *at;                /* aligned to 64 */
};

/* The device could not have so much memory locked: as much, or more, is not asked for again in the
 * same round of retries (sl_rdma_liveness_retry). */
struct sl_rdma_refusal {
    uint32_t round;
    size_t bytes; /* 0: nothing was refused */
};

struct sl_rdma_slab; /* pool.c */

struct sl_rdma_pool {
    struct sl_rdma_slab *slabs;
    struct sl_rdma_block *free[3]; /* by kind */
    struct sl_rdma_block *again;   /* receive buffers that wait to be posted */
    uint32_t again_count;
    uint32_t reserved;                  /* receive buffers that connections may count on */
    uint32_t posted;                    /* to the shared receive queue */
    uint32_t total[3];                  /* by kind */
    uint32_t lent;                      /* STAGING blocks that hold what peers are to read */
    struct sl_rdma_refusal refusals[3]; /* by kind */
};
#define SL_RDMA_STAGING_BYTES SL_LIMIT_INLINE_PAYLOAD_BYTES

/* What the device can; decided once, by asking or trying. */
struct sl_rdma_caps {
    bool on_demand;      /* registering pins nothing */
    bool relaxed_order;  /* IBV_ACCESS_RELAXED_ORDERING is taken */
    uint32_t inline_max; /* bytes in a work request */
    uint32_t sge_max;    /* pieces of a SEND, at most SL_RDMA_REMOTE_SGES + 2 */
    uint32_t reads_max;  /* outstanding, of a queue pair */
    uint32_t srq_max;    /* entries of a shared receive queue, at least 1 */
    uint32_t cqe_max;
    bool resizes; /* a completion queue can grow */
};

struct sl_rdma_nic {
    struct sl_rdma *rdma;
    struct sl_rdma_nic *next;
    struct ibv_context *verbs; /* librdmacm's, which all reactors share */
    char name[64];
    struct ibv_pd *pd; /* NULL: the device is gone, and all that was open on it was given back */
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct sl_rdma_caps caps;
    struct sl_rdma_pool pool;
    struct sl_rdma_chunks *chunks; /* memory.c: what is registered here of the transport's memory */
    uint32_t events_unacknowledged;
    uint32_t cq_entries, srq_entries;
    uint32_t cq_promised;           /* completions that may be outstanding */
    uint32_t promises;              /* connections that have one */
    uint32_t seen_next, seen_count; /* of `seen`: completions polled and not looked at */
    uint32_t empties;               /* times that the completion queue was seen empty; runs over */
    bool armed;                     /* the next completion wakes the channel */
    bool gone;                      /* the device was removed, or is in a fatal state */
    struct sl_rdma_member member;   /* of those who use the device */
    bool limit_told;                /* a limit of locked memory was logged */
    struct ibv_wc seen[SL_RDMA_POLL_BATCH];
};
/* ---- rail.c, pool.c (memory of the transport's own) -------------------------------------------
 */

/* The rail for a device, opened when it is new. Errors: NO_MEMORY, UNSUPPORTED, IO; logged. */
int sl_rdma_nic_get(struct sl_rdma *rdma, struct ibv_context *verbs, struct sl_rdma_nic **out);
void sl_rdma_nic_close_all(struct sl_rdma *rdma); /* no queue pairs, no messages held */

/* Asynchronous events of the device, when a descriptor of the rail is readable: says last_wqe of
 * the links that they concern and marks their connections ready; ends those that are lost. Events
 * that another reactor has read come to the reactor of the queue pair (device.c). */
void sl_rdma_nic_read_events(struct sl_rdma_nic *nic);

/* The device does not work any more (rdma_cm says so too): every connection on it ends with IO. */
void sl_rdma_nic_lose(struct sl_rdma_nic *nic, const char *why);

/* Its device was removed: every connection on it ends with IO, and other reactors' there too. No
 * rail of the device: nothing. */
void sl_rdma_nic_remove(struct sl_rdma *rdma, const struct ibv_context *verbs);

/* Gives back what is open on devices that are gone and that no connection is on any more: their
 * removal waits for that. Not from inside what a connection does, which may hold memory there. */
void sl_rdma_nic_close_gone(struct sl_rdma *rdma);

/* abilities.c: what the device says, and what is found by trying (with pd and cq). Errors: IO. */
int sl_rdma_caps_ask(struct sl_rdma_nic *nic);
int sl_rdma_caps_try(struct sl_rdma_nic *nic);

/* Has what the first connection sends and receives with. Errors: NO_MEMORY, logged. */
int sl_rdma_pool_open(struct sl_rdma_nic *nic);

/* Reserves for one connection room in the completion queue, for SL_RDMA_SENDS too, and window +
 * SL_RDMA_SPARE receive buffers, and posts them; or changes what it has. False: memory or a limit
 * does not allow it; what it had it keeps. */
bool sl_rdma_pool_reserve(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn, uint32_t window);

/* Whether the device's queues are as long as they may be, and have no room for one more connection.
 */
bool sl_rdma_pool_is_full(const struct sl_rdma_nic *nic);

/* The connection's queue pair has been destroyed, or never was. */
void sl_rdma_pool_release(struct sl_rdma_nic *nic, struct sl_rdma_conn *conn);

/* The block of a receive completion, successful or not. The caller owns the block and puts it. */
struct sl_rdma_block *sl_rdma_pool_take(struct sl_rdma_nic *nic, const struct ibv_wc *completion);

/* Posts what was put. To be called before limits are told to peers, in each flush; between two of
 * them 16 are posted at once. */
void sl_rdma_pool_flush(struct sl_rdma_nic *nic);

/* Now and then: posts what is free and should be posted, since the device did not take it before.
 */
void sl_rdma_pool_refill(struct sl_rdma_nic *nic);

/* The device no longer knows the memory, which stays until close: messages may lie in it. */
void sl_rdma_pool_unpin(struct sl_rdma_nic *nic);
void sl_rdma_pool_close(struct sl_rdma_nic *nic);

/* Free blocks; NULL: none can be had now. */
struct sl_rdma_block *sl_rdma_pool_get(struct sl_rdma_nic *nic, enum sl_rdma_block_kind kind);

/* A STAGING block for what the peer is to read, which may take long. The last that there is is not
 * lent: with it what comes is received. Back by unlend. */
struct sl_rdma_block *sl_rdma_pool_lend(struct sl_rdma_nic *nic);
void sl_rdma_pool_unlend(struct sl_rdma_block *block);
void sl_rdma_pool_put(struct sl_rdma_block *block); /* refs 0; RECEIVE: posts it again */

/* ---- memory.c (memory of others) --------------------------------------------------------------
 */

int sl_rdma_memory_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_rdma_memory_unregister(struct sl_transport *transport, void *base);

enum sl_rdma_use {
    SL_RDMA_USE_SEND,        /* the device reads: SEND, WRITE from it */
    SL_RDMA_USE_READ,        /* peers read it */
    SL_RDMA_USE_SINK,        /* the target of our reads */
    SL_RDMA_USE_REPLY_BUFFER /* peers write it */
};

/* Registers with the device, with relaxed order where it can. NULL: errno says why. */
struct ibv_mr *sl_rdma_memory_pin(struct sl_rdma_nic *nic, void *at, size_t bytes, int access);

/* Whether errno says that there was too little to be had, which may pass. */
bool sl_rdma_memory_is_short(int reason);

/* It was not possible, by errno: remembers that, and sees to another round of retries soon. The
 * first time for a rail it logs what to do about it. */
void sl_rdma_memory_refused(struct sl_rdma_nic *nic, struct sl_rdma_refusal *refusal, size_t bytes);
bool sl_rdma_memory_is_refused(const struct sl_rdma_nic *nic, const struct sl_rdma_refusal *refusal,
                               size_t bytes);

/* One part of a range, under one key. */
struct sl_rdma_local_sge {
    uint8_t *at;
    uint32_t bytes;
    uint32_t local_key, remote_key;
};

/* Keys for a range: writes at most local_sge_max spans that cover it, in order; returns their
 * count. 0: the layers above have not registered the range, no more memory can be locked, or the
 * range needs too many spans. Memory is registered with the device at its first use, chunk by
 * chunk. Peers can write a chunk only after its first use as a reply buffer, and then for good. */
uint32_t sl_rdma_memory_find(struct sl_rdma_nic *nic, const void *at, uint32_t bytes,
                             enum sl_rdma_use use, struct sl_rdma_local_sge *spans,
                             uint32_t local_sge_max);

/* Whether the layers above have registered the range. */
bool sl_rdma_memory_is_registered(struct sl_rdma_nic *nic, const void *at, uint32_t bytes);

int sl_rdma_memory_open(struct sl_rdma_nic *nic);
void sl_rdma_memory_close(struct sl_rdma_nic *nic);

#endif
