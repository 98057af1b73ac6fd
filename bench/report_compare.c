/* Compares a report with an older one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/report_parts.h"

#define SPREAD_SAMPLES_LEAST 3 /* fewer have no spread to speak of */

/* Whether more of a unit is better: 1, worse: -1, or neither: 0. */
static int direction_of(const char *unit)
{
    static const char *const times[] = {"s", "ms", "us", "ns"};
    const size_t length = strlen(unit);
    if (length >= 2 && strcmp(unit + length - 2, "/s") == 0) {
        return 1;
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        if (strcmp(unit, times[i]) == 0) {
            return -1;
        }
    }
    return 0;
}

/* "" where the change is within what the rounds themselves differ by. */
static const char *verdict(const struct sl_bench_summary *now, uint32_t now_count,
                           const struct sl_bench_summary *then, uint32_t then_count, int direction)
{
    const double change = now->median - then->median;
    if (now_count < SPREAD_SAMPLES_LEAST || then_count < SPREAD_SAMPLES_LEAST ||
        !(fabs(change) > now->high - now->low && fabs(change) > then->high - then->low)) {
        return "";
    }
    return direction == 0 ? "* differs" : change * direction > 0 ? "* better" : "* WORSE";
}

static bool same_figure(const struct sl_bench_figure *a, const struct sl_bench_figure *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->quantity, b->quantity) == 0 &&
           strcmp(a->unit, b->unit) == 0 && a->on_curve == b->on_curve &&
           (!a->on_curve || (strcmp(a->x_name, b->x_name) == 0 && a->x == b->x));
}

static const struct sl_bench_figure *find_figure(const struct sl_bench_report *report,
                                                 const struct sl_bench_figure *wanted)
{
    for (uint32_t i = 0; i < report->figure_count; i++) {
        if (same_figure(report->figures[i], wanted)) {
            return report->figures[i];
        }
    }
    return NULL;
}

static const struct sl_bench_ratio *find_ratio(const struct sl_bench_report *report,
                                               const char *name)
{
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        if (strcmp(report->ratios[i]->name, name) == 0) {
            return report->ratios[i];
        }
    }
    return NULL;
}

/* The samples of a figure, or of a ratio, then and now. */
struct pair {
    const char *label, *quantity, *unit;
    const double *then, *now;
    uint32_t then_count, now_count;
    int direction;
};

static void add_row(struct sl_bench_sheet *sheet, const struct pair *pair)
{
    const struct sl_bench_summary then = sl_bench_report_summary(pair->then, pair->then_count);
    const struct sl_bench_summary now = sl_bench_report_summary(pair->now, pair->now_count);
    char scaled[32];
    char texts[3][SL_BENCH_VALUE_BYTES];
    const double divisor = sl_bench_report_scale(then.median, pair->unit, scaled, sizeof scaled);
    sl_bench_report_value(then.median / divisor, texts[0]);
    sl_bench_report_value(now.median / divisor, texts[1]);
    (void)snprintf(texts[2], sizeof texts[2], "%.3f", now.median / then.median);
    sl_bench_sheet_row(
        sheet,
        (const char *[]){pair->label, pair->quantity, texts[0], texts[1], scaled,
                         then.median == now.median ? "1.000" : texts[2],
                         verdict(&now, pair->now_count, &then, pair->then_count, pair->direction)});
}

/* Returns how many have a counterpart. */
static uint32_t add_rows(struct sl_bench_sheet *sheet, const struct sl_bench_report *report,
                         const struct sl_bench_report *older)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *now = report->figures[i];
        const struct sl_bench_figure *then = find_figure(older, now);
        char label[SL_BENCH_LABEL_BYTES];
        if (then != NULL) {
            sl_bench_report_label(now, label);
            add_row(sheet,
                    &(struct pair){label, now->quantity, now->unit, then->samples, now->samples,
                                   then->count, now->count, direction_of(now->unit)});
            found++;
        }
    }
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        const struct sl_bench_ratio *now = report->ratios[i];
        const struct sl_bench_ratio *then = find_ratio(older, now->name);
        if (then != NULL) {
            add_row(sheet, &(struct pair){now->name, "ratio", "", then->samples, now->samples,
                                          then->count, now->count,
                                          now->least != 0  ? 1
                                          : now->most != 0 ? -1
                                                           : 0});
            found++;
        }
    }
    return found;
}

static void print_difference(const char *what, const char *then, const char *now, FILE *to)
{
    if (strcmp(then, now) != 0) {
        (void)fprintf(to, "  %-9s %s; now %s\n", what, then, now);
    }
}

void sl_bench_report_compare(const struct sl_bench_report *report,
                             const struct sl_bench_report *older, const char *path, FILE *to)
{
    struct sl_bench_sheet sheet;
    (void)fprintf(to, "\ncompared with %s\n", path);
    print_difference("setting", older->setting, report->setting, to);
    print_difference("machine", older->machine.cpu, report->machine.cpu, to);
    print_difference("kernel", older->machine.kernel, report->machine.kernel, to);
    print_difference("build", older->machine.build, report->machine.build, to);
    sl_bench_sheet_init(&sheet, "llrrlrl");
    sl_bench_sheet_row(
        &sheet, (const char *[]){"what", "quantity", "then", "now", "unit", "now / then", ""});
    const uint32_t found = add_rows(&sheet, report, older);
    if (found == 0) {
        sl_bench_sheet_row(&sheet, (const char *[]){"nothing in common", 0, 0, 0, 0, 0, 0});
    }
    sl_bench_sheet_print(&sheet, to);
    const uint32_t here = report->figure_count + report->ratio_count;
    const uint32_t there = older->figure_count + older->ratio_count;
    if (found < here || found < there) {
        (void)fprintf(to, "  without a counterpart: %u here, %u there\n", here - found,
                      there > found ? there - found : 0);
    }
    (void)fprintf(to, "  * differs by more than the quartiles of either lie apart\n");
}
