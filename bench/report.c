#include "bench/report.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/report_parts.h"
#include "core/assert.h"
#include "core/log.h"

#define PLOT_TIMEOUT_MS 60000
#define LIST_STEP       32 /* entries by which a list grows */

const double sl_bench_report_shares[SL_BENCH_SHARES] = {0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999};
const char *const sl_bench_report_share_names[SL_BENCH_SHARES] = {"p50",   "p90",    "p99",
                                                                  "p99.9", "p99.99", "p99.999"};

/* A benchmark that has no memory for its figures has nothing to go on for. */
void *sl_bench_report_must_have(void *memory)
{
    if (memory == NULL) {
        sl_log_error("no memory for the report");
        exit(1);
    }
    return memory;
}

/* Room for one more pointer in a list of `count`. */
void *sl_bench_report_grow(void *list, uint32_t count)
{
    return count % LIST_STEP != 0
               ? list
               : sl_bench_report_must_have(realloc(list, (count + LIST_STEP) * sizeof(void *)));
}

static void copy_name(char *to, size_t to_bytes, const char *from)
{
    (void)snprintf(to, to_bytes, "%s", from);
}

int sl_bench_report_create(const char *benchmark, const char *setting, struct sl_bench_report **out)
{
    struct sl_bench_report *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    report->benchmark = strdup(benchmark);
    report->setting = strdup(setting);
    if (report->benchmark == NULL || report->setting == NULL) {
        sl_bench_report_destroy(&report);
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_machine_read(&report->machine);
    *out = report;
    return 0;
}

void sl_bench_report_destroy(struct sl_bench_report **report)
{
    struct sl_bench_report *old = *report;
    *report = NULL;
    if (old == NULL) {
        return;
    }
    for (uint32_t i = 0; i < old->figure_count; i++) {
        free(old->figures[i]);
    }
    for (uint32_t i = 0; i < old->ratio_count; i++) {
        free(old->ratios[i]);
    }
    for (uint32_t i = 0; i < old->spread_count; i++) {
        free(old->spreads[i]->buckets);
        free(old->spreads[i]);
    }
    free(old->figures);
    free(old->ratios);
    free(old->spreads);
    free(old->benchmark);
    free(old->setting);
    free(old);
}

struct sl_bench_figure *sl_bench_report_figure(struct sl_bench_report *report, const char *name,
                                               const char *quantity, const char *unit)
{
    struct sl_bench_figure *figure = sl_bench_report_must_have(calloc(1, sizeof *figure));
    copy_name(figure->name, sizeof figure->name, name);
    copy_name(figure->quantity, sizeof figure->quantity, quantity);
    copy_name(figure->unit, sizeof figure->unit, unit);
    report->figures = sl_bench_report_grow(report->figures, report->figure_count);
    report->figures[report->figure_count++] = figure;
    return figure;
}

struct sl_bench_figure *sl_bench_report_add(struct sl_bench_report *report, const char *name,
                                            const char *quantity, const char *unit, double value)
{
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, quantity, unit);
    sl_bench_figure_sample(figure, value);
    return figure;
}

void sl_bench_figure_over(struct sl_bench_figure *figure, const char *transport)
{
    copy_name(figure->transport, sizeof figure->transport, transport == NULL ? "" : transport);
}

void sl_bench_figure_at(struct sl_bench_figure *figure, const char *x_name, double x)
{
    figure->on_curve = true;
    figure->x = x;
    copy_name(figure->x_name, sizeof figure->x_name, x_name);
}

void sl_bench_figure_sample(struct sl_bench_figure *figure, double value)
{
    sl_assert(figure->count < SL_BENCH_ROUNDS_MAX);
    figure->samples[figure->count++] = value;
}

struct sl_bench_ratio *sl_bench_report_new_ratio(struct sl_bench_report *report, const char *name,
                                                 double least, double most)
{
    struct sl_bench_ratio *ratio = sl_bench_report_must_have(calloc(1, sizeof *ratio));
    copy_name(ratio->name, sizeof ratio->name, name);
    ratio->least = least;
    ratio->most = most;
    report->ratios = sl_bench_report_grow(report->ratios, report->ratio_count);
    report->ratios[report->ratio_count++] = ratio;
    return ratio;
}

