/* A cell is a number with one writer, which any thread may read at any time: a relaxed load, an
 * addition and a relaxed store, never a read-modify-write instruction. A histogram of cells counts
 * durations in buckets of one eighth of an octave.
 *
 * Each cell is exact; several cells together are no consistent snapshot. Cells live in zeroed
 * memory that outlives their writer and their readers. On the data path counts are added once per
 * run or per turn, not per request. Functions are for any thread, unless marked "writer". */
#ifndef SL_CORE_CELL_H
#define SL_CORE_CELL_H

#include <stdatomic.h>
#include <stdint.h>

struct sl_cell {
    _Atomic uint64_t value;
};

static inline uint64_t sl_cell_get(const struct sl_cell *cell)
{
    return atomic_load_explicit(&cell->value, memory_order_relaxed);
}

/* Writer. */
static inline void sl_cell_set(struct sl_cell *cell, uint64_t value)
{
    atomic_store_explicit(&cell->value, value, memory_order_relaxed);
}

/* Writer. */
static inline void sl_cell_add(struct sl_cell *cell, uint64_t more)
{
    sl_cell_set(cell, sl_cell_get(cell) + more);
}

/* Writer. For gauges: the cell must hold at least `less`. */
static inline void sl_cell_subtract(struct sl_cell *cell, uint64_t less)
{
    sl_cell_set(cell, sl_cell_get(cell) - less);
}

/* Bucket i has the durations above the limit of bucket i - 1 and up to its own. The limits are
 * 125 ns apart up to 2 us, then 8 to each power of two, up to 2^26 us (67 s); the last bucket has
 * the longer durations. */
#define SL_CELL_STEP_BITS  3
#define SL_CELL_UNIT_NS    125
#define SL_CELL_LONGEST_NS (UINT64_C(1000) << 26)
#define SL_CELL_BUCKETS    217

struct sl_cell_histogram {
    struct sl_cell sum_ns;
    struct sl_cell counts[SL_CELL_BUCKETS];
};

/* Writer. Records `count` durations of `ns` each. */
static inline void sl_cell_record(struct sl_cell_histogram *histogram, uint64_t ns, uint64_t count)
{
    uint32_t bucket = SL_CELL_BUCKETS - 1;
    if (ns <= SL_CELL_LONGEST_NS) {
        const uint64_t units = (ns - (ns > 0)) / SL_CELL_UNIT_NS;
        const uint32_t octave =
            63 - (uint32_t)__builtin_clzll(units | (1U << SL_CELL_STEP_BITS)) - SL_CELL_STEP_BITS;
        bucket = (octave << SL_CELL_STEP_BITS) + (uint32_t)(units >> octave);
    }
    sl_cell_add(&histogram->counts[bucket], count);
    sl_cell_add(&histogram->sum_ns, ns * count);
}

/* A copy that belongs to its reader; zero before the first sl_cell_read. */
struct sl_cell_copy {
    uint64_t count, sum_ns;
    uint64_t counts[SL_CELL_BUCKETS];
};

/* Adds the histogram to the copy: copies of several histograms are merged this way. */
void sl_cell_read(const struct sl_cell_histogram *histogram, struct sl_cell_copy *copy);

/* Leaves what was recorded since `earlier`, a copy of the same histograms. */
void sl_cell_copy_since(struct sl_cell_copy *copy, const struct sl_cell_copy *earlier);

/* Returns the limit of a bucket; SL_CELL_LONGEST_NS for the last bucket. */
uint64_t sl_cell_limit_ns(uint32_t bucket);

/* Returns the smallest limit that `share` (0 to 1) of the durations do not exceed: at most 12.5 %
 * above the exact quantile from 1 us on. 0 if nothing was recorded. */
uint64_t sl_cell_quantile_ns(const struct sl_cell_copy *copy, double share);

#endif
