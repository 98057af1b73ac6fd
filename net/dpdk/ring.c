#include "net/dpdk/ring.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

void *sl_dpdk_ring_open(uint32_t *mask, size_t item_bytes)
{
    *mask = SL_DPDK_RING_LEAST - 1;
    return calloc(SL_DPDK_RING_LEAST, item_bytes);
}

void *sl_dpdk_ring_grow(void *items, uint32_t *mask, size_t item_bytes, uint32_t first,
                        uint32_t end)
{
    const uint32_t old_mask = *mask, new_mask = 2 * old_mask + 1;
    sl_assert(end - first <= old_mask + 1);
    uint8_t *grown = calloc((size_t)new_mask + 1, item_bytes);
    if (grown == NULL) {
        return NULL;
    }
    for (uint32_t n = first; n != end; n++) {
        memcpy(grown + (n & new_mask) * item_bytes, (uint8_t *)items + (n & old_mask) * item_bytes,
               item_bytes);
    }
    free(items);
    *mask = new_mask;
    return grown;
}

void *sl_dpdk_ring_shrink(void *items, uint32_t *mask, size_t item_bytes)
{
    uint32_t least;
    void *shrunk = *mask >= SL_DPDK_RING_LEAST ? sl_dpdk_ring_open(&least, item_bytes) : NULL;
    if (shrunk == NULL) {
        return items;
    }
    free(items);
    *mask = least;
    return shrunk;
}
