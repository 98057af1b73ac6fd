#include "ps/snapshot/rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/partition.h"
#include "ps/optimizer/narrow.h"

#define CAPACITY_LEAST 1024

/* Length of the first name of a list, whose names have commas between them; 0: it is empty. */
static size_t name_length(const char *names)
{
    return strcspn(names, ",");
}

static const char *snapshot_rows_next_name(const char *names)
{
    names += name_length(names);
    return names + (*names == ',');
}

static bool snapshot_rows_is_name(const char *names, const char *name)
{
    const size_t length = name_length(names);
    return strlen(name) == length && memcmp(names, name, length) == 0;
}

static bool is_wanted(const struct sl_snapshot_rows *rows, const char *name)
{
    const char *at = rows->names;
    while (*at != '\0' && !snapshot_rows_is_name(at, name)) {
        at = snapshot_rows_next_name(at);
    }
    return *at != '\0';
}

static bool snapshot_rows_reserve(struct sl_snapshot_table_rows *table, uint64_t capacity)
{
    uint64_t *keys = realloc(table->keys, capacity * sizeof *keys);
    table->keys = keys != NULL ? keys : table->keys;
    void *values = realloc(table->values, capacity * table->row_bytes);
    table->values = values != NULL ? values : table->values;
    table->capacity = keys != NULL && values != NULL ? capacity : table->capacity;
    return table->capacity == capacity;
}

static int snapshot_rows_no_memory(const struct sl_snapshot_table_rows *table,
                                   struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "table %s: no memory for its rows",
                          table->name);
}

static int take_table(struct sl_snapshot_rows *rows, const struct sl_snapshot_block *block,
                      struct sl_reason *reason)
{
    struct sl_snapshot_table table;
    const int err = sl_snapshot_take_table(block, &table, reason);
    const struct sl_table_spec *spec = &table.spec;
    if (err != 0 || !is_wanted(rows, spec->name)) {
        return err;
    }
    if (spec->kind == SL_TABLE_KV) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                              "table %s has arrays, which cannot be published", spec->name);
    }
    if (!sl_array_make_room(&rows->tables, &rows->capacity, rows->count, sizeof *rows->tables)) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    struct sl_snapshot_table_rows *made = &rows->tables[rows->count++];
    const bool is_dense = spec->kind == SL_TABLE_DENSE;
    *made = (struct sl_snapshot_table_rows){
        .dim = is_dense ? SL_PARTITION_BLOCK_ELEMENTS : spec->dim,
        .table_id = block->table_id,
        .length = is_dense ? spec->length : 0,
        .optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR),
    };
    made->layout = sl_narrow_layout(spec, made->optimizer);
    made->row_bytes = (uint32_t)sl_precision_row_bytes(spec->values, made->dim);
    memcpy(made->name, spec->name, sizeof made->name);
    const uint64_t expected = table.row_count > CAPACITY_LEAST ? table.row_count : CAPACITY_LEAST;
    return snapshot_rows_reserve(made, expected) ? 0 : snapshot_rows_no_memory(made, reason);
}

static int take_rows(struct sl_snapshot_table_rows *table, const struct sl_snapshot_block *block,
                     struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_snapshot_records(block);
    for (uint32_t i = 0; i < block->count; i++) {
        struct sl_bytes peek = cursor;
        struct sl_snapshot_record record;
        const bool is_sparse = table->length == 0;
        const uint32_t here =
            is_sparse ? table->dim : sl_snapshot_dense_elements(table->length, sl_bytes_u64(&peek));
        const uint32_t words =
            is_sparse ? table->layout.words
                      : here + (uint32_t)sl_optimizer_slot_floats(table->optimizer, here);
        if (here == 0 || !sl_snapshot_take_record(&cursor, words, &record)) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT, "table %s: a record is cut short",
                                  table->name);
        }
        if (table->count == table->capacity &&
            !snapshot_rows_reserve(table, 2 * table->capacity + CAPACITY_LEAST)) {
            return snapshot_rows_no_memory(table, reason);
        }
        const size_t bytes = is_sparse ? table->row_bytes : here * sizeof(float);
        uint8_t *to = (uint8_t *)table->values + table->count * table->row_bytes;
        memcpy(to, record.floats, bytes);
        memset(to + bytes, 0, table->row_bytes - bytes);
        table->keys[table->count++] = record.key;
    }
    return 0;
}

static int take_end(struct sl_snapshot_rows *rows, const struct sl_snapshot_block *block,
                    struct sl_reason *reason)
{
    struct sl_snapshot_end end;
    if (!sl_snapshot_take_end(block, &end)) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "the end of a snapshot is cut short");
    }
    rows->shard = end.shard;
    for (const char *at = rows->names; *at != '\0'; at = snapshot_rows_next_name(at)) {
        uint32_t i = 0;
        while (i < rows->count && !snapshot_rows_is_name(at, rows->tables[i].name)) {
            i++;
        }
        if (i == rows->count) {
            return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "there is no table \"%.*s\"",
                                  (int)name_length(at), at);
        }
    }
    return 0;
}

int sl_snapshot_rows_take(struct sl_snapshot_rows *rows, const struct sl_snapshot_block *block,
                          struct sl_reason *reason)
{
    int err = 0;
    if (block->kind == SL_SNAPSHOT_TABLE || block->kind == SL_SNAPSHOT_END) {
        return block->kind == SL_SNAPSHOT_TABLE ? take_table(rows, block, reason)
                                                : take_end(rows, block, reason);
    }
    for (uint32_t i = 0; err == 0 && i < rows->count; i++) {
        struct sl_snapshot_table_rows *table = &rows->tables[i];
        const enum sl_snapshot_kind kind =
            table->length == 0 ? SL_SNAPSHOT_ROWS : SL_SNAPSHOT_DENSE;
        if (block->table_id == table->table_id && block->kind == kind) {
            err = take_rows(table, block, reason);
        }
    }
    return err;
}

struct place {
    uint64_t key, row;
};

static int snapshot_rows_compare(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    return a->key != b->key ? (a->key > b->key) - (a->key < b->key)
                            : (a->row > b->row) - (a->row < b->row);
}

int sl_snapshot_rows_sort(struct sl_snapshot_table_rows *table)
{
    const uint64_t count = table->count;
    struct place *places = malloc((count + 1) * sizeof *places);
    uint8_t *values = malloc((count + 1) * table->row_bytes);
    if (places == NULL || values == NULL) {
        free(places);
        free(values);
        return SL_ERR_NO_MEMORY;
    }
    for (uint64_t i = 0; i < count; i++) {
        places[i] = (struct place){.key = table->keys[i], .row = i};
    }
    qsort(places, count, sizeof *places, snapshot_rows_compare);
    table->count = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count && places[i + 1].key == places[i].key) {
            continue;
        }
        memcpy(values + table->count * table->row_bytes,
               (const uint8_t *)table->values + places[i].row * table->row_bytes, table->row_bytes);
        table->keys[table->count++] = places[i].key;
    }
    free(places);
    free(table->values);
    table->values = values;
    table->capacity = table->count;
    return 0;
}

void sl_snapshot_rows_fini(struct sl_snapshot_rows *rows)
{
    for (uint32_t i = 0; i < rows->count; i++) {
        free(rows->tables[i].keys);
        free(rows->tables[i].values);
    }
    free(rows->tables);
    *rows = (struct sl_snapshot_rows){.names = rows->names};
}
