#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "core/cell.h"
#include "core/hash.h"
#include "tests/support/unit.h"

#define RECORDS 200000

static struct sl_cell_histogram histogram;

static struct sl_cell_copy copy_of(const struct sl_cell_histogram *from)
{
    struct sl_cell_copy copy = {0};
    sl_cell_read(from, &copy);
    return copy;
}

static uint32_t only_bucket(const struct sl_cell_copy *copy)
{
    uint32_t bucket = 0;
    while (copy->counts[bucket] == 0) {
        bucket++;
    }
    return bucket;
}

SL_CASE(cell_add__and_subtract_change_the_value)
{
    struct sl_cell cell = {0};
    sl_cell_add(&cell, 7);
    sl_cell_add(&cell, 5);
    sl_cell_subtract(&cell, 2);
    assert_int_equal(sl_cell_get(&cell), 10);
    sl_cell_set(&cell, 3);
    assert_int_equal(sl_cell_get(&cell), 3);
}

SL_CASE(cell_limit_ns__ascends_and_belongs_to_its_bucket)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < SL_CELL_BUCKETS - 1; i++) {
        const uint64_t limit = sl_cell_limit_ns(i);
        assert_true(limit > last);
        memset(&histogram, 0, sizeof histogram);
        sl_cell_record(&histogram, last + 1, 1);
        sl_cell_record(&histogram, limit, 2);
        const struct sl_cell_copy copy = copy_of(&histogram);
        assert_int_equal(copy.counts[i], 3);
        assert_int_equal(copy.count, 3);
        assert_int_equal(copy.sum_ns, last + 1 + 2 * limit);
        last = limit;
    }
    assert_int_equal(last, SL_CELL_LONGEST_NS);
}

SL_CASE(cell_limit_ns__has_each_power_of_two_of_a_microsecond)
{
    uint32_t bucket = 0;
    for (uint64_t us = 1; us <= UINT64_C(1) << 26; us *= 2) {
        while (bucket < SL_CELL_BUCKETS && sl_cell_limit_ns(bucket) < us * 1000) {
            bucket++;
        }
        assert_int_equal(sl_cell_limit_ns(bucket), us * 1000);
    }
}

SL_CASE(cell_record__takes_zero_and_the_longest)
{
    memset(&histogram, 0, sizeof histogram);
    sl_cell_record(&histogram, 0, 1);
    assert_int_equal(copy_of(&histogram).counts[0], 1);
    memset(&histogram, 0, sizeof histogram);
    sl_cell_record(&histogram, SL_CELL_LONGEST_NS + 1, 1);
    sl_cell_record(&histogram, UINT64_MAX, 1);
    const struct sl_cell_copy copy = copy_of(&histogram);
    assert_int_equal(copy.counts[SL_CELL_BUCKETS - 1], 2);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0.5), SL_CELL_LONGEST_NS);
}

SL_CASE(cell_quantile_ns__is_at_most_an_eighth_too_large)
{
    uint64_t seed = 7;
    for (int i = 0; i < 4000; i++) {
        const uint64_t ns = 1000 + sl_hash_random(&seed) % (SL_CELL_LONGEST_NS >> i % 26);
        if (ns > SL_CELL_LONGEST_NS) {
            continue;
        }
        memset(&histogram, 0, sizeof histogram);
        sl_cell_record(&histogram, ns, 1);
        const struct sl_cell_copy copy = copy_of(&histogram);
        const uint64_t quantile = sl_cell_quantile_ns(&copy, 0.99);
        assert_true(quantile >= ns);
        assert_true(quantile - ns <= ns / 8);
        assert_int_equal(quantile, sl_cell_limit_ns(only_bucket(&copy)));
    }
}

SL_CASE(cell_quantile_ns__of_ranks)
{
    memset(&histogram, 0, sizeof histogram);
    struct sl_cell_copy copy = copy_of(&histogram);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0.5), 0);
    sl_cell_record(&histogram, 1000, 98);
    sl_cell_record(&histogram, 4000, 1);
    sl_cell_record(&histogram, 16000, 1);
    copy = copy_of(&histogram);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0), 1000);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0.98), 1000);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0.99), 4000);
    assert_int_equal(sl_cell_quantile_ns(&copy, 1), 16000);
}

SL_CASE(cell_copy_since__leaves_the_recent_part)
{
    memset(&histogram, 0, sizeof histogram);
    sl_cell_record(&histogram, 1000, 50);
    const struct sl_cell_copy earlier = copy_of(&histogram);
    sl_cell_record(&histogram, 8000, 2);
    struct sl_cell_copy copy = copy_of(&histogram);
    sl_cell_copy_since(&copy, &earlier);
    assert_int_equal(copy.count, 2);
    assert_int_equal(copy.sum_ns, 16000);
    assert_int_equal(sl_cell_quantile_ns(&copy, 0.5), 8000);
}

static void *write_all(void *ctx)
{
    for (int i = 0; i < RECORDS; i++) {
        sl_cell_record(&histogram, 1000, 1);
    }
    return NULL;
}

/* The reader runs all the time; under the thread sanitizer a plain access would be a race. */
SL_CASE(cell_read__beside_the_writer)
{
    memset(&histogram, 0, sizeof histogram);
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, write_all, NULL), 0);
    uint64_t last = 0;
    while (last < RECORDS) {
        const struct sl_cell_copy copy = copy_of(&histogram);
        assert_true(copy.count >= last && copy.count <= RECORDS);
        assert_true(copy.sum_ns % 1000 == 0);
        last = copy.count;
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
    assert_int_equal(copy_of(&histogram).sum_ns, UINT64_C(1000) * RECORDS);
}
