#include "programs/serve/http/http_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/clock.h"

#define PREFIX "starling_serve_"

static const char *const results[SL_SERVE_RESULTS] = {
    [SL_SERVE_ANSWERED] = "answered", [SL_SERVE_REFUSED] = "refused",
    [SL_SERVE_LATE] = "late",         [SL_SERVE_INVALID] = "invalid",
    [SL_SERVE_FAILED] = "failed",     [SL_SERVE_CANCELLED] = "cancelled",
};

/* Upper ends of the buckets. */
static const uint64_t bounds_us[SL_HTTP_METRICS_BUCKETS] = {
    500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000, 10000000};

static struct sl_http_metrics_model *find(struct sl_http_metrics *metrics, const char *name,
                                          bool is_known)
{
    for (uint32_t i = 0; i < metrics->model_count; i++) {
        if (strcmp(metrics->models[i].name, name) == 0) {
            return &metrics->models[i];
        }
    }
    if (!is_known || metrics->model_count == SL_HTTP_METRICS_MODELS ||
        !sl_array_make_room(&metrics->models, &metrics->model_capacity, metrics->model_count,
                            sizeof *metrics->models)) {
        return &metrics->others;
    }
    struct sl_http_metrics_model *made = &metrics->models[metrics->model_count++];
    memset(made, 0, sizeof *made);
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

void sl_http_metrics_count(struct sl_http_metrics *metrics, const struct sl_serve_request *request,
                           bool is_known, uint64_t now_ns)
{
    struct sl_http_metrics_model *model = find(metrics, request->model, is_known);
    const uint64_t us = (now_ns - request->arrived_ns) / SL_CLOCK_NS_PER_US;
    uint32_t bucket = 0;
    model->results[sl_serve_request_result(request->answer.err)]++;
    if (request->answer.err != 0) {
        return;
    }
    while (bucket < SL_HTTP_METRICS_BUCKETS && us > bounds_us[bucket]) {
        bucket++;
    }
    model->buckets[bucket]++;
    model->us += us;
    metrics->phase_us[0] += request->answer.queue_us;
    metrics->phase_us[1] += request->answer.load_us;
    metrics->phase_us[2] += request->answer.compute_us;
}

static void write_head(FILE *file, const char *name, const char *type, const char *help)
{
    (void)fprintf(file, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, type);
}

/* A line of a model, whose name may have quotation marks; label: NULL: no other one. */
static void http_metrics_write_line(FILE *file, const char *name, const char *model,
                                    const char *label, const char *value, double number)
{
    (void)fprintf(file, PREFIX "%s{model=\"", name);
    for (; *model != '\0'; model++) {
        (void)fprintf(file, "%s%c", *model == '"' || *model == '\\' ? "\\" : "", *model);
    }
    if (label != NULL) {
        (void)fprintf(file, "\",%s=\"%s", label, value);
    }
    (void)fprintf(file, "\"} %.15g\n", number);
}

static void write_results(const struct sl_http_metrics_model *model, FILE *file)
{
    for (uint32_t i = 0; i < SL_SERVE_RESULTS; i++) {
        http_metrics_write_line(file, "model_requests_total", model->name, "result", results[i],
                                (double)model->results[i]);
    }
}

static void write_histogram(const struct sl_http_metrics_model *model, FILE *file)
{
    double count = 0;
    for (uint32_t i = 0; i <= SL_HTTP_METRICS_BUCKETS; i++) {
        char end[16] = "+Inf";
        if (i < SL_HTTP_METRICS_BUCKETS) {
            (void)snprintf(end, sizeof end, "%g", (double)bounds_us[i] / 1e6);
        }
        count += (double)model->buckets[i];
        http_metrics_write_line(file, "model_seconds_bucket", model->name, "le", end, count);
    }
    http_metrics_write_line(file, "model_seconds_sum", model->name, NULL, NULL,
                            (double)model->us / 1e6);
    http_metrics_write_line(file, "model_seconds_count", model->name, NULL, NULL, count);
}

static void write_models(const struct sl_http_metrics *metrics, FILE *file,
                         void (*write)(const struct sl_http_metrics_model *model, FILE *file))
{
    for (uint32_t i = 0; i < metrics->model_count; i++) {
        write(&metrics->models[i], file);
    }
    write(&metrics->others, file);
}

void sl_http_metrics_write(const struct sl_http_metrics *metrics,
                           const struct sl_serve_gateway_stats *stats, uint32_t unloaded_count,
                           FILE *file)
{
    const struct {
        const char *name, *type, *help, *labels; /* type NULL: as the row before */
        double value;
    } rows[] = {
        {"phase_seconds_total", "counter", "Time of answered inferences, by phase.",
         "{phase=\"queue\"}", (double)metrics->phase_us[0] / 1e6},
        {"phase_seconds_total", NULL, NULL, "{phase=\"load\"}", (double)metrics->phase_us[1] / 1e6},
        {"phase_seconds_total", NULL, NULL, "{phase=\"compute\"}",
         (double)metrics->phase_us[2] / 1e6},
        {"repeated_total", "counter", "Requests that were sent to a worker once more.", "",
         (double)stats->repeated},
        {"lost_workers_total", "counter",
         "Workers that ended without leaving, were stuck in a computation, or are unreachable.", "",
         (double)stats->lost_workers},
        {"requests", "gauge", "Requests now.", "{state=\"waiting\"}", stats->waiting},
        {"requests", NULL, NULL, "{state=\"running\"}", stats->running},
        {"workers", "gauge", "Workers that have joined.", "", stats->workers},
        {"able_workers", "gauge", "Workers that have joined and answer.", "", stats->able_workers},
        {"input_bytes", "gauge", "Memory for inputs.", "{of=\"limit\"}",
         (double)stats->memory_bytes},
        {"input_bytes", NULL, NULL, "{of=\"use\"}", (double)stats->memory_in_use},
        {"unloaded_models", "gauge", "Models that this gateway refuses.", "", unloaded_count},
    };
    write_head(file, "requests_total", "counter",
               "Requests by result; invalid: the caller has to change the request.");
    for (uint32_t i = 0; i < SL_SERVE_RESULTS; i++) {
        (void)fprintf(file, PREFIX "requests_total{result=\"%s\"} %llu\n", results[i],
                      (unsigned long long)stats->results[i]);
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].type != NULL) {
            write_head(file, rows[i].name, rows[i].type, rows[i].help);
        }
        (void)fprintf(file, PREFIX "%s%s %.15g\n", rows[i].name, rows[i].labels, rows[i].value);
    }
    write_head(file, "model_requests_total", "counter",
               "Inferences of each model, by result; model \"\": those beyond 256 models, and of "
               "unknown ones.");
    write_models(metrics, file, write_results);
    write_head(file, "model_seconds", "histogram",
               "Time from the head of a request to its answer, of answered inferences.");
    write_models(metrics, file, write_histogram);
}

void sl_http_metrics_fini(struct sl_http_metrics *metrics)
{
    free(metrics->models);
}
