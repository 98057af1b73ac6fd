/* Measures the CPU time that other processes use during a measurement, from Linux's /proc: the busy
 * time of all cores minus that of this process and its descendants. One thread. */
#ifndef SL_BENCH_QUIET_H
#define SL_BENCH_QUIET_H

#include <stdbool.h>

/* The threshold, as a fraction of one core: above it a measurement counts as disturbed. The kernel
 * samples busy time per tick, so a lower threshold would report noise. */
#define SL_BENCH_QUIET_SHARE 0.1

struct sl_bench_quiet {
    double others_s; /* CPU time of other processes before the measurement */
    double at_s;     /* when the measurement began */
};

void sl_bench_quiet_begin(struct sl_bench_quiet *quiet);

/* Whether other processes used more than SL_BENCH_QUIET_SHARE of a core since sl_bench_quiet_begin.
 * False where /proc cannot be read. */
bool sl_bench_quiet_was_disturbed(const struct sl_bench_quiet *quiet);

#endif
