#include "objects/reader/rows.h"

#include <stdlib.h>

#include "core/hash.h"
#include "core/partition.h"
#include "tests/support/unit.h"

#define SHARDS 5
#define KEYS   2000
#define DIM    3

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

SL_CASE(rows_copy__finds_each_row_and_no_other)
{
    static uint64_t keys[SHARDS][KEYS], wanted[2 * KEYS];
    static float rows[SHARDS][KEYS][DIM], out[2 * KEYS][DIM];
    static uint8_t found[2 * KEYS];
    struct sl_objects_rows_shard shards[SHARDS];
    uint64_t seed = 3, counts[SHARDS] = {0};
    for (uint32_t i = 0; i < KEYS; i++) {
        const uint64_t key = i == 0 ? 0 : i == 1 ? UINT64_MAX : sl_hash_random(&seed);
        /* Some are in another shard than those of sparse tables; shard 3 has none. */
        const uint32_t owner = (sl_partition_owner(key, SHARDS) + (i % 10 == 9)) % SHARDS;
        wanted[2 * i] = key;
        wanted[2 * i + 1] = key + 1 + sl_hash_random(&seed) % 7;
        if (owner != 3) {
            keys[owner][counts[owner]++] = key;
        }
    }
    for (uint32_t s = 0; s < SHARDS; s++) {
        qsort(keys[s], counts[s], sizeof keys[s][0], compare);
        for (uint64_t i = 0; i < counts[s]; i++) {
            rows[s][i][0] = (float)(keys[s][i] % 1000);
            rows[s][i][DIM - 1] = (float)(keys[s][i] % 77);
        }
        shards[s] = (struct sl_objects_rows_shard){keys[s], rows[s][0], counts[s]};
    }
    out[1][0] = -1;
    sl_objects_rows_copy(shards, SHARDS, DIM, wanted, 2 * KEYS, out[0], found);
    assert_true(out[1][0] == -1);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(found[2 * i],
                         (sl_partition_owner(wanted[2 * i], SHARDS) + (i % 10 == 9)) % SHARDS != 3);
        assert_int_equal(found[2 * i + 1], 0);
        if (found[2 * i]) {
            assert_true(out[2 * i][0] == (float)(wanted[2 * i] % 1000));
            assert_true(out[2 * i][DIM - 1] == (float)(wanted[2 * i] % 77));
        }
    }
}
