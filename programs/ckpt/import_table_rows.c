/* Writes the records of imported tables. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/end_signals.h"
#include "core/partition.h"
#include "programs/ckpt/import_table.h"
#include "ps/optimizer/narrow.h"

#define CHUNK_BYTES (1U << 20) /* of values, read at a time */
#define CHUNK_ROWS  1024U

/* Writing one table to one shard's file. */
struct pour {
    const struct sl_safetensors *file;
    const struct sl_import_table *table;
    uint32_t table_id;
    struct sl_import_sink *sink;
    int err; /* the first error; nothing is read or written after it */
    struct sl_reason *reason;
    uint64_t *keys;  /* [CHUNK_ROWS] */
    float *values;   /* of a chunk */
    float *slots;    /* of a chunk */
    int64_t *steps;  /* [CHUNK_ROWS] */
    int64_t *counts; /* [CHUNK_ROWS] */
    float *record;   /* of one record */
    void *words;     /* the same, as it is stored */
    void *narrow;    /* of a chunk, as in the file, or as they are stored */
};

/* Writes the block, and begins the next one. */
static void import_table_rows_send(struct pour *pour, enum sl_snapshot_kind next)
{
    struct sl_import_sink *sink = pour->sink;
    if (pour->err == 0 && sink->block->count > 0) {
        sl_snapshot_end_add(&sink->end, sink->block);
        pour->err = sl_end_signals_check(pour->reason);
        if (pour->err == 0) {
            pour->err = sl_checkpoint_writer_write(sink->writer, sink->block, pour->reason);
        }
    }
    sl_snapshot_block_begin(sink->block, next, pour->table_id);
}

static void put_record(struct pour *pour, enum sl_snapshot_kind kind,
                       const struct sl_snapshot_record *record, uint32_t floats)
{
    if (pour->err != 0 || sl_snapshot_put_record(pour->sink->block, record, floats)) {
        return;
    }
    import_table_rows_send(pour, kind);
    const bool fits = sl_snapshot_put_record(pour->sink->block, record, floats);
    sl_assert(fits);
}

/* Reads items of a tensor, if it exists. */
static void read_items(struct pour *pour, const struct sl_tensor *tensor, uint64_t first, void *to,
                       uint64_t count, size_t item_bytes)
{
    if (pour->err == 0 && tensor != NULL) {
        pour->err = sl_safetensors_read(pour->file, tensor, first * item_bytes, to,
                                        (size_t)count * item_bytes, pour->reason);
    }
}

/* Reads values, f32 in memory. */
static void read_values(struct pour *pour, uint64_t first, float *to, uint32_t count)
{
    const struct sl_tensor *tensor = pour->table->values;
    if (tensor->type == SL_TENSOR_F32) {
        read_items(pour, tensor, first, to, count, sizeof *to);
        return;
    }
    read_items(pour, tensor, first, pour->narrow, count, sizeof(uint16_t));
    if (pour->err == 0) {
        sl_precision_kernels(SL_PRECISION_SIMD_BEST)
            ->widen(tensor->type == SL_TENSOR_F16 ? SL_PRECISION_F16 : SL_PRECISION_BF16,
                    pour->narrow, count, to);
    }
}

/* Validates a step or count; 0 without a tensor. */
static uint32_t take_number(struct pour *pour, const struct sl_tensor *tensor, int64_t value)
{
    if (tensor == NULL) {
        return 0;
    }
    if (pour->err == 0 && (value < 0 || value > UINT32_MAX)) {
        sl_reason_set(pour->reason, "\"%s\" has %" PRId64 "; expected 0 to 2^32 - 1", tensor->name,
                      value);
        pour->err = SL_ERR_INVALID;
    }
    return (uint32_t)value;
}

static void take_visits(struct pour *pour, uint32_t at, struct sl_snapshot_record *record)
{
    record->last_step = take_number(pour, pour->table->steps, pour->steps[at]);
    record->count = take_number(pour, pour->table->counts, pour->counts[at]);
}

/* Sets the optimizer's initial slots. */
static void import_table_rows_init_slots(const struct sl_import_table *table, uint32_t values,
                                         float *slots)
{
    memset(slots, 0, sl_optimizer_slot_floats(table->optimizer, values) * sizeof(float));
    sl_optimizer_init_slots(table->optimizer, &table->info.spec.optimizer, values, slots);
}

/* Sparse */

static void read_rows(struct pour *pour, uint64_t first, uint32_t count)
{
    const struct sl_import_table *table = pour->table;
    const uint32_t dim = table->info.spec.dim;
    const size_t slots = sl_optimizer_slot_floats(table->optimizer, dim);
    read_items(pour, table->keys, first, pour->keys, count, sizeof *pour->keys);
    read_values(pour, first * dim, pour->values, count * dim);
    read_items(pour, table->slots, first, pour->slots, count, slots * sizeof(float));
    read_items(pour, table->steps, first, pour->steps, count, sizeof *pour->steps);
    read_items(pour, table->counts, first, pour->counts, count, sizeof *pour->counts);
}

