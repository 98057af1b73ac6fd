/* Memory that the layers above registered: its keys, by NIC. Owner reactor. */
#ifndef SL_NET_RDMA_MEMORY_H
#define SL_NET_RDMA_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "net/transport.h"

struct sl_rdma_nic;

int sl_rdma_memory_register(struct sl_transport *transport, void *base, size_t bytes);
void sl_rdma_memory_unregister(struct sl_transport *transport, void *base);

int sl_rdma_memory_open(struct sl_rdma_nic *nic);
void sl_rdma_memory_close(struct sl_rdma_nic *nic);

/* A refused registration: as many bytes, or more, are not tried again in the same round
 * (sl_rdma_wake_retry). */
struct sl_rdma_refusal {
    uint32_t round;
    size_t bytes; /* 0: none */
};

/* Registers memory with the device, with relaxed ordering if supported. NULL: see errno. */
struct ibv_mr *sl_rdma_memory_pin(struct sl_rdma_nic *nic, void *at, size_t bytes, int access);

/* Logs a failed registration, the limit and the remedy; once for each NIC. */
void sl_rdma_memory_explain(struct sl_rdma_nic *nic, size_t bytes, int reason);

/* Whether this errno means a shortage, which may pass. */
bool sl_rdma_memory_is_short(int reason);

/* A registration failed with errno: remembers it, and starts a round of retries. The first time
 * on a NIC, logs the limit and the remedy. */
void sl_rdma_memory_refused(struct sl_rdma_nic *nic, struct sl_rdma_refusal *refusal, size_t bytes);
bool sl_rdma_memory_is_refused(const struct sl_rdma_nic *nic, const struct sl_rdma_refusal *refusal,
                               size_t bytes);

enum sl_rdma_use {
    SL_RDMA_USE_SEND,        /* the device reads it: SEND, RDMA WRITE */
    SL_RDMA_USE_READ,        /* peers read it */
    SL_RDMA_USE_SINK,        /* target of this side's RDMA reads */
    SL_RDMA_USE_REPLY_BUFFER /* peers write it */
};

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

#endif
