/* The inside of a report, for the files that it is made of (report*.c). */
#ifndef SL_BENCH_REPORT_PARTS_H
#define SL_BENCH_REPORT_PARTS_H

#include <stdint.h>
#include <stdio.h>

#include "bench/machine.h"
#include "bench/report.h"

/* The shares of all values at which a distribution is reported. */
#define SL_BENCH_SHARES 6
extern const double sl_bench_report_shares[SL_BENCH_SHARES];
extern const char *const sl_bench_report_share_names[SL_BENCH_SHARES]; /* "p50" */

struct sl_bench_bucket {
    uint64_t upper, count; /* the greatest value that falls into it, in ns */
};

/* Summary of a histogram in a report. */
struct sl_bench_spread {
    char name[SL_BENCH_NAME_BYTES];
    uint64_t count, max;
    uint64_t quantiles[SL_BENCH_SHARES];
    struct sl_bench_bucket *buckets; /* those that are not empty, by rising value */
    uint32_t bucket_count;
};

struct sl_bench_report {
    char *benchmark, *setting;
    struct sl_bench_machine machine;
    struct sl_bench_figure **figures; /* each stays where it is */
    struct sl_bench_ratio **ratios;
    struct sl_bench_spread **spreads;
    uint32_t figure_count, ratio_count, spread_count;
    uint32_t rounds_left_out; /* of all contests: other programs disturbed them */
    uint32_t
        rounds_disturbed; /* disturbed rounds of contests that had no quiet round: they count */
};

/* The quartiles of a figure's or a ratio's samples. */
struct sl_bench_summary {
    double low, median, high;
};
struct sl_bench_summary sl_bench_report_summary(const double *samples, uint32_t count);

/* A list of `count` pointers with room for one more. Ends the program when memory is short. */
void *sl_bench_report_grow(void *list, uint32_t count);
void *sl_bench_report_must_have(void *memory);

/* Adds an empty one. */
struct sl_bench_ratio *sl_bench_report_new_ratio(struct sl_bench_report *report, const char *name,
                                                 double least, double most);

/* ---- Text ------------------------------------------------------------------------------------ */

#define SL_BENCH_VALUE_BYTES 32

/* Large rates, bytes and counts are told in thousands, millions, …: what to divide by, and the unit
 * then, "M/s". */
double sl_bench_report_scale(double value, const char *unit, char *scaled_unit,
                             size_t scaled_unit_bytes);

/* Four digits, or a whole number. */
void sl_bench_report_value(double value, char text[SL_BENCH_VALUE_BYTES]);

/* "pull, connections 16": the name, and where on its curve the figure stands. */
#define SL_BENCH_LABEL_BYTES (SL_BENCH_NAME_BYTES + 64)
void sl_bench_report_label(const struct sl_bench_figure *figure, char text[SL_BENCH_LABEL_BYTES]);

void sl_bench_report_print(const struct sl_bench_report *report,
                           const struct sl_bench_common *common, FILE *to);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Errors, logged: IO, NO_MEMORY. */
int sl_bench_report_write_json(const struct sl_bench_report *report,
                               const struct sl_bench_common *common, const char *path);

/* Reads what the above wrote; it must be about this benchmark. *out is owned by the caller. Errors,
 * logged: IO, INVALID, NO_MEMORY. */
int sl_bench_report_read_json(const char *path, const char *benchmark,
                              struct sl_bench_report **out);

/* Prints how the report differs from an older one, which was read from `path`. */
void sl_bench_report_compare(const struct sl_bench_report *report,
                             const struct sl_bench_report *older, const char *path, FILE *to);

/* Draws the curves, ratios and distributions into the directory, which is made if it is not there,
 * by bench/plot.py. Errors, logged: NOT_FOUND (the script), CLOSED (it failed), IO, NO_MEMORY. */
int sl_bench_report_plot(const struct sl_bench_report *report, const struct sl_bench_common *common,
                         const char *directory);

/* Text in columns that are as wide as what stands in them. One thread. */
#define SL_BENCH_SHEET_COLUMNS_MAX 12
#define SL_BENCH_SHEET_CELL_BYTES  160

struct sl_bench_sheet {
    const char *align; /* "llr": a letter for each column, left or right; static storage */
    uint32_t column_count, row_count;
    char (*cells)[SL_BENCH_SHEET_CELL_BYTES]; /* [row_count][column_count] */
};

void sl_bench_sheet_init(struct sl_bench_sheet *sheet, const char *align);

/* A further row, of as many cells as there are columns; copied, cut where they are too long. NULL:
 * an empty one. Ends the program with a message when memory is short. */
void sl_bench_sheet_row(struct sl_bench_sheet *sheet, const char *const *cells);

/* Prints the rows, indented by two, and forgets them. */
void sl_bench_sheet_print(struct sl_bench_sheet *sheet, FILE *to);

#endif
