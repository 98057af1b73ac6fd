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

static void check_rows(enum sl_precision precision)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    const size_t row_bytes = sl_precision_row_bytes(precision, DIM);
    static uint64_t keys[SHARDS][KEYS], wanted[2 * KEYS];
    static uint8_t rows[SHARDS][KEYS * DIM * sizeof(float)];
    static float out[2 * KEYS][DIM];
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
            /* All precisions have these values. */
            const float row[DIM] = {(float)(keys[s][i] % 60), 0, (float)(keys[s][i] % 33)};
            kernels->narrow(precision, row, DIM, rows[s] + i * row_bytes);
        }
        shards[s] = (struct sl_objects_rows_shard){keys[s], rows[s], counts[s], precision};
    }
    out[1][0] = -1;
    sl_objects_rows_copy(shards, SHARDS, DIM, wanted, 2 * KEYS, out[0], found);
    assert_true(out[1][0] == -1);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(found[2 * i],
                         (sl_partition_owner(wanted[2 * i], SHARDS) + (i % 10 == 9)) % SHARDS != 3);
        assert_int_equal(found[2 * i + 1], 0);
        if (found[2 * i]) {
            assert_true(out[2 * i][0] == (float)(wanted[2 * i] % 60));
            assert_true(out[2 * i][DIM - 1] == (float)(wanted[2 * i] % 33));
        }
    }
}

SL_CASE(rows_copy__finds_each_row_and_no_other)
{
    for (uint32_t precision = 0; precision < SL_PRECISION_COUNT; precision++) {
        check_rows((enum sl_precision)precision);
    }
}

SL_CASE(rows_take__accepts_the_precisions)
{
    static const struct {
        uint32_t type;
        uint64_t columns;
        bool is_accepted;
        enum sl_precision precision;
    } cases[] = {
        {SL_OBJECT_F32, 3, true, SL_PRECISION_F32},   {SL_OBJECT_F16, 3, true, SL_PRECISION_F16},
        {SL_OBJECT_BF16, 3, true, SL_PRECISION_BF16}, {SL_OBJECT_U8, 7, true, SL_PRECISION_INT8},
        {SL_OBJECT_U8, 3, false, SL_PRECISION_INT8},  {SL_OBJECT_I8, 7, false, SL_PRECISION_INT8},
    };
    const struct sl_object_tensor keys = {.type = SL_OBJECT_U64, .rank = 1, .shape = {5}};
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_object_tensor rows = {
            .type = cases[i].type, .rank = 2, .shape = {5, cases[i].columns}};
        struct sl_objects_rows_shard shard;
        uint64_t dim;
        assert_int_equal(sl_objects_rows_take(&keys, &rows, &shard, &dim), cases[i].is_accepted);
        if (cases[i].is_accepted) {
            assert_int_equal(shard.precision, cases[i].precision);
            assert_int_equal(dim, 3);
        }
        rows.shape[0] = 4;
        assert_false(sl_objects_rows_take(&keys, &rows, &shard, &dim));
    }
}