static void pour_row(struct pour *pour, uint32_t at)
{
    const struct sl_import_table *table = pour->table;
    const uint32_t dim = table->info.spec.dim;
    const size_t slots = sl_optimizer_slot_floats(table->optimizer, dim);
    struct sl_snapshot_record record = {.key = pour->keys[at], .floats = pour->record};
    memcpy(pour->record, pour->values + (size_t)at * dim, dim * sizeof(float));
    if (table->slots != NULL) {
        memcpy(pour->record + dim, pour->slots + at * slots, slots * sizeof(float));
    } else {
        import_table_rows_init_slots(table, dim, pour->record + dim);
    }
    if (!table->layout.is_f32) {
        sl_narrow_write(&table->layout, pour->record, pour->words);
        record.floats = pour->words;
    }
    take_visits(pour, at, &record);
    put_record(pour, SL_SNAPSHOT_ROWS, &record, table->layout.words);
}

static void pour_rows(struct pour *pour)
{
    const uint64_t all = pour->table->keys->count;
    const struct sl_snapshot_end *shard = &pour->sink->end;
    for (uint64_t first = 0; pour->err == 0 && first < all; first += CHUNK_ROWS) {
        const uint32_t count = all - first < CHUNK_ROWS ? (uint32_t)(all - first) : CHUNK_ROWS;
        read_rows(pour, first, count);
        for (uint32_t i = 0; pour->err == 0 && i < count; i++) {
            if (sl_partition_owner(pour->keys[i], shard->shard_count) == shard->shard) {
                pour_row(pour, i);
            }
        }
    }
}

/* Dense */

static void pour_block(struct pour *pour, uint64_t number)
{
    const struct sl_import_table *table = pour->table;
    const uint32_t elements = sl_snapshot_dense_elements(table->info.spec.length, number);
    const uint64_t first = number * SL_PARTITION_BLOCK_ELEMENTS;
    const uint32_t row_slots = table->optimizer->slots_per_row;
    struct sl_snapshot_record record = {.key = number, .floats = pour->record};
    float *slots = pour->record + elements;
    import_table_rows_init_slots(table, elements, slots);
    read_values(pour, first, pour->record, elements);
    for (uint32_t i = 0; i < table->optimizer->slots_per_value; i++) {
        read_items(pour, table->slots, i * table->info.spec.length + first, slots, elements,
                   sizeof(float));
        slots += elements;
    }
    read_items(pour, table->block_slots, number * row_slots, slots, row_slots, sizeof(float));
    read_items(pour, table->steps, number, pour->steps, 1, sizeof *pour->steps);
    read_items(pour, table->counts, number, pour->counts, 1, sizeof *pour->counts);
    take_visits(pour, 0, &record);
    put_record(pour, SL_SNAPSHOT_DENSE, &record, (uint32_t)(slots - pour->record) + row_slots);
}

static void pour_dense(struct pour *pour)
{
    const struct sl_snapshot_end *shard = &pour->sink->end;
    const uint64_t length = pour->table->info.spec.length;
    const uint32_t range =
        sl_partition_range_of_shard(pour->table_id, shard->shard, shard->shard_count);
    const uint64_t end = sl_partition_range_start(length, shard->shard_count, range + 1);
    uint64_t at = sl_partition_range_start(length, shard->shard_count, range);
    for (; pour->err == 0 && at < end; at += SL_PARTITION_BLOCK_ELEMENTS) {
        pour_block(pour, at / SL_PARTITION_BLOCK_ELEMENTS);
    }
}

/* KV */

/* Reads values of an array. Returns them as they are stored. */
static const void *read_array(struct pour *pour, uint64_t first, uint32_t count)
{
    const struct sl_table_spec *spec = &pour->table->info.spec;
    if (spec->dim == 1) {
        read_items(pour, pour->table->values, first, pour->values, count, 1);
        return pour->values;
    }
    read_values(pour, first, pour->values, count);
    if (pour->err != 0 || spec->dim == sizeof(float)) {
        return pour->values;
    }
    sl_precision_kernels(SL_PRECISION_SIMD_BEST)
        ->narrow(spec->values, pour->values, count, pour->narrow);
    return pour->narrow;
}

/* Writes the array of a key, whose values start at `at`. */
static void pour_array(struct pour *pour, uint64_t key, uint32_t length, uint64_t at)
{
    const uint32_t value_bytes = pour->table->info.spec.dim;
    const uint32_t most = CHUNK_BYTES / (value_bytes == 1 ? 1 : (uint32_t)sizeof(float));
    for (uint32_t done = 0; done < length;) {
        const uint32_t count = length - done < most ? length - done : most;
        struct sl_snapshot_kv piece = {.key = key,
                                       .length = length,
                                       .first = done,
                                       .count = count,
                                       .initialized_count = length,
                                       .values = read_array(pour, at + done, count)};
        if (pour->err != 0) {
            return;
        }
        /* Writes as many as fit; the rest is read again. */
        const uint32_t put = sl_snapshot_put_kv(pour->sink->block, &piece, value_bytes);
        done += put;
        if (put < count) {
            import_table_rows_send(pour, SL_SNAPSHOT_KV);
        }
    }
}

