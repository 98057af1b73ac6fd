/* What has changed since an older report. */
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

static void add_row(struct sl_bench_sheet *sheet, const char *label, const char *quantity,
                    const char *unit, const struct sl_bench_summary *then,
                    const struct sl_bench_summary *now, const char *mark)
{
    char scaled[32];
    char texts[3][SL_BENCH_VALUE_BYTES];
    const double divisor = sl_bench_report_scale(then->median, unit, scaled, sizeof scaled);
    sl_bench_report_value(then->median / divisor, texts[0]);
    sl_bench_report_value(now->median / divisor, texts[1]);
    (void)snprintf(texts[2], sizeof texts[2], "%.3f", now->median / then->median);
    sl_bench_sheet_row(sheet,
                       (const char *[]){label, quantity, texts[0], texts[1], scaled,
                                        then->median == now->median ? "1.000" : texts[2], mark});
}

static uint32_t add_figures(struct sl_bench_sheet *sheet, const struct sl_bench_report *report,
                            const struct sl_bench_report *older)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        const struct sl_bench_figure *before = find_figure(older, figure);
        char label[SL_BENCH_LABEL_BYTES];
        if (before == NULL) {
            continue;
        }
        const struct sl_bench_summary now = sl_bench_report_summary(figure->samples, figure->count);
        const struct sl_bench_summary then =
            sl_bench_report_summary(before->samples, before->count);
        sl_bench_report_label(figure, label);
        add_row(sheet, label, figure->quantity, figure->unit, &then, &now,
                verdict(&now, figure->count, &then, before->count, direction_of(figure->unit)));
        found++;
    }
    return found;
}

static uint32_t add_ratios(struct sl_bench_sheet *sheet, const struct sl_bench_report *report,
                           const struct sl_bench_report *older)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        const struct sl_bench_ratio *ratio = report->ratios[i];
        const struct sl_bench_ratio *before = find_ratio(older, ratio->name);
        if (before == NULL) {
            continue;
        }
        const struct sl_bench_summary now = sl_bench_report_summary(ratio->samples, ratio->count);
        const struct sl_bench_summary then =
            sl_bench_report_summary(before->samples, before->count);
        const int direction = ratio->least != 0 ? 1 : ratio->most != 0 ? -1 : 0;
        add_row(sheet, ratio->name, "ratio", "", &then, &now,
                verdict(&now, ratio->count, &then, before->count, direction));
        found++;
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
    const uint32_t found = add_figures(&sheet, report, older) + add_ratios(&sheet, report, older);
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
