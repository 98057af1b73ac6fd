#include "bench/report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/build.h"
#include "bench/child.h"
#include "core/log.h"

#define SCRIPT_TIMEOUT_MS 120000

struct sl_bench_report {
    json_t *root, *figures, *distributions; /* the last two are in the first */
};

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

struct sl_bench_report *sl_bench_report_create(const char *benchmark, const char *setting)
{
    struct sl_bench_report *report = must_have(malloc(sizeof *report));
    report->figures = must_have(json_array());
    report->distributions = must_have(json_array());
    report->root = must_have(
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:o, s:[], s:o}", "benchmark",
                  benchmark, "setting", setting, "build", sl_bench_build(), "rounds", 0,
                  "rounds_left_out", 0, "rounds_disturbed", 0, "seconds", 0, "warm_up", 0,
                  "figures", report->figures, "ratios", "distributions", report->distributions));
    return report;
}

void sl_bench_report_figure(struct sl_bench_report *report, const struct sl_bench_figure *figure)
{
    json_t *samples = must_have(json_array());
    for (uint32_t i = 0; i < figure->count; i++) {
        const double value = figure->samples[i];
        append(samples, isfinite(value) ? json_real(value) : json_null());
    }
    json_t *object = must_have(
        json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", figure->name, "quantity", figure->quantity,
                  "unit", figure->unit, "transport",
                  figure->transport == NULL ? "" : figure->transport, "samples", samples));
    if (figure->x_name != NULL) {
        (void)json_object_set_new(object, "x_name", json_string(figure->x_name));
        (void)json_object_set_new(object, "x", json_real(figure->x));
    }
    append(report->figures, object);
}

void sl_bench_report_add(struct sl_bench_report *report, const char *name, const char *quantity,
                         const char *unit, double value)
{
    sl_bench_report_figure(
        report,
        &(struct sl_bench_figure){
            .name = name, .quantity = quantity, .unit = unit, .samples = &value, .count = 1});
}

void sl_bench_report_times(struct sl_bench_report *report, const char *name,
                           const struct sl_metric_histogram *times)
{
    json_t *buckets = must_have(json_array());
    for (uint32_t i = 0; i < SL_METRIC_BUCKETS; i++) {
        uint64_t upper;
        const uint64_t count = sl_metric_bucket(times, i, &upper);
        if (count > 0) {
            append(buckets, json_pack("[I, I]", (json_int_t)upper, (json_int_t)count));
        }
    }
    append(report->distributions,
           json_pack("{s:s, s:I, s:I, s:o}", "name", name, "count", (json_int_t)times->count, "max",
                     (json_int_t)times->max, "buckets", buckets));
}

/* Runs "report.py finish PATH", which prints. */
static int run_script(const char *path, const struct sl_bench_common *common)
{
    struct sl_bench_arguments arguments = {0};
    char script[SL_BENCH_PATH_BYTES];
    pid_t pid;
    sl_bench_child_script("report.py", script);
    sl_bench_arguments_add(&arguments, "python3");
    sl_bench_arguments_add(&arguments, "%s", script);
    sl_bench_arguments_add(&arguments, "finish");
    sl_bench_arguments_add(&arguments, "%s", path);
    if (common->json != NULL) {
        sl_bench_arguments_add(&arguments, "--json=%s", common->json);
    }
    const int err = sl_bench_child_start(&arguments, true, &pid);
    return err != 0 ? err : sl_bench_child_wait(&pid, SCRIPT_TIMEOUT_MS);
}

int sl_bench_report_finish(struct sl_bench_report **report, const struct sl_bench_common *common)
{
    json_t *root = (*report)->root;
    char path[64];
    (void)json_object_set_new(root, "server_core", json_integer(common->server_core));
    (void)json_object_set_new(root, "client_core", json_integer(common->client_core));
    const int fd = memfd_create("report", MFD_CLOEXEC);
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), fd);
    int err = fd < 0 || json_dumpfd(root, fd, JSON_REAL_PRECISION(17)) != 0 ? SL_ERR_IO : 0;
    if (err != 0) {
        sl_log_error("the report cannot be written: %s", strerror(errno));
    }
    err = err != 0 ? err : run_script(path, common);
    if (fd >= 0) {
        (void)close(fd);
    }
    json_decref(root);
    free(*report);
    *report = NULL;
    return err;
}
