#include "objects/reader/rows.h"

#include <string.h>

#include "core/partition.h"

/* Index of the first key that is not below `key`. */
static uint64_t find(const uint64_t *keys, uint64_t count, uint64_t key)
{
    uint64_t first = 0;
    while (count > 0) {
        const uint64_t half = count / 2;
        if (keys[first + half] < key) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

void sl_objects_rows_copy(const struct sl_objects_rows_shard *shards, uint32_t shard_count,
                          uint32_t dim, const uint64_t *keys, uint64_t key_count, float *rows,
                          uint8_t *found)
{
    for (uint64_t i = 0; i < key_count; i++) {
        const uint32_t owner = sl_partition_owner(keys[i], shard_count);
        found[i] = 0;
        for (uint32_t s = 0; s < shard_count && !found[i]; s++) {
            const struct sl_objects_rows_shard *shard = &shards[(owner + s) % shard_count];
            const uint64_t at = find(shard->keys, shard->count, keys[i]);
            found[i] = at < shard->count && shard->keys[at] == keys[i];
            if (found[i]) {
                memcpy(rows + i * dim, shard->rows + at * dim, sizeof *rows * dim);
            }
        }
    }
}
