#include "core/cell.h"

#include <math.h>

#include "core/assert.h"

#define STEPS (1U << SL_CELL_STEP_BITS)

/* 2^26 us are 2^29 units, less one for the last duration in the bucket. */
_Static_assert(SL_CELL_LONGEST_NS == (uint64_t)SL_CELL_UNIT_NS << 29, "unit and longest duration");
_Static_assert(SL_CELL_BUCKETS == STEPS * (29 - SL_CELL_STEP_BITS + 1) + 1, "number of buckets");

void sl_cell_read(const struct sl_cell_histogram *histogram, struct sl_cell_copy *copy)
{
    for (uint32_t i = 0; i < SL_CELL_BUCKETS; i++) {
        const uint64_t count = sl_cell_get(&histogram->counts[i]);
        copy->counts[i] += count;
        copy->count += count;
    }
    copy->sum_ns += sl_cell_get(&histogram->sum_ns);
}

void sl_cell_copy_since(struct sl_cell_copy *copy, const struct sl_cell_copy *earlier)
{
    for (uint32_t i = 0; i < SL_CELL_BUCKETS; i++) {
        copy->counts[i] -= earlier->counts[i];
    }
    copy->count -= earlier->count;
    copy->sum_ns -= earlier->sum_ns;
}

uint64_t sl_cell_limit_ns(uint32_t bucket)
{
    sl_assert(bucket < SL_CELL_BUCKETS);
    if (bucket < STEPS) {
        return (uint64_t)SL_CELL_UNIT_NS * (bucket + 1);
    }
    if (bucket == SL_CELL_BUCKETS - 1) {
        return SL_CELL_LONGEST_NS;
    }
    const uint32_t octave = bucket / STEPS - 1;
    return (uint64_t)SL_CELL_UNIT_NS * (bucket % STEPS + STEPS + 1) << octave;
}

uint64_t sl_cell_quantile_ns(const struct sl_cell_copy *copy, double share)
{
    sl_assert(share >= 0 && share <= 1);
    if (copy->count == 0) {
        return 0;
    }
    const double rank = ceil(share * (double)copy->count);
    uint64_t seen = 0;
    uint32_t bucket = 0;
    for (; bucket < SL_CELL_BUCKETS - 1; bucket++) {
        seen += copy->counts[bucket];
        if (seen > 0 && (double)seen >= rank) {
            break;
        }
    }
    return sl_cell_limit_ns(bucket);
}
