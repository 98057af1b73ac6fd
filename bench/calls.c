/* starling-bench calls: whole calls of the client library, one at a time, as a program makes them:
 * pulls, pushes and assigns of many rows, and the round trip of a short pull. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "worker/client/client_metrics.h"

#define BATCHES        64 /* that are drawn beforehand */
#define ASSIGN_OF_PUSH 0.9

enum operation { PULL, PUSH, ASSIGN };

struct options {
    struct sl_bench_common common;
    const char *coordinator;
    uint64_t rows, dim, keys, short_keys;
};

struct bench;

struct entry {
    struct bench *bench;
    enum operation operation;
    uint32_t keys;
};

#define ENTRIES 4

struct bench {
    struct options options;
    struct sl_client *client;
    struct sl_table *table;
    struct entry entries[ENTRIES];
    struct sl_bench_contest contest;
    struct sl_metric_histogram times; /* ns, of the steps of one run */
    uint64_t *keys;                   /* [BATCHES * options.keys] */
    float *values;                    /* [options.keys * options.dim] */
};

static const struct sl_bench_quantity quantities[] = {{"calls", "1/s"},
                                                      {"rows", "1/s"},
                                                      {"p99 of a step", "us"},
                                                      {"p99 by the client's metrics", "us"}};
#define QUANTITIES (sizeof quantities / sizeof quantities[0])

static int call(const struct entry *entry, const uint64_t *keys)
{
    struct bench *bench = entry->bench;
    struct sl_step *step;
    int err = sl_step_begin(bench->client, 0, &step);
    if (err != 0) {
        return err;
    }
    switch (entry->operation) {
    case PULL:
        err = sl_step_pull(step, bench->table, keys, entry->keys, bench->values);
        break;
    case PUSH:
        err = sl_step_push(step, bench->table, keys, entry->keys, bench->values);
        break;
    case ASSIGN:
        err = sl_step_assign(step, bench->table, keys, entry->keys, bench->values);
        break;
    }
    const uint64_t begun_ns = sl_bench_now_ns();
    err = sl_bench_rows_finish(step, err, "a call has failed");
    sl_metric_record(&bench->times, sl_bench_now_ns() - begun_ns);
    return err;
}

static int call_for(const struct entry *entry, double seconds, double *calls_per_s)
{
    const uint64_t begun_ns = sl_bench_now_ns();
    uint64_t now_ns = begun_ns, calls = 0;
    int err = 0;
    while (err == 0 && now_ns - begun_ns < sl_bench_ns(seconds)) {
        err = call(entry, entry->bench->keys + calls++ % BATCHES * entry->keys);
        now_ns = sl_bench_now_ns();
    }
    *calls_per_s = (double)calls / sl_bench_seconds(now_ns - begun_ns);
    return err;
}

static struct sl_cell_copy step_times(struct sl_client *client)
{
    struct sl_cell_copy times = {0};
    while (!sl_client_metrics_step_times(&client->metrics, &times)) {
        /* the client's own thread reads them, for a moment */
    }
    return times;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct bench *bench = entry->bench;
    int err = call_for(entry, common->warm_up, &values[0]);
    sl_metric_init(&bench->times);
    const struct sl_cell_copy before = step_times(bench->client);
    err = err != 0 ? err : call_for(entry, common->seconds, &values[0]);
    struct sl_cell_copy steps = step_times(bench->client);
    sl_cell_copy_since(&steps, &before);
    values[1] = values[0] * entry->keys;
    values[2] = (double)sl_metric_quantile(&bench->times, 0.99) / 1e3;
    values[3] = (double)sl_cell_quantile_ns(&steps, 0.99) / 1e3;
    return err;
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    char push[SL_BENCH_NAME_BYTES], assign[SL_BENCH_NAME_BYTES];
    (void)snprintf(push, sizeof push, "push, %u keys", (unsigned)bench->options.keys);
    (void)snprintf(assign, sizeof assign, "assign, %u keys", (unsigned)bench->options.keys);
    sl_bench_contest_ratio(&bench->contest, report, "rows", assign, push, ASSIGN_OF_PUSH, 0);
}

