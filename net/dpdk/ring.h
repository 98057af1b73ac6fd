/* A ring maps ascending numbers, which wrap around, to items: item n is items[n & mask]. It starts
 * small, so that idle connections cost little memory, and doubles when full. A new item is zero or
 * has old content. Pure. */
#ifndef SL_NET_DPDK_RING_H
#define SL_NET_DPDK_RING_H

#include <stddef.h>
#include <stdint.h>

#define SL_DPDK_RING_LEAST 16U

/* Returns the items, which the caller frees. NULL: no memory. */
void *sl_dpdk_ring_open(uint32_t *mask, size_t item_bytes);

/* Doubles the ring, keeps the items first to end - 1 and frees the old array. NULL: no memory, and
 * nothing changed. */
void *sl_dpdk_ring_grow(void *items, uint32_t *mask, size_t item_bytes, uint32_t first,
                        uint32_t end);

/* Shrinks an empty ring to its initial size. Returns the old array if there is no memory. */
void *sl_dpdk_ring_shrink(void *items, uint32_t *mask, size_t item_bytes);

#endif
