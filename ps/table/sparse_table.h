/* A sparse table stores a shard's part of one table: u64 key -> record. A record holds the row's
 * values, its optimizer slots, its last step and its visit count, so a reader always sees values
 * with their slots. Every u64 is a valid key. Owner reactor. Allocates as it grows, up to
 * bytes_max; beyond it, creation of a row fails with NO_MEMORY.
 *
 * The index (index.h) grows in small steps, so growth delays no pull. Records lie in a slab
 * (slab.h); rows move to others only when the table shrinks.
 *
 * The rows of a table of dim 0 are keys with a step and a count.
 *
 * A record takes 16 bytes, and 4 for each value and slot (less in narrow tables: struct
 * sl_row_layout), rounded up to 8, the alignment of keys.
 * Rounding up to a cache line would cost 28 bytes a record on average, a fifth of a narrow row. It
 * would save less than one of several lines per visit. */
#ifndef SL_PS_TABLE_SPARSE_TABLE_H
#define SL_PS_TABLE_SPARSE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/optimizer/optimizer.h"
#include "ps/optimizer/row.h"
#include "ps/table/erased_log.h"

struct sl_sparse_table;

#define SL_ROW_NONE UINT32_MAX

/* Observes records before a push, an assign or an erase changes them, or a new row uses them. */
struct sl_sparse_table_hook {
    void (*before_write)(struct sl_sparse_table_hook *hook, const uint32_t *records,
                         uint32_t count);
};

/* bytes_max: limit of records and index together; 0: no limit. The specification is valid
 * (asserted). Errors: NO_MEMORY. */
int sl_sparse_table_create(const struct sl_table_spec *spec, size_t bytes_max,
                           struct sl_sparse_table **out);

/* Sets *table to NULL. */
void sl_sparse_table_destroy(struct sl_sparse_table **table);

/* Looks up `count` keys in batches and creates missing rows with the initializer. records[count]:
 * record indexes, which do not change until the row is erased or the table shrinks. Keys may
 * repeat. Prefetches the rows found, up to 512 bytes each: a caller that reads many rows looks up a
 * few hundred keys at a time first. *created: place for the indexes of created records, at most
 * `count`, which then points behind the last; created NULL: no notes. Errors: NO_MEMORY (rows of
 * the keys before the failing one exist, and are noted; nothing else changed). */
int sl_sparse_table_find_or_create_noted(struct sl_sparse_table *table, const uint64_t *keys,
                                         uint32_t count, uint32_t *records, uint32_t **created);

/* As above, without notes. */
static inline int sl_sparse_table_find_or_create(struct sl_sparse_table *table,
                                                 const uint64_t *keys, uint32_t count,
                                                 uint32_t *records)
{
    return sl_sparse_table_find_or_create_noted(table, keys, count, records, NULL);
}

/* As above, but writes only the key of a new record. The caller writes all the rest, which holds
 * zeros or the remains of a failed creation. */
int sl_sparse_table_find_or_create_uninit(struct sl_sparse_table *table, const uint64_t *keys,
                                          uint32_t count, uint32_t *records);

/* Announces that inserts will bring the table to about row_count rows, so that the index grows in
 * fewer steps. */
void sl_sparse_table_reserve(struct sl_sparse_table *table, uint64_t row_count);

/* As sl_sparse_table_find_or_create, without creation: SL_ROW_NONE for a missing key. Returns true
 * when it found all keys. */
bool sl_sparse_table_find(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count,
                          uint32_t *records);

/* Prefetch for a lookup of one key in the near future: its bucket, and once that is cached its
 * whole record. The first call returns the hash for the second. */
uint64_t sl_sparse_table_fetch_bucket(const struct sl_sparse_table *table, uint64_t key);
void sl_sparse_table_fetch_record(const struct sl_sparse_table *table, uint64_t hash);

struct sl_row *sl_sparse_table_record(struct sl_sparse_table *table, uint32_t record_index);

/* Writes the initializer's row of a key to row[dim]: a new record's values, which a pull of a
 * missing key receives. In a narrow table they are rounded to the nearest. */
void sl_sparse_table_first_row(const struct sl_sparse_table *table, uint64_t key, float *row);

/* Writes the address of each record's values, as they are stored, to rows[count]; NULL for
 * SL_ROW_NONE. */
void sl_sparse_table_rows(const struct sl_sparse_table *table, const uint32_t *records,
                          uint32_t count, const float **rows);

/* Widens such values to row[dim]. */
void sl_sparse_table_read_values(const struct sl_sparse_table *table, const float *stored,
                                 float *row);

/* Copies the rows to rows[count], each a row of precision `as`, with prefetch: F32 is aligned to
 * 4. What must be narrowed is rounded to the nearest. */
