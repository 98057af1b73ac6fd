/* Records the state of the tables as the base of a later snapshot. */
#include <stdlib.h>

#include "core/assert.h"
#include "ps/shard/snapshot_internal.h"

/* For a KV table this ends the generation: later changes have a higher one. */
static struct sl_snapshot_base base_of(const struct sl_shard_table *table)
{
    if (table->kv != NULL) {
        return (struct sl_snapshot_base){
            .open = true,
            .step = sl_kv_table_generation_end(table->kv),
            .count = sl_kv_table_record_count(table->kv),
        };
    }
    return (struct sl_snapshot_base){
        .open = true,
        .step = table->step,
        .count = table->sparse != NULL ? (uint32_t)sl_sparse_table_row_count(table->sparse)
                                       : sl_dense_table_block_count(table->dense),
    };
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
        if (shard->tables[i] != NULL) {
            base->tables[i] = base_of(shard->tables[i]);
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
