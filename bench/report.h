/* What a benchmark found: named figures with units, printed as a table and written as JSON. One
 * thread. */
#ifndef SL_BENCH_REPORT_H
#define SL_BENCH_REPORT_H

#include <stdint.h>

#include "core/err.h"

#define SL_BENCH_REPORT_FIGURES 64

struct sl_bench_figure {
    const char *name; /* static storage: "lookup" */
    const char *unit; /* static storage: "Mkeys/s" */
    double value;
    const char *note; /* static storage, or NULL */
};

struct sl_bench_report {
    const char *benchmark; /* "table" */
    const char *setting;   /* one line: what was measured with which parameters; caller's */
    struct sl_bench_figure figures[SL_BENCH_REPORT_FIGURES];
    uint32_t count;
};

/* Adds a figure; there is room (asserted). */
void sl_bench_report_add(struct sl_bench_report *report, const char *name, double value,
                         const char *unit, const char *note);

/* Prints the table to stdout. */
void sl_bench_report_print(const struct sl_bench_report *report);

/* {"benchmark":..., "setting":..., "figures":[{"name":..., "value":..., "unit":..., "note":...}]}.
 * Errors, logged: IO, NO_MEMORY. */
int sl_bench_report_write_json(const struct sl_bench_report *report, const char *path);

#endif
