#include "bench/report.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/child.h"
#include "core/assert.h"
#include "core/log.h"

#define SCRIPT_TIMEOUT_MS 120000
#define LIST_STEP         32 /* entries by which the list of figures grows */

/* A benchmark that has no memory for its figures cannot continue. */
static void *must_have(void *memory)
{
    if (memory == NULL) {
        sl_log_error("no memory for the report");
        exit(1);
    }
    return memory;
}

static void append(json_t *array, json_t *item)
{
    if (json_array_append_new(array, item) != 0) {
        (void)must_have(NULL);
    }
}

static void copy_name(char *to, size_t to_bytes, const char *from)
{
    (void)snprintf(to, to_bytes, "%s", from);
}

struct sl_bench_report *sl_bench_report_create(const char *benchmark, const char *setting)
{
    struct sl_bench_report *report = must_have(calloc(1, sizeof *report));
    report->benchmark = must_have(strdup(benchmark));
    report->setting = must_have(strdup(setting));
    report->ratios = must_have(json_array());
    report->distributions = must_have(json_array());
    return report;
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
    free(old->figures);
    json_decref(old->ratios);
    json_decref(old->distributions);
    free(old->benchmark);
    free(old->setting);
    free(old);
}

/* ---- Figures --------------------------------------------------------------------------------- */

struct sl_bench_figure *sl_bench_report_figure(struct sl_bench_report *report, const char *name,
                                               const char *quantity, const char *unit)
{
    struct sl_bench_figure *figure = must_have(calloc(1, sizeof *figure));
    copy_name(figure->name, sizeof figure->name, name);
    copy_name(figure->quantity, sizeof figure->quantity, quantity);
    copy_name(figure->unit, sizeof figure->unit, unit);
    if (report->figure_count % LIST_STEP == 0) {
        report->figures =
            must_have(realloc(report->figures, (report->figure_count + LIST_STEP) * sizeof figure));
    }
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

/* ---- Ratios, distributions ------------------------------------------------------------------- */

/* JSON has no word for what is not a number. */
static json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void divide(struct sl_bench_report *report, const char *name, const char *transport,
                   const struct sl_bench_figure *a, const struct sl_bench_figure *b, double least,
                   double most)
{
    sl_assert(a->count == b->count);
    json_t *samples = must_have(json_array());
    for (uint32_t i = 0; i < a->count; i++) {
        append(samples, real_json(a->samples[i] / b->samples[i]));
    }
    append(report->ratios, json_pack("{s:s, s:s, s:f, s:f, s:o}", "name", name, "transport",
                                     transport, "least", least, "most", most, "samples", samples));
}

void sl_bench_report_ratio_of_transports(struct sl_bench_report *report, const char *name,
                                         const struct sl_bench_figure *a,
                                         const struct sl_bench_figure *b, double least, double most)
{
    divide(report, name, "", a, b, least, most);
}

void sl_bench_report_ratio(struct sl_bench_report *report, const char *name,
                           const struct sl_bench_figure *a, const struct sl_bench_figure *b,
                           double least, double most)
{
    const bool a_has_one = a->transport[0] != '\0';
    sl_assert(!a_has_one || b->transport[0] == '\0' || strcmp(a->transport, b->transport) == 0);
    divide(report, name, a_has_one ? a->transport : b->transport, a, b, least, most);
}

void sl_bench_report_disturbed(struct sl_bench_report *report, uint32_t rounds, bool are_left_out)
{
    *(are_left_out ? &report->rounds_left_out : &report->rounds_disturbed) += rounds;
}

void sl_bench_report_histogram(struct sl_bench_report *report, const char *name,
                               const struct sl_metric_histogram *histogram)
{
    json_t *buckets = must_have(json_array());
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        const uint64_t count = sl_metric_bucket(histogram, i, &upper);
        if (count > 0) {
            append(buckets, json_pack("[I, I]", (json_int_t)upper, (json_int_t)count));
        }
    }
    append(report->distributions,
           json_pack("{s:s, s:I, s:I, s:o}", "name", name, "count", (json_int_t)histogram->count,
                     "max", (json_int_t)histogram->max, "buckets", buckets));
}

/* ---- For bench/report.py --------------------------------------------------------------------- */

