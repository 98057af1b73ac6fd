/* The inside of a report, for the files that it is made of (report*.c). */
#ifndef SL_BENCH_REPORT_PARTS_H
#define SL_BENCH_REPORT_PARTS_H

#include "bench/machine.h"
#include "bench/report.h"

/* What a histogram is reduced to: its values below which a share of all lie, and the buckets that
 * are not empty. */
#define SL_BENCH_SHARES 7
extern const double sl_bench_report_shares[SL_BENCH_SHARES];

struct sl_bench_bucket {
    uint64_t upper, count; /* the greatest value that falls into it, in ns */
};

struct sl_bench_spread {
    char name[SL_BENCH_NAME_BYTES];
    uint64_t count, max;
    uint64_t quantiles[SL_BENCH_SHARES];
    struct sl_bench_bucket *buckets;
    uint32_t bucket_count;
};

struct sl_bench_report {
    char *benchmark, *setting;
    struct sl_bench_machine machine;
    struct sl_bench_figure **figures; /* each stays where it is */
    struct sl_bench_ratio **ratios;
    struct sl_bench_spread **spreads;
    uint32_t figure_count, ratio_count, spread_count;
};

/* A figure or a ratio in few words. */
struct sl_bench_summary {
    double low, median, high; /* quartiles */
};
struct sl_bench_summary sl_bench_report_summary(const double *samples, uint32_t count);

void sl_bench_report_print(const struct sl_bench_report *report,
                           const struct sl_bench_common *common);

/* Errors, logged: IO, NO_MEMORY. */
int sl_bench_report_write_json(const struct sl_bench_report *report,
                               const struct sl_bench_common *common, const char *path);

#endif