static struct sl_bench_ratio *divide(struct sl_bench_report *report, const char *name,
                                     const struct sl_bench_figure *a,
                                     const struct sl_bench_figure *b, double least, double most)
{
    sl_assert(a->count == b->count);
    struct sl_bench_ratio *ratio = sl_bench_report_new_ratio(report, name, least, most);
    ratio->count = a->count;
    for (uint32_t i = 0; i < a->count; i++) {
        ratio->samples[i] = a->samples[i] / b->samples[i];
    }
    return ratio;
}

const struct sl_bench_ratio *sl_bench_report_ratio_of_transports(struct sl_bench_report *report,
                                                                 const char *name,
                                                                 const struct sl_bench_figure *a,
                                                                 const struct sl_bench_figure *b,
                                                                 double least, double most)
{
    return divide(report, name, a, b, least, most);
}

static bool are_alike(const struct sl_bench_figure *a, const struct sl_bench_figure *b)
{
    return a->transport[0] == '\0' || b->transport[0] == '\0' ||
           strcmp(a->transport, b->transport) == 0;
}

const struct sl_bench_ratio *sl_bench_report_ratio(struct sl_bench_report *report, const char *name,
                                                   const struct sl_bench_figure *a,
                                                   const struct sl_bench_figure *b, double least,
                                                   double most)
{
    sl_assert(are_alike(a, b));
    struct sl_bench_ratio *ratio = divide(report, name, a, b, least, most);
    const struct sl_bench_figure *told = a->transport[0] != '\0' ? a : b;
    memcpy(ratio->transport, told->transport, sizeof ratio->transport);
    return ratio;
}

void sl_bench_report_disturbed(struct sl_bench_report *report, uint32_t rounds, bool are_left_out)
{
    if (are_left_out) {
        report->rounds_left_out += rounds;
    } else {
        report->rounds_disturbed += rounds;
    }
}

bool sl_bench_ratio_holds(const struct sl_bench_ratio *ratio)
{
    const double median = sl_bench_quantile(ratio->samples, ratio->count, 0.5);
    /* Written so that a ratio which is not a number holds nothing. */
    return (ratio->least == 0 || median >= ratio->least) &&
           (ratio->most == 0 || median <= ratio->most);
}

void sl_bench_report_histogram(struct sl_bench_report *report, const char *name,
                               const struct sl_metric_histogram *histogram)
{
    struct sl_bench_spread *spread = sl_bench_report_must_have(calloc(1, sizeof *spread));
    copy_name(spread->name, sizeof spread->name, name);
    spread->count = histogram->count;
    spread->max = histogram->max;
    for (uint32_t i = 0; i < SL_BENCH_SHARES; i++) {
        spread->quantiles[i] = sl_metric_quantile(histogram, sl_bench_report_shares[i]);
    }
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        struct sl_bench_bucket bucket;
        bucket.count = sl_metric_bucket(histogram, i, &bucket.upper);
        if (bucket.count == 0) {
            continue;
        }
        if (spread->bucket_count % LIST_STEP == 0) {
            spread->buckets = sl_bench_report_must_have(
                realloc(spread->buckets, (spread->bucket_count + LIST_STEP) * sizeof bucket));
        }
        spread->buckets[spread->bucket_count++] = bucket;
    }
    report->spreads = sl_bench_report_grow(report->spreads, report->spread_count);
    report->spreads[report->spread_count++] = spread;
}

/* By value; what is not a number (a ratio to nothing) last. */
static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}

