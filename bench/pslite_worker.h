/* A worker of test_benchmark: joins the job that the environment names, pushes all arrays once,
 * then measures and prints as it goes. One thread. */
#ifndef SL_BENCH_PSLITE_WORKER_H
#define SL_BENCH_PSLITE_WORKER_H

#include <stdbool.h>

#include "bench/pslite_options.h"

#define SL_BENCH_PSLITE_REPORTS_MAX 64 /* the newest are kept */

/* Results of a worker. */
struct sl_bench_pslite_found {
    uint32_t rank, key_count;
    /* Of the last reports, the oldest first. */
    double goodput[SL_BENCH_PSLITE_REPORTS_MAX]; /* Gb/s, payload of one direction */
    double key_us[SL_BENCH_PSLITE_REPORTS_MAX];  /* mean time of a key */
    uint32_t report_count;
    double push_ms, pull_ms; /* mode 0: of all its rounds together */
};

/* A report further on: the oldest makes room when there is none. */
void sl_bench_pslite_worker_note(struct sl_bench_pslite_found *found, double goodput,
                                 double key_us);

struct sl_bench_pslite_worker {
    const struct sl_bench_pslite_load *load;
    bool driven; /* the worker's thread serves its connections itself */
};

/* The program's exit status. */
int sl_bench_pslite_worker_run(const struct sl_bench_pslite_worker *worker,
                               struct sl_bench_pslite_found *found);

#endif
