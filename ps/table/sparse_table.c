#include "ps/table/sparse_table.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/limits.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/narrow.h"
#include "ps/optimizer/update.h"
#include "ps/table/free_set.h"
#include "ps/table/index.h"
#include "ps/table/slab.h"

#define RECORD_CHUNK_BYTES ((size_t)512 << 10)
#define CREATE_GROUP       256 /* keys looked up before missing ones are created */
#define INSERT_GROUP       32  /* keys whose buckets are prefetched together */
#define CACHE_LINE         64
#define VISIT_GROUP        256 /* records passed to a kernel at once */
#define FETCH_FIRST        8   /* of them, prefetched before the kernel starts */
#define PREFETCH_AHEAD     16  /* records */
#define PREFETCH_BYTES     512 /* of a record; the processor prefetches the rest of a longer one */
#define SHRINK_AHEAD       8   /* records */

/* A table that shrinks keeps this share of its rows free, and at least FREE_LEAST or half of its
 * rows: more than eviction keeps free (ps/shard/evict.c). */
#define FREE_SHARE         8
#define FREE_LEAST         16384

struct sl_sparse_table {
    struct sl_table_spec spec;
    const struct sl_optimizer *optimizer;
    struct sl_row_layout layout;
    float *wide;                    /* a narrow row as f32, with its slots; f32 rows: NULL */
    bool has_update;                /* spec.update asks for something */
    const struct sl_optimizer *sum; /* sums rows of a bag */
    sl_optimizer_gather_fn gather;
    struct sl_table_budget budget;
    struct sl_slab records;
    struct sl_table_index index;
    size_t touch_bytes;                /* prefix of a record that a lookup prefetches */
    struct sl_sparse_table_hook *hook; /* NULL: none */
    /* Records of erased rows. A caller may still hold those in the list, linked by last_step. */
    uint32_t held_first; /* SL_ROW_NONE: none */
    uint32_t held_count;
    struct sl_free_set free;
    struct sl_erased_log erased_log;
};

static size_t record_bytes(const struct sl_row_layout *layout)
{
    return (sizeof(struct sl_row) + layout->words * sizeof(uint32_t) + 7) / 8 * 8;
}

/* Bytes that a reader of a record's values touches, behind its header. */
static size_t values_bytes(const struct sl_sparse_table *table)
{
    return sl_precision_row_bytes(table->layout.values, table->spec.dim);
}

/* Limits a record's touched bytes to those worth prefetching. */
static size_t prefetch_bytes(size_t touched)
{
    return touched < PREFETCH_BYTES ? touched : PREFETCH_BYTES;
}

int sl_sparse_table_create(const struct sl_table_spec *spec, size_t bytes_max,
                           struct sl_sparse_table **out)
{
    sl_assert(spec->kind == SL_TABLE_SPARSE);
    sl_assert(spec->dim <= SL_LIMIT_DIM);
    struct sl_sparse_table *table = malloc(sizeof *table);
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *table = (struct sl_sparse_table){
        .spec = *spec,
        .optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_BEST),
        .has_update = sl_update_is_asked(&spec->update),
        .sum = sl_optimizer_find(SL_OPTIMIZER_SUM, SL_OPTIMIZER_SIMD_BEST),
        .gather = sl_optimizer_find_gather(SL_OPTIMIZER_SIMD_BEST),
        .budget = {.bytes_max = bytes_max},
        .held_first = SL_ROW_NONE,
    };
    sl_assert(table->optimizer != NULL);
    table->layout = sl_narrow_layout(spec, table->optimizer);
    const bool is_narrow = !table->layout.is_f32;
    table->wide = is_narrow ? malloc(sl_narrow_floats(&table->layout) * sizeof(float)) : NULL;
    sl_slab_init(&table->records, &table->budget, record_bytes(&table->layout), RECORD_CHUNK_BYTES);
    table->touch_bytes = prefetch_bytes(sizeof(struct sl_row) + values_bytes(table));
    int err = SL_ERR_NO_MEMORY;
    if ((table->wide != NULL || !is_narrow) &&
        sl_table_budget_take(&table->budget, sizeof *table)) {
        err = sl_table_index_init(&table->index, &table->budget, &table->records);
    }
    if (err != 0) {
        sl_slab_fini(&table->records);
        free(table->wide);
        free(table);
        return err;
    }
    *out = table;
    return 0;
}

