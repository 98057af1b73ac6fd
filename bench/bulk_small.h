/* Small pulls on the reactor that large pushes go to at the same time: what do they wait for? */
#ifndef SL_BENCH_BULK_SMALL_H
#define SL_BENCH_BULK_SMALL_H

#include "bench/contest.h"
#include "bench/ps_process.h"

struct sl_bench_bulk_small {
    struct sl_bench_ps *ps; /* parked between repeats */
    /* The pushes beside, to a dense table: a multiple of 1 MiB, which is under way all the time; 0:
     * none. Where push_core is the core of the small pulls, one thread drives both, in short turns:
     * two threads would wait for one another, and a pull that is answered for the thread that
     * pushes, which the kernel does not interrupt while it copies. */
    uint64_t push_bytes;
    int push_core;
    enum sl_optimizer_kind optimizer;
    const char *congestion;
    /* Of the small pulls, of one row of 16 f32 each: one under way on each. */
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
