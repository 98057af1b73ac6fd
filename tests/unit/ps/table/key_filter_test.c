/* The counting Bloom filter: what it promises of counts, false positives, halving and merging. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/partition.h"
#include "ps/table/key_filter.h"
#include "tests/support/unit.h"

#define KEYS 20000

static struct sl_key_filter filter_of(const struct sl_policy_spec *policy, uint32_t shard,
                                      uint32_t shard_count)
{
    struct sl_key_filter filter = {.block_count = sl_key_filter_block_count(policy),
                                   .hash_count = sl_key_filter_hash_count(policy),
                                   .age_steps = policy->admit_age_steps};
    const struct sl_table_spec spec = {.kind = SL_TABLE_DENSE,
                                       .length = filter.block_count * SL_PARTITION_BLOCK_ELEMENTS};
    uint64_t first, end;
    sl_key_filter_range(filter.block_count, shard, shard_count, &first, &end);
    assert_int_equal(sl_dense_table_create(&spec, first * SL_PARTITION_BLOCK_ELEMENTS,
                                           (end - first) * SL_PARTITION_BLOCK_ELEMENTS, 0,
                                           &filter.table),
                     0);
    return filter;
}

static struct sl_key_filter filter_for(uint64_t keys, float false_positives, uint32_t age_steps)
{
    return filter_of(&(struct sl_policy_spec){.keys_expected = keys,
                                              .false_positives = false_positives,
                                              .admit_age_steps = age_steps},
                     0, 1);
}

/* How often the filter says that the key was counted; 14 or more are 14. */
static uint32_t count_of(const struct sl_key_filter *filter, uint64_t key, uint64_t step)
{
    for (uint32_t most = 0; most < 14; most++) {
        const uint32_t raised = sl_key_filter_add(filter, key, step, most + 1);
        sl_key_filter_take_back(filter, key, step, raised);
        if (raised != 0) {
            return most;
        }
    }
    return 14;
}

static void count_range(const struct sl_key_filter *filter, uint64_t first, uint64_t count,
                        uint64_t step)
{
    for (uint64_t key = first; key < first + count; key++) {
        (void)sl_key_filter_add(filter, key, step, 14);
    }
}

SL_CASE(count__is_never_too_low)
{
    static uint32_t counts[KEYS];
    struct sl_key_filter filter = filter_for(KEYS / 10, 0.1F, 0); /* far too small */
    uint64_t random = 1;
    memset(counts, 0, sizeof counts);
    for (uint32_t i = 0; i < 5 * KEYS; i++) {
        const uint64_t key = sl_hash_random(&random) % KEYS;
        counts[key] += counts[key] < 14;
        (void)sl_key_filter_add(&filter, key, i, 14);
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        assert_true(count_of(&filter, key, 5 * KEYS) >= counts[key]);
    }
    sl_dense_table_destroy(&filter.table);
}

/* The share that was asked for, within what chance and one block a key change. */
SL_CASE(count__is_too_high_for_the_share_of_false_positives)
{
    static const float shares[] = {0.5F, 0.1F, 0.01F, 0.001F};
    for (uint32_t i = 0; i < 4; i++) {
        struct sl_key_filter filter = filter_for(200000, shares[i], 0);
        uint32_t too_high = 0;
        count_range(&filter, 0, 200000, 1);
        for (uint64_t key = 1000000; key < 1100000; key++) {
            too_high += count_of(&filter, key, 1) > 0;
        }
        assert_true((float)too_high < 1.2F * shares[i] * 100000);
        assert_true((float)too_high > 0.6F * shares[i] * 100000);
        sl_dense_table_destroy(&filter.table);
    }
}

/* 9.6 counters of 4 bits a key at 0.01, as Bloom's formula has it; more hashes than 8 cost some. */
SL_CASE(size__is_that_of_the_formula)
{
    static const struct {
        float share;
        uint32_t hashes;
        double counters; /* of a key */
    } cases[] = {{0, 7, 9.593}, {0.01F, 7, 9.593}, {0.5F, 1, 1.4427}, {1e-6F, 8, 40.86}};
    for (uint32_t i = 0; i < 4; i++) {
        const struct sl_policy_spec policy = {.keys_expected = 100000000,
                                              .false_positives = cases[i].share};
        assert_int_equal(sl_key_filter_hash_count(&policy), cases[i].hashes);
        assert_true(fabs((double)sl_key_filter_block_count(&policy) * 8192 / 1e8 -
                         cases[i].counters) < 0.01);
    }
}

SL_CASE(age__halves_all_counts_at_multiples_of_its_steps)
{
    struct sl_key_filter filter = filter_for(1000, 0.001F, 10);
    for (uint32_t i = 0; i < 13; i++) {
        (void)sl_key_filter_add(&filter, 5, 9, 14);
    }
    (void)sl_key_filter_add(&filter, 6, 9, 14);
    assert_int_equal(count_of(&filter, 5, 9), 13);
    assert_int_equal(count_of(&filter, 5, 10), 6);
    assert_int_equal(count_of(&filter, 6, 10), 0);
    (void)sl_key_filter_add(&filter, 6, 11, 14);
    assert_int_equal(count_of(&filter, 5, 39), 1);
    assert_int_equal(count_of(&filter, 5, 40), 0);
    sl_dense_table_destroy(&filter.table);
}