void sl_sparse_table_destroy(struct sl_sparse_table **table)
{
    if (*table == NULL) {
        return;
    }
    sl_table_index_fini(&(*table)->index);
    sl_slab_fini(&(*table)->records);
    sl_free_set_fini(&(*table)->free, &(*table)->budget);
    sl_erased_log_fini(&(*table)->erased_log, &(*table)->budget);
    sl_assert((*table)->budget.bytes == sizeof **table);
    free((*table)->wide);
    free(*table);
    *table = NULL;
}

/* Keys */

/* The slots are zeros before. Always inline: a call would cost a new row more than it does. */
static inline __attribute__((always_inline)) void
sparse_table_init_slots(const struct sl_sparse_table *table, float *slots)
{
    sl_optimizer_init_slots(table->optimizer, &table->spec.optimizer, table->spec.dim, slots);
}

/* Writes values and initial slots to a narrow record. values: may be those of table->wide. */
static void fill_narrow(const struct sl_sparse_table *table, const float *values,
                        struct sl_row *record)
{
    const uint32_t dim = table->spec.dim;
    memmove(table->wide, values, dim * sizeof *values);
    memset(table->wide + dim, 0, (sl_narrow_floats(&table->layout) - dim) * sizeof *values);
    sparse_table_init_slots(table, table->wide + dim);
    sl_narrow_write(&table->layout, table->wide, record->values);
}

static void fill_record(const struct sl_sparse_table *table, struct sl_row *record)
{
    const struct sl_initializer_spec *initializer = &table->spec.initializer;
    const uint32_t dim = table->spec.dim;
    float *values = table->layout.is_f32 ? record->values : table->wide;
    sl_initializer_fill(initializer, record->key, 0, dim, values);
    if (table->layout.is_f32) {
        sparse_table_init_slots(table, values + dim);
    } else {
        fill_narrow(table, values, record);
    }
}

/* Zeroes a used record but for its key, and for values that the caller fills. */
static void clear_record(const struct sl_sparse_table *table, struct sl_row *record, bool fill)
{
    float *from = record->values + (fill && table->layout.is_f32 ? table->spec.dim : 0);
    record->last_step = record->count = 0;
    memset(from, 0, table->records.unit_bytes - (size_t)((uint8_t *)from - (uint8_t *)record));
}

/* Prefetches the record of the next new row whole: it was used at any time, so it is not cached.
 * Always inline: GCC removes calls of functions that only prefetch. */
static inline __attribute__((always_inline)) void fetch_free(const struct sl_sparse_table *table)
{
    const char *record = sl_slab_at(&table->records, table->free.first);
    const size_t bytes = prefetch_bytes(table->records.unit_bytes);
    for (size_t line = 0; line < bytes; line += CACHE_LINE) {
        __builtin_prefetch(record + line, 1);
    }
    __builtin_prefetch(record + bytes - 1, 1);
}

/* Removes the lowest free record from the free ones. A snapshot must not take the new row for one
 * of its own. */
static void take_free(struct sl_sparse_table *table)
{
    const uint32_t taken = table->free.first;
    if (table->hook != NULL) {
        table->hook->before_write(table->hook, &taken, 1);
    }
    sl_free_set_remove(&table->free, taken);
    if (table->free.count > 0) {
        fetch_free(table);
    }
}

/* Writes a free record or the next new one, then its index entry, unless the key exists already,
 * for example because it occurs twice. The record is invisible until then, and the next call
 * overwrites the remains of a failure. */