double sl_bench_quantile(const double *samples, uint32_t count, double share)
{
    double sorted[SL_BENCH_ROUNDS_MAX];
    sl_assert(count > 0);
    sl_assert(count <= SL_BENCH_ROUNDS_MAX);
    sl_assert(share >= 0 && share <= 1);
    memcpy(sorted, samples, count * sizeof sorted[0]);
    qsort(sorted, count, sizeof sorted[0], compare_doubles);
    const double place = share * (count - 1);
    const uint32_t below = (uint32_t)place;
    const uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

struct sl_bench_summary sl_bench_report_summary(const double *samples, uint32_t count)
{
    return (struct sl_bench_summary){
        .low = sl_bench_quantile(samples, count, 0.25),
        .median = sl_bench_quantile(samples, count, 0.5),
        .high = sl_bench_quantile(samples, count, 0.75),
    };
}

int sl_bench_report_plot(const struct sl_bench_report *report, const struct sl_bench_common *common,
                         const char *directory)
{
    char python[SL_BENCH_PATH_BYTES], script[SL_BENCH_PATH_BYTES], json[64];
    if (!sl_bench_child_beside("starling-bench-plot", script)) {
        (void)snprintf(script, sizeof script, "%s", PLOT_SCRIPT);
    }
    const int fd = memfd_create("report", MFD_CLOEXEC);
    if (fd < 0 || !sl_bench_child_find("python3", python)) {
        sl_log_error("--plot needs python3 and memory");
        return SL_ERR_NOT_FOUND;
    }
    (void)snprintf(json, sizeof json, "/proc/%d/fd/%d", getpid(), fd);
    const char *const argv[] = {python, script, json, directory, NULL};
    const struct sl_bench_child_options options = {.argv = argv, .core = -1, .reads = true};
    struct sl_bench_child child;
    char *text = NULL;
    int err = sl_bench_report_write_json(report, common, json);
    err = err != 0 ? err : sl_bench_child_start(&options, &child);
    err = err != 0 ? err : sl_bench_child_collect(&child, PLOT_TIMEOUT_MS, &text);
    (void)close(fd);
    if (err == 0) {
        (void)fputs(text, stdout);
    } else {
        sl_log_error("%s: the charts cannot be drawn (the reason stands above)", directory);
    }
    free(text);
    return err;
}

static int compare_with(const struct sl_bench_report *report, const char *path)
{
    struct sl_bench_report *older;
    const int err = sl_bench_report_read_json(path, report->benchmark, &older);
    if (err == 0) {
        sl_bench_report_compare(report, older, path, stdout);
        sl_bench_report_destroy(&older);
    }
    return err;
}

int sl_bench_report_finish(struct sl_bench_report *report, const struct sl_bench_common *common)
{
    int err = 0;
    sl_bench_report_print(report, common, stdout);
    /* The older report is read before the new one is written: they may be the same file. */
    if (common->compare != NULL) {
        err = compare_with(report, common->compare);
    }
    if (common->json != NULL) {
        const int written = sl_bench_report_write_json(report, common, common->json);
        err = err != 0 ? err : written;
    }
    if (common->plot != NULL) {
        const int drawn = sl_bench_report_plot(report, common, common->plot);
        err = err != 0 ? err : drawn;
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        sl_log_error("the report cannot be printed: %s", strerror(errno));
        err = err != 0 ? err : SL_ERR_IO;
    }
    return err;
}

/* A file, or a folder for charts. What is there already is not touched yet: the run may fail. */
static int check_writable(const char *path)
{
    struct stat about;
    char folder[PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    const char *where = stat(path, &about) == 0 ? path : dirname(folder);
    if (access(where, W_OK) != 0) {
        sl_log_error("%s: the report cannot be written: %s", path, strerror(errno));
        return SL_ERR_IO;
    }
    return 0;
}

static int check_plot(const char *directory)
{
    struct stat about;
    if (stat(directory, &about) == 0 && !S_ISDIR(about.st_mode)) {
        sl_log_error("--plot %s: is no directory", directory);
        return SL_ERR_IO;
    }
    char path[SL_BENCH_PATH_BYTES];
    if (!sl_bench_child_find("gnuplot", path)) {
        sl_log_error("--plot needs gnuplot, which is not installed: apt-get install gnuplot-nox");
        return SL_ERR_NOT_FOUND;
    }
    return check_writable(directory);
}

int sl_bench_report_check(const char *benchmark, const struct sl_bench_common *common)
{
    struct sl_bench_report *older;
    if (common->compare != NULL) {
        const int err = sl_bench_report_read_json(common->compare, benchmark, &older);
        if (err != 0) {
            return err;
        }
        sl_bench_report_destroy(&older);
    }
    if (common->json != NULL && check_writable(common->json) != 0) {
        return SL_ERR_IO;
    }
    return common->plot == NULL ? 0 : check_plot(common->plot);
}
