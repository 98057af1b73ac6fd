/* Operations on KV tables. */
#include <starling.h>

#include "core/assert.h"
#include "core/reason.h"
#include "worker/client/step_internal.h"

bool sl_step_kv_ascend(const uint64_t *keys, uint32_t key_count)
{
    for (uint32_t i = 1; i < key_count; i++) {
        if (keys[i] <= keys[i - 1]) {
            sl_reason_set(sl_reason_last(), "keys[%u] is %llu after %llu: keys must ascend", i,
                          (unsigned long long)keys[i], (unsigned long long)keys[i - 1]);
            return false;
        }
    }
    return true;
}

/* Returns whether each key has at least one value and the lengths add up. */
static bool lens_are_valid(const struct sl_kv_batch *batch)
{
    if (batch->lens == NULL) {
        return batch->value_count > 0 && batch->value_count % batch->key_count == 0 &&
               batch->value_count / batch->key_count <= UINT32_MAX;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < batch->key_count; i++) {
        if (batch->lens[i] == 0) {
            return false;
        }
        sum += batch->lens[i];
    }
    return sum == batch->value_count;
}

static bool batch_is_valid(const struct sl_kv_batch *batch)
{
    if (batch->push == NULL && batch->pull == NULL) {
        return false;
    }
    if (batch->key_count == 0) {
        return batch->value_count == 0;
    }
    return batch->keys != NULL && batch->value_count < SL_LIMIT_DENSE_ELEMENTS &&
           sl_step_kv_ascend(batch->keys, batch->key_count) && lens_are_valid(batch);
}

bool sl_step_kv_is_valid(const struct sl_kv_batch *batch)
{
    if (!batch_is_valid(batch)) {
        sl_reason_set(
            sl_reason_last(),
            "KV batch of %u keys and %llu values: keys must ascend, lens be at least 1 and "
            "add up to the values, and push or pull be given",
            batch->key_count, (unsigned long long)batch->value_count);
        return false;
    }
    return true;
}

int sl_step_kv(struct sl_step *step, struct sl_table *table, const struct sl_kv_batch *batch)
{
    sl_assert(batch != NULL);
    return sl_step_kv_is_valid(batch) ? sl_step_kv_add(step, table, batch, false)
                                      : sl_step_refuse(step);
}

int sl_step_kv_add(struct sl_step *step, struct sl_table *table, const struct sl_kv_batch *batch,
                   bool zeros)
{
    if (!sl_step_takes(step, table, SL_TABLE_KV)) {
        return sl_step_refuse(step);
    }
    const struct sl_operation operation = {
        .op = batch->push == NULL   ? SL_REQUEST_KV_PULL
              : batch->pull == NULL ? SL_REQUEST_KV_PUSH
                                    : SL_REQUEST_KV_PUSH_PULL,
        .table = table,
        .keys = batch->keys,
        .lens = batch->lens,
        .key_count = batch->key_count,
        .command = batch->command,
        .count = batch->value_count,
        .gradients = batch->push,
        .values = batch->pull,
        .zeros = zeros && batch->push == NULL,
    };
    return sl_step_add(step, &operation);
}

int sl_step_kv_measure(struct sl_step *step, struct sl_table *table,
                       const struct sl_kv_batch *batch, uint32_t *lengths)
{
    if (!sl_step_takes(step, table, SL_TABLE_KV)) {
        return sl_step_refuse(step);
    }
    const struct sl_operation operation = {
        .op = SL_REQUEST_KV_PULL,
        .table = table,
        .keys = batch->keys,
        .key_count = batch->key_count,
        .command = batch->command,
        .count = batch->value_count,
        .values = batch->pull,
        .lengths = lengths,
    };
    return sl_step_add(step, &operation);
}

int sl_step_kv_lengths(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                       uint32_t key_count, uint32_t *lens)
{
    if (!sl_step_takes(step, table, SL_TABLE_KV)) {
        return sl_step_refuse(step);
    }
    if (key_count > 0 && (keys == NULL || lens == NULL)) {
        sl_reason_set(sl_reason_last(), "table %s: keys or lens is NULL", table->spec.name);
        return sl_step_refuse(step);
    }
    if (!sl_step_kv_ascend(keys, key_count)) {
        return sl_step_refuse(step);
    }
    const struct sl_operation operation = {.op = SL_REQUEST_KV_LENGTHS,
                                           .table = table,
                                           .keys = keys,
                                           .key_count = key_count,
                                           .values = lens};
    return sl_step_add(step, &operation);
}
