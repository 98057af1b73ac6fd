/* Several things measured in turns, so that what the machine does in the meantime meets all of them
 * alike: in every round each contestant runs once, in an order that is turned by one from round to
 * round. One thread. */
#ifndef SL_BENCH_CONTEST_H
#define SL_BENCH_CONTEST_H

#include <stdbool.h>

#include "bench/report.h"

#define SL_BENCH_QUANTITIES_MAX 8

struct sl_bench_quantity {
    const char *name, *unit; /* "requests", "1/s"; static storage */
};

struct sl_bench_contestant {
    const char *name; /* "bare echo, 16 x 32" */
    const struct sl_bench_quantity *quantities;
    uint32_t quantity_count;
    const char *transport; /* "TCP", "shared memory"; NULL: over none; static storage */
    /* One repeat: starts what it needs, lets it run for warm_up seconds, measures for `seconds`,
     * stops it, so that it takes no processor time from the others (a server that polls is ended,
     * or stopped with SIGSTOP). values[quantity_count] is to be filled. Errors, logged: any. */
    int (*run)(void *ctx, const struct sl_bench_common *common, double *values);
    void *ctx;
    struct sl_bench_figure *figures[SL_BENCH_QUANTITIES_MAX]; /* out: in the report */
};

/* Rounds in which other programs took processor time (bench/quiet.h) are left out of the figures of
 * all contestants, unless there is no other. Errors: of the first run that failed. */
int sl_bench_contest_run(struct sl_bench_contestant *contestants, uint32_t count,
                         const struct sl_bench_common *common, struct sl_bench_report *report);

/* A benchmark that is one contest. Zeros: no contestants yet. */
struct sl_bench_contest {
    struct sl_bench_contestant *contestants;
    uint32_t count;
    bool owns; /* the contestants, since sl_bench_contest_add added them */
};

/* One more contestant, with this name; the others may move. Ends the program when memory is short.
 * Returns its index. */
uint32_t sl_bench_contest_add(struct sl_bench_contest *contest,
                              const struct sl_bench_contestant *contestant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the result of the contestant of this name; NULL: it did not take part. quantity: the name
 * of one of its own, "bytes". */
const struct sl_bench_figure *sl_bench_contest_figure(const struct sl_bench_contest *contest,
                                                      const char *name, const char *quantity);

/* "name / other" into the report, where both were measured; least, most: as
 * sl_bench_report_ratio has them. */
void sl_bench_contest_ratio(const struct sl_bench_contest *contest, struct sl_bench_report *report,
                            const char *quantity, const char *name, const char *other, double least,
                            double most);

/* The report of the contest, from its creation to its end; contestants that were added are gone
 * then. conclude (NULL: none) adds to it what the figures are held against. Errors, logged: of the
 * first run that failed, NO_MEMORY, and those of sl_bench_report_finish. */
int sl_bench_contest_report(struct sl_bench_contest *contest, const char *benchmark,
                            const char *setting,
                            void (*conclude)(void *ctx, struct sl_bench_report *report), void *ctx,
                            const struct sl_bench_common *common);

#endif
