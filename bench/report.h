/* What a benchmark found: figures with units, each the samples of several rounds, and ratios of two
 * figures taken round by round; printed as a table, written as JSON, compared with an older JSON,
 * drawn as charts. Names are copied. One thread. */
#ifndef SL_BENCH_REPORT_H
#define SL_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"
#include "core/metric.h"

#define SL_BENCH_ROUNDS_MAX 64
#define SL_BENCH_NAME_BYTES 96

struct sl_bench_figure {
    char name[SL_BENCH_NAME_BYTES]; /* "pull 1 row, 16 x 32"; the same name may have many figures */
    char quantity[32];              /* "requests", "p99" */
    char unit[16];                  /* "1/s", "us"; "" for a ratio or a count */
    char transport[16];             /* that it was measured over: "TCP"; "": over none */
    double samples[SL_BENCH_ROUNDS_MAX];
    uint32_t count; /* of samples */
    /* Where it stands on a chart: on the curve that its name is, at x. */
    bool on_curve;
    double x;
    char x_name[32]; /* "connections" */
};

/* The median of a's samples over b's, each divided within its round. */
struct sl_bench_ratio {
    char name[SL_BENCH_NAME_BYTES];
    double samples[SL_BENCH_ROUNDS_MAX];
    uint32_t count;
    double least, most; /* the target that it is held against; 0: none */
    char transport[16]; /* of both; "": of none, or the name says it */
};

struct sl_bench_report;

/* benchmark: "pull"; setting: one line, what was measured with which parameters. *out is owned by
 * the caller. The line on the machine is found out here. Errors: NO_MEMORY. */
int sl_bench_report_create(const char *benchmark, const char *setting,
                           struct sl_bench_report **out);
void sl_bench_report_destroy(struct sl_bench_report **report);

/* Adds an empty figure, whose samples follow. It is the report's, and stays where it is. Ends the
 * program with a message when memory is short. */
struct sl_bench_figure *sl_bench_report_figure(struct sl_bench_report *report, const char *name,
                                               const char *quantity, const char *unit);

/* Adds a figure with one sample. */
struct sl_bench_figure *sl_bench_report_add(struct sl_bench_report *report, const char *name,
                                            const char *quantity, const char *unit, double value);

/* Names the transport of the figure; NULL: none. */
void sl_bench_figure_over(struct sl_bench_figure *figure, const char *transport);

/* Puts the figure on the chart's curve. */
void sl_bench_figure_at(struct sl_bench_figure *figure, const char *x_name, double x);

/* A further sample; there is room (asserted). */
void sl_bench_figure_sample(struct sl_bench_figure *figure, double value);

/* a / b, round by round; held against `least` (a rate) or `most` (a time) where they are not 0.
 * Both were measured over the same transport, or one of them over none (asserted). */
const struct sl_bench_ratio *sl_bench_report_ratio(struct sl_bench_report *report, const char *name,
                                                   const struct sl_bench_figure *a,
                                                   const struct sl_bench_figure *b, double least,
                                                   double most);

/* The same of two transports, which the name tells: where it is they that are compared. */
const struct sl_bench_ratio *sl_bench_report_ratio_of_transports(struct sl_bench_report *report,
                                                                 const char *name,
                                                                 const struct sl_bench_figure *a,
                                                                 const struct sl_bench_figure *b,
                                                                 double least, double most);

/* Of further rounds, so many were disturbed by other programs. They are left out of the figures,
 * unless they are all there is. */
void sl_bench_report_disturbed(struct sl_bench_report *report, uint32_t rounds, bool are_left_out);

/* Whether the median of the ratio meets its target; true where it has none. */
bool sl_bench_ratio_holds(const struct sl_bench_ratio *ratio);

/* Adds how a time in ns was distributed, over all rounds together: its quantiles are printed, its
 * buckets go into the JSON, and its curve onto a chart. The histogram is copied from. */
void sl_bench_report_histogram(struct sl_bench_report *report, const char *name,
                               const struct sl_metric_histogram *histogram);

/* The value below which `share` of the samples lie, linearly between two of them: 0.5 is the
 * median. count > 0. */
double sl_bench_quantile(const double *samples, uint32_t count, double share);

/* The flags that all benchmarks share; config/cli.h options for them: sl_bench_common_options. */
struct sl_bench_common {
    uint64_t rounds;              /* 1 to SL_BENCH_ROUNDS_MAX; 0: not measured in turns */
    double seconds;               /* of one measurement */
    double warm_up;               /* seconds before it, not counted */
    const char *json;             /* NULL, or where the report is written */
    const char *plot;             /* NULL, or a directory for SVG charts */
    const char *compare;          /* NULL, or an older report to compare with */
    int server_core, client_core; /* -1: chosen: the first and the second that we may run on */
};

/* Prints the table, and carries out --compare, --json and --plot, each even where another failed.
 * Errors, logged: IO, NO_MEMORY, INVALID (the older report), NOT_FOUND (gnuplot). */
int sl_bench_report_finish(struct sl_bench_report *report, const struct sl_bench_common *common);

/* Whether finish will be able to: the older report can be read and is about this benchmark, gnuplot
 * is there. Before anything is measured. Errors, logged: IO, INVALID, NOT_FOUND, NO_MEMORY. */
int sl_bench_report_check(const char *benchmark, const struct sl_bench_common *common);

#endif