void sl_sparse_table_gather(const struct sl_sparse_table *table, const uint32_t *records,
                            uint32_t count, enum sl_precision as, void *rows);

/* As above, with the initializer's row for each key whose record is SL_ROW_NONE. */
void sl_sparse_table_gather_partial(const struct sl_sparse_table *table, const uint64_t *keys,
                                    const uint32_t *records, uint32_t count, enum sl_precision as,
                                    void *rows);

/* Visits each record in order with its gradients[count][dim]. The caller calls the optimizer's
 * end_push. */
void sl_sparse_table_apply(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                           const float *gradients, const struct sl_optimizer_push *push);

/* Replaces the values of each record by its row of rows[count][dim], and resets slots and visit
 * count to those of a new record. */
void sl_sparse_table_assign(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                            const float *rows, uint64_t step);

/* Replaces the count and the last step of a row. */
void sl_sparse_table_note(struct sl_sparse_table *table, uint32_t record_index, uint32_t count,
                          uint32_t last_step);

/* Removes the rows of the keys; a missing key has no effect. The record of an erased row keeps its
 * key, and its count is SL_ROW_ERASED, until a new row uses it: not before
 * sl_sparse_table_reuse. */
void sl_sparse_table_erase(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count);

/* Erases those rows of the records that no push or assign has visited since their creation. */
void sl_sparse_table_erase_unvisited(struct sl_sparse_table *table, const uint32_t *records,
                                     uint32_t count);

/* Lets new rows use the records of `most` rows erased so far: no caller holds their indexes. New
 * rows take the lowest free record. */
void sl_sparse_table_reuse(struct sl_sparse_table *table, uint32_t most);

/* Returns memory to the system while many records are free: moves rows from the last records to
 * the lowest free ones, and unmaps chunks that are empty. Removes at most `most` records from the
 * end, so sl_sparse_table_record_count falls. A share of the records stays free: a table whose size
 * varies a little keeps its memory. Returns the number of rows moved. No caller holds any record
 * index. No effect while the table has a hook. */
uint32_t sl_sparse_table_shrink(struct sl_sparse_table *table, uint32_t most);

/* Returns true when the table has records of erased rows. */
bool sl_sparse_table_has_unused(const struct sl_sparse_table *table);

/* Returns the log of the keys erased. */
struct sl_erased_log *sl_sparse_table_erased_log(struct sl_sparse_table *table);

/* Adds the rows of each bag to pooled[bag_count][dim]. Bag i has the records [bag_ends[i - 1],
 * bag_ends[i]); bag 0 starts at 0. */
void sl_sparse_table_pool(struct sl_sparse_table *table, const uint32_t *records,
                          const uint32_t *bag_ends, uint32_t bag_count, float *pooled);

/* As above, with the initializer's row for each key whose record is SL_ROW_NONE. */
void sl_sparse_table_pool_partial(const struct sl_sparse_table *table, const uint64_t *keys,
                                  const uint32_t *records, const uint32_t *bag_ends,
                                  uint32_t bag_count, float *pooled);

/* Calls hook->before_write before each sl_sparse_table_apply, assign, note and erase, and before a
 * new row uses the record of an erased one (whose count is SL_ROW_ERASED); NULL: no hook. The
 * caller keeps ownership of the hook. */
void sl_sparse_table_set_hook(struct sl_sparse_table *table, struct sl_sparse_table_hook *hook);

const struct sl_table_spec *sl_sparse_table_spec(const struct sl_sparse_table *table);
uint64_t sl_sparse_table_row_count(const struct sl_sparse_table *table);
uint32_t sl_sparse_table_record_count(const struct sl_sparse_table *table); /* with erased ones */
const struct sl_row_layout *sl_sparse_table_layout(const struct sl_sparse_table *table);
size_t sl_sparse_table_record_bytes(const struct sl_sparse_table *table);
size_t sl_sparse_table_memory_bytes(const struct sl_sparse_table *table); /* records and index */

/* The parts of sl_sparse_table_memory_bytes, which has a few bytes more. */
struct sl_sparse_table_parts {
    size_t record_bytes;     /* rows, free records and memory prepared for more */
    size_t index_bytes;      /* keys to records */
    size_t erased_log_bytes; /* keys erased since the last snapshots */
};
struct sl_sparse_table_parts sl_sparse_table_memory_parts(const struct sl_sparse_table *table);

/* Changes the limit of records and index; 0: no limit. */
void sl_sparse_table_set_bytes_max(struct sl_sparse_table *table, size_t bytes_max);

/* Counts large mappings needed before the background thread had prepared them. */
uint64_t sl_sparse_table_chunks_late(const struct sl_sparse_table *table);

#endif
