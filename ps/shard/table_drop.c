#include "ps/shard/table_drop.h"

#include <stdlib.h>

#include "core/assert.h"
#include "ps/shard/iteration.h"
#include "ps/shard/state.h"

void sl_shard_storage_free(struct sl_shard_storage *storage)
{
    if (storage->sparse != NULL) {
        sl_sparse_table_destroy(&storage->sparse);
    }
    if (storage->waiting != NULL) {
        sl_sparse_table_destroy(&storage->waiting);
    }
    sl_dense_table_destroy(&storage->dense);
    sl_dense_table_destroy(&storage->filter);
    sl_kv_table_destroy(&storage->kv);
}

struct sl_shard_storage sl_shard_table_take_storage(struct sl_shard_table *table)
{
    const struct sl_shard_storage storage = {
        .sparse = table->sparse,
        .waiting = sl_shard_waiting_keys(table),
        .filter = table->waiting == NULL ? NULL : table->waiting->dense,
        .dense = table->dense,
        .kv = table->kv};
    free(table->waiting);
    table->waiting = NULL;
    table->sparse = NULL;
    table->dense = NULL;
    table->kv = NULL;
    return storage;
}

static bool table_memory_is_gone(const struct sl_shard_table *table)
{
    return table->sparse == NULL && table->dense == NULL && table->kv == NULL;
}

bool sl_shard_table_drop(struct sl_shard *shard, uint32_t table_id)
{
    struct sl_shard_table *table =
        table_id < SL_LIMIT_TABLES ? sl_shard_table_in_use(shard, table_id) : NULL;
    if (table == NULL) {
        return false;
    }
    table->dropped = true;
    shard->drop_count++;
    shard->evicting_count -= sl_shard_eviction_has(&table->spec);
    shard->handler_moved = true; /* requests that wait fail now */
    return true;
}

bool sl_shard_has_dropped(const struct sl_shard *shard)
{
    return shard->drop_count > 0 && shard->snapshots.current == NULL && !shard->iteration.due;
}

bool sl_shard_take_dropped(struct sl_shard *shard, struct sl_shard_storage *out)
{
    if (!sl_shard_has_dropped(shard)) {
        return false;
    }
    uint32_t id = 0;
    while (shard->tables[id] == NULL || !shard->tables[id]->dropped ||
           table_memory_is_gone(shard->tables[id])) {
        id++;
        sl_assert(id < shard->table_count);
    }
    struct sl_shard_table *table = shard->tables[id];
    sl_shard_iteration_drop_table(shard, table);
    shard->memory_bytes -= table->counted.memory + table->counted.beside +
                           (table->waiting == NULL ? 0 : table->waiting->counted.memory);
    shard->rows_erased += table->counted.rows;
    table->counted.memory = table->counted.beside = table->counted.rows = 0;
    shard->drop_count--;
    *out = sl_shard_table_take_storage(table);
    return true;
}
