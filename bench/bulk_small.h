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
    double rate; /* small pulls a second, of one row of 16 f32 each, due at fixed intervals */
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