static int sparse_table_put(struct sl_sparse_table *table, uint64_t key, uint64_t hash, bool fill,
                            uint32_t *record_index, uint32_t **created)
{
    const bool is_free = table->free.count > 0;
    int err = is_free ? 0 : sl_slab_reserve(&table->records);
    if (err != 0) {
        *record_index = sl_table_index_find_one(&table->index, key);
        return *record_index == SL_ROW_NONE ? err : 0;
    }
    const uint32_t fresh = is_free ? table->free.first : table->records.unit_count;
    struct sl_row *record = sl_slab_at(&table->records, fresh);
    record->key = key;
    err = sl_table_index_put(&table->index, key, hash, fresh, record_index);
    if (err != 0) {
        return err;
    }
    if (*record_index == fresh) {
        if (is_free) {
            take_free(table);
        } else {
            table->records.unit_count++;
        }
        if (is_free || fresh < table->records.dirty_end) {
            clear_record(table, record, fill);
        }
        if (fill) {
            fill_record(table, record);
        }
        if (created != NULL) {
            *(*created)++ = fresh;
        }
    }
    return 0;
}

/* Creates the rows of those of up to CREATE_GROUP keys that have none. */
static int create_missing(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count,
                          uint32_t *records, uint32_t **created)
{
    uint64_t missing[CREATE_GROUP], hashes[CREATE_GROUP];
    uint32_t places[CREATE_GROUP], missing_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (records[i] == SL_ROW_NONE) {
            missing[missing_count] = keys[i];
            places[missing_count++] = i;
        }
    }
    sl_table_index_fetch_buckets(&table->index, missing, missing_count, hashes);
    for (uint32_t i = 0; i < missing_count; i++) {
        const int err =
            sparse_table_put(table, missing[i], hashes[i], true, &records[places[i]], created);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

int sl_sparse_table_find_or_create_noted(struct sl_sparse_table *table, const uint64_t *keys,
                                         uint32_t count, uint32_t *records, uint32_t **created)
{
    for (uint32_t done = 0; done < count; done += CREATE_GROUP) {
        const uint32_t left = count - done;
        const uint32_t group = left < CREATE_GROUP ? left : CREATE_GROUP;
        if (!sl_table_index_find(&table->index, keys + done, group, table->touch_bytes,
                                 records + done)) {
            const int err = create_missing(table, keys + done, group, records + done, created);
            if (err != 0) {
                return err;
            }
        }
    }
    return 0;
}

/* Prefetches the buckets of the next group while the group before it is inserted. */
static uint32_t insert_fetch(const struct sl_sparse_table *table, const uint64_t *keys,
                             uint32_t count, uint64_t *hashes)
{
    const uint32_t group = count < INSERT_GROUP ? count : INSERT_GROUP;
    sl_table_index_fetch_buckets(&table->index, keys, group, hashes);
    return group;
}

/* Inserts without a lookup first, because most keys are expected to be new. */
int sl_sparse_table_find_or_create_uninit(struct sl_sparse_table *table, const uint64_t *keys,
                                          uint32_t count, uint32_t *records)
{
    uint64_t hashes[2][INSERT_GROUP];
    uint32_t group = insert_fetch(table, keys, count, hashes[0]);
    for (uint32_t done = 0, turn = 0; done < count; turn ^= 1) {
        const uint32_t end = done + group;
        sl_table_index_fetch_records(&table->index, hashes[turn], group, 1);
        group = insert_fetch(table, keys + end, count - end, hashes[turn ^ 1]);
        for (uint32_t i = done; i < end; i++) {
            const int err =
                sparse_table_put(table, keys[i], hashes[turn][i - done], false, &records[i], NULL);
            if (err != 0) {
                return err;
            }
        }
        done = end;
    }
    return 0;
}

void sl_sparse_table_reserve(struct sl_sparse_table *table, uint64_t row_count)
{
    sl_table_index_reserve(&table->index, row_count);
}

bool sl_sparse_table_find(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count,
                          uint32_t *records)
{
    return sl_table_index_find(&table->index, keys, count, table->touch_bytes, records);
}

uint64_t sl_sparse_table_fetch_bucket(const struct sl_sparse_table *table, uint64_t key)
{
    uint64_t hash;
    sl_table_index_fetch_buckets(&table->index, &key, 1, &hash);
    return hash;
}

void sl_sparse_table_fetch_record(const struct sl_sparse_table *table, uint64_t hash)
{
    sl_table_index_fetch_records(&table->index, &hash, 1,
                                 prefetch_bytes(table->records.unit_bytes));
}

/* Rows */

void sl_sparse_table_first_row(const struct sl_sparse_table *table, uint64_t key, float *row)
{
    sl_narrow_first_row(&table->spec.initializer, table->layout.values, key, table->spec.dim, row);
}

static struct sl_row *record_at(const struct sl_sparse_table *table, uint32_t record_index)
{
    sl_assert_slow(record_index < table->records.unit_count);
    return sl_slab_at(&table->records, record_index);
}

struct sl_row *sl_sparse_table_record(struct sl_sparse_table *table, uint32_t record_index)
{
    sl_assert(record_index < table->records.unit_count);
    return record_at(table, record_index);
}

/* Address computation for records, as a copy: in a loop that writes memory, the compiler would
 * reload the table's fields. */
struct places {
    uint8_t *const *chunks;
    size_t unit_bytes;
    uint32_t shift, mask;
};

static struct places places_of(const struct sl_sparse_table *table)
{
    const struct sl_slab *records = &table->records;
    return (struct places){
        .chunks = records->chunks,
        .unit_bytes = records->unit_bytes,
        .shift = records->unit_shift,
        .mask = (1U << records->unit_shift) - 1,
    };
}

static inline struct sl_row *place_at(const struct places *places, uint32_t record_index)
{
    return (void *)(places->chunks[record_index >> places->shift] +
                    (record_index & places->mask) * places->unit_bytes);
}

/* Prefetches a record's values without its header, which readers of rows do not need. Always
 * inline: GCC removes calls of functions that only prefetch. */
static inline __attribute__((always_inline)) void prefetch(const struct places *places,
                                                           uint32_t record_index, size_t bytes)
{
    const char *row = (const char *)place_at(places, record_index)->values;
    for (size_t line = 0; line < bytes; line += CACHE_LINE) {
        __builtin_prefetch(row + line);
    }
    __builtin_prefetch(row + bytes - 1);
}

/* Converts record indexes to addresses for a kernel. Prefetches `bytes` of each of the first rows,
 * earlier than the kernel could. */
static void find_records(const struct sl_sparse_table *table, const uint32_t *record_indexes,
                         uint32_t count, size_t bytes, struct sl_row **records)
{
    const struct places places = places_of(table);
    const uint32_t first = count < FETCH_FIRST ? count : FETCH_FIRST;
    for (uint32_t i = 0; i < first; i++) {
        prefetch(&places, record_indexes[i], bytes);
        records[i] = place_at(&places, record_indexes[i]);
    }
    for (uint32_t i = first; i < count; i++) {
        records[i] = place_at(&places, record_indexes[i]);
    }
}

void sl_sparse_table_rows(const struct sl_sparse_table *table, const uint32_t *records,
                          uint32_t count, const float **rows)
{
    const struct places places = places_of(table);
    for (uint32_t i = 0; i < count; i++) {
        rows[i] = records[i] == SL_ROW_NONE ? NULL : place_at(&places, records[i])->values;
    }
}

void sl_sparse_table_gather(const struct sl_sparse_table *table, const uint32_t *records,
                            uint32_t count, enum sl_precision as, void *rows)
{
    const uint32_t dim = table->spec.dim;
    const size_t row_bytes = sl_precision_row_bytes(as, dim);
    const size_t bytes = prefetch_bytes(values_bytes(table));
    const bool is_f32 = as == SL_PRECISION_F32 && table->layout.values == SL_PRECISION_F32;
    struct sl_row *found[VISIT_GROUP];
    uint8_t *to = rows;
    for (uint32_t done = 0; done < count; done += VISIT_GROUP) {
        const uint32_t left = count - done;
        const uint32_t group = left < VISIT_GROUP ? left : VISIT_GROUP;
        find_records(table, records + done, group, bytes, found);
        if (is_f32) {
            table->gather(found, group, dim, (float *)(void *)to);
        } else {
            sl_narrow_gather(&table->layout, found, group, as, to, table->wide);
        }
        to += group * row_bytes;
    }
}

void sl_sparse_table_gather_partial(const struct sl_sparse_table *table, const uint64_t *keys,
                                    const uint32_t *records, uint32_t count, enum sl_precision as,
                                    void *rows)
{
    const uint32_t dim = table->spec.dim;
    const size_t row_bytes = sl_precision_row_bytes(as, dim);
    const bool is_f32 = as == SL_PRECISION_F32 && table->layout.values == SL_PRECISION_F32;
    float first[SL_LIMIT_DIM];
    uint8_t *to = rows;
    for (uint32_t i = 0; i < count; i++, to += row_bytes) {
        if (records[i] == SL_ROW_NONE) {
            sl_sparse_table_first_row(table, keys[i], first);
            sl_precision_kernels(SL_PRECISION_SIMD_BEST)->narrow(as, first, dim, to);
        } else if (is_f32) {
            memcpy(to, record_at(table, records[i])->values, row_bytes);
        } else {
            sl_sparse_table_gather(table, &records[i], 1, as, to);
        }
    }
}

void sl_sparse_table_read_values(const struct sl_sparse_table *table, const float *stored,
                                 float *row)
{
    sl_precision_kernels(SL_PRECISION_SIMD_BEST)
        ->widen(table->layout.values, stored, table->spec.dim, row);
}

static void sparse_table_before_write(const struct sl_sparse_table *table, const uint32_t *records,
                                      uint32_t count)
{
    if (table->hook != NULL) {
        table->hook->before_write(table->hook, records, count);
    }
}

void sl_sparse_table_apply(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                           const float *gradients, const struct sl_optimizer_push *push)
{
    const uint32_t dim = table->spec.dim;
    const size_t bytes = prefetch_bytes(table->records.unit_bytes - sizeof(struct sl_row));
    struct sl_optimizer_visit visit = sl_optimizer_visit_of(&table->spec.optimizer, push);
    visit.dim = dim;
    struct sl_row *visited[VISIT_GROUP];
    sparse_table_before_write(table, records, count);
    for (uint32_t done = 0; done < count; done += VISIT_GROUP) {
        const uint32_t left = count - done;
        const struct sl_optimizer_rows rows = {
            .count = left < VISIT_GROUP ? left : VISIT_GROUP,
            .records = visited,
            .gradients = gradients + (size_t)done * dim,
        };
        find_records(table, records + done, rows.count, bytes, visited);
        if (!table->layout.is_f32) {
            sl_narrow_apply_rows(&table->layout, table->has_update ? &table->spec.update : NULL,
                                 table->optimizer, &visit, &rows, table->wide);
        } else if (table->has_update) {
            sl_update_apply_rows(&table->spec.update, table->optimizer, &visit, &rows);
        } else {
            table->optimizer->apply_rows(&visit, &rows);
        }
    }
}

void sl_sparse_table_assign(struct sl_sparse_table *table, const uint32_t *records, uint32_t count,
                            const float *rows, uint64_t step)
{
    const uint32_t dim = table->spec.dim;
    const size_t slot_bytes = sl_optimizer_slot_floats(table->optimizer, dim) * sizeof *rows;
    const size_t bytes = prefetch_bytes(table->layout.words * sizeof(uint32_t));
    const struct places places = places_of(table);
    sparse_table_before_write(table, records, count);
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > PREFETCH_AHEAD) {
            prefetch(&places, records[i + PREFETCH_AHEAD], bytes);
        }
        struct sl_row *record = place_at(&places, records[i]);
        const float *row = rows + (size_t)i * dim;
        record->last_step = (uint32_t)step;
        record->count = 0;
        if (!table->layout.is_f32) {
            fill_narrow(table, row, record);
            continue;
        }
        memcpy(record->values, row, dim * sizeof *rows);
        memset(record->values + dim, 0, slot_bytes);
        sparse_table_init_slots(table, record->values + dim);
    }
}

