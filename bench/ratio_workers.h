/* Many workers of one ps, as training makes them: each step pulls rows of several tables, waits,
 * pushes gradients of the same rows, waits. Processes of their own on one core, each with one or
 * several clients of the real library, a thread each. One thread, the only one of its process. */
#ifndef SL_BENCH_RATIO_WORKERS_H
#define SL_BENCH_RATIO_WORKERS_H

#include <starling.h>
#include <stdint.h>

#include "bench/workload.h"
#include "core/metric.h"

#define SL_BENCH_RATIO_TABLES_MAX  64
#define SL_BENCH_RATIO_WORKERS_MAX 256

struct sl_bench_ratio_workers {
    const char *coordinator;
    uint32_t processes, clients; /* clients of each process; together at most WORKERS_MAX */
    uint32_t tables, keys, dim;  /* keys of each table in a step */
    uint64_t rows;               /* of each table */
    double zipf_exponent;
    enum sl_protocol protocol;
    bool driven; /* each worker's thread serves its connection itself */
    const char *congestion;
    bool no_shm; /* TCP, between processes of one machine too */
    uint64_t seed;
};

struct sl_bench_ratio_result {
    uint64_t steps, keys; /* in the measured time; pulled and pushed keys count once each */
    double bytes_per_step, requests_per_step;
    double cpu_seconds;                 /* of all processes, per step */
    struct sl_metric_histogram latency; /* ns, of a step */
};

/* Opens the tables, and creates all rows. Errors, logged. */
int sl_bench_ratio_fill(const struct sl_bench_ratio_workers *workers);

/* Starts the workers on `core`, lets them go on for warm_up seconds, measures for `seconds`, ends
 * them. Errors, logged. */
int sl_bench_ratio_workers_run(const struct sl_bench_ratio_workers *workers, int core,
                               double warm_up, double seconds, struct sl_bench_ratio_result *out);

#endif
