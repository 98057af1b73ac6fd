#include "programs/ckpt/import_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/end_signals.h"
#include "core/format.h"
#include "core/key_index.h"
#include "core/partition.h"
#include "programs/ckpt/spec_text.h"
#include "ps/optimizer/narrow.h"

#define CHUNK_BYTES (1U << 20) /* read at a time, of one tensor */
#define CHUNK_KEYS  (CHUNK_BYTES / sizeof(uint64_t))

/* Tensors */

static const struct sl_tensor *find(const struct sl_safetensors *file, const char *name,
                                    const char *suffix)
{
    char whole[SL_TENSOR_NAME_BYTES + 16];
    (void)snprintf(whole, sizeof whole, "%s%s", name, suffix);
    return sl_tensor_find(&file->tensors, whole);
}

static int import_table_refuse(const struct sl_tensor *tensor, const char *why,
                               struct sl_reason *reason)
{
    char shape[256] = "";
    for (uint32_t i = 0; i < tensor->rank; i++) {
        (void)sl_format_add(shape, sizeof shape, ", ", "%" PRIu64, tensor->shape[i]);
    }
    return sl_reason_fail(reason, SL_ERR_INVALID, "\"%s\" is %s [%s]: %s", tensor->name,
                          tensor->type_name, shape, why);
}

/* Checks that the tensor is i64 [n], or NULL. */
static int import_table_check_numbers(const struct sl_tensor *tensor, uint64_t n, const char *why,
                                      struct sl_reason *reason)
{
    if (tensor != NULL &&
        (tensor->type != SL_TENSOR_I64 || tensor->rank != 1 || tensor->count != n)) {
        return import_table_refuse(tensor, why, reason);
    }
    return 0;
}

static int check_keys(const struct sl_tensor *keys, struct sl_reason *reason)
{
    if ((keys->type != SL_TENSOR_I64 && keys->type != SL_TENSOR_U64) || keys->rank != 1) {
        return import_table_refuse(keys, "the keys of a table are I64 or U64, of one dimension",
                                   reason);
    }
    return 0;
}

static bool is_of_floats(const struct sl_tensor *tensor)
{
    return tensor->type == SL_TENSOR_F32 || tensor->type == SL_TENSOR_F16 ||
           tensor->type == SL_TENSOR_BF16;
}

static int find_sparse(struct sl_import_table *table, struct sl_reason *reason)
{
    const struct sl_tensor *values = table->values;
    if (!is_of_floats(values) || values->rank != 2 || values->shape[0] != table->keys->count) {
        return import_table_refuse(
            values,
            "the values of a sparse table are F32, F16 or BF16 [keys][columns]; convert them",
            reason);
    }
    if (values->shape[1] == 0 || values->shape[1] > SL_LIMIT_DIM) {
        return import_table_refuse(values, "a row has 1 to 4096 columns", reason);
    }
    table->info.spec.kind = SL_TABLE_SPARSE;
    table->info.spec.dim = (uint32_t)values->shape[1];
    return 0;
}

static int find_kv(struct sl_import_table *table, struct sl_reason *reason)
{
    const struct sl_tensor *values = table->values;
    if ((!is_of_floats(values) && values->type != SL_TENSOR_U8) || values->rank != 1) {
        return import_table_refuse(
            values, "the values of a KV table are F32, F16, BF16 or U8, of one dimension", reason);
    }
    table->info.spec.kind = SL_TABLE_KV;
    table->info.spec.dim = values->type == SL_TENSOR_U8 ? 1 : 4;
    table->info.spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    return import_table_check_numbers(table->lens, table->keys->count,
                                      "lengths are I64, one for each key", reason);
}

static int find_dense(struct sl_import_table *table, struct sl_reason *reason)
{
    const struct sl_tensor *values = table->values;
    if (!is_of_floats(values)) {
        return import_table_refuse(values, "a dense table is made of F32, F16 or BF16; convert it",
                                   reason);
    }
    if (values->count == 0 || values->count > SL_LIMIT_DENSE_ELEMENTS) {
        return import_table_refuse(values, "a dense table has 1 to 2^36 elements", reason);
    }
    table->info.spec.kind = SL_TABLE_DENSE;
    table->info.spec.length = values->count;
    return 0;
}

int sl_import_table_find(const struct sl_safetensors *file, const char *name,
                         struct sl_import_table *out, struct sl_reason *reason)
{
    struct sl_import_table table = {0};
    sl_spec_text_init(&table.info);
    (void)snprintf(table.info.spec.name, sizeof table.info.spec.name, "%.63s", name);
    table.slots = find(file, name, ".slots");
    table.steps = find(file, name, ".steps");
    table.counts = find(file, name, ".counts");
    table.block_slots = find(file, name, ".block_slots");
    table.keys = find(file, name, ".keys");
    table.values = find(file, name, ".values");
    table.lens = find(file, name, ".lens");
    int err;
    if (table.keys != NULL && table.values != NULL) {
        err = check_keys(table.keys, reason);
        if (err == 0) {
            err = table.lens == NULL ? find_sparse(&table, reason) : find_kv(&table, reason);
        }
    } else {
        table.keys = NULL;
        table.lens = NULL;
        table.values = find(file, name, "");
        sl_assert(table.values != NULL); /* a tensor with this name was found */
        err = find_dense(&table, reason);
    }
    if (err == 0) {
        *out = table;
    }
    return err;
}

