/* Rings of items that numbers lead to, which ascend and run over: item n is items[n & mask]. They
 * begin small, so that idle connections cost little, and double when they are full. Items that come
 * into use are zeros, or what was there before. Pure. */
#ifndef SL_NET_DPDK_RING_H
#define SL_NET_DPDK_RING_H

#include <stddef.h>
#include <stdint.h>

#define SL_DPDK_RING_LEAST 16U

/* NULL: no memory. The caller frees them. */
void *sl_dpdk_ring_open(uint32_t *mask, size_t item_bytes);

/* Twice as many, with those of the numbers from first up to `end`; the old ones are freed. NULL: no
 * memory, and all is as it was. */
void *sl_dpdk_ring_grow(void *items, uint32_t *mask, size_t item_bytes, uint32_t first,
                        uint32_t end);

/* Of a ring that holds nothing: as few as at first; or as it was. */
void *sl_dpdk_ring_shrink(void *items, uint32_t *mask, size_t item_bytes);

#endif
