/* A shard's part of one sparse table: u64 key -> one record, which holds the row, the optimizer's
 * slots, the last step that touched it and how often it was visited. Row and slots are one record
 * so that nothing that reads records can see one without the other.
 *
 * Index: extendible hashing over segments of 64-byte buckets (table_index.h). A bucket holds 12
 * (tag, record number) pairs and is one cache line; keys stand in the records. A full segment is
 * split alone, so growth never moves more than a segment's entries at once and no pull waits for
 * it. Records lie in chunks, on huge pages where there are any; they never move.
 *
 * A record takes 16 bytes and 4 for each value and slot, rounded up to 8, which keys need; not to a
 * cache line: that would cost 28 bytes a record on average, a fifth of a narrow row, and save less
 * than one line of a visit that takes several.
 *
 * Every u64 is a key. Owner reactor. Memory stays inside bytes_max: creation of a row beyond it is
 * NO_MEMORY. */
#ifndef SL_PS_TABLE_SPARSE_TABLE_H
#define SL_PS_TABLE_SPARSE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/optimizer/optimizer.h"
#include "ps/optimizer/row.h"

struct sl_sparse_table;

#define SL_ROW_NONE UINT32_MAX

/* Who wants to see records before pushes change them. */
struct sl_sparse_table_hook {
    void (*before_write)(struct sl_sparse_table_hook *hook, const uint32_t *records,
                         uint32_t count);
};

/* bytes_max: of records and index together, 0: no limit. The specification is valid (asserted).
 * Errors: NO_MEMORY. */
int sl_sparse_table_create(const struct sl_table_spec *spec, size_t bytes_max,
                           struct sl_sparse_table **out);

/* Nulls *store. */
void sl_sparse_table_destroy(struct sl_sparse_table **table);

/* Looks `count` keys up, batched with prefetch, and creates those that are missing by the
 * initializer; records[count] are their numbers, stable for ever. Keys may repeat. The rows found,
 * or the first 512 bytes of longer ones, are on their way to the cache then: who reads many rows
 * looks all their keys up first, a few hundred at a time. Errors: NO_MEMORY (those before the
 * failing key exist now; nothing else changed). */
int sl_sparse_table_find_or_create(struct sl_sparse_table *table, const uint64_t *keys,
                                   uint32_t count, uint32_t *records);

/* As above, but of a record that is created only the key is written: values, slots and the rest,
 * which are zeros or what a creation that failed has left, are the caller's to write. */
int sl_sparse_table_find_or_create_uninit(struct sl_sparse_table *table, const uint64_t *keys,
                                          uint32_t count, uint32_t *records);

/* Inserts will bring the table to about so many rows: the index grows in fewer steps. */
void sl_sparse_table_reserve(struct sl_sparse_table *table, uint64_t row_count);

/* As above without creation: SL_ROW_NONE for a missing key. */
void sl_sparse_table_find(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count,
                          uint32_t *records);

struct sl_row *sl_sparse_table_record(struct sl_sparse_table *table, uint32_t number);

/* rows[count][dim] := the rows of the records, prefetched; stride dim floats. */
void sl_sparse_table_gather(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                            float *rows);

/* Visits each record with gradients[i * dim ...], in order. `step` is the table's global step.
 * The optimizer's end_push is the caller's to call. */
void sl_sparse_table_apply(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                           const float *gradients, const struct sl_optimizer_state *state,
                           uint64_t step);

/* Adds the rows of the records of each bag into pooled[bag_count][dim]: of bag i those at
 * [bag_ends[i - 1], bag_ends[i]), of bag 0 from 0. */
void sl_sparse_table_pool(struct sl_sparse_table *table, const uint32_t *records,
                          const uint32_t *bag_ends, uint32_t bag_count, float *pooled);

/* From now on `before` is called ahead of each sl_sparse_table_apply; NULL: no more. The watch
 * stays the caller's. */
void sl_sparse_table_set_hook(struct sl_sparse_table *table, struct sl_sparse_table_hook *hook);

const struct sl_table_spec *sl_sparse_table_spec(const struct sl_sparse_table *table);
const struct sl_optimizer *sl_sparse_table_optimizer(const struct sl_sparse_table *table);
uint64_t sl_sparse_table_row_count(const struct sl_sparse_table *table);
size_t sl_sparse_table_record_bytes(const struct sl_sparse_table *table);
size_t sl_sparse_table_memory_bytes(const struct sl_sparse_table *table); /* records and index */

/* From now on, records and index grow up to here; 0: without a limit. */
void sl_sparse_table_set_bytes_max(struct sl_sparse_table *table, size_t bytes_max);

/* Large pieces of memory that were needed before the background thread had them ready. */
uint64_t sl_sparse_table_chunks_late(const struct sl_sparse_table *table);

/* Calls `visit` for each record in the order of creation; for tests and checkpoints. */
void sl_sparse_table_each(struct sl_sparse_table *table,
                          void (*visit)(void *ctx, const struct sl_row *record), void *ctx);

#endif
