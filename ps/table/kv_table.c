#include "ps/table/kv_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/arena.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "ps/optimizer/optimizer.h"
#include "ps/table/index.h"
#include "ps/table/slab.h"
#include "ps/table/sparse_table.h"

#define RECORD_CHUNK_BYTES ((size_t)64 << 10)
#define SMALL_BYTES_MAX    ((size_t)32 << 10) /* largest array without pages of its own */
#define SMALL_CHUNK_BYTES  ((size_t)2 << 20)
#define ALIGNMENT          64
#define PAGE_BYTES         ((size_t)4096)
#define NARROW_STEP        512 /* values that are added at once */

struct sl_kv_table {
    uint32_t value_bytes;
    enum sl_precision precision;
    const struct sl_optimizer *sum;
    struct sl_table_budget budget;
    struct sl_slab records;
    struct sl_table_index index;
    struct sl_arena small; /* the budget counts bytes handed out, not mapped untouched ones */
    uint8_t *small_next;   /* unused end of the last chunk */
    size_t small_left;
    uint64_t key_count;
    uint64_t reservation_last;    /* last id given to a reservation */
    struct sl_kv_reservation own; /* the long-lived reservation */
    uint64_t generation;
    struct sl_kv_table_hook *hook; /* NULL: none */
};

static_assert(offsetof(struct sl_kv_array, key) == 0, "the index finds keys there");
static_assert(sizeof(struct sl_kv_array) == 32, "two records in a cache line");

/* Lifecycle */

