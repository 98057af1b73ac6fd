/* Registrations with a device of memory that no layer above has registered: made for the occasion,
 * and kept beyond it where the kernel tells when the memory goes (unmapped.h), the least recently
 * used ones up to a limit. Where it does not, they end with their last use; and so do those that
 * let peers write. Owner reactor. */
#ifndef SL_NET_RDMA_CACHE_H
#define SL_NET_RDMA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ibv_mr;
struct sl_rdma_cache;
struct sl_rdma_hold;
struct sl_rdma_nic;

#define SL_RDMA_CACHE_BYTES   ((size_t)256 << 20)
#define SL_RDMA_CACHE_ENTRIES 1024U

/* Keeps at most so much that is not in use. NULL: no memory. */
struct sl_rdma_cache *sl_rdma_cache_open(struct sl_rdma_nic *nic, size_t bytes_max,
                                         uint32_t entries_max);
void sl_rdma_cache_close(struct sl_rdma_cache **cache); /* nothing is in use */

/* Gives back what is not in use; false: nothing was there. */
bool sl_rdma_cache_shrink(struct sl_rdma_cache *cache);

/* A registration that holds [at, at + bytes), with at least `access` (IBV_ACCESS_*), for use until
 * put. NULL: the device refuses, or no memory. */
struct sl_rdma_hold *sl_rdma_cache_get(struct sl_rdma_cache *cache, const void *at, size_t bytes,
                                       int access);
void sl_rdma_cache_put(struct sl_rdma_cache *cache, struct sl_rdma_hold *hold);
const struct ibv_mr *sl_rdma_cache_region(const struct sl_rdma_hold *hold);

#endif
