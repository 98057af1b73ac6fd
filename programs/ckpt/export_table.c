#include "programs/ckpt/export_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/partition.h"

static int export_table_malformed(const struct sl_export_table *export, struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_CORRUPT, "a record of table \"%s\" is malformed",
                          export->table->info.spec.name);
}

static int export_table_no_memory(const struct sl_export_table *export, struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                          "no memory for the %llu keys of table \"%s\" so far: export table by "
                          "table (--table), or on a machine with more",
                          (unsigned long long)export->rows.count, export->table->info.spec.name);
}

static uint64_t export_table_block_count(const struct sl_table_spec *spec)
{
    return (spec->length + SL_PARTITION_BLOCK_ELEMENTS - 1) / SL_PARTITION_BLOCK_ELEMENTS;
}

/* Returns the floats of a dense block with its slots; 0: no such block. */
static uint32_t block_floats(const struct sl_export_table *export, uint64_t number,
                             uint32_t *elements)
{
    *elements = sl_snapshot_dense_elements(export->table->info.spec.length, number);
    return *elements == 0
               ? 0
               : *elements * (1 + export->table->slots_per_value) + export->table->slots_per_row;
}

/* First pass: keys */

/* Reads and counts one record. */
typedef int (*count_fn)(struct sl_export_table *export, struct sl_bytes *cursor,
                        struct sl_reason *reason);

static int add_length(struct sl_export_table *export, uint64_t number, uint32_t length)
{
    if (number >= export->lens_capacity) {
        const uint64_t capacity = export->lens_capacity == 0 ? 256 : export->lens_capacity * 2;
        uint64_t *lens = realloc(export->lens, capacity * sizeof *lens);
        if (lens == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        export->lens = lens;
        export->lens_capacity = capacity;
    }
    export->lens[number] = length;
    export->value_count += length;
    return 0;
}

static int count_row(struct sl_export_table *export, struct sl_bytes *cursor,
                     struct sl_reason *reason)
{
    struct sl_snapshot_record record;
    const uint64_t count = export->rows.count;
    uint64_t number;
    if (!sl_snapshot_take_record(cursor, export->table->layout.words, &record)) {
        return export_table_malformed(export, reason);
    }
    if (sl_key_index_add(&export->rows, record.key, &number) != 0 ||
        (number == count && add_length(export, number, 0) != 0)) {
        return export_table_no_memory(export, reason);
    }
    export->value_count += 1 - export->lens[number];
    export->lens[number] = 1;
    return 0;
}

static int count_erased(struct sl_export_table *export, struct sl_bytes *cursor,
                        struct sl_reason *reason)
{
    uint64_t key;
    uint64_t number;
    if (!sl_snapshot_take_erased(cursor, &key)) {
        return export_table_malformed(export, reason);
    }
    if (sl_key_index_find(&export->rows, key, &number)) {
        export->value_count -= export->lens[number];
        export->lens[number] = 0;
    }
    return 0;
}

/* Reads a dense record, whose size depends on its block number. */
static bool take_dense(const struct sl_export_table *export, struct sl_bytes *cursor,
                       struct sl_snapshot_record *record, uint32_t *elements)
{
    struct sl_bytes ahead = *cursor;
    const uint64_t number = sl_bytes_u64(&ahead);
    const uint32_t floats = ahead.bad ? 0 : block_floats(export, number, elements);
    return floats != 0 && sl_snapshot_take_record(cursor, floats, record);
}

static int count_dense(struct sl_export_table *export, struct sl_bytes *cursor,
                       struct sl_reason *reason)
{
    struct sl_snapshot_record record;
    uint32_t elements;
    if (!take_dense(export, cursor, &record, &elements)) {
        return export_table_malformed(export, reason);
    }
    if (export->seen == NULL) {
        export->seen = calloc(export_table_block_count(&export->table->info.spec) / 8 + 1, 1);
    }
    if (export->seen == NULL) {
        return export_table_no_memory(export, reason);
    }
    export->seen[record.key / 8] |= (uint8_t)(1U << record.key % 8);
    return 0;
}

static int count_kv(struct sl_export_table *export, struct sl_bytes *cursor,
                    struct sl_reason *reason)
{
    struct sl_snapshot_kv piece;
    const uint64_t count = export->rows.count;
    uint64_t number;
    if (!sl_snapshot_take_kv(cursor, export->table->value_bytes, &piece)) {
        return export_table_malformed(export, reason);
    }
    if (sl_key_index_add(&export->rows, piece.key, &number) != 0 ||
        (number == count && add_length(export, number, piece.length) != 0)) {
        return export_table_no_memory(export, reason);
    }
    return export->lens[number] == piece.length ? 0 : export_table_malformed(export, reason);
}

int sl_export_table_count(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          struct sl_reason *reason)
{
    static const count_fn COUNTS[] = {
        [SL_TABLE_SPARSE] = count_row, [SL_TABLE_DENSE] = count_dense, [SL_TABLE_KV] = count_kv};
    const count_fn count =
        block->kind == SL_SNAPSHOT_ERASED ? count_erased : COUNTS[export->table->info.spec.kind];
    struct sl_bytes cursor = sl_snapshot_records(block);
    for (uint32_t i = 0; i < block->count; i++) {
        int err = count(export, &cursor, reason);
        if (err != 0) {
            return err;
        }
    }
    return cursor.left == 0 ? 0 : export_table_malformed(export, reason);
}

/* Tensors */

struct describer {
    const struct sl_export_table *export;
    struct sl_tensors *tensors;
    int err;
    struct sl_reason *reason;
};

/* Adds a tensor [rows], or [rows][columns] if columns is not 0. Returns its index. */
static uint32_t export_table_add(struct describer *describer, const char *suffix,
                                 enum sl_tensor_type type, uint64_t rows, uint64_t columns)
{
    struct sl_tensor tensor = {
        .type = type, .rank = columns == 0 ? 1 : 2, .shape = {rows, columns}};
    (void)snprintf(tensor.name, sizeof tensor.name, "%s%s",
                   describer->export->table->info.spec.name, suffix);
    if (describer->err == 0) {
        describer->err = sl_tensor_add(describer->tensors, &tensor, describer->reason);
    }
    return describer->err == 0 ? describer->tensors->count - 1 : SL_EXPORT_NONE;
}

/* Turns lengths into offsets; the last array ends at value_count. */
static void set_offsets(struct sl_export_table *export)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < export->rows.count; i++) {
        const uint64_t length = export->lens[i];
        export->lens[i] = at;
        at += length;
    }
}

