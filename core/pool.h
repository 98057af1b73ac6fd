/* A pool of equal blocks with O(1) get and put, owned by one thread. Only init allocates, from the
 * heap; an empty pool is backpressure, not a crash. */
#ifndef SL_CORE_POOL_H
#define SL_CORE_POOL_H

#include <stddef.h>
#include <stdint.h>

struct sl_pool {
    uint8_t *base;
    size_t block_bytes; /* a multiple of 64; blocks are 64-byte aligned */
    uint32_t block_count;
    uint32_t free_count;
    uint32_t *free_list; /* indices, last in first out: a warm block is reused first */
};

/* Rounds block_bytes up to a multiple of 64. Errors: NO_MEMORY, TOO_LARGE. Owner thread. */
int sl_pool_init(struct sl_pool *pool, size_t block_bytes, uint32_t block_count);
void sl_pool_fini(struct sl_pool *pool);

/* Returns a block with undefined contents; NULL if the pool is empty. */
void *sl_pool_get(struct sl_pool *pool);

/* Asserts that the block belongs to the pool; sl_assert_slow: that it is not free already. */
void sl_pool_put(struct sl_pool *pool, void *block);

#endif
