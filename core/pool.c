#include "core/pool.h"

#include <stdbool.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/err.h"

#define BLOCK_ALIGN 64

int sl_pool_init(struct sl_pool *pool, size_t block_bytes, uint32_t block_count)
{
    sl_assert(block_bytes > 0);
    sl_assert(block_count > 0);
    size_t rounded, total;
    if (__builtin_add_overflow(block_bytes, (size_t)(BLOCK_ALIGN - 1), &rounded)) {
        return SL_ERR_TOO_LARGE;
    }
    rounded &= ~(size_t)(BLOCK_ALIGN - 1);
    if (__builtin_mul_overflow(rounded, (size_t)block_count, &total) || total > PTRDIFF_MAX) {
        return SL_ERR_TOO_LARGE;
    }
    uint8_t *base = aligned_alloc(BLOCK_ALIGN, total);
    if (base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t *free_list = malloc(block_count * sizeof *free_list);
    if (free_list == NULL) {
        free(base);
        return SL_ERR_NO_MEMORY;
    }
    /* In reverse, so that the first blocks taken are the first in memory. */
    for (uint32_t i = 0; i < block_count; i++) {
        free_list[i] = block_count - 1 - i;
    }
    *pool = (struct sl_pool){.base = base,
                             .block_bytes = rounded,
                             .block_count = block_count,
                             .free_count = block_count,
                             .free_list = free_list};
    return 0;
}

void sl_pool_fini(struct sl_pool *pool)
{
    free(pool->free_list);
    free(pool->base);
    *pool = (struct sl_pool){0};
}

void *sl_pool_get(struct sl_pool *pool)
{
    if (pool->free_count == 0) {
        return NULL;
    }
    pool->free_count--;
    return pool->base + (size_t)pool->free_list[pool->free_count] * pool->block_bytes;
}

static bool is_free(const struct sl_pool *pool, uint32_t index)
{
    for (uint32_t i = 0; i < pool->free_count; i++) {
        if (pool->free_list[i] == index) {
            return true;
        }
    }
    return false;
}

void sl_pool_put(struct sl_pool *pool, void *block)
{
    sl_assert((uintptr_t)block >= (uintptr_t)pool->base);
    const size_t offset = (uintptr_t)block - (uintptr_t)pool->base;
    const size_t index = offset / pool->block_bytes;
    sl_assert(index < pool->block_count);
    sl_assert(offset == index * pool->block_bytes);
    sl_assert(pool->free_count < pool->block_count);
    sl_assert_slow(!is_free(pool, (uint32_t)index));
    pool->free_list[pool->free_count] = (uint32_t)index;
    pool->free_count++;
}
