#include "bench/contest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/quiet.h"
#include "core/assert.h"
#include "core/log.h"

static void add_figures(struct sl_bench_contestant *contestant, struct sl_bench_report *report)
{
    sl_assert(contestant->quantity_count <= SL_BENCH_QUANTITIES_MAX);
    for (uint32_t i = 0; i < contestant->quantity_count; i++) {
        const struct sl_bench_quantity *quantity = &contestant->quantities[i];
        contestant->figures[i] =
            sl_bench_report_figure(report, contestant->name, quantity->name, quantity->unit);
        sl_bench_figure_over(contestant->figures[i], contestant->transport);
    }
}

/* Shows the running contestant on one line that the next replaces, on a terminal only. */
static void show_progress(const char *name, uint64_t round, uint64_t rounds)
{
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[Kround %u of %u: %s ", (unsigned)round + 1, (unsigned)rounds,
                      name);
    }
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r\033[K");
    }
}

static int run_one(struct sl_bench_contestant *contestant, const struct sl_bench_common *common)
{
    double values[SL_BENCH_QUANTITIES_MAX];
    for (uint32_t i = 0; i < contestant->quantity_count; i++) {
        values[i] = NAN;
    }
    const int err = contestant->run(contestant->ctx, common, values);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < contestant->quantity_count; i++) {
        sl_assert(!isnan(values[i])); /* run() has filled them all */
        sl_bench_figure_sample(contestant->figures[i], values[i]);
    }
    return 0;
}

/* Keeps the samples of the other rounds. */
static void leave_out(struct sl_bench_contestant *contestants, uint32_t count, uint64_t disturbed)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t q = 0; q < contestants[i].quantity_count; q++) {
            struct sl_bench_figure *figure = contestants[i].figures[q];
            uint32_t kept = 0;
            for (uint32_t round = 0; round < figure->count; round++) {
                if ((disturbed >> round & 1) == 0) {
                    figure->samples[kept++] = figure->samples[round];
                }
            }
            figure->count = kept;
        }
    }
}

static void settle(struct sl_bench_contestant *contestants, uint32_t count, uint64_t rounds,
                   uint64_t disturbed, struct sl_bench_report *report)
{
    const uint32_t disturbed_count = (uint32_t)__builtin_popcountll(disturbed);
    const bool is_left_out = disturbed_count < rounds;
    if (is_left_out) {
        leave_out(contestants, count, disturbed);
    }
    sl_bench_report_disturbed(report, disturbed_count, is_left_out);
}

int sl_bench_contest_run(struct sl_bench_contestant *contestants, uint32_t count,
                         const struct sl_bench_common *common, struct sl_bench_report *report)
{
    for (uint32_t i = 0; i < count; i++) {
        add_figures(&contestants[i], report);
    }
    uint64_t disturbed = 0; /* rounds: bits */
    for (uint64_t round = 0; round < common->rounds; round++) {
        for (uint32_t turn = 0; turn < count; turn++) {
            struct sl_bench_contestant *contestant = &contestants[(turn + round) % count];
            show_progress(contestant->name, round, common->rounds);
            struct sl_bench_quiet quiet;
            sl_bench_quiet_begin(&quiet);
            const int err = run_one(contestant, common);
            disturbed |= (uint64_t)sl_bench_quiet_was_disturbed(&quiet) << round;
            clear_progress();
            if (err != 0) {
                sl_log_error("%s failed in round %u of %u: %s", contestant->name,
                             (unsigned)round + 1, (unsigned)common->rounds, sl_err_name(err));
                return err;
            }
        }
    }
    settle(contestants, count, common->rounds, disturbed, report);
    return 0;
}

uint32_t sl_bench_contest_add(struct sl_bench_contest *contest,
                              const struct sl_bench_contestant *contestant, const char *format, ...)
{
    sl_assert(contest->owns || contest->count == 0);
    char *name = NULL;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&name, format, arguments);
    va_end(arguments);
    void *grown =
        realloc(contest->contestants, (contest->count + 1) * sizeof *contest->contestants);
    if (length < 0 || grown == NULL) {
        sl_log_error("no memory for the contestants");
        exit(1);
    }
    contest->owns = true;
    contest->contestants = grown;
    contest->contestants[contest->count] = *contestant;
    contest->contestants[contest->count].name = name;
    return contest->count++;
}

int sl_bench_contest_report(struct sl_bench_contest *contest, const char *benchmark,
                            const char *setting,
                            void (*conclude)(void *ctx, struct sl_bench_report *report), void *ctx,
                            const struct sl_bench_common *common)
{
    struct sl_bench_report *report = sl_bench_report_create(benchmark, setting);
    int err = sl_bench_contest_run(contest->contestants, contest->count, common, report);
    if (err == 0 && conclude != NULL) {
        conclude(ctx, report);
    }
    err = err != 0 ? err : sl_bench_report_finish(report, common);
    sl_bench_report_destroy(&report);
    for (uint32_t i = 0; contest->owns && i < contest->count; i++) {
        free((char *)(uintptr_t)contest->contestants[i].name);
    }
    if (contest->owns) {
        free(contest->contestants);
        *contest = (struct sl_bench_contest){0};
    }
    return err;
}

const struct sl_bench_figure *sl_bench_contest_figure(const struct sl_bench_contest *contest,
                                                      const char *name, const char *quantity)
{
    for (uint32_t i = 0; i < contest->count; i++) {
        const struct sl_bench_contestant *contestant = &contest->contestants[i];
        for (uint32_t q = 0; q < contestant->quantity_count; q++) {
            if (strcmp(contestant->name, name) == 0 &&
                strcmp(contestant->quantities[q].name, quantity) == 0) {
                return contestant->figures[q];
            }
        }
    }
    return NULL;
}

void sl_bench_contest_ratio(const struct sl_bench_contest *contest, struct sl_bench_report *report,
                            const char *quantity, const char *name, const char *other, double least,
                            double most)
{
    const struct sl_bench_figure *a = sl_bench_contest_figure(contest, name, quantity);
    const struct sl_bench_figure *b = sl_bench_contest_figure(contest, other, quantity);
    char text[2 * SL_BENCH_NAME_BYTES + 8];
    (void)snprintf(text, sizeof text, "%s / %s", name, other);
    if (a != NULL && b != NULL) {
        sl_bench_report_ratio(report, text, a, b, least, most);
    }
}