void sl_sparse_table_note(struct sl_sparse_table *table, uint32_t record_index, uint32_t count,
                          uint32_t last_step)
{
    struct sl_row *record = record_at(table, record_index);
    sparse_table_before_write(table, &record_index, 1);
    record->count = count;
    record->last_step = last_step;
}

void sl_sparse_table_pool(struct sl_sparse_table *table, const uint32_t *records,
                          const uint32_t *bag_ends, uint32_t bag_count, float *pooled)
{
    const struct sl_optimizer_visit visit = {.dim = table->spec.dim};
    const struct places places = places_of(table);
    const size_t bytes = prefetch_bytes(values_bytes(table));
    const bool is_f32 = table->layout.values == SL_PRECISION_F32;
    const uint32_t count = bag_count == 0 ? 0 : bag_ends[bag_count - 1];
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++) {
        float *sum = pooled + (size_t)bag * table->spec.dim;
        for (; i < bag_ends[bag]; i++) {
            if (count - i > PREFETCH_AHEAD) {
                prefetch(&places, records[i + PREFETCH_AHEAD], bytes);
            }
            const float *values = place_at(&places, records[i])->values;
            if (!is_f32) {
                sl_sparse_table_read_values(table, values, table->wide);
                values = table->wide;
            }
            table->sum->apply(&visit, sum, NULL, NULL, values);
        }
    }
}