static json_t *figure_json(const struct sl_bench_figure *figure)
{
    json_t *samples = must_have(json_array());
    for (uint32_t i = 0; i < figure->count; i++) {
        append(samples, real_json(figure->samples[i]));
    }
    json_t *object = must_have(json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", figure->name,
                                         "quantity", figure->quantity, "unit", figure->unit,
                                         "transport", figure->transport, "samples", samples));
    if (figure->on_curve) {
        (void)json_object_set_new(object, "x_name", json_string(figure->x_name));
        (void)json_object_set_new(object, "x", json_real(figure->x));
    }
    return object;
}

void sl_bench_report_build(char *text, size_t text_bytes)
{
    /* __VERSION__ is "12.2.0" of gcc, and begins with a word ("Clang 14") of others. */
    const char *compiler = isdigit((unsigned char)__VERSION__[0]) ? "gcc " : "";
    (void)snprintf(text, text_bytes, "starling %s, %s%s, %s", STARLING_VERSION, compiler,
                   __VERSION__, STARLING_BUILD_TYPE);
}

int sl_bench_report_write(const struct sl_bench_report *report,
                          const struct sl_bench_common *common, const char *path)
{
    char build[160];
    sl_bench_report_build(build, sizeof build);
    json_t *figures = must_have(json_array());
    for (uint32_t i = 0; i < report->figure_count; i++) {
        append(figures, figure_json(report->figures[i]));
    }
    json_t *root = must_have(json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:i, s:i, s:o, s:O, s:O}", "benchmark",
        report->benchmark, "setting", report->setting, "build", build, "rounds",
        (json_int_t)common->rounds, "rounds_left_out", (json_int_t)report->rounds_left_out,
        "rounds_disturbed", (json_int_t)report->rounds_disturbed, "seconds", common->seconds,
        "warm_up", common->warm_up, "server_core", common->server_core, "client_core",
        common->client_core, "figures", figures, "ratios", report->ratios, "distributions",
        report->distributions));
    const int failed = json_dump_file(root, path, JSON_REAL_PRECISION(17));
    json_decref(root);
    if (failed != 0) {
        sl_log_error("%s: the report cannot be written: %s", path, strerror(errno));
        return SL_ERR_IO;
    }
    return 0;
}

/* Runs "report.py COMMAND SUBJECT" with the options of the report, and prints what it prints. */
static int run_script(const char *command, const char *subject,
                      const struct sl_bench_common *common)
{
    struct sl_bench_arguments argv = {0};
    int err = sl_bench_child_script("report.py", &argv);
    if (err != 0) {
        return err;
    }
    sl_bench_arguments_add(&argv, "%s", command);
    sl_bench_arguments_add(&argv, "%s", subject);
    const char *const options[][2] = {
        {"json", common->json}, {"compare", common->compare}, {"plot", common->plot}};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i][1] != NULL) {
            sl_bench_arguments_add(&argv, "--%s=%s", options[i][0], options[i][1]);
        }
    }
    const struct sl_bench_child_options child_options = {
        .argv = argv.items, .core = -1, .reads = true};
    struct sl_bench_child child;
    char *text = NULL;
    err = sl_bench_child_start(&child_options, &child);
    err = err != 0 ? err : sl_bench_child_collect(&child, SCRIPT_TIMEOUT_MS, &text);
    if (err == 0 && (fputs(text, stdout) < 0 || fflush(stdout) != 0)) {
        sl_log_error("the report cannot be printed: %s", strerror(errno));
        err = SL_ERR_IO;
    }
    free(text);
    return err;
}

int sl_bench_report_finish(struct sl_bench_report *report, const struct sl_bench_common *common)
{
    char path[64];
    const int fd = memfd_create("report", MFD_CLOEXEC);
    if (fd < 0) {
        sl_log_error("no memory for the report: %s", strerror(errno));
        return SL_ERR_NO_MEMORY;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
    int err = sl_bench_report_write(report, common, path);
    err = err != 0 ? err : run_script("finish", path, common);
    (void)close(fd);
    return err;
}

int sl_bench_report_check(const char *benchmark, const struct sl_bench_common *common)
{
    const bool asks = common->json != NULL || common->compare != NULL || common->plot != NULL;
    return asks ? run_script("check", benchmark, common) : 0;
}