/* Steps of blocks count modulo 2^32. */
SL_CASE(age__goes_on_above_32_bits)
{
    struct sl_key_filter filter = filter_for(1000, 0.001F, 10);
    const uint64_t step = (3ULL << 32) - 1;
    for (uint32_t i = 0; i < 8; i++) {
        (void)sl_key_filter_add(&filter, 5, step, 14);
    }
    assert_int_equal(count_of(&filter, 5, step), 8);
    assert_int_equal(count_of(&filter, 5, step + 10), 4);
    assert_int_equal(count_of(&filter, 5, step + 20), 2);
    sl_dense_table_destroy(&filter.table);
}

static uint8_t *bytes_of(const struct sl_key_filter *filter)
{
    const uint32_t count = sl_dense_table_block_count(filter->table);
    const size_t block_bytes = SL_PARTITION_BLOCK_ELEMENTS * sizeof(float);
    uint8_t *bytes = malloc(count * block_bytes);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(bytes + i * block_bytes, sl_dense_table_block(filter->table, i).floats, block_bytes);
    }
    return bytes;
}

SL_CASE(take_back__restores_every_counter)
{
    static uint32_t raised[KEYS];
    struct sl_key_filter filter = filter_for(KEYS / 10, 0.01F, 0);
    uint64_t random = 7, again;
    for (uint32_t i = 0; i < KEYS; i++) {
        (void)sl_key_filter_add(&filter, sl_hash_random(&random) % KEYS, 1, 14);
    }
    uint8_t *before = bytes_of(&filter);
    static uint64_t keys[KEYS];
    again = random;
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_random(&again) % KEYS;
        raised[i] = sl_key_filter_add(&filter, keys[i], 1, 14);
    }
    for (uint32_t i = KEYS; i-- > 0;) {
        sl_key_filter_take_back(&filter, keys[i], 1, raised[i]);
    }
    uint8_t *after = bytes_of(&filter);
    assert_memory_equal(before, after, filter.block_count * SL_PARTITION_BLOCK_ELEMENTS * 4);
    free(before);
    free(after);
    sl_dense_table_destroy(&filter.table);
}

/* Each block is at a shard, and neighbours share at most one. */
SL_CASE(range__divides_the_blocks_among_shards)
{
    for (uint64_t blocks = 1; blocks < 3000000; blocks = blocks * 3 + 1) {
        for (uint32_t count = 1; count <= 100; count += 7) {
            uint64_t last_end = 0;
            for (uint32_t shard = 0; shard < count; shard++) {
                uint64_t first, end;
                sl_key_filter_range(blocks, shard, count, &first, &end);
                assert_true(first < end);
                assert_true(shard == 0 ? first == 0 : first == last_end || first + 1 == last_end);
                last_end = end;
            }
            assert_true(last_end == blocks);
        }
    }
}

/* Filters of one number of shards become those of another: no count is too low, and those of keys
 * that were not counted are too high about as often as before. */
SL_CASE(merge__keeps_the_counts_for_other_numbers_of_shards)
{
    static const uint32_t numbers[] = {3, 2, 5, 1};
    const struct sl_policy_spec policy = {.keys_expected = KEYS, .admit_age_steps = 100};
    struct sl_key_filter olds[8] = {filter_of(&policy, 0, 1)}, news[8];
    uint32_t old_count = 1;
    count_range(&olds[0], 0, KEYS, 98);
    count_range(&olds[0], 0, KEYS / 2, 98);
    for (uint32_t n = 0; n < 4; n++) {
        for (uint32_t shard = 0; shard < numbers[n]; shard++) {
            news[shard] = filter_of(&policy, shard, numbers[n]);
            for (uint32_t old = 0; old < old_count; old++) {
                for (uint32_t i = 0; i < sl_dense_table_block_count(olds[old].table); i++) {
                    const struct sl_dense_block block = sl_dense_table_block(olds[old].table, i);
                    sl_key_filter_merge(&news[shard], block.number, block.last_step, 98 + n,
                                        block.floats);
                }
            }
        }
        uint32_t too_high = 0;
        for (uint64_t key = 0; key < 2 * (uint64_t)KEYS; key++) {
            const struct sl_key_filter *at = &news[sl_partition_owner(key, numbers[n])];
            const uint32_t counted = key < KEYS / 2 ? 2 : key < KEYS ? 1 : 0;
            const uint32_t is = count_of(at, key, 98 + n), wanted = counted >> (n >= 2);
            assert_true(is >= wanted);
            too_high += is > wanted;
        }
        assert_true(too_high < KEYS / 20);
        for (uint32_t old = 0; old < old_count; old++) {
            sl_dense_table_destroy(&olds[old].table);
        }
        old_count = numbers[n];
        memcpy(olds, news, sizeof olds);
    }
    sl_dense_table_destroy(&olds[0].table);
}