void sl_sparse_table_pool_partial(const struct sl_sparse_table *table, const uint64_t *keys,
                                  const uint32_t *records, const uint32_t *bag_ends,
                                  uint32_t bag_count, float *pooled)
{
    const struct sl_optimizer_visit visit = {.dim = table->spec.dim};
    float row[SL_LIMIT_DIM];
    uint32_t i = 0;
    for (uint32_t bag = 0; bag < bag_count; bag++, pooled += table->spec.dim) {
        for (; i < bag_ends[bag]; i++) {
            sl_sparse_table_gather_partial(table, &keys[i], &records[i], 1, SL_PRECISION_F32, row);
            table->sum->apply(&visit, pooled, NULL, NULL, row);
        }
    }
}

/* Erasure */

static void erase_record(struct sl_sparse_table *table, uint32_t record_index)
{
    struct sl_row *record = record_at(table, record_index);
    if (table->hook != NULL) {
        table->hook->before_write(table->hook, &record_index, 1);
    }
    sl_erased_log_add(&table->erased_log, &table->budget, record->key);
    record->count = SL_ROW_ERASED;
    record->last_step = table->held_first;
    table->held_first = record_index;
    table->held_count++;
}

void sl_sparse_table_erase(struct sl_sparse_table *table, const uint64_t *keys, uint32_t count)
{
    uint64_t hashes[INSERT_GROUP];
    for (uint32_t done = 0; done < count; done += INSERT_GROUP) {
        const uint32_t group = insert_fetch(table, keys + done, count - done, hashes);
        sl_table_index_fetch_records(&table->index, hashes, group, 1);
        for (uint32_t i = done; i < done + group; i++) {
            const uint32_t record_index = sl_table_index_remove(&table->index, keys[i]);
            if (record_index != SL_ROW_NONE) {
                erase_record(table, record_index);
            }
        }
    }
}