int sl_kv_table_create(uint32_t value_bytes, enum sl_precision precision, size_t bytes_max,
                       struct sl_kv_table **out)
{
    sl_assert(value_bytes == 1 || value_bytes == sl_precision_row_bytes(precision, 1));
    struct sl_kv_table *table = malloc(sizeof *table);
    if (table == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *table = (struct sl_kv_table){
        .value_bytes = value_bytes,
        .precision = precision,
        .sum = sl_optimizer_find(SL_OPTIMIZER_SUM, SL_OPTIMIZER_SIMD_BEST),
        .budget = {.bytes_max = bytes_max},
    };
    sl_slab_init(&table->records, &table->budget, sizeof(struct sl_kv_array), RECORD_CHUNK_BYTES);
    sl_arena_init(&table->small, SMALL_CHUNK_BYTES, 0, true);
    int err = SL_ERR_NO_MEMORY;
    if (sl_table_budget_take(&table->budget, sizeof *table)) {
        err = sl_table_index_init(&table->index, &table->budget, &table->records);
    }
    if (err != 0) {
        sl_slab_fini(&table->records);
        free(table);
        return err;
    }
    *out = table;
    return 0;
}

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static bool kv_table_is_small(const struct sl_kv_table *table, uint32_t length)
{
    return (size_t)length * table->value_bytes <= SMALL_BYTES_MAX;
}

/* Returns the memory that an array of this length takes. */
static size_t array_bytes(const struct sl_kv_table *table, uint32_t length)
{
    return round_up((size_t)length * table->value_bytes,
                    kv_table_is_small(table, length) ? ALIGNMENT : PAGE_BYTES);
}

/* The memory of a small array is freed only with its chunk. */
static void array_drop(struct sl_kv_table *table, struct sl_kv_array *array)
{
    const size_t bytes = array_bytes(table, array->length);
    if (!kv_table_is_small(table, array->length)) {
        sl_arena_pages_unmap(array->values, bytes);
    }
    array->values = NULL;
    sl_table_budget_give(&table->budget, bytes);
}

void sl_kv_table_destroy(struct sl_kv_table **table)
{
    struct sl_kv_table *self = *table;
    if (self == NULL) {
        return;
    }
    for (uint32_t i = 0; i < self->records.unit_count; i++) {
        struct sl_kv_array *array = sl_kv_table_at(self, i);
        if (array->values != NULL) {
            array_drop(self, array);
        }
    }
    sl_kv_table_reservation_end(self, &self->own);
    sl_arena_fini(&self->small);
    sl_table_index_fini(&self->index);
    sl_slab_fini(&self->records);
    sl_assert(self->budget.bytes == sizeof *self);
    free(self);
    *table = NULL;
}

void sl_kv_table_set_bytes_max(struct sl_kv_table *table, size_t bytes_max)
{
    table->budget.bytes_max = bytes_max;
}

struct sl_kv_array *sl_kv_table_at(const struct sl_kv_table *table, uint32_t record)
{
    return sl_slab_at(&table->records, record);
}

void sl_kv_table_set_hook(struct sl_kv_table *table, struct sl_kv_table_hook *hook)
{
    table->hook = hook;
}

uint64_t sl_kv_table_generation_end(struct sl_kv_table *table)
{
    return table->generation++;
}

uint32_t sl_kv_table_value_bytes(const struct sl_kv_table *table)
{
    return table->value_bytes;
}

uint32_t sl_kv_table_record_count(const struct sl_kv_table *table)
{
    return table->records.unit_count;
}

uint64_t sl_kv_table_key_count(const struct sl_kv_table *table)
{
    return table->key_count;
}

size_t sl_kv_table_memory_bytes(const struct sl_kv_table *table)
{
    return table->budget.bytes;
}

/* Lookup */

void sl_kv_table_find(const struct sl_kv_table *table, const uint64_t *keys, uint32_t count,
                      struct sl_kv_array **arrays)
{
    uint32_t records[SL_KV_TABLE_BATCH];
    sl_assert(count <= SL_KV_TABLE_BATCH);
    sl_table_index_find(&table->index, keys, count, sizeof(struct sl_kv_array), records);
    for (uint32_t i = 0; i < count; i++) {
        arrays[i] = NULL;
        if (records[i] == SL_ROW_NONE) {
            continue;
        }
        struct sl_kv_array *array = sl_kv_table_at(table, records[i]);
        if (array->values != NULL) {
            __builtin_prefetch(array->values);
            arrays[i] = array;
        }
    }
}

/* Reservations */

void sl_kv_table_reservation_begin(struct sl_kv_table *table, struct sl_kv_reservation *reservation)
{
    *reservation = (struct sl_kv_reservation){.id = ++table->reservation_last};
}

struct sl_kv_reservation *sl_kv_table_own_reservation(struct sl_kv_table *table)
{
    return &table->own;
}

void sl_kv_table_reservation_end(struct sl_kv_table *table, struct sl_kv_reservation *reservation)
{
    sl_table_budget_give(&table->budget, reservation->bytes);
    *reservation = (struct sl_kv_reservation){0};
}

/* Appends a record without an array. A failure has no visible effect. */
static int record_create(struct sl_kv_table *table, uint64_t key, uint32_t *record)
{
    int err = sl_slab_reserve(&table->records);
    if (err != 0) {
        return err;
    }
    const uint32_t fresh = table->records.unit_count;
    *sl_kv_table_at(table, fresh) = (struct sl_kv_array){.key = key};
    err = sl_table_index_insert(&table->index, key, fresh);
    if (err != 0) {
        return err;
    }
    table->records.unit_count++;
    *record = fresh;
    return 0;
}

/* The table's own reservation may have fixed the length of an array that does not exist yet. */
static bool is_settled(const struct sl_kv_table *table, const struct sl_kv_reservation *reservation,
                       const struct sl_kv_array *array)
{
    return array->values != NULL || array->reservation == reservation->id ||
           (table->own.id != 0 && array->reservation == table->own.id);
}

/* Reserves one key, which has a record. If the table's own reservation covers the array too, both
 * charge the budget. The array keeps the id of the own reservation, which lasts longer. */
static int reservation_one(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                           struct sl_kv_array *array, uint32_t length)
{
    const bool settled = is_settled(table, reservation, array);
    if (settled && array->length != length) {
        return SL_ERR_INVALID;
    }
    if (array->values != NULL || array->reservation == reservation->id) {
        return 0;
    }
    const size_t bytes = array_bytes(table, length);
    if (!sl_table_budget_take(&table->budget, bytes)) {
        return SL_ERR_NO_MEMORY;
    }
    reservation->bytes += bytes;
    if (!settled) {
        array->length = length;
        array->reservation = reservation->id;
    }
    return 0;
}

int sl_kv_table_reserve(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                        const uint64_t *keys, const uint32_t *lens, uint32_t length, uint32_t count,
                        uint32_t *records, uint32_t *failed, uint32_t *failed_length)
{
    sl_assert(reservation->id != 0);
    sl_table_index_find(&table->index, keys, count, sizeof(struct sl_kv_array), records);
    for (uint32_t i = 0; i < count; i++) {
        int err = 0;
        if (records[i] == SL_ROW_NONE) {
            /* A repeated key may have a record by now. */
            records[i] = sl_table_index_find_one(&table->index, keys[i]);
        }
        if (records[i] == SL_ROW_NONE) {
            err = record_create(table, keys[i], &records[i]);
        }
        if (err == 0) {
            struct sl_kv_array *array = sl_kv_table_at(table, records[i]);
            *failed = i;
            *failed_length = array->length;
            err = reservation_one(table, reservation, array, lens != NULL ? lens[i] : length);
        }
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

/* Arrays */

/* Drops the rest of a chunk that is too short. A chunk becomes a huge page once half of it is in
 * use. */
static uint8_t *carve_small(struct sl_kv_table *table, size_t bytes)
{
    if (table->small_left < bytes) {
        uint8_t *chunk = sl_arena_map_ordinary(&table->small);
        if (chunk == NULL) {
            return NULL;
        }
        table->small_next = chunk;
        table->small_left = SMALL_CHUNK_BYTES;
    }
    uint8_t *values = table->small_next;
    table->small_next += bytes;
    table->small_left -= bytes;
    return values;
}

static int make_one(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                    struct sl_kv_array *array)
{
    const size_t bytes = array_bytes(table, array->length);
    sl_assert(bytes <= reservation->bytes);
    uint8_t *values = kv_table_is_small(table, array->length) ? carve_small(table, bytes)
                                                              : sl_arena_pages_map(bytes, false);
    if (values == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    reservation->bytes -= bytes;
    array->values = values;
    array->initialized_count = 0;
    return 0;
}

/* Completes the new arrays, whose bits are set in `made`: the generation replaces the reservation
 * id, and the hook is called. After an error, drops them. */
static void make_end(struct sl_kv_table *table, const uint32_t *records, uint32_t count,
                     const uint64_t *made, int err)
{
    for (uint32_t i = 0; i < count; i++) {
        if ((made[i / 64] >> i % 64 & 1) == 0) {
            continue;
        }
        struct sl_kv_array *array = sl_kv_table_at(table, records[i]);
        if (err != 0) {
            array_drop(table, array);
            table->key_count--;
            continue;
        }
        array->generation = table->generation;
        if (table->hook != NULL) {
            table->hook->created(table->hook, records[i]);
        }
    }
}

int sl_kv_table_make(struct sl_kv_table *table, struct sl_kv_reservation *reservation,
                     const uint32_t *records, uint32_t count)
{
    uint64_t made[SL_KV_TABLE_BATCH / 64] = {0};
    sl_assert(count <= SL_KV_TABLE_BATCH);
    bool any = false;
    int err = 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        struct sl_kv_array *array = sl_kv_table_at(table, records[i]);
        if (array->values == NULL) {
            any = true;
            err = make_one(table, reservation, array);
            made[i / 64] |= (uint64_t)(err == 0) << i % 64;
            table->key_count += err == 0;
        }
    }
    if (any) {
        make_end(table, records, count, made, err);
    }
    return err;
}

/* Adds values of F16 or BF16. */
static void add_narrow(const struct sl_kv_table *table, uint8_t *to, const uint8_t *values,
                       uint32_t count)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    while (count > 0) {
        float sums[NARROW_STEP], added[NARROW_STEP];
        const uint32_t here = count < NARROW_STEP ? count : NARROW_STEP;
        const struct sl_optimizer_visit visit = {.dim = here};
        kernels->widen(table->precision, to, here, sums);
        kernels->widen(table->precision, values, here, added);
        table->sum->apply(&visit, sums, NULL, NULL, added);
        kernels->narrow(table->precision, sums, here, to);
        to += (size_t)here * table->value_bytes;
        values += (size_t)here * table->value_bytes;
        count -= here;
    }
}

/* Most pushes find the whole array initialised and add to it. A push that covers the start of the
 * untouched zeros stores its values there instead: adding would touch each page twice. */
static void add(const struct sl_kv_table *table, struct sl_kv_array *array, uint32_t start,
                uint32_t count, const uint8_t *values)
{
    const size_t width = table->value_bytes;
    struct sl_optimizer_visit visit = {.dim = count};
    uint8_t *to = array->values + start * width;
    const uint32_t end = start + count;
    if (end > array->initialized_count && start <= array->initialized_count) {
        visit.dim = array->initialized_count - start;
        memcpy(to + visit.dim * width, values + visit.dim * width, (count - visit.dim) * width);
        array->initialized_count = end;
    } else if (end > array->initialized_count) {
        array->initialized_count = array->length; /* later pushes must add to the gap of zeros */
    }
    if (table->precision != SL_PRECISION_F32) {
        add_narrow(table, to, values, visit.dim);
    } else if (visit.dim > 0) {
        table->sum->apply(&visit, (float *)(void *)to, NULL, NULL,
                          (const float *)(const void *)values);
    }
}

/* Out of line, to keep the path without a hook short. */
static __attribute__((noinline, cold)) void tell(const struct sl_kv_table *table,
                                                 const struct sl_kv_array *array, uint32_t start,
                                                 uint32_t count)
{
    const uint32_t record = sl_table_index_find_one(&table->index, array->key);
    table->hook->before_write(table->hook, record, start, count);
}

void sl_kv_table_push(struct sl_kv_table *table, struct sl_kv_array *array, uint32_t start,
                      uint32_t count, const void *values)
{
    sl_assert(count <= array->length);
    sl_assert(start <= array->length - count);
    if (table->hook != NULL) {
        tell(table, array, start, count);
    }
    array->generation = table->generation;
    if (table->value_bytes == 1) {
        memcpy(array->values + start, values, count);
    } else {
        add(table, array, start, count, values);
    }
}

int sl_kv_table_put(struct sl_kv_table *table, const struct sl_kv_array *array, uint32_t first,
                    uint32_t count, const void *values)
{
    sl_assert(count <= array->length);
    sl_assert(first <= array->length - count);
    sl_assert(array->initialized_count <= array->length);
    sl_assert(table->own.id == 0);
    struct sl_kv_reservation reservation;
    uint32_t record;
    uint32_t failed;
    uint32_t failed_length;
    sl_kv_table_reservation_begin(table, &reservation);
    int err = sl_kv_table_reserve(table, &reservation, &array->key, NULL, array->length, 1, &record,
                                  &failed, &failed_length);
    err = err != 0 ? err : sl_kv_table_make(table, &reservation, &record, 1);
    sl_kv_table_reservation_end(table, &reservation);
    if (err != 0) {
        return err;
    }
    struct sl_kv_array *to = sl_kv_table_at(table, record);
    to->initialized_count = array->initialized_count;
    to->generation = table->generation;
    memcpy(to->values + (size_t)first * table->value_bytes, values,
           (size_t)count * table->value_bytes);
    return 0;
}