/* Returns the length of an array, or whether a row exists, after set_offsets. */
static uint64_t length_of(const struct sl_export_table *export, uint64_t number)
{
    const uint64_t end =
        number + 1 < export->rows.count ? export->lens[number + 1] : export->value_count;
    return end - export->lens[number];
}

static void describe_sparse(struct describer *describer, struct sl_export_table *export, bool slots,
                            enum sl_tensor_type keys)
{
    const uint64_t n = export->value_count;
    export->keys = export_table_add(describer, ".keys", keys, n, 0);
    export->values =
        export_table_add(describer, ".values", export->type, n, export->table->info.spec.dim);
    set_offsets(export);
    if (slots) {
        if (export->table->slot_floats != 0) {
            export->slots =
                export_table_add(describer, ".slots", SL_TENSOR_F32, n, export->table->slot_floats);
        }
        export->steps = export_table_add(describer, ".steps", SL_TENSOR_I64, n, 0);
        export->counts = export_table_add(describer, ".counts", SL_TENSOR_I64, n, 0);
    }
}

static void describe_dense(struct describer *describer, struct sl_export_table *export, bool slots)
{
    const struct sl_table_spec *spec = &export->table->info.spec;
    const uint64_t blocks = export_table_block_count(spec);
    export->values = export_table_add(describer, "", SL_TENSOR_F32, spec->length, 0);
    if (slots) {
        if (export->table->slots_per_value != 0) {
            export->slots = export_table_add(describer, ".slots", SL_TENSOR_F32,
                                             export->table->slots_per_value, spec->length);
        }
        if (export->table->slots_per_row != 0) {
            export->block_slots = export_table_add(describer, ".block_slots", SL_TENSOR_F32, blocks,
                                                   export->table->slots_per_row);
        }
        export->steps = export_table_add(describer, ".steps", SL_TENSOR_I64, blocks, 0);
        export->counts = export_table_add(describer, ".counts", SL_TENSOR_I64, blocks, 0);
    }
}

