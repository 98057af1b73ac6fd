/* The command line of starling-bench table. */
#ifndef SL_BENCH_TABLE_OPTIONS_H
#define SL_BENCH_TABLE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/report.h"
#include <starling.h>

#define SL_BENCH_TABLE_LIST_MAX      8 /* values of --rows or --dim */
#define SL_BENCH_TABLE_DISTRIBUTIONS 2

/* A table is made for each of rows, optimizers and dims. */
struct sl_bench_table_options {
    struct sl_bench_common common;
    uint64_t rows[SL_BENCH_TABLE_LIST_MAX], dims[SL_BENCH_TABLE_LIST_MAX];
    enum sl_optimizer_kind optimizers[SL_OPTIMIZER_KIND_COUNT];
    uint32_t row_counts, dim_counts, optimizer_counts;
    bool distributions[SL_BENCH_TABLE_DISTRIBUTIONS]; /* by enum sl_bench_distribution */
    uint64_t operations, batch, seed;
    double exponent; /* of Zipf's law */
};

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
int sl_bench_table_parse(int argc, char **argv, struct sl_bench_table_options *out);

#endif