static int open_table(struct bench *bench, const char *coordinator)
{
    const struct options *options = &bench->options;
    struct sl_client_options client = SL_CLIENT_OPTIONS_INIT;
    client.coordinator = coordinator;
    client.task_index = -1;
    const struct sl_table_spec spec = sl_bench_rows_table("calls", options->dim, SL_OPTIMIZER_SGD);
    int err = sl_client_create(&client, &bench->client);
    err = err != 0
              ? err
              : sl_client_table_open(bench->client, &spec, SL_BENCH_ROWS_TIMEOUT_MS, &bench->table);
    return err != 0 ? err
                    : sl_bench_rows_create(bench->client, bench->table, spec.dim, options->rows);
}

static int draw(struct bench *bench)
{
    const struct options *options = &bench->options;
    struct sl_bench_workload workload;
    bench->keys = malloc(BATCHES * options->keys * sizeof *bench->keys);
    bench->values = calloc(options->keys * options->dim, sizeof *bench->values);
    if (bench->keys == NULL || bench->values == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, options->rows, 1, 1);
    for (uint64_t i = 0; i < BATCHES * options->keys; i++) {
        bench->keys[i] = sl_bench_workload_next(&workload);
    }
    return 0;
}

static int compare(struct bench *bench)
{
    static const char *const names[] = {"pull", "push", "assign"};
    const uint32_t keys = (uint32_t)bench->options.keys;
    const struct entry entries[ENTRIES] = {{bench, PULL, keys},
                                           {bench, PUSH, keys},
                                           {bench, ASSIGN, keys},
                                           {bench, PULL, (uint32_t)bench->options.short_keys}};
    char setting[128];
    for (uint32_t i = 0; i < ENTRIES; i++) {
        bench->entries[i] = entries[i];
        const struct sl_bench_contestant contestant = {.quantities = quantities,
                                                       .quantity_count = QUANTITIES,
                                                       .transport = "shared memory",
                                                       .run = run,
                                                       .ctx = &bench->entries[i]};
        (void)sl_bench_contest_add(&bench->contest, &contestant, "%s, %u keys",
                                   names[entries[i].operation], entries[i].keys);
    }
    (void)snprintf(setting, sizeof setting, "one call at a time; %llu rows of dim %llu, SGD",
                   (unsigned long long)bench->options.rows, (unsigned long long)bench->options.dim);
    return sl_bench_contest_report(&bench->contest, "calls", setting, conclude, bench,
                                   &bench->options.common);
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    struct sl_bench_ps *ps = NULL;
    int err = draw(bench);
    if (err == 0 && options->coordinator == NULL) {
        err = sl_bench_ps_start(
            &(struct sl_bench_ps_options){.reactors = 1, .first_core = options->common.server_core},
            &ps);
    }
    if (err == 0) {
        err = open_table(bench, ps != NULL ? sl_bench_ps_coordinator(ps) : options->coordinator);
    }
    err = err != 0 ? err : compare(bench);
    if (bench->client != NULL) {
        sl_client_destroy(&bench->client);
    }
    if (ps != NULL) {
        sl_bench_ps_stop(&ps);
    }
    free(bench->keys);
    free(bench->values);
    return err;
}

int sl_bench_calls_run(int argc, char **argv)
{
    static struct bench bench;
    struct options *o = &bench.options;
    *o = (struct options){.common = sl_bench_common_defaults(),
                          .rows = 100000,
                          .dim = 16,
                          .keys = 10000,
                          .short_keys = 64};
    const struct sl_cli_option table[] = {
        sl_bench_text("coordinator", &o->coordinator, "HOST:PORT",
                      "Measure a cluster that runs already, instead of starting a ps."),
        sl_bench_number("rows", &o->rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys", &o->keys, 1, 100000, "Of a long call."),
        sl_bench_number("short-keys", &o->short_keys, 1, 8192, "Of a short pull."),
    };
    const int parsed = sl_bench_parse("calls", "Calls of the client library, one at a time.", table,
                                      sizeof table / sizeof table[0], &o->common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    return measure(&bench) == 0 ? 0 : 1;
}