void sl_sparse_table_erase_unvisited(struct sl_sparse_table *table, const uint32_t *records,
                                     uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_row *record = record_at(table, records[i]);
        if (record->count == 0 && record->last_step == 0) {
            const uint32_t removed = sl_table_index_remove(&table->index, record->key);
            sl_assert(removed == records[i]);
            erase_record(table, removed);
        }
    }
}

void sl_sparse_table_reuse(struct sl_sparse_table *table, uint32_t most)
{
    while (table->held_first != SL_ROW_NONE && most-- > 0 &&
           sl_free_set_add(&table->free, &table->budget, table->held_first)) {
        table->held_first = record_at(table, table->held_first)->last_step;
        table->held_count--;
    }
}

/* Prefetches what the removal of a later record needs. */
static void fetch_last(const struct sl_sparse_table *table, uint32_t last)
{
    if (last >= 2 * SHRINK_AHEAD) {
        __builtin_prefetch(record_at(table, last - 2 * SHRINK_AHEAD));
        (void)sl_sparse_table_fetch_bucket(table, record_at(table, last - SHRINK_AHEAD)->key);
    }
}

/* Removes the last record, after its row has moved to the lowest free one: *moved counts that.
 * Returns false if a caller may hold the record. */
static bool remove_last(struct sl_sparse_table *table, uint32_t *moved)
{
    const uint32_t last = table->records.unit_count - 1;
    const struct sl_row *record = record_at(table, last);
    const bool is_row = record->count != SL_ROW_ERASED;
    const uint32_t freed = is_row ? table->free.first : last;
    fetch_last(table, last);
    if (is_row) {
        memcpy(record_at(table, freed), record, table->records.unit_bytes);
        sl_table_index_move(&table->index, record->key, freed);
        *moved += 1;
    } else if (!sl_free_set_has(&table->free, last)) {
        return false;
    }
    sl_free_set_remove(&table->free, freed);
    sl_slab_pop(&table->records);
    return true;
}

