#include "programs/serve/http/http_stats.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/array.h"
#include "core/clock.h"

static bool is_below(const struct sl_http_stats_version *entry, const char *name, uint64_t version)
{
    const int order = strcmp(entry->name, name);
    return order < 0 || (order == 0 && entry->version < version);
}

/* Index of the version, or where it would be inserted. */
static uint32_t http_stats_find(const struct sl_http_stats *stats, const char *name,
                                uint64_t version)
{
    uint32_t at = 0;
    SL_ARRAY_BISECT(at, stats->count, i, is_below(&stats->versions[i], name, version))
    return at;
}

bool sl_http_stats_has(const struct sl_http_stats *stats, const char *name, uint64_t version)
{
    const uint32_t at = http_stats_find(stats, name, version);
    return at < stats->count && stats->versions[at].version == version &&
           strcmp(stats->versions[at].name, name) == 0;
}

static void http_stats_drop_oldest(struct sl_http_stats *stats)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < stats->count; i++) {
        oldest = stats->versions[i].last_ms < stats->versions[oldest].last_ms ? i : oldest;
    }
    struct sl_http_stats_version *entry = &stats->versions[oldest];
    free(entry->batches);
    memmove(entry, entry + 1, (--stats->count - oldest) * sizeof *entry);
}

/* Finds or adds the version; NULL: no memory. */
static struct sl_http_stats_version *http_stats_add(struct sl_http_stats *stats, const char *name,
                                                    uint64_t version)
{
    if (sl_http_stats_has(stats, name, version)) {
        return &stats->versions[http_stats_find(stats, name, version)];
    }
    if (stats->count == SL_HTTP_STATS_MAX) {
        http_stats_drop_oldest(stats);
    }
    if (!sl_array_make_room(&stats->versions, &stats->capacity, stats->count,
                            sizeof *stats->versions)) {
        return NULL;
    }
    const uint32_t at = http_stats_find(stats, name, version);
    struct sl_http_stats_version *entry = &stats->versions[at];
    memmove(entry + 1, entry, (stats->count++ - at) * sizeof *entry);
    *entry = (struct sl_http_stats_version){.version = version};
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    return entry;
}

static void http_stats_add_time(struct sl_http_stats_time *time, uint64_t ns)
{
    time->count++;
    time->ns += ns;
}

static void add_compute(struct sl_http_stats_compute *compute,
                        const struct sl_http_stats_compute *one)
{
    http_stats_add_time(&compute->input, one->input.ns);
    http_stats_add_time(&compute->infer, one->infer.ns);
    http_stats_add_time(&compute->output, one->output.ns);
}

static void add_batch(struct sl_http_stats_version *entry, uint64_t rows,
                      const struct sl_http_stats_compute *one)
{
    uint32_t at = 0;
    SL_ARRAY_BISECT(at, entry->batch_count, i, entry->batches[i].rows < rows)
    if (at == entry->batch_count || entry->batches[at].rows != rows) {
        if (entry->batch_count == SL_HTTP_STATS_BATCHES ||
            !sl_array_make_room(&entry->batches, &entry->batch_capacity, entry->batch_count,
                                sizeof *entry->batches)) {
            return;
        }
        memmove(&entry->batches[at + 1], &entry->batches[at],
                (entry->batch_count++ - at) * sizeof *entry->batches);
        entry->batches[at] = (struct sl_http_stats_batch){.rows = rows};
    }
    add_compute(&entry->batches[at].compute, one);
}

void sl_http_stats_count(struct sl_http_stats *stats, const struct sl_serve_request *request,
                         uint64_t version, uint64_t input_ns, uint64_t output_ns, uint64_t now_ns)
{
    struct sl_http_stats_version *entry = http_stats_add(stats, request->model, version);
    struct timespec now;
    if (entry == NULL) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    entry->last_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / SL_CLOCK_NS_PER_MS;
    if (request->answer.err != 0) {
        http_stats_add_time(&entry->fail, now_ns - request->arrived_ns);
        return;
    }
    const uint64_t infer_ns = request->answer.compute_us * SL_CLOCK_NS_PER_US;
    const uint64_t wait_us = (uint64_t)request->answer.queue_us + request->answer.load_us;
    const struct sl_http_stats_compute one = {
        .input.ns = input_ns, .infer.ns = infer_ns, .output.ns = output_ns};
    const bool has_rows = request->input_count > 0 && request->inputs[0].rank > 0;
    const uint64_t rows = has_rows ? request->inputs[0].shape[0] : 1;
    entry->rows += rows;
    http_stats_add_time(&entry->success, now_ns - request->arrived_ns);
    http_stats_add_time(&entry->queue, wait_us * SL_CLOCK_NS_PER_US);
    add_compute(&entry->compute, &one);
    add_batch(entry, rows, &one);
}

static json_t *http_stats_time(struct sl_http_stats_time time)
{
    return json_pack("{s:I, s:I}", "count", (json_int_t)time.count, "ns", (json_int_t)time.ns);
}

static json_t *http_stats_batches(const struct sl_http_stats_version *entry)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < entry->batch_count; i++) {
        const struct sl_http_stats_compute *compute = &entry->batches[i].compute;
        (void)json_array_append_new(
            all, json_pack("{s:I, s:o, s:o, s:o}", "batch_size", (json_int_t)entry->batches[i].rows,
                           "compute_input", http_stats_time(compute->input), "compute_infer",
                           http_stats_time(compute->infer), "compute_output",
                           http_stats_time(compute->output)));
    }
    return all;
}

struct json_t *sl_http_stats_json(const struct sl_http_stats *stats, const char *name,
                                  uint64_t version)
{
    static const struct sl_http_stats_version none;
    static const struct sl_http_stats_time zero;
    const struct sl_http_stats_version *entry =
        sl_http_stats_has(stats, name, version)
            ? &stats->versions[http_stats_find(stats, name, version)]
            : &none;
    char number[24];
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)version);
    json_t *times = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success",
                              http_stats_time(entry->success), "fail", http_stats_time(entry->fail),
                              "queue", http_stats_time(entry->queue), "compute_input",
                              http_stats_time(entry->compute.input), "compute_infer",
                              http_stats_time(entry->compute.infer), "compute_output",
                              http_stats_time(entry->compute.output), "cache_hit",
                              http_stats_time(zero), "cache_miss", http_stats_time(zero));
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o}", "name", name, "version", number,
                     "last_inference", (json_int_t)entry->last_ms, "inference_count",
                     (json_int_t)entry->rows, "execution_count", (json_int_t)entry->success.count,
                     "inference_stats", times, "batch_stats", http_stats_batches(entry));
}

void sl_http_stats_fini(struct sl_http_stats *stats)
{
    for (uint32_t i = 0; i < stats->count; i++) {
        free(stats->versions[i].batches);
    }
    free(stats->versions);
}
