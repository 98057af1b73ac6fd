/* A dense table stores a shard's part of a named f32 array: a contiguous range of whole blocks
 * (core/partition.h). One block is one record, values then slots, so a snapshot never separates
 * them. Owner reactor. Only create allocates.
 *
 * A push or an assign may name a part of a block; it updates the values and slots of exactly those
 * elements.
 * State that an optimizer keeps per row is kept per block: Adam's count, AdagradDecay's counter and
 * row-wise accumulators change with each visit of any part of a block, and an assign resets them
 * only if it names the whole block. Sums over a row (FTRL by groups, clip_norm) are sums over the
 * visited part.
 * A caller that applies a push in slices must cut it at multiples of SL_PARTITION_BLOCK_ELEMENTS of
 * the array, so that each block is visited once. */
#ifndef SL_PS_TABLE_DENSE_TABLE_H
#define SL_PS_TABLE_DENSE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/err.h"
#include "core/precision.h"
#include "ps/optimizer/optimizer.h"

struct sl_dense_table;

/* A block in the table's memory. */
struct sl_dense_block {
    uint64_t number; /* index in the whole array */
    uint32_t last_step, count;
    uint32_t elements;    /* array elements in the block */
    uint32_t float_count; /* values and slots */
    float *floats;
};

/* Observes blocks before a push or an assign changes them. Block indexes count from the table's
 * first block. */
struct sl_dense_table_hook {
    void (*before_write)(struct sl_dense_table_hook *hook, uint32_t first, uint32_t count);
};

/* Creates the part [start, start + count) of the array. start is a multiple of
 * SL_PARTITION_BLOCK_ELEMENTS (asserted); count may be 0. Element i starts as column 0 of the
 * initializer's key i. Allocates and fills all blocks: up to 40 ns an element, nothing for zeros
 * whose slots are zeros too. bytes_max 0: no limit. Errors: NO_MEMORY. */
int sl_dense_table_create(const struct sl_table_spec *spec, uint64_t start, uint64_t count,
                          size_t bytes_max, struct sl_dense_table **out);

/* Sets *table to NULL. */
void sl_dense_table_destroy(struct sl_dense_table **table);

/* These take element positions of the whole array, inside this table's range (asserted). Read
 * rounds to the nearest; precision: not INT8 (asserted). After apply the caller calls the
 * optimizer's end_push. Assign replaces values, and resets slots to their initial values. */
void sl_dense_table_read(const struct sl_dense_table *table, uint64_t start, uint64_t count,
                         enum sl_precision precision, void *values);
/* Writes where the values lie, in pieces, as many as fit into parts[parts_max]; returns their
 * number. */
uint32_t sl_dense_table_find(const struct sl_dense_table *table, uint64_t start, uint64_t count,
                             struct iovec *parts, uint32_t parts_max);
void sl_dense_table_apply(struct sl_dense_table *table, uint64_t start, uint64_t count,
                          const float *gradients, const struct sl_optimizer_push *push);
void sl_dense_table_assign(struct sl_dense_table *table, uint64_t start, uint64_t count,
                           const float *values, uint64_t step);

/* Overwrites block `number` of the whole array: its header, then values and slots in the order of a
 * block. Returns false, without effect, when the table does not hold this block. */
bool sl_dense_table_put(struct sl_dense_table *table, uint64_t number, uint32_t last_step,
                        uint32_t count, const float *floats);

/* Calls hook->before_write before each sl_dense_table_apply and sl_dense_table_assign; NULL: no
 * hook. The caller keeps ownership of the hook. */
void sl_dense_table_set_hook(struct sl_dense_table *table, struct sl_dense_table_hook *hook);

/* Returns the block at `index`, which is below the block count. */
struct sl_dense_block sl_dense_table_block(const struct sl_dense_table *table, uint32_t index);
uint32_t sl_dense_table_block_count(const struct sl_dense_table *table);

const struct sl_optimizer *sl_dense_table_optimizer(const struct sl_dense_table *table);
uint64_t sl_dense_table_start(const struct sl_dense_table *table);
uint64_t sl_dense_table_element_count(const struct sl_dense_table *table);
size_t sl_dense_table_memory_bytes(const struct sl_dense_table *table);

#endif
