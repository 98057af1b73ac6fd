#include "core/partition.h"
#include "tests/support/unit.h"
#include "worker/client/route.h"

#define KEY_COUNT 5000

static uint64_t keys[KEY_COUNT];

static void fill_keys(uint64_t distinct)
{
    uint64_t seed = 11;
    for (uint32_t i = 0; i < KEY_COUNT; i++) {
        keys[i] = sl_hash_random(&seed) % distinct;
    }
    keys[7] = UINT64_MAX;
    keys[9] = 0;
}

static void check_rows(uint32_t key_count)
{
    fill_keys(1000);
    const uint32_t shard_counts[] = {2, 3, 7, 63, 64, 65, 600, 4096};
    for (size_t c = 0; c < sizeof shard_counts / sizeof *shard_counts; c++) {
        uint32_t shard_count = shard_counts[c];
        struct sl_scratch scratch = {0};
        struct sl_route route;
        assert_int_equal(sl_route_rows(&scratch, keys, key_count, shard_count, &route), 0);
        uint32_t end = 0;
        for (const struct sl_route_part *part = route.next; part->shard != SL_ROUTE_END; part++) {
            assert_true(part == route.next || part[-1].shard < part->shard);
            assert_int_equal(part->first, end);
            assert_true(part->key_count > 0);
            end += part->key_count;
            for (uint32_t i = part->first; i < end; i++) {
                uint32_t place = route.labels[i];
                assert_true(route.keys[i] == keys[place]);
                assert_int_equal(sl_partition_owner(keys[place], shard_count), part->shard);
                assert_true(i == part->first || route.labels[i - 1] < place);
            }
        }
        assert_int_equal(end, key_count);
        sl_scratch_fini(&scratch);
    }
}

SL_CASE(route_rows__sorts_by_owner_and_keeps_the_order)
{
    const uint32_t key_counts[] = {0, 1, 2, 10, 64, 100, KEY_COUNT};
    for (size_t i = 0; i < sizeof key_counts / sizeof *key_counts; i++) {
        check_rows(key_counts[i]);
    }
}

SL_CASE(route_rows__leaves_keys_of_one_shard_where_they_are)
{
    fill_keys(1000);
    struct sl_scratch scratch = {0};
    struct sl_route route;
    assert_int_equal(sl_route_rows(&scratch, keys, KEY_COUNT, 1, &route), 0);
    assert_ptr_equal(route.keys, keys);
    assert_null(route.labels);
    assert_int_equal(route.next->key_count, KEY_COUNT);
    assert_int_equal(route.next[1].shard, SL_ROUTE_END);
    sl_scratch_fini(&scratch);
}

SL_CASE(route_bags__labels_keys_with_ascending_bags)
{
    fill_keys(500);
    /* Bag 0 is empty, bags 1 and 2 hold one key each, bag 3 is empty, bag 4 holds the rest. */
    const uint32_t bag_ends[] = {0, 1, 2, 2, KEY_COUNT};
    struct sl_scratch scratch = {0};
    struct sl_route route;
    assert_int_equal(sl_route_bags(&scratch, keys, KEY_COUNT, bag_ends, 3, &route), 0);
    uint32_t in_bag[5] = {0};
    for (const struct sl_route_part *part = route.next; part->shard != SL_ROUTE_END; part++) {
        for (uint32_t i = part->first; i < part->first + part->key_count; i++) {
            assert_true(i == part->first || route.labels[i - 1] <= route.labels[i]);
            assert_int_equal(sl_partition_owner(route.keys[i], 3), part->shard);
            in_bag[route.labels[i]]++;
        }
    }
    const uint32_t expected[5] = {0, 1, 1, 0, KEY_COUNT - 2};
    assert_memory_equal(in_bag, expected, sizeof expected);
    sl_scratch_fini(&scratch);
}

static void check_grouped(uint64_t distinct)
{
    fill_keys(distinct);
    struct sl_scratch scratch = {0};
    const uint64_t *grouped;
    const uint32_t *labels;
    assert_int_equal(sl_route_group(&scratch, keys + 5, NULL, 5, KEY_COUNT - 5, &grouped, &labels),
                     0);
    for (uint32_t i = 0; i < KEY_COUNT - 5; i++) {
        assert_true(grouped[i] == keys[labels[i]]);
        if (i > 0) {
            assert_true(grouped[i - 1] <= grouped[i]);
            assert_true(grouped[i - 1] < grouped[i] || labels[i - 1] < labels[i]);
        }
    }
    sl_scratch_fini(&scratch);
}

SL_CASE(route_group__puts_equal_keys_together_in_their_order)
{
    check_grouped(1);
    check_grouped(100);
    check_grouped(UINT64_MAX);
}

SL_CASE(scratch_reset__joins_chunks)
{
    struct sl_scratch scratch = {0};
    for (int i = 0; i < 100; i++) {
        assert_non_null(sl_scratch_take(&scratch, 10000));
    }
    sl_scratch_reset(&scratch);
    uint8_t *first = sl_scratch_take(&scratch, 500000);
    uint8_t *second = sl_scratch_take(&scratch, 400000);
    assert_ptr_equal(first + 500000, second); /* one chunk holds it all now */
    sl_scratch_trim(&scratch, second, 100);
    assert_ptr_equal(sl_scratch_take(&scratch, 1), second + 112);
    sl_scratch_fini(&scratch);
}
