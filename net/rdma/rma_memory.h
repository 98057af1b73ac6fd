/* Regions of one-sided operations, each registered with one NIC, on an offload thread. Owner
 * reactor. */
#ifndef SL_NET_RDMA_RMA_MEMORY_H
#define SL_NET_RDMA_RMA_MEMORY_H

#include "net/rdma/state.h"
#include "net/transport_rma.h"

/* Starts to register a region, with exactly this access of peers; region_added follows. Without a
 * NIC (NULL), or if it fails, the region waits for pin_again. Errors: EXISTS, TOO_LARGE, NO_MEMORY,
 * IO. */
int sl_rdma_rma_memory_add(struct sl_rdma *rdma, struct sl_rdma_nic *nic, uint64_t key, void *base,
                           size_t bytes, unsigned access);
void sl_rdma_rma_memory_remove(struct sl_rdma *rdma, uint64_t key); /* region_removed follows */

/* The local key of a range. False: it is in no region of this NIC. */
bool sl_rdma_rma_memory_key(const struct sl_rdma_nic *nic, const void *at, uint32_t bytes,
                            uint32_t *key);

/* Whether a region is being registered or deregistered: the NIC must stay open. */
bool sl_rdma_rma_memory_is_busy(const struct sl_rdma *rdma);
/* Registers the regions that no NIC has with this one; region_added follows. When the NIC is
 * opened, and from time to time: an attempt may have failed. */
void sl_rdma_rma_memory_pin_again(struct sl_rdma_nic *nic);
/* Deregisters the regions, before the NIC closes. */
void sl_rdma_rma_memory_unpin(struct sl_rdma_nic *nic);
void sl_rdma_rma_memory_close(struct sl_rdma *rdma); /* before its NICs */

#endif
