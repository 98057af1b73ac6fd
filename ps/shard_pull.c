/* Pulls of a few rows, many at once. What each costs by itself is little more than its misses in
 * the caches: a bucket of the index, and a record. Here those of all are on their way together. */
#include <string.h>

#include "core/assert.h"
#include "ps/shard_internal.h"

#define CACHE_LINE     64
#define PREFETCH_BYTES 512 /* of a row; the processor fetches the rest of a long one itself */

bool sl_shard_pull_begin(const struct sl_shard *shard, const struct sl_shard_caller *caller,
                         const uint8_t *payload, size_t payload_bytes, struct sl_shard_pull *out)
{
    struct sl_request_pull pull;
    if (!sl_request_read_pull(payload, payload_bytes, &pull)) {
        return false;
    }
    const struct sl_shard_table *table = shard->tables[pull.table_id];
    if (table == NULL || table->sparse == NULL || pull.key_count == 0 ||
        pull.key_count > SL_SHARD_PULL_KEYS || !sl_shard_admits(shard, table, caller, pull.clock)) {
        return false;
    }
    size_t row_bytes = table->spec.dim * sizeof(float);
    *out = (struct sl_shard_pull){
        .keys = pull.keys,
        .key_count = pull.key_count,
        .reply_bytes = (uint32_t)sl_bytes_pad8(pull.key_count * row_bytes),
        .cost = 1 + pull.key_count * table->key_cost,
        .table_id = pull.table_id,
    };
    return true;
}

/* The lookup has read the first line of each record, where its key stands. */
static void prefetch_rows(const struct sl_shard_table *table, const uint32_t *records,
                          uint32_t count)
{
    size_t bytes = sizeof(struct sl_table_record) + table->spec.dim * sizeof(float);
    bytes = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
    for (uint32_t i = 0; i < count; i++) {
        const char *record = (const char *)sl_table_store_record(table->sparse, records[i]);
        for (size_t line = CACHE_LINE; line < bytes; line += CACHE_LINE) {
            __builtin_prefetch(record + line);
        }
        __builtin_prefetch(record + bytes - 1);
    }
}

bool sl_shard_pulls_find(struct sl_shard *shard, uint16_t table_id, const uint64_t *keys,
                         uint32_t key_count, uint32_t *records)
{
    sl_assert(key_count <= SL_SHARD_PULLS_KEYS);
    struct sl_shard_table *table = shard->tables[table_id];
    if (shard->commit.due || !sl_shard_owns(shard, keys, key_count) ||
        sl_shard_find(shard, table, keys, key_count, records) != 0) {
        return false;
    }
    prefetch_rows(table, records, key_count);
    return true;
}

void sl_shard_pull_read(struct sl_shard *shard, uint16_t table_id, const uint32_t *records,
                        uint32_t key_count, uint8_t *reply)
{
    struct sl_shard_table *table = shard->tables[table_id];
    sl_table_store_gather(table->sparse, records, key_count, (float *)(void *)reply);
    size_t bytes = key_count * table->spec.dim * sizeof(float);
    if (bytes % 8 != 0) {
        memset(reply + bytes, 0, sizeof(float));
    }
    table->pulled_rows += key_count;
}
