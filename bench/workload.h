/* Keys as applications ask for them: drawn from a population of `rows` keys, each as likely, or by
 * Zipf's law. From a seed; the same on every machine but for the last bits of the C library's
 * pow and log. One thread. */
#ifndef SL_BENCH_WORKLOAD_H
#define SL_BENCH_WORKLOAD_H

#include <starling.h>
#include <stdint.h>

#include "core/err.h"

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

/* As in enum sl_optimizer_kind, from its first on. */
#define SL_BENCH_PRECISION_CHOICES "f32|f16|bf16|int8"

#define SL_BENCH_OPTIMIZER_CHOICES                                                                 \
    "sum|sgd|momentum|adagrad|adagrad-decay|rmsprop|adam|adamw|adam-async|ftrl|ftrl-group|"        \
    "rowwise-adagrad|rowwise-adam|adadelta|lion|lamb"

/* Tables and rows by the client library, as all loads need them before anything is timed. One
 * thread, the client's. */
#define SL_BENCH_ROWS_TIMEOUT_MS 60000

/* A sparse table whose first values are small and random. */
struct sl_table_spec sl_bench_rows_table(const char *name, uint64_t dim,
                                         enum sl_optimizer_kind optimizer);

/* Submits a step, unless err is set, waits for it, and destroys it. Returns err, or the step's
 * error, logged as "what: ...". */
int sl_bench_rows_finish(struct sl_step *step, int err, const char *what);

/* Creates the rows of the first `rows` ranks by pushing gradients of zero. dim: the table's.
 * Errors, logged. */
int sl_bench_rows_create(struct sl_client *client, struct sl_table *table, uint32_t dim,
                         uint64_t rows);

#endif
