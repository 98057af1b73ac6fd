#include "ps/shard/lookup.h"

#include <inttypes.h>

#include "core/partition.h"

#define RECORDS_PER_COST 8 /* records removed without a move */

/* Returns WRONG_SHARD; the reason names the key and its owner. */
static int lookup_fail_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                             struct sl_shard_slice *slice, uint64_t key, uint32_t owner)
{
    return sl_shard_fail(shard, request, slice, SL_ERR_WRONG_SHARD,
                         "key %" PRIu64 " belongs to shard %u of %u", key, owner,
                         shard->options.count);
}

int sl_shard_check_kv_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                            struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count)
{
    const uint32_t shard_count = shard->options.count;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t owner = sl_partition_kv_owner(keys[i], shard_count);
        if (owner != shard->options.index) {
            return lookup_fail_owner(shard, request, slice, keys[i], owner);
        }
    }
    return 0;
}

int sl_shard_check_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                         struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count)
{
    if (sl_shard_owns(shard, keys, count)) {
        return 0;
    }
    uint32_t shard_count = shard->options.count;
    while (sl_partition_owner(*keys, shard_count) == shard->options.index) {
        keys++;
    }
    return lookup_fail_owner(shard, request, slice, *keys, sl_partition_owner(*keys, shard_count));
}

bool sl_shard_owns(const struct sl_shard *shard, const uint64_t *keys, uint32_t count)
{
    const uint32_t shard_count = shard->options.count;
    const uint32_t index = shard->options.index;
    uint32_t strange = 0;
    if (shard_count > 1) {
        for (uint32_t i = 0; i < count; i++) {
            strange |= sl_partition_owner(keys[i], shard_count) ^ index;
        }
    }
    return strange == 0;
}

/* Lets the sparse table grow up to the shard's limit. Returns true beyond the limit. */
static bool limit_memory(const struct sl_shard *shard, struct sl_shard_table *table)
{
    const size_t bytes_max = shard->options.memory_bytes_max;
    if (bytes_max == 0) {
        return false;
    }
    sl_sparse_table_set_bytes_max(table->sparse, sl_sparse_table_memory_bytes(table->sparse) +
                                                     sl_shard_memory_left(shard));
    return shard->memory_bytes > bytes_max;
}

void sl_shard_count_memory(struct sl_shard *shard, struct sl_shard_table *table)
{
    const size_t bytes = sl_sparse_table_memory_bytes(table->sparse);
    shard->memory_bytes += bytes - table->counted.memory;
    table->counted.memory = bytes;
    const uint64_t rows = sl_sparse_table_row_count(table->sparse);
    if (rows == table->counted.rows || table->spec.dim == 0) { /* waiting keys are no rows */
        return;
    }
    if (rows > table->counted.rows) {
        shard->rows_created += rows - table->counted.rows;
    } else {
        shard->rows_erased += table->counted.rows - rows;
    }
    table->counted.rows = rows;
}

int sl_shard_find(struct sl_shard *shard, struct sl_shard_table *table, const uint64_t *keys,
                  uint32_t count, bool initialize, uint32_t *records, uint32_t **created)
{
    if (limit_memory(shard, table)) {
        return sl_sparse_table_find(table->sparse, keys, count, records) ? 0 : SL_ERR_NO_MEMORY;
    }
    int err =
        initialize
            ? sl_sparse_table_find_or_create_noted(table->sparse, keys, count, records, created)
            : sl_sparse_table_find_or_create_uninit(table->sparse, keys, count, records);
    sl_shard_count_memory(shard, table);
    return err;
}

uint32_t sl_shard_tidy(struct sl_shard *shard, struct sl_shard_table *table,
                       const struct sl_shard_request *erase, uint32_t most)
{
    uint32_t cost = 0;
    if (table->buffered_count > 0 || (table->queue_count > 0 && shard->snapshots.current != NULL)) {
        return 0; /* a snapshot may keep pushes that were buffered */
    }
    if (sl_shard_waiting_keys(table) != NULL) {
        cost = sl_shard_tidy(shard, table->waiting, erase, most);
    }
    (void)limit_memory(shard, table);
    const uint32_t before = sl_sparse_table_record_count(table->sparse);
    sl_sparse_table_reuse(table->sparse, most);
    const bool is_awaited = table->eviction.push_max > 0; /* a push waits for free records */
    const bool may_shrink = shard->large.owner == erase && !is_awaited && table->moves.rest == 0;
    const uint32_t moved = may_shrink ? sl_sparse_table_shrink(table->sparse, most) : 0;
    table->moves.rest -= table->moves.rest > 0;
    table->moves.count += moved;
    sl_shard_count_memory(shard, table);
    const uint32_t removed = before - sl_sparse_table_record_count(table->sparse);
    return cost + moved * table->key_cost + removed / RECORDS_PER_COST;
}

int sl_shard_find_again(struct sl_shard *shard, struct sl_shard_table *table, uint32_t *records,
                        uint32_t count)
{
    int err = 0;
    sl_sparse_table_set_bytes_max(table->sparse, 0);
    for (uint32_t i = 0; i < count && err == 0; i++) {
        const struct sl_row *record = sl_sparse_table_record(table->sparse, records[i]);
        if (record->count == SL_ROW_ERASED) {
            const uint64_t key = record->key;
            err = sl_sparse_table_find_or_create(table->sparse, &key, 1, &records[i]);
        }
    }
    sl_shard_count_memory(shard, table);
    return err;
}

int sl_shard_lookup_existing(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_request *request, struct sl_shard_slice *slice,
                             const uint64_t *keys, uint32_t count, uint32_t *records,
                             bool *complete)
{
    const int err = sl_shard_check_owner(shard, request, slice, keys, count);
    if (err == 0) {
        *complete = sl_sparse_table_find(table->sparse, keys, count, records);
    }
    return err;
}

int sl_shard_fail_memory(const struct sl_shard *shard, const struct sl_shard_request *request,
                         struct sl_shard_slice *slice)
{
    return sl_shard_fail(shard, request, slice, SL_ERR_NO_MEMORY,
                         "no memory for more rows: the tables have %zu bytes, %s",
                         shard->memory_bytes, sl_shard_limit_text(shard, (char[64]){0}));
}

int sl_shard_lookup(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, struct sl_shard_slice *slice,
                    const uint64_t *keys, uint32_t count, uint32_t *records)
{
    int err = sl_shard_check_owner(shard, request, slice, keys, count);
    if (err != 0) {
        return err;
    }
    err = sl_shard_find(shard, table, keys, count, true, records, &request->push.created_end);
    return err == SL_ERR_NO_MEMORY ? sl_shard_fail_memory(shard, request, slice) : err;
}
