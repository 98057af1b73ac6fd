/* Small pulls on the reactor that large pushes go to at the same time: what do they wait for? */
#ifndef SL_BENCH_BULK_SMALL_H
#define SL_BENCH_BULK_SMALL_H

#include "bench/bulk_transfer.h"
#include "bench/contest.h"

struct sl_bench_bulk_small {
    struct sl_bench_ps *ps; /* parked between repeats */
    /* The pushes beside; bytes 0: none. Its threads run on push_core; where that is the core of the
     * small pulls, only while these have nothing to do, so that they do not wait for the pusher
     * itself. */
    struct sl_bench_bulk_transfer pushes;
    int push_core;
    /* Of the small pulls, of one row of 16 f32 each: one under way on each. The next goes when the
     * one before is answered, and the core sleeps between; a load at a fixed rate would spin, and
     * leave a pusher that shares its core no time. */
    uint32_t connections;
};

enum {
    SL_BENCH_BULK_SMALL_P50,
    SL_BENCH_BULK_SMALL_P99,
    SL_BENCH_BULK_SMALL_RATE,
    SL_BENCH_BULK_SMALL_PUSHED,
};

/* Quantities as above. *small must outlive the contest. */
struct sl_bench_contestant sl_bench_bulk_small_contestant(const char *name,
                                                          struct sl_bench_bulk_small *small);

#endif
