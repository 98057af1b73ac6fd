#include "core/limits.h"
#include "core/partition.h"
#include "tests/support/unit.h"

SL_CASE(partition_owner__covers_all_shards_evenly)
{
    enum { KEYS_PER_SHARD = 2000, SHARDS_MAX = 64 };
    for (uint32_t shards = 1; shards <= SHARDS_MAX; shards += shards < 8 ? 1 : 7) {
        uint32_t held[SHARDS_MAX] = {0};
        for (uint64_t key = 0; key < (uint64_t)shards * KEYS_PER_SHARD; key++) {
            const uint32_t owner = sl_partition_owner(key, shards);
            assert_true(owner < shards);
            held[owner]++;
        }
        for (uint32_t shard = 0; shard < shards; shard++) {
            /* Seven standard deviations of a fair share are below a sixth of it. */
            assert_in_range(held[shard], KEYS_PER_SHARD * 5 / 6, KEYS_PER_SHARD * 7 / 6);
        }
    }
}

/* The ranges partition [0, length), are cut at blocks only, and differ by a block at most. */
static void check_ranges(uint64_t length, uint32_t shards)
{
    const uint64_t blocks =
        (length + SL_PARTITION_BLOCK_ELEMENTS - 1) / SL_PARTITION_BLOCK_ELEMENTS;
    uint64_t start = sl_partition_range_start(length, shards, 0);
    assert_true(start == 0);
    for (uint32_t range = 0; range < shards; range++) {
        const uint64_t end = sl_partition_range_start(length, shards, range + 1);
        assert_true(end >= start);
        assert_true(start % SL_PARTITION_BLOCK_ELEMENTS == 0);
        if (end > start) {
            assert_int_equal(sl_partition_range_of(length, shards, start), range);
            assert_int_equal(sl_partition_range_of(length, shards, end - 1), range);
        }
        const uint64_t held =
            (end - start + SL_PARTITION_BLOCK_ELEMENTS - 1) / SL_PARTITION_BLOCK_ELEMENTS;
        assert_in_range(held, blocks / shards, blocks / shards + (blocks % shards != 0));
        start = end;
    }
    assert_true(start == length);
}

SL_CASE(partition_range_start__ranges_partition_the_array)
{
    const uint64_t lengths[] = {0,    1,    1023,  1024,    1025,       4096,
                                4097, 9999, 65536, 1000003, 1ULL << 30, SL_LIMIT_DENSE_ELEMENTS};
    const uint32_t counts[] = {1, 2, 3, 5, 8, 17, 64, 1000, SL_LIMIT_SHARDS};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++) {
            check_ranges(lengths[i], counts[j]);
        }
    }
}

SL_CASE(partition_range_start__does_not_overflow)
{
    uint64_t start = 0;
    for (uint32_t range = 1; range <= SL_LIMIT_SHARDS; range++) {
        const uint64_t end = sl_partition_range_start(UINT64_MAX, SL_LIMIT_SHARDS, range);
        assert_true(end > start);
        assert_int_equal(sl_partition_range_of(UINT64_MAX, SL_LIMIT_SHARDS, end - 1), range - 1);
        start = end;
    }
    assert_true(start == UINT64_MAX);
}
