#include "core/metric.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "core/assert.h"

#define STEP_BITS 5 /* log2(SL_METRIC_STEPS) */

_Static_assert(SL_METRIC_STEPS == 1 << STEP_BITS, "steps are taken from a value's leading bits");
_Static_assert(SL_METRIC_BUCKETS == SL_METRIC_STEPS * (64 - STEP_BITS + 1),
               "every u64 has a bucket");

/* Values below SL_METRIC_STEPS have one bucket each. Above, the position of the leading bit selects
 * the group, and the STEP_BITS bits after it the step in the group. */
static uint32_t bucket_of(uint64_t value)
{
    if (value < SL_METRIC_STEPS) {
        return (uint32_t)value;
    }
    const uint32_t shift = 63 - STEP_BITS - (uint32_t)__builtin_clzll(value);
    return (shift << STEP_BITS) + (uint32_t)(value >> shift);
}

static uint64_t bucket_upper(uint32_t bucket)
{
    if (bucket < SL_METRIC_STEPS) {
        return bucket;
    }
    const uint32_t shift = (bucket >> STEP_BITS) - 1;
    const uint64_t lower = (uint64_t)(bucket - (shift << STEP_BITS)) << shift;
    return lower + (((uint64_t)1 << shift) - 1);
}

void sl_metric_init(struct sl_metric_histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->min = UINT64_MAX;
}

void sl_metric_record_many(struct sl_metric_histogram *histogram, uint64_t value, uint64_t count)
{
    if (count == 0) {
        return;
    }
    histogram->count += count;
    histogram->sum += value * count;
    histogram->min = value < histogram->min ? value : histogram->min;
    histogram->max = value > histogram->max ? value : histogram->max;
    histogram->buckets[bucket_of(value)] += count;
}

void sl_metric_record(struct sl_metric_histogram *histogram, uint64_t value)
{
    sl_metric_record_many(histogram, value, 1);
}

void sl_metric_merge(struct sl_metric_histogram *into, const struct sl_metric_histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    into->min = from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    for (size_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

uint64_t sl_metric_quantile(const struct sl_metric_histogram *histogram, double share)
{
    sl_assert(share >= 0 && share <= 1);
    if (histogram->count == 0) {
        return 0;
    }
    /* A count beyond 2^53 may round up past itself; the loop then ends at the last bucket. */
    uint64_t rank = (uint64_t)ceil(share * (double)histogram->count);
    rank = rank == 0 ? 1 : rank;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= rank) {
            const uint64_t upper = bucket_upper(i);
            return upper < histogram->max ? upper : histogram->max;
        }
    }
    return histogram->max;
}

uint64_t sl_metric_bucket(const struct sl_metric_histogram *histogram, uint32_t bucket,
                          uint64_t *upper)
{
    sl_assert(bucket < SL_METRIC_BUCKETS);
    *upper = bucket_upper(bucket);
    return histogram->buckets[bucket];
}