/* Returns how many records stay free. */
static uint64_t free_kept(const struct sl_sparse_table *table)
{
    const uint64_t rows = sl_sparse_table_row_count(table);
    const uint64_t least = rows / 2 < FREE_LEAST ? rows / 2 : FREE_LEAST;
    return rows / FREE_SHARE > least ? rows / FREE_SHARE : least;
}

uint32_t sl_sparse_table_shrink(struct sl_sparse_table *table, uint32_t most)
{
    uint32_t moved = 0;
    while (table->hook == NULL && most-- > 0 && table->free.count > free_kept(table) &&
           remove_last(table, &moved)) {
    }
    return moved;
}

bool sl_sparse_table_has_unused(const struct sl_sparse_table *table)
{
    return table->free.count + table->held_count > 0;
}

struct sl_erased_log *sl_sparse_table_erased_log(struct sl_sparse_table *table)
{
    return &table->erased_log;
}

void sl_sparse_table_set_hook(struct sl_sparse_table *table, struct sl_sparse_table_hook *hook)
{
    table->hook = hook;
}

/* Accessors */

const struct sl_table_spec *sl_sparse_table_spec(const struct sl_sparse_table *table)
{
    return &table->spec;
}

uint64_t sl_sparse_table_row_count(const struct sl_sparse_table *table)
{
    return table->records.unit_count - table->free.count - table->held_count;
}

uint32_t sl_sparse_table_record_count(const struct sl_sparse_table *table)
{
    return table->records.unit_count;
}

const struct sl_row_layout *sl_sparse_table_layout(const struct sl_sparse_table *table)
{
    return &table->layout;
}

size_t sl_sparse_table_record_bytes(const struct sl_sparse_table *table)
{
    return table->records.unit_bytes;
}

void sl_sparse_table_set_bytes_max(struct sl_sparse_table *table, size_t bytes_max)
{
    table->budget.bytes_max = bytes_max;
}

size_t sl_sparse_table_memory_bytes(const struct sl_sparse_table *table)
{
    return table->budget.bytes;
}

struct sl_sparse_table_parts sl_sparse_table_memory_parts(const struct sl_sparse_table *table)
{
    return (struct sl_sparse_table_parts){
        .record_bytes = sl_slab_memory_bytes(&table->records) + table->free.bytes_charged,
        .index_bytes = sl_table_index_memory_bytes(&table->index),
        .erased_log_bytes = sl_erased_log_memory_bytes(&table->erased_log),
    };
}

uint64_t sl_sparse_table_chunks_late(const struct sl_sparse_table *table)
{
    return table->records.large.chunks_late + table->index.segments.large.chunks_late +
           table->index.pages.large.chunks_late;
}
