/* One device as used by one reactor: open verbs objects, the transport's own buffers, and keys
 * of registered memory. Owner reactor. */
#ifndef SL_NET_RDMA_NIC_H
#define SL_NET_RDMA_NIC_H

#include "net/rdma/caps.h"
#include "net/rdma/device.h"
#include "net/rdma/pool.h"

#define SL_RDMA_POLL_BATCH 32

struct sl_rdma;

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

#endif
