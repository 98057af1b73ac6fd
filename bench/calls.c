/* The load `calls`: whole calls of the client library, one at a time, as a program makes them:
 * pulls, pushes and assigns of many rows, and the round trip of a short pull. */
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/metric.h"
#include "worker/client/client_metrics.h"

#define BATCHES  64 /* that are drawn beforehand */
#define KEYS_MAX 100000

enum operation { PULL, PUSH, ASSIGN, OPERATIONS };
static const char *const operation_names[OPERATIONS] = {"pull", "push", "assign"};

struct options {
    struct sl_bench_common common;
    const char *coordinator;
    uint64_t rows, dim, keys_max;
};

struct bench {
    struct options options;
    struct sl_client *client;
    struct sl_table *table;
    struct sl_metric_histogram times; /* ns, of the steps of one run */
    uint64_t *keys;                   /* [BATCHES * options.keys_max] */
    float *values;                    /* [options.keys_max * options.dim] */
    enum operation operation;         /* of the turn */
    uint32_t count;                   /* keys of a call */
};

static const struct sl_bench_quantity quantities[] = {{"calls", "1/s"},
                                                      {"rows", "1/s"},
                                                      {"p99 of a step", "us"},
                                                      {"longest", "us"},
                                                      {"p99 by the client's metrics", "us"}};
#define QUANTITIES (sizeof quantities / sizeof quantities[0])

static int call(struct bench *bench, const uint64_t *keys)
{
    struct sl_step *step;
    int err = sl_step_begin(bench->client, 0, &step);
    if (err != 0) {
        return err;
    }
    switch (bench->operation) {
    case PULL:
        err = sl_step_pull(step, bench->table, keys, bench->count, bench->values);
        break;
    case PUSH:
        err = sl_step_push(step, bench->table, keys, bench->count, bench->values);
        break;
    case ASSIGN:
        err = sl_step_assign(step, bench->table, keys, bench->count, bench->values);
        break;
    case OPERATIONS:
        break;
    }
    const uint64_t begun_ns = sl_bench_now_ns();
    err = sl_bench_rows_finish(step, err, "a call has failed");
    sl_metric_record(&bench->times, sl_bench_now_ns() - begun_ns);
    return err;
}

static int call_for(struct bench *bench, double seconds, double *calls_per_s)
{
    const uint64_t begun_ns = sl_bench_now_ns();
    uint64_t now_ns = begun_ns, calls = 0;
    int err = 0;
    while (err == 0 && now_ns - begun_ns < sl_bench_ns(seconds)) {
        err = call(bench, bench->keys + calls++ % BATCHES * bench->count);
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

/* Words of a turn: pull, push or assign, and the keys of a call. */
static int read_words(struct bench *bench, const char *words)
{
    uint64_t count = 0;
    for (int i = 0; i < OPERATIONS; i++) {
        if (sl_bench_turns_word(&words, operation_names[i])) {
            const int err = sl_bench_turns_number(&words, 1, bench->options.keys_max, &count);
            bench->operation = (enum operation)i;
            bench->count = (uint32_t)count;
            return err;
        }
    }
    return SL_ERR_INVALID;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct bench *bench = ctx;
    int err = read_words(bench, common->words);
    err = err != 0 ? err : call_for(bench, common->warm_up, &values[0]);
    sl_metric_init(&bench->times);
    const struct sl_cell_copy before = step_times(bench->client);
    err = err != 0 ? err : call_for(bench, common->seconds, &values[0]);
    struct sl_cell_copy steps = step_times(bench->client);
    sl_cell_copy_since(&steps, &before);
    values[1] = values[0] * bench->count;
    values[2] = (double)sl_metric_quantile(&bench->times, 0.99) / 1e3;
    values[3] = (double)bench->times.max / 1e3;
    values[4] = (double)sl_cell_quantile_ns(&steps, 0.99) / 1e3;
    return err;
}

static int open_table(struct bench *bench)
{
    const struct options *options = &bench->options;
    struct sl_client_options client = SL_CLIENT_OPTIONS_INIT;
    client.coordinator = options->coordinator;
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
    bench->keys = malloc(BATCHES * options->keys_max * sizeof *bench->keys);
    bench->values = calloc(options->keys_max * options->dim, sizeof *bench->values);
    if (bench->keys == NULL || bench->values == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_workload_init(&workload, SL_BENCH_UNIFORM, options->rows, 1, 1);
    for (uint64_t i = 0; i < BATCHES * options->keys_max; i++) {
        bench->keys[i] = sl_bench_workload_next(&workload);
    }
    return 0;
}

int sl_bench_calls_run(int argc, char **argv)
{
    static struct bench bench;
    struct options *o = &bench.options;
    *o = (struct options){
        .common = sl_bench_common_defaults(), .rows = 100000, .dim = 16, .keys_max = 10000};
    const struct sl_cli_option table[] = {
        sl_bench_text("coordinator", &o->coordinator, "HOST:PORT", "Of the cluster. Required."),
        sl_bench_number("rows", &o->rows, 1, 1e8, "Rows of the table."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("keys-max", &o->keys_max, 1, KEYS_MAX, "Of a call, at most."),
    };
    const int parsed =
        sl_bench_parse_load("calls", table, sizeof table / sizeof table[0], &o->common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    int status = draw(&bench) == 0 && open_table(&bench) == 0 ? 0 : 1;
    if (status == 0) {
        const struct sl_bench_turns turns = {
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &bench};
        status = sl_bench_turns_serve(&turns, &o->common);
    }
    if (bench.client != NULL) {
        sl_client_destroy(&bench.client);
    }
    free(bench.keys);
    free(bench.values);
    return status;
}
