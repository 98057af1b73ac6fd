/* Keys as applications ask for them: drawn from a population of `rows` keys, each as likely, or by
 * Zipf's law. From a seed; the same on every machine but for the last bits of the C library's
 * pow and log. One thread. */
#ifndef SL_BENCH_WORKLOAD_H
#define SL_BENCH_WORKLOAD_H

#include <stdint.h>

enum sl_bench_distribution { SL_BENCH_UNIFORM = 0, SL_BENCH_ZIPF = 1 };
#define SL_BENCH_DISTRIBUTION_CHOICES "uniform|zipf"

struct sl_bench_workload {
    enum sl_bench_distribution distribution;
    uint64_t rows;
    uint64_t state; /* of the generator */
    double exponent;
    double h_first, h_last, accept_below; /* of the Zipf sampler */
};

/* exponent: of Zipf's law, > 0; ignored by uniform. rows >= 1. */
void sl_bench_workload_init(struct sl_bench_workload *workload,
                            enum sl_bench_distribution distribution, uint64_t rows, double exponent,
                            uint64_t seed);

/* The key of rank `rank`, 0 <= rank < rows: popular keys are scattered over the population. */
uint64_t sl_bench_workload_key(uint64_t rank);

uint64_t sl_bench_workload_next(struct sl_bench_workload *workload);

#endif
