/* The trainer of starling-bench staleness: its workers, pushes, and what the workers' steps used.
 * One thread. */
#ifndef SL_BENCH_STALENESS_TRAINER_H
#define SL_BENCH_STALENESS_TRAINER_H

#include "bench/staleness.h"
#include "core/metric.h"

/* The first versions are sent whole, also with deltas. */
#define SL_BENCH_STALENESS_FIRST 4U

/* Of the steps of all workers, from the first version on. Times in ns. */
struct sl_bench_staleness_found {
    double average;                         /* SRL's, at posts */
    struct sl_metric_histogram behind;      /* versions behind the newest one, at every step */
    struct sl_metric_histogram behind_time; /* since the oldest newer version was pushed */
    struct sl_metric_histogram visible;     /* from the end of a push until a worker has it */
    struct sl_metric_histogram delivered;   /* from the beginning of the push */
    uint64_t torn, pulls, pushes, sent_bytes;
    uint64_t first_bytes; /* of sent_bytes: sent by the end of push SL_BENCH_STALENESS_FIRST */
    double push_seconds;  /* mean */
};

/* Starts the workers, trains, and prints SRL's lines. argv: of this program, for the workers.
 * Errors, logged: any. */
int sl_bench_staleness_train(struct sl_bench_staleness *run, int argc, char **argv,
                             struct sl_bench_staleness_found *found);

#endif
