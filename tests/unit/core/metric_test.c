#include "core/hash.h"
#include "core/metric.h"
#include "tests/support/unit.h"

static struct sl_metric_histogram histogram, other, merged;

SL_CASE(metric_quantile__error_is_within_one_step)
{
    /* One value alone is every quantile; a greatest value beyond it keeps max from hiding the
     * bucket's error. */
    uint64_t seed = 3;
    for (int i = 0; i < 4000; i++) {
        const uint64_t value = sl_hash_random(&seed) >> (i % 64);
        sl_metric_init(&histogram);
        sl_metric_record(&histogram, value);
        sl_metric_record(&histogram, UINT64_MAX);
        const uint64_t median = sl_metric_quantile(&histogram, 0.5);
        assert_true(median >= value);
        assert_true(median - value <= value / SL_METRIC_STEPS);
    }
}

SL_CASE(metric_bucket__bounds_ascend_and_reach_the_end)
{
    sl_metric_init(&histogram);
    uint64_t last = 0, upper;
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        assert_true(sl_metric_bucket(&histogram, i, &upper) == 0);
        assert_true(i == 0 ? upper == 0 : upper > last);
        last = upper;
        /* A bound falls into the bucket that it bounds, the next value into the next. */
        sl_metric_record(&histogram, upper);
        assert_true(sl_metric_bucket(&histogram, i, &upper) == 1);
        sl_metric_init(&histogram);
    }
    assert_true(last == UINT64_MAX);
}

SL_CASE(metric_merge__equals_recording_both)
{
    sl_metric_init(&histogram);
    sl_metric_init(&other);
    sl_metric_init(&merged);
    uint64_t seed = 5;
    for (int i = 0; i < 1000; i++) {
        const uint64_t value = sl_hash_random(&seed) >> (20 + i % 40);
        sl_metric_record(i % 3 == 0 ? &histogram : &other, value);
        sl_metric_record(&merged, value);
    }
    sl_metric_merge(&histogram, &other);
    assert_memory_equal(&histogram, &merged, sizeof merged);
}

SL_CASE(metric_record_many__equals_recording_often)
{
    sl_metric_init(&histogram);
    sl_metric_init(&other);
    for (uint64_t value = 0; value < 300; value += 7) {
        sl_metric_record_many(&histogram, value, value % 5);
        for (uint64_t i = 0; i < value % 5; i++) {
            sl_metric_record(&other, value);
        }
    }
    assert_memory_equal(&histogram, &other, sizeof other);
}
