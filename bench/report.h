/* A report collects what a benchmark measures: figures with units, each the samples of several
 * rounds, and ratios of two figures, taken round by round. At the end it goes as JSON to
 * bench/report.py, which prints, compares and draws it. Names are copied. When memory is short the
 * program ends with a message. One thread. */
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

struct sl_bench_report {
    char *benchmark, *setting;
    struct sl_bench_figure **figures; /* each stays where it is: samples follow */
    uint32_t figure_count;
    struct json_t *ratios, *distributions;      /* as bench/report.py reads them */
    uint32_t rounds_left_out, rounds_disturbed; /* sl_bench_report_disturbed */
};

/* benchmark: "pull"; setting: one line, what was measured with which parameters. The report is
 * owned by the caller. */
struct sl_bench_report *sl_bench_report_create(const char *benchmark, const char *setting);
void sl_bench_report_destroy(struct sl_bench_report **report);

/* Adds an empty figure, whose samples follow. It is the report's, and stays where it is. */
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

/* Adds a / b, round by round; held against `least` (a rate) or `most` (a time) where they are not
 * 0. Both were measured over the same transport, or one of them over none (asserted). */
void sl_bench_report_ratio(struct sl_bench_report *report, const char *name,
                           const struct sl_bench_figure *a, const struct sl_bench_figure *b,
                           double least, double most);

/* The same of two transports, which the name tells: where it is they that are compared. */
void sl_bench_report_ratio_of_transports(struct sl_bench_report *report, const char *name,
                                         const struct sl_bench_figure *a,
                                         const struct sl_bench_figure *b, double least,
                                         double most);

/* Of further rounds, so many were disturbed by other programs. They are left out of the figures,
 * unless they are all there is. */
void sl_bench_report_disturbed(struct sl_bench_report *report, uint32_t rounds, bool are_left_out);

/* Adds how a time in ns was distributed, over all rounds together: its quantiles are printed, its
 * buckets go into the JSON, and its curve onto a chart. The histogram is copied from. */
void sl_bench_report_histogram(struct sl_bench_report *report, const char *name,
                               const struct sl_metric_histogram *histogram);

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

/* Prints the table, and carries out --compare, --json and --plot. Errors, logged: IO, NO_MEMORY,
 * NOT_FOUND (python3), CLOSED (the script failed, and has said why). */
int sl_bench_report_finish(struct sl_bench_report *report, const struct sl_bench_common *common);

/* Whether finish will be able to: the older report can be read and is about this benchmark, gnuplot
 * is there. Before anything is measured. Errors, logged: as above. */
int sl_bench_report_check(const char *benchmark, const struct sl_bench_common *common);

/* "starling 0.1.0, gcc 12.2.0, RelWithDebInfo". */
void sl_bench_report_build(char *text, size_t text_bytes);

/* Writes the samples for bench/report.py. Errors, logged: IO. */
int sl_bench_report_write(const struct sl_bench_report *report,
                          const struct sl_bench_common *common, const char *path);

#endif