static void describe_kv(struct describer *describer, struct sl_export_table *export,
                        enum sl_tensor_type keys)
{
    const uint64_t n = export->rows.count;
    export->keys = export_table_add(describer, ".keys", keys, n, 0);
    export->lengths = export_table_add(describer, ".lens", SL_TENSOR_I64, n, 0);
    export->values = export_table_add(describer, ".values", export->type, export->value_count, 0);
    set_offsets(export);
}

static int check_blocks(const struct sl_export_table *export, struct sl_reason *reason)
{
    const struct sl_table_spec *spec = &export->table->info.spec;
    for (uint64_t i = 0; i < export_table_block_count(spec); i++) {
        if (export->seen == NULL || (export->seen[i / 8] >> i % 8 & 1) == 0) {
            return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                  "block %llu of the dense table \"%s\" is in none of the files",
                                  (unsigned long long)i, spec->name);
        }
    }
    return 0;
}

int sl_export_table_describe(struct sl_export_table *export, bool slots, enum sl_tensor_type keys,
                             struct sl_tensors *tensors, struct sl_reason *reason)
{
    struct describer describer = {.export = export, .tensors = tensors, .reason = reason};
    export->keys = export->lengths = export->values = export->slots = SL_EXPORT_NONE;
    export->block_slots = export->steps = export->counts = SL_EXPORT_NONE;
    switch (export->table->info.spec.kind) {
    case SL_TABLE_SPARSE:
        describe_sparse(&describer, export, slots, keys);
        break;
    case SL_TABLE_DENSE:
        describer.err = check_blocks(export, reason);
        describe_dense(&describer, export, slots);
        break;
    case SL_TABLE_KV:
        describe_kv(&describer, export, keys);
        break;
    }
    return describer.err;
}

/* Second pass: values */

struct output {
    struct sl_tensor_writer *archive;
    int err;
    struct sl_reason *reason;
};

/* Writes items [first, first + count) of a tensor, if it exists. */
static void export_table_put(struct output *output, uint32_t tensor, uint64_t first,
                             const void *from, uint64_t count, size_t item_bytes)
{
    if (output->err == 0 && tensor != SL_EXPORT_NONE) {
        output->err = sl_tensor_writer_write(output->archive, tensor, first * item_bytes, from,
                                             (size_t)count * item_bytes, output->reason);
    }
}

/* Writes items of a tensor of f32. `stored`: a row, or a part of an array; not INT8 if it is longer
 * than a row. */
static void put_widened(struct output *output, uint32_t tensor, uint64_t first,
                        enum sl_precision precision, const uint8_t *stored, uint64_t count)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    float values[SL_LIMIT_DIM];
    for (uint64_t done = 0; tensor != SL_EXPORT_NONE && done < count; done += SL_LIMIT_DIM) {
        const uint64_t left = count - done;
        const uint32_t here = left < SL_LIMIT_DIM ? (uint32_t)left : SL_LIMIT_DIM;
        kernels->widen(precision, stored, here, values);
        export_table_put(output, tensor, first + done, values, here, sizeof(float));
        stored += sl_precision_row_bytes(precision, here);
    }
}

/* The same of the table's values, whatever the tensor's type. */
static void put_values(struct output *output, const struct sl_export_table *export, uint64_t first,
                       const void *stored, uint64_t count)
{
    const enum sl_precision precision = export->table->info.spec.values;
    if (export->type == SL_TENSOR_F32 && precision != SL_PRECISION_F32) {
        put_widened(output, export->values, first, precision, stored, count);
    } else {
        export_table_put(output, export->values, first, stored, count,
                         sl_tensor_type_bytes(export->type));
    }
}

static void put_visits(struct output *output, const struct sl_export_table *export, uint64_t at,
                       const struct sl_snapshot_record *record)
{
    const int64_t step = record->last_step;
    const int64_t count = record->count;
    export_table_put(output, export->steps, at, &step, 1, sizeof step);
    export_table_put(output, export->counts, at, &count, 1, sizeof count);
}

