/* A shard's part of one dense table: a contiguous range of whole blocks (core/partition.h) of a
 * named f32 array. A block is one record: values, then slots, so that a snapshot cannot tear.
 *
 * A push may name a part of a block; values and slots of exactly those elements are visited then.
 * What an optimizer keeps or sums by row, it keeps by block and sums over the part: Adam's count
 * and AdagradDecay's counter advance with each visit of any part of a block, and the group of FTRL
 * by groups is the part. So whoever applies a push in slices cuts it at multiples of
 * SL_PARTITION_BLOCK_ELEMENTS of the array, that each block is visited once. Owner reactor. */
#ifndef SL_PS_TABLE_DENSE_TABLE_H
#define SL_PS_TABLE_DENSE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/optimizer/optimizer.h"

struct sl_dense_table;

/* A block, as it lies in the store. */
struct sl_dense_block {
    uint64_t number; /* in the whole array */
    uint32_t last_step, count;
    uint32_t elements;    /* of the array, in it */
    uint32_t float_count; /* values and slots together */
    float *floats;
};

/* Who wants to see blocks before pushes change them; they are numbered from the store's first on.
 */
struct sl_dense_table_hook {
    void (*before_write)(struct sl_dense_table_hook *hook, uint32_t first, uint32_t count);
};

/* Holds elements [start, start + count) of the array; count may be 0; start is a multiple of
 * SL_PARTITION_BLOCK_ELEMENTS (asserted). Element i begins as column 0 of key i of the initializer.
 * Allocates and fills all blocks here, nothing later: up to 40 ns an element; zeros whose optimizer
 * begins with zeros too cost nothing. bytes_max 0: no limit. Errors: NO_MEMORY. */
int sl_dense_table_create(const struct sl_table_spec *spec, uint64_t start, uint64_t count,
                          size_t bytes_max, struct sl_dense_table **out);

/* Nulls *store. */
void sl_dense_table_destroy(struct sl_dense_table **table);

/* Both take elements of the whole array, wholly inside this store's range (asserted). The
 * optimizer's end_push is the caller's to call. */
void sl_dense_table_read(const struct sl_dense_table *table, uint64_t start, uint64_t count,
                         float *values);
void sl_dense_table_apply(struct sl_dense_table *table, uint64_t start, uint64_t count,
                          const float *gradients, const struct sl_optimizer_state *state,
                          uint64_t step);

/* What block `number` of the whole array is from now on: its header, and its values and slots as
 * they lie behind each other in a block. False, and nothing has changed: the store does not hold
 * that block. */
bool sl_dense_table_put(struct sl_dense_table *table, uint64_t number, uint32_t last_step,
                        uint32_t count, const float *floats);

/* From now on `before` is called ahead of each sl_dense_table_apply; NULL: no more. The watch stays
 * the caller's. */
void sl_dense_table_set_hook(struct sl_dense_table *table, struct sl_dense_table_hook *hook);

/* Of the store's blocks that of this index, below the count. */
struct sl_dense_block sl_dense_table_block(const struct sl_dense_table *table, uint32_t index);
uint32_t sl_dense_table_block_count(const struct sl_dense_table *table);

const struct sl_table_spec *sl_dense_table_spec(const struct sl_dense_table *table);
const struct sl_optimizer *sl_dense_table_optimizer(const struct sl_dense_table *table);
uint64_t sl_dense_table_start(const struct sl_dense_table *table);
uint64_t sl_dense_table_count(const struct sl_dense_table *table);
size_t sl_dense_table_memory_bytes(const struct sl_dense_table *table);

#endif