static void check_length(struct pour *pour, int64_t length, uint64_t at)
{
    if (pour->err == 0 &&
        (length < 1 || length > UINT32_MAX || (uint64_t)length > pour->table->values->count - at)) {
        sl_reason_set(pour->reason,
                      "\"%s\" has %" PRId64
                      "; lengths are 1 to 2^32 - 1, and together as many as there are values",
                      pour->table->lens->name, length);
        pour->err = SL_ERR_INVALID;
    }
}

static void pour_kv(struct pour *pour)
{
    const struct sl_import_table *table = pour->table;
    const struct sl_snapshot_end *shard = &pour->sink->end;
    uint64_t at = 0;
    for (uint64_t i = 0; pour->err == 0 && i < table->keys->count; i++) {
        const uint32_t place = (uint32_t)(i % CHUNK_ROWS);
        const uint64_t left = table->keys->count - i;
        if (place == 0) {
            const uint64_t count = left < CHUNK_ROWS ? left : CHUNK_ROWS;
            read_items(pour, table->keys, i, pour->keys, count, sizeof *pour->keys);
            read_items(pour, table->lens, i, pour->counts, count, sizeof *pour->counts);
        }
        check_length(pour, pour->counts[place], at);
        if (pour->err == 0 &&
            sl_partition_kv_owner(pour->keys[place], shard->shard_count) == shard->shard) {
            pour_array(pour, pour->keys[place], (uint32_t)pour->counts[place], at);
        }
        at += pour->err == 0 ? (uint64_t)pour->counts[place] : 0;
    }
    if (at != table->values->count) {
        check_length(pour, 0, at); /* values that no length counts */
    }
}

/* All tables */

static bool make_memory(struct pour *pour)
{
    const struct sl_import_table *table = pour->table;
    const bool sparse = table->info.spec.kind == SL_TABLE_SPARSE;
    const size_t values = sparse ? table->info.spec.dim : SL_PARTITION_BLOCK_ELEMENTS;
    const size_t slots = sl_optimizer_slot_floats(table->optimizer, (uint32_t)values);
    const size_t chunk = sparse ? CHUNK_ROWS * values * sizeof(float) : CHUNK_BYTES;
    pour->keys = malloc(CHUNK_ROWS * sizeof *pour->keys);
    pour->values = malloc(chunk);
    pour->slots = malloc(sparse ? CHUNK_ROWS * slots * sizeof(float) + 1 : 1);
    pour->steps = calloc(CHUNK_ROWS, sizeof *pour->steps);
    pour->counts = calloc(CHUNK_ROWS, sizeof *pour->counts);
    pour->record = malloc((values + slots) * sizeof(float));
    pour->words = malloc((values + slots) * sizeof(float) + sizeof(float)); /* INT8: a scale */
    pour->narrow = malloc(chunk);
    return pour->keys != NULL && pour->values != NULL && pour->slots != NULL &&
           pour->steps != NULL && pour->counts != NULL && pour->record != NULL &&
           pour->words != NULL && pour->narrow != NULL;
}

static void pour_table(struct pour *pour)
{
    struct sl_snapshot_table info = pour->table->info;
    if (info.spec.kind == SL_TABLE_SPARSE) { /* an even part of them; the sum is exact */
        const struct sl_snapshot_end *shard = &pour->sink->end;
        const uint64_t all = pour->table->keys->count;
        info.row_count =
            (uint32_t)(all / shard->shard_count + (shard->shard < all % shard->shard_count));
    }
    sl_snapshot_put_table(pour->sink->block, pour->table_id, &info);
    switch (pour->table->info.spec.kind) {
    case SL_TABLE_SPARSE:
        import_table_rows_send(pour, SL_SNAPSHOT_ROWS);
        pour_rows(pour);
        break;
    case SL_TABLE_DENSE:
        import_table_rows_send(pour, SL_SNAPSHOT_DENSE);
        pour_dense(pour);
        break;
    case SL_TABLE_KV:
        import_table_rows_send(pour, SL_SNAPSHOT_KV);
        pour_kv(pour);
        break;
    }
    import_table_rows_send(pour, SL_SNAPSHOT_END); /* writes the rest of the block */
}

int sl_import_table_write(const struct sl_safetensors *file, const struct sl_import_table *table,
                          uint32_t table_id, struct sl_import_sink *sink, struct sl_reason *reason)
{
    struct pour pour = {
        .file = file, .table = table, .table_id = table_id, .sink = sink, .reason = reason};
    if (make_memory(&pour)) {
        pour_table(&pour);
    } else {
        sl_reason_set(reason, "no memory");
        pour.err = SL_ERR_NO_MEMORY;
    }
    free(pour.keys);
    free(pour.values);
    free(pour.slots);
    free(pour.steps);
    free(pour.counts);
    free(pour.record);
    free(pour.words);
    free(pour.narrow);
    return pour.err;
}
