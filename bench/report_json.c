/* A report as JSON, there and back. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/report_parts.h"
#include "core/log.h"

#define FORMAT "starling-bench report 1"

/* ---- Writing --------------------------------------------------------------------------------- */

/* JSON has no word for what is not a number. */
static json_t *real_json(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *samples_json(const double *samples, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (json_array_append_new(array, real_json(samples[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* Adds the members of `more` to object; takes both, and gives back object or NULL. */
static json_t *with(json_t *object, json_t *more)
{
    const bool failed = object == NULL || more == NULL || json_object_update(object, more) != 0;
    json_decref(more);
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static json_t *summary_json(const double *samples, uint32_t count)
{
    const struct sl_bench_summary summary = sl_bench_report_summary(samples, count);
    return json_pack("{s:o, s:o, s:o, s:o}", "median", real_json(summary.median), "low",
                     real_json(summary.low), "high", real_json(summary.high), "samples",
                     samples_json(samples, count));
}

static json_t *figure_json(const void *item)
{
    const struct sl_bench_figure *figure = item;
    json_t *object =
        with(json_pack("{s:s, s:s, s:s, s:s}", "name", figure->name, "quantity", figure->quantity,
                       "unit", figure->unit, "transport", figure->transport),
             summary_json(figure->samples, figure->count));
    return figure->on_curve
               ? with(object, json_pack("{s:s, s:f}", "x_name", figure->x_name, "x", figure->x))
               : object;
}

static json_t *ratio_json(const void *item)
{
    const struct sl_bench_ratio *ratio = item;
    return with(json_pack("{s:s, s:s, s:f, s:f, s:b}", "name", ratio->name, "transport",
                          ratio->transport, "least", ratio->least, "most", ratio->most, "holds",
                          sl_bench_ratio_holds(ratio)),
                summary_json(ratio->samples, ratio->count));
}

static json_t *spread_json(const void *item)
{
    const struct sl_bench_spread *spread = item;
    json_t *quantiles = json_object();
    json_t *buckets = json_array();
    int failed = 0;
    for (uint32_t i = 0; i < SL_BENCH_SHARES; i++) {
        failed |= json_object_set_new(quantiles, sl_bench_report_share_names[i],
                                      json_integer((json_int_t)spread->quantiles[i]));
    }
    for (uint32_t i = 0; i < spread->bucket_count; i++) {
        failed |=
            json_array_append_new(buckets, json_pack("[I, I]", (json_int_t)spread->buckets[i].upper,
                                                     (json_int_t)spread->buckets[i].count));
    }
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "name", spread->name, "unit", "ns",
                               "count", (json_int_t)spread->count, "max", (json_int_t)spread->max,
                               "quantiles", quantiles, "buckets", buckets);
    if (failed != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* An array of what `to_json` makes of each. */
static json_t *list_json(void *items, uint32_t count, json_t *(*to_json)(const void *item))
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        if (json_array_append_new(array, to_json(((void **)items)[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *machine_json(const struct sl_bench_machine *machine,
                            const struct sl_bench_common *common)
{
    char nearness[96];
    sl_bench_machine_nearness(common->server_core, common->client_core, nearness, sizeof nearness);
    return json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:i, s:i, s:s}", "cpu", machine->cpu,
                     "cores", (int)machine->cores, "cores_usable", (int)machine->cores_usable,
                     "kernel", machine->kernel, "huge_pages", machine->huge_pages, "congestion",
                     machine->congestion, "build", machine->build, "server_core",
                     common->server_core, "client_core", common->client_core, "nearness", nearness);
}

static json_t *report_json(const struct sl_bench_report *report,
                           const struct sl_bench_common *common)
{
    char written[32];
    const time_t now = time(NULL);
    struct tm utc;
    (void)strftime(written, sizeof written, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "format", FORMAT,
        "benchmark", report->benchmark, "setting", report->setting, "written", written, "machine",
        machine_json(&report->machine, common), "rounds", (json_int_t)common->rounds,
        "rounds_left_out", (json_int_t)report->rounds_left_out, "rounds_disturbed",
        (json_int_t)report->rounds_disturbed, "seconds", common->seconds, "warm_up",
        common->warm_up, "figures", list_json(report->figures, report->figure_count, figure_json),
        "ratios", list_json(report->ratios, report->ratio_count, ratio_json), "distributions",
        list_json(report->spreads, report->spread_count, spread_json));
}

int sl_bench_report_write_json(const struct sl_bench_report *report,
                               const struct sl_bench_common *common, const char *path)
{
    json_t *root = report_json(report, common);
    if (root == NULL) {
        sl_log_error("%s: the report cannot be made into JSON: no memory, or a name that is not "
                     "UTF-8",
                     path);
        return SL_ERR_NO_MEMORY;
    }
    errno = 0;
    const int failed = json_dump_file(root, path, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (failed != 0) {
        sl_log_error("%s: the report cannot be written: %s", path, strerror(errno));
        return SL_ERR_IO;
    }
    return 0;
}

/* ---- Reading --------------------------------------------------------------------------------- */

static int read_samples(const json_t *array, double *samples, uint32_t *count)
{
    const size_t size = json_array_size(array);
    if (size == 0 || size > SL_BENCH_ROUNDS_MAX) {
        return SL_ERR_INVALID;
    }
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_number(value) && !json_is_null(value)) {
            return SL_ERR_INVALID;
        }
        samples[i] = json_is_null(value) ? (double)NAN : json_number_value(value);
    }
    *count = (uint32_t)size;
    return 0;
}

static int read_figure(json_t *object, struct sl_bench_report *report)
{
    const char *name;
    const char *quantity;
    const char *unit;
    const char *x_name = NULL;
    double x = 0;
    const char *transport = NULL;
    json_t *samples;
    if (json_unpack(object, "{s:s, s:s, s:s, s:o, s?s, s?F, s?s}", "name", &name, "quantity",
                    &quantity, "unit", &unit, "samples", &samples, "x_name", &x_name, "x", &x,
                    "transport", &transport) != 0) {
        return SL_ERR_INVALID;
    }
    struct sl_bench_figure *figure = sl_bench_report_figure(report, name, quantity, unit);
    sl_bench_figure_over(figure, transport);
    if (x_name != NULL) {
        sl_bench_figure_at(figure, x_name, x);
    }
    return read_samples(samples, figure->samples, &figure->count);
}

static int read_ratio(json_t *object, struct sl_bench_report *report)
{
    const char *name;
    double least;
    double most;
    const char *transport = "";
    json_t *samples;
    if (json_unpack(object, "{s:s, s:F, s:F, s:o, s?s}", "name", &name, "least", &least, "most",
                    &most, "samples", &samples, "transport", &transport) != 0) {
        return SL_ERR_INVALID;
    }
    struct sl_bench_ratio *ratio = sl_bench_report_new_ratio(report, name, least, most);
    (void)snprintf(ratio->transport, sizeof ratio->transport, "%s", transport);
    return read_samples(samples, ratio->samples, &ratio->count);
}

static int read_list(const json_t *root, const char *member,
                     int (*read)(json_t *object, struct sl_bench_report *report),
                     struct sl_bench_report *report, const char *path)
{
    const json_t *array = json_object_get(root, member);
    if (!json_is_array(array)) {
        sl_log_error("%s: \"%s\" is no list", path, member);
        return SL_ERR_INVALID;
    }
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (read(json_array_get(array, i), report) != 0) {
            sl_log_error("%s: \"%s\"[%zu] lacks a name, a number, or 1 to %d samples", path, member,
                         i, SL_BENCH_ROUNDS_MAX);
            return SL_ERR_INVALID;
        }
    }
    return 0;
}

/* Another machine's line takes the place of ours. */
static int read_machine(json_t *root, struct sl_bench_machine *out, const char *path)
{
    const char *cpu;
    const char *kernel;
    const char *build;
    if (json_unpack(root, "{s:{s:s, s:s, s:s}}", "machine", "cpu", &cpu, "kernel", &kernel, "build",
                    &build) != 0) {
        sl_log_error("%s: \"machine\" lacks cpu, kernel or build", path);
        return SL_ERR_INVALID;
    }
    *out = (struct sl_bench_machine){0};
    (void)snprintf(out->cpu, sizeof out->cpu, "%s", cpu);
    (void)snprintf(out->kernel, sizeof out->kernel, "%s", kernel);
    (void)snprintf(out->build, sizeof out->build, "%s", build);
    return 0;
}

static int read_report(json_t *root, const char *path, const char *benchmark,
                       struct sl_bench_report **out)
{
    const char *format = NULL;
    const char *about = NULL;
    const char *setting = NULL;
    json_int_t left_out = 0;
    json_int_t disturbed = 0;
    if (json_unpack(root, "{s:s, s:s, s:s, s?I, s?I}", "format", &format, "benchmark", &about,
                    "setting", &setting, "rounds_left_out", &left_out, "rounds_disturbed",
                    &disturbed) != 0 ||
        strcmp(format, FORMAT) != 0) {
        sl_log_error("%s: is no report of starling-bench: its \"format\" is not \"%s\"", path,
                     FORMAT);
        return SL_ERR_INVALID;
    }
    if (strcmp(about, benchmark) != 0) {
        sl_log_error("%s: is a report of \"%s\"; \"%s\" can only be compared with its own", path,
                     about, benchmark);
        return SL_ERR_INVALID;
    }
    struct sl_bench_report *report;
    int err = sl_bench_report_create(about, setting, &report);
    if (err != 0) {
        sl_log_error("%s: no memory to read it", path);
        return err;
    }
    report->rounds_left_out = (uint32_t)left_out;
    report->rounds_disturbed = (uint32_t)disturbed;
    err = read_machine(root, &report->machine, path);
    err = err != 0 ? err : read_list(root, "figures", read_figure, report, path);
    err = err != 0 ? err : read_list(root, "ratios", read_ratio, report, path);
    if (err != 0) {
        sl_bench_report_destroy(&report);
        return err;
    }
    *out = report;
    return 0;
}

int sl_bench_report_read_json(const char *path, const char *benchmark, struct sl_bench_report **out)
{
    json_error_t error;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        sl_log_error("%s: the older report cannot be opened: %s", path, strerror(errno));
        return sl_err_from_errno(errno);
    }
    json_t *root = json_loadf(file, 0, &error);
    (void)fclose(file);
    if (root == NULL) {
        sl_log_error("%s:%d: is no JSON: %s", path, error.line, error.text);
        return SL_ERR_INVALID;
    }
    const int err = read_report(root, path, benchmark, out);
    json_decref(root);
    return err;
}
