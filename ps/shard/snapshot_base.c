/* Records the state of the tables as the base of a later snapshot. */
#include <stdlib.h>

#include "core/assert.h"
#include "ps/shard/snapshot_internal.h"

/* For a KV table this ends the generation: later changes have a higher one. From the first base on,
 * a sparse table keeps the keys that it erases. */
static struct sl_snapshot_base base_of(const struct sl_shard_table *table)
{
    if (table->kv != NULL) {
        return (struct sl_snapshot_base){
            .open = true,
            .step = sl_kv_table_generation_end(table->kv),
            .count = sl_kv_table_record_count(table->kv),
        };
    }
    struct sl_snapshot_base base = {.open = true, .step = table->step};
    if (table->sparse != NULL) {
        struct sl_erased_log *log = sl_sparse_table_erased_log(table->sparse);
        log->keeps = true;
        base.count = sl_sparse_table_record_count(table->sparse);
        base.erased = log->end;
    } else {
        base.count = sl_dense_table_block_count(table->dense);
    }
    return base;
}

int sl_shard_snapshot_base_create(struct sl_shard *shard, struct sl_shard_snapshot_base **out)
{
    sl_assert(shard->snapshots.pushes_in_part == 0);
    struct sl_shard_snapshot_base *base =
        calloc(1, sizeof *base + shard->table_count * sizeof base->tables[0]);
    if (base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    base->table_count = shard->table_count;
    for (uint32_t i = 0; i < shard->table_count; i++) {
        struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        if (table != NULL) {
            base->tables[i].rows = base_of(table);
            base->tables[i].policies = table->eviction.policies;
        }
        if (table != NULL && table->waiting != NULL) {
            table->waiting->step = table->step;
            base->tables[i].waiting = base_of(table->waiting);
        }
    }
    *out = base;
    return 0;
}

void sl_shard_snapshot_base_destroy(struct sl_shard_snapshot_base **base)
{
    free(*base);
    *base = NULL;
}

/* Erased keys */

#define ERASED_SHARE 4 /* of the memory of blocks, at most 1/4 */

/* Adds the number of keys erased since `then`. Returns false when the table has forgotten some. */
static bool add_erased(const struct sl_shard_table *table, const struct sl_snapshot_base *then,
                       uint64_t *keys)
{
    if (table == NULL || table->sparse == NULL || then == NULL || !then->open) {
        return true;
    }
    const struct sl_erased_log *log = sl_sparse_table_erased_log(table->sparse);
    *keys += log->end - then->erased;
    return then->erased >= log->first;
}

static uint64_t row_count(const struct sl_shard_table *table)
{
    return table->sparse != NULL  ? sl_sparse_table_row_count(table->sparse)
           : table->dense != NULL ? sl_dense_table_element_count(table->dense)
                                  : 0;
}

bool sl_shard_snapshot_base_holds(const struct sl_shard *shard,
                                  const struct sl_shard_snapshot_base *base, size_t bytes_max)
{
    uint64_t keys = 0, rows = 0;
    bool holds = true;
    for (uint32_t i = 0; holds && i < shard->table_count; i++) {
        const struct sl_shard_table *table = sl_shard_table_in_use(shard, i);
        const struct sl_snapshot_base *then = sl_shard_snapshot_base_of(base, i, false);
        if (table == NULL && then != NULL && then->open) {
            return false; /* an increment cannot tell that the table was dropped */
        }
        if (then != NULL && then->open && base->tables[i].policies != table->eviction.policies) {
            return false; /* other keys wait */
        }
        if (table != NULL) {
            rows += row_count(table) +
                    (sl_shard_waiting_keys(table) == NULL ? 0 : row_count(table->waiting));
            holds = add_erased(table, then, &keys) &&
                    add_erased(table->waiting, sl_shard_snapshot_base_of(base, i, true), &keys);
        }
    }
    return holds && keys <= rows && keys * sizeof(uint64_t) <= bytes_max / ERASED_SHARE;
}

void sl_shard_snapshot_put_erased(struct sl_shard *shard, const struct sl_shard_table *table,
                                  uint32_t table_id, const struct sl_snapshot_base *base)
{
    struct sl_erased_log *log = sl_sparse_table_erased_log(table->sparse);
    struct sl_snapshot_appender stream;
    sl_snapshot_appender_init(&stream, &shard->snapshots.blocks, SL_SNAPSHOT_ERASED, table_id, 0);
    sl_erased_log_forget(log, base->erased);
    for (uint64_t at = base->erased; at < log->end; at++) {
        struct sl_snapshot_block *block;
        while ((block = sl_snapshot_appender_block(&stream)) != NULL &&
               !sl_snapshot_put_erased(block, sl_erased_log_key(log, at))) {
            sl_snapshot_appender_close(&stream);
        }
    }
    sl_snapshot_appender_close(&stream);
}
