/* Batched pulls of a few rows. Such a pull costs little more than its cache misses: an index bucket
 * and a record. A batch overlaps the misses of all its pulls. */
#include "ps/shard/pull.h"

#include <string.h>

#include "core/assert.h"
#include "ps/shard/admit.h"
#include "ps/shard/lookup.h"

static size_t row_bytes(const struct sl_shard_table *table)
{
    return table->spec.dim * sizeof(float);
}

bool sl_shard_small_pull_parse(const struct sl_shard *shard, const struct sl_shard_client *caller,
                               const uint8_t *payload, size_t payload_bytes,
                               struct sl_shard_small_pull *out)
{
    struct sl_request_pull pull;
    if (!sl_request_read_pull(payload, payload_bytes, &pull)) {
        return false;
    }
    const struct sl_shard_table *table = shard->tables[pull.table_id];
    if (table == NULL || table->dropped || table->sparse == NULL || pull.key_count == 0 ||
        pull.key_count > SL_SHARD_SMALL_PULL_KEYS ||
        (table->spec.consistency.mode != SL_CONSISTENCY_ASP &&
         !sl_shard_admits(shard, table, caller, pull.clock))) {
        return false;
    }
    out->keys = pull.keys;
    out->key_count = pull.key_count;
    out->reply_bytes = (uint32_t)sl_bytes_pad8(pull.key_count * row_bytes(table));
    out->cost = 1 + pull.key_count * table->key_cost;
    out->table_id = pull.table_id;
    return out->reply_bytes <= SL_SHARD_SMALL_PULL_BYTES;
}

bool sl_shard_pull_batch_find(const struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                              uint32_t key_count, const float **rows)
{
    uint32_t records[SL_SHARD_PULL_BATCH_KEYS];
    sl_assert(key_count <= SL_SHARD_PULL_BATCH_KEYS);
    const struct sl_shard_table *table = shard->tables[table_id];
    if (shard->iteration.due || table->dropped || !sl_shard_owns(shard, keys, key_count)) {
        return false;
    }
    (void)sl_sparse_table_find(table->sparse, keys, key_count, records);
    sl_sparse_table_rows(table->sparse, records, key_count, rows);
    return true;
}

void sl_shard_small_pull_write(const struct sl_shard *shard, uint16_t table_id,
                               const uint64_t *keys, const float *const *rows, uint32_t key_count,
                               uint8_t *reply)
{
    const struct sl_shard_table *table = shard->tables[table_id];
    const size_t bytes = row_bytes(table);
    for (uint32_t i = 0; i < key_count; i++) {
        if (rows[i] == NULL) {
            sl_sparse_table_first_row(table->sparse, keys[i], (float *)(void *)reply);
        } else if (table->spec.values != SL_PRECISION_F32) {
            sl_sparse_table_read_values(table->sparse, rows[i], (float *)(void *)reply);
        } else {
            memcpy(reply, rows[i], bytes);
        }
        reply += bytes;
    }
    if ((uintptr_t)reply % 8 != 0) {
        memset(reply, 0, sizeof(float));
    }
}

void sl_shard_small_pulls_end(struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                              uint32_t key_count)
{
    struct sl_shard_table *table = shard->tables[table_id];
    table->pulled_rows += key_count;
    sl_shard_see_keys(shard, table, keys, key_count);
}