/* Optimizer state */

static uint64_t block_count(const struct sl_import_table *table)
{
    return (table->info.spec.length + SL_PARTITION_BLOCK_ELEMENTS - 1) /
           SL_PARTITION_BLOCK_ELEMENTS;
}

/* Checks that the tensor is f32 [rows][columns], or NULL. It must be NULL if the optimizer has no
 * such slots. */
static int check_slots(const struct sl_import_table *table, const struct sl_tensor *slots,
                       uint64_t rows, uint64_t columns, struct sl_reason *reason)
{
    if (slots == NULL) {
        return 0;
    }
    if (rows * columns == 0 || slots->type != SL_TENSOR_F32 || slots->rank != 2 ||
        slots->shape[0] != rows || slots->shape[1] != columns) {
        char why[256];
        (void)snprintf(why, sizeof why,
                       "the optimizer %s needs F32 [%" PRIu64 ", %" PRIu64
                       "]; say which one it was: --with %.63s:optimizer=NAME",
                       table->optimizer->name, rows, columns, table->info.spec.name);
        return import_table_refuse(slots, why, reason);
    }
    return 0;
}

static int check_state(struct sl_import_table *table, struct sl_reason *reason)
{
    const struct sl_table_spec *spec = &table->info.spec;
    const struct sl_optimizer *optimizer = table->optimizer;
    const bool sparse = spec->kind == SL_TABLE_SPARSE;
    const uint64_t records = sparse ? table->keys->count : block_count(table);
    int err =
        sparse ? check_slots(table, table->slots, records,
                             sl_optimizer_slot_floats(optimizer, spec->dim), reason)
               : check_slots(table, table->slots, optimizer->slots_per_value, spec->length, reason);
    if (err == 0 && !sparse) {
        err = check_slots(table, table->block_slots, records, optimizer->slots_per_row, reason);
    }
    if (err == 0) {
        err = import_table_check_numbers(table->steps, records,
                                         "steps are I64, one for each row or block", reason);
    }
    if (err == 0) {
        err = import_table_check_numbers(table->counts, records,
                                         "counts are I64, one for each row or block", reason);
    }
    return err;
}

int sl_import_table_check(struct sl_import_table *table, struct sl_reason *reason)
{
    struct sl_snapshot_table *info = &table->info;
    struct sl_reason why;
    if (info->spec.kind == SL_TABLE_KV && info->spec.dim == 4 &&
        info->spec.values != SL_PRECISION_F32) {
        info->spec.dim = 2;
    }
    if (sl_message_check_spec(&info->spec, &why) != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "table \"%s\": %s", info->spec.name,
                              why.text);
    }
    table->optimizer = sl_optimizer_find(info->spec.optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    table->layout = sl_narrow_layout(&info->spec, table->optimizer);
    int err = 0;
    if (info->spec.kind != SL_TABLE_KV) {
        err = check_state(table, reason);
    }
    if (err == 0 && table->steps == NULL) {
        info->step = 0; /* starts anew */
        sl_optimizer_state_init(&info->spec.optimizer, &info->state);
    }
    return err;
}

int sl_import_table_check_keys(const struct sl_safetensors *file,
                               const struct sl_import_table *table, struct sl_reason *reason)
{
    struct sl_key_index rows = {0};
    uint64_t *keys = malloc(CHUNK_BYTES);
    int err = keys == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint64_t done = 0; err == 0 && done < table->keys->count;) {
        const uint64_t left = table->keys->count - done;
        const uint64_t count = left < CHUNK_KEYS ? left : CHUNK_KEYS;
        err = sl_safetensors_read(file, table->keys, done * sizeof *keys, keys,
                                  (size_t)count * sizeof *keys, reason);
        err = err != 0 ? err : sl_end_signals_check(reason);
        for (uint64_t i = 0; err == 0 && i < count; i++) {
            const uint64_t key_count = rows.count;
            uint64_t number;
            err = sl_key_index_add(&rows, keys[i], &number);
            if (err == 0 && number < key_count) {
                err = sl_reason_fail(reason, SL_ERR_INVALID, "\"%s\" has the key %" PRIu64 " twice",
                                     table->keys->name, keys[i]);
            }
        }
        done += count;
    }
    if (err == SL_ERR_NO_MEMORY) {
        sl_reason_set(reason, "no memory for the keys of table \"%s\"", table->info.spec.name);
    }
    sl_key_index_fini(&rows);
    free(keys);
    return err;
}
