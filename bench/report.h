/* The report of a program that is measured by itself: a JSON document that bench/report.py
 * completes, prints and writes. One thread. A program that has no memory for its report ends. */
#ifndef SL_BENCH_REPORT_H
#define SL_BENCH_REPORT_H

#include "bench/options.h"
#include "core/metric.h"

/* A figure holds the samples of one quantity of one contestant. It copies strings and samples. */
struct sl_bench_figure {
    const char *name, *quantity, *unit; /* "worker 0", "goodput", "Gb/s" */
    const char *transport;              /* NULL: none */
    const char *x_name;                 /* NULL, or of the axis that x is on */
    double x;
    const double *samples; /* [count] */
    uint32_t count;
};

/* benchmark: "pslite"; setting: one line, what was measured with which parameters. The report is
 * owned by the caller until sl_bench_report_finish. */
struct sl_bench_report;
struct sl_bench_report *sl_bench_report_create(const char *benchmark, const char *setting);

void sl_bench_report_figure(struct sl_bench_report *report, const struct sl_bench_figure *figure);

/* A figure with one sample. */
void sl_bench_report_add(struct sl_bench_report *report, const char *name, const char *quantity,
                         const char *unit, double value);

/* Adds how a time in ns was distributed. */
void sl_bench_report_times(struct sl_bench_report *report, const char *name,
                           const struct sl_metric_histogram *times);

/* Prints the report, and writes it if --json asks for it. *report is then NULL. Errors, logged: IO;
 * CLOSED (the script failed, and has said why). */
int sl_bench_report_finish(struct sl_bench_report **report, const struct sl_bench_common *common);

#endif