static void write_row(struct output *output, const struct sl_export_table *export,
                      const struct sl_snapshot_record *record)
{
    const struct sl_row_layout *layout = &export->table->layout;
    const uint32_t slots = export->table->slot_floats;
    const uint8_t *stored = (const void *)record->floats;
    uint64_t number = 0;
    const bool found = sl_key_index_find(&export->rows, record->key, &number);
    sl_assert(found); /* the first pass has read the same files, with checksums */
    if (length_of(export, number) == 0) {
        return; /* erased later */
    }
    const uint64_t at = export->lens[number];
    export_table_put(output, export->keys, at, &record->key, 1, sizeof record->key);
    put_values(output, export, at * layout->dim, stored, layout->dim);
    put_widened(output, export->slots, at * slots, layout->slots, stored + layout->slots_at,
                layout->value_slots);
    export_table_put(output, export->slots, at * slots + layout->value_slots,
                     stored + layout->row_slots_at, layout->row_slots, sizeof(float));
    put_visits(output, export, at, record);
}

static void write_dense(struct output *output, const struct sl_export_table *export,
                        const struct sl_snapshot_record *record, uint32_t elements)
{
    const struct sl_checkpoint_source_table *table = export->table;
    const uint64_t first = record->key * SL_PARTITION_BLOCK_ELEMENTS;
    const float *floats = record->floats;
    export_table_put(output, export->values, first, floats, elements, sizeof(float));
    for (uint32_t i = 0; i < table->slots_per_value; i++) {
        floats += elements;
        export_table_put(output, export->slots, i * table->info.spec.length + first, floats,
                         elements, sizeof(float));
    }
    export_table_put(output, export->block_slots, record->key * table->slots_per_row,
                     floats + elements, table->slots_per_row, sizeof(float));
    put_visits(output, export, record->key, record);
}

static void write_kv(struct output *output, const struct sl_export_table *export,
                     const struct sl_snapshot_kv *piece)
{
    uint64_t at = 0;
    const bool found = sl_key_index_find(&export->rows, piece->key, &at);
    sl_assert(found);
    export_table_put(output, export->keys, at, &piece->key, 1, sizeof piece->key);
    put_values(output, export, export->lens[at] + piece->first, piece->values, piece->count);
}

int sl_export_table_write(struct sl_export_table *export, const struct sl_snapshot_block *block,
                          struct sl_tensor_writer *archive, struct sl_reason *reason)
{
    struct output output = {.archive = archive, .reason = reason};
    struct sl_bytes cursor = sl_snapshot_records(block);
    struct sl_snapshot_record record;
    struct sl_snapshot_kv piece;
    uint32_t elements = 0;
    if (block->kind == SL_SNAPSHOT_ERASED) {
        return 0;
    }
    for (uint32_t i = 0; output.err == 0 && i < block->count; i++) {
        switch (block->kind) {
        case SL_SNAPSHOT_ROWS:
            if (!sl_snapshot_take_record(&cursor, export->table->layout.words, &record)) {
                return export_table_malformed(export, reason);
            }
            write_row(&output, export, &record);
            break;
        case SL_SNAPSHOT_DENSE:
            if (!take_dense(export, &cursor, &record, &elements)) {
                return export_table_malformed(export, reason);
            }
            write_dense(&output, export, &record, elements);
            break;
        default:
            if (!sl_snapshot_take_kv(&cursor, export->table->value_bytes, &piece)) {
                return export_table_malformed(export, reason);
            }
            write_kv(&output, export, &piece);
            break;
        }
    }
    return output.err;
}

int sl_export_table_end(struct sl_export_table *export, struct sl_tensor_writer *archive,
                        struct sl_reason *reason)
{
    struct output output = {.archive = archive, .reason = reason};
    for (uint64_t i = 0; export->lengths != SL_EXPORT_NONE && i < export->rows.count; i++) {
        const int64_t length = (int64_t)length_of(export, i);
        export_table_put(&output, export->lengths, i, &length, 1, sizeof length);
    }
    return output.err;
}

void sl_export_table_fini(struct sl_export_table *export)
{
    sl_key_index_fini(&export->rows);
    free(export->lens);
    free(export->seen);
}
