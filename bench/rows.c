/* The load `rows`: pulls of rows, pushes or both from one core or some, by a load that speaks the
 * protocol (bench/load.h); and pushes beside them, if asked for. */
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/load.h"
#include "bench/load_internal.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/limits.h"
#include "core/log.h"

#define LOADS_MAX   64
#define TRIES       5

/* Dense pushes beside, as the client library sends them: long ranges travel in pieces, as many as
 * the credit allows. */
#define DENSE_BYTES ((uint64_t)16 << 20)
#define PIECE_BYTES ((uint64_t)512 << 10)

enum beside { BESIDE_NONE, BESIDE_ROWS, BESIDE_DENSE };

struct options {
    struct sl_bench_common common;
    const char *coordinator, *cores_text, *congestion;
    uint64_t connections, depth, keys, dim, rows, seed;
    uint64_t cores[LOADS_MAX];
    double rate, beside_rate, zipf;
    int operation, optimizer, returned, distribution, beside, beside_optimizer;
    int64_t beside_core;
    bool polling;
    uint32_t core_count;
};

struct rows {
    struct options options;
    struct sl_bench_load *loads[LOADS_MAX]; /* one for each core */
    struct sl_bench_load *beside;           /* or NULL */
    struct sl_bench_load_result result, pushed;
    struct sl_metric_histogram latency; /* of the turn */
};

enum { REQUESTS, KEYS, P50, P99, P999, CLIENT_CPU, ALL, PUSHED, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [REQUESTS] = {"requests", "1/s"},
    [KEYS] = {"keys", "1/s"},
    [P50] = {"p50", "us"},
    [P99] = {"p99", "us"},
    [P999] = {"p99.9", "us"},
    [CLIENT_CPU] = {"client cpu", "us/request"}, /* of all threads of the load */
    [ALL] = {"all requests", ""},                /* in the warm-up, too */
    [PUSHED] = {"pushed bytes", "1/s"},
};

/* ---- Life ------------------------------------------------------------------------------------ */

static struct sl_bench_load_options base_of(const struct options *o)
{
    char name[32];
    (void)snprintf(name, sizeof name, "bench-%u-%d", (unsigned)o->dim, o->optimizer);
    return (struct sl_bench_load_options){
        .coordinator = o->coordinator,
        .table = sl_bench_rows_table(name, o->dim, (enum sl_optimizer_kind)o->optimizer),
        .operation = (enum sl_bench_operation)o->operation,
        .returned = (enum sl_precision)o->returned,
        .connections = (uint32_t)o->connections,
        .depth = (uint32_t)o->depth,
        .keys = (uint32_t)o->keys,
        .distribution = (enum sl_bench_distribution)o->distribution,
        .rows = o->rows,
        .zipf_exponent = o->zipf,
        .seed = o->seed,
        .rate = o->rate,
        .polling = o->polling,
        .congestion = o->congestion,
    };
}

/* Connections and rate are shared out among the loads. */
static int open_load(struct rows *rows, uint32_t index)
{
    const struct options *o = &rows->options;
    struct sl_bench_load_options options = base_of(o);
    const uint32_t all = options.connections;
    options.connections = all / o->core_count + (index < all % o->core_count ? 1 : 0);
    options.rate = options.rate * options.connections / all;
    options.seed += index;
    options.core = (int)o->cores[index];
    return sl_bench_load_open(&options, &rows->loads[index]);
}

/* One thread drives the pulls and what is beside them, unless that has another core: two threads of
 * a core would wait for one another. */
static int open_beside(struct rows *rows)
{
    const struct options *o = &rows->options;
    struct sl_bench_load_options options = base_of(o);
    const bool shares = o->beside_core < 0 || (uint64_t)o->beside_core == o->cores[0];
    options.operation = SL_BENCH_PUSH;
    options.seed++;
    options.rate = o->beside_rate;
    options.core = (int)o->beside_core;
    options.host = shares ? rows->loads[0] : NULL;
    if (o->beside == BESIDE_DENSE) {
        options.table = (struct sl_table_spec){
            .name = "bench-beside",
            .struct_size = sizeof(struct sl_table_spec),
            .kind = SL_TABLE_DENSE,
            .length = DENSE_BYTES / sizeof(float),
            .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)o->beside_optimizer)};
        options.connections = 1;
        options.depth = (uint32_t)(DENSE_BYTES / PIECE_BYTES);
        options.keys = PIECE_BYTES / sizeof(float);
    }
    return sl_bench_load_open(&options, &rows->beside);
}

static int open_all(struct rows *rows)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < rows->options.core_count; i++) {
        err = open_load(rows, i);
    }
    return err == 0 && rows->options.beside != BESIDE_NONE ? open_beside(rows) : err;
}

static void close_all(struct rows *rows)
{
    sl_bench_load_close(&rows->beside);
    for (uint32_t i = 0; i < rows->options.core_count; i++) {
        sl_bench_load_close(&rows->loads[i]);
    }
}

/* ---- A turn ---------------------------------------------------------------------------------- */

/* Sums over the loads. */
struct total {
    double requests_per_s, keys_per_s, cpu_seconds;
    uint64_t requests, all_requests;
};

static void add(struct rows *rows, struct total *total)
{
    const struct sl_bench_load_result *result = &rows->result;
    total->requests += result->requests;
    total->all_requests += result->all_requests;
    total->requests_per_s += (double)result->requests / result->seconds;
    total->keys_per_s += (double)result->keys / result->seconds;
    total->cpu_seconds += result->cpu_seconds;
    sl_metric_merge(&rows->latency, &result->latency);
}

/* Each load that has begun is waited for, whatever happens to another. */
static int run_loads(struct rows *rows, const struct sl_bench_common *common, struct total *total)
{
    uint32_t begun = 0;
    int err = 0;
    while (err == 0 && begun < rows->options.core_count) {
        err = sl_bench_load_begin(rows->loads[begun], common->warm_up, common->seconds);
        begun += err == 0 ? 1 : 0;
    }
    if (err == 0 && rows->beside != NULL) {
        err = sl_bench_load_run(rows->beside, common->warm_up, common->seconds, &rows->pushed);
    }
    for (uint32_t i = 0; i < begun; i++) {
        const int load_err = sl_bench_load_wait(rows->loads[i], &rows->result);
        err = err != 0 ? err : load_err;
        if (load_err == 0) {
            add(rows, total);
        }
    }
    return err;
}

static double quantile_us(const struct rows *rows, double share)
{
    return (double)sl_metric_quantile(&rows->latency, share) / 1e3;
}

/* On a machine that stands still a turn may pass without an answer: then the next one counts. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct rows *rows = ctx;
    struct total total = {0};
    int err = 0;
    sl_metric_init(&rows->latency);
    for (uint32_t i = 0; err == 0 && total.requests == 0 && i < TRIES; i++) {
        err = run_loads(rows, common, &total);
    }
    if (err == 0 && total.requests == 0) {
        sl_log_error("not one request was answered in %g s", common->seconds);
        err = SL_ERR_DEADLINE;
    }
    values[REQUESTS] = total.requests_per_s;
    values[KEYS] = total.keys_per_s;
    values[P50] = quantile_us(rows, 0.5);
    values[P99] = quantile_us(rows, 0.99);
    values[P999] = quantile_us(rows, 0.999);
    values[CLIENT_CPU] = total.cpu_seconds / (double)total.requests * 1e6;
    values[ALL] = (double)total.all_requests;
    if (rows->options.beside == BESIDE_DENSE) {
        values[PUSHED] = (double)(rows->pushed.requests * PIECE_BYTES) / rows->pushed.seconds;
    }
    return err;
}

/* ---- Flags ----------------------------------------------------------------------------------- */

static int parse(struct options *o, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_text("coordinator", &o->coordinator, "HOST:PORT", "Of the cluster. Required."),
        sl_bench_choice("operation", &o->operation, "pull|push|pushpull", "Of each request."),
        sl_bench_number("connections", &o->connections, 1, SL_LIMIT_CONNECTIONS, "To each shard."),
        sl_bench_number("depth", &o->depth, 1, SL_BENCH_LOAD_DEPTH_MAX,
                        "Requests under way on each connection."),
        sl_bench_number("keys", &o->keys, 1, SL_BENCH_LOAD_KEYS_MAX, "Of each request."),
        sl_bench_number("dim", &o->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("rows", &o->rows, 1, 1e9, "Rows of the table."),
        sl_bench_choice("optimizer", &o->optimizer, SL_BENCH_OPTIMIZER_CHOICES, "Of the table."),
        sl_bench_choice("returned", &o->returned, SL_BENCH_PRECISION_CHOICES,
                        "Precision of the rows that pulls return."),
        sl_bench_choice("distribution", &o->distribution, SL_BENCH_DISTRIBUTION_CHOICES,
                        "Of the keys."),
        sl_bench_exponent("zipf", &o->zipf),
        sl_bench_number("seed", &o->seed, 0, 9007199254740992.0, "Of the keys."),
        sl_bench_real("rate", &o->rate, 0, 1e9,
                      "Requests a second, due at fixed intervals; 0: each reply lets the next go."),
        sl_bench_text("cores", &o->cores_text, "N,...",
                      "Of the client's threads. Default: the client's core."),
        SL_CLI_OPTION(BOOL, &o->polling, .name = "polling", .help = "Spin when idle."),
        sl_bench_congestion(&o->congestion),
        sl_bench_choice("beside", &o->beside, "none|rows|dense",
                        "Pushes beside: none, of as many rows, or of 16 MB."),
        sl_bench_real("beside-rate", &o->beside_rate, 0, 1e9, "Of them, as --rate."),
        sl_bench_choice("beside-optimizer", &o->beside_optimizer, "sum|sgd", "Of dense ones."),
        sl_bench_core("beside-core", &o->beside_core, "Of them; -1: the first of --cores."),
    };
    const int parsed =
        sl_bench_parse_load("rows", own, sizeof own / sizeof own[0], &o->common, argc, argv);
    if (parsed != SL_CLI_RUN || o->cores_text == NULL) {
        o->cores[0] = (uint64_t)o->common.client_core;
        o->core_count = 1;
        return parsed;
    }
    return sl_bench_list("load rows", "cores", o->cores_text, 0, CPU_SETSIZE - 1, o->cores,
                         LOADS_MAX, &o->core_count);
}

int sl_bench_rows_run(int argc, char **argv)
{
    static struct rows rows;
    rows.options = (struct options){.common = sl_bench_common_defaults(),
                                    .connections = 1,
                                    .depth = 1,
                                    .keys = 1,
                                    .dim = 16,
                                    .rows = 1000000,
                                    .optimizer = SL_OPTIMIZER_ADAGRAD,
                                    .zipf = 1.05,
                                    .seed = 1,
                                    .beside_core = -1};
    const int parsed = parse(&rows.options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    if (sl_bench_check_connections("load rows", rows.options.connections) != 0) {
        return 2;
    }
    int status = open_all(&rows) == 0 ? 0 : 1;
    if (status == 0) {
        const struct sl_bench_turns turns = {.quantities = quantities,
                                             .quantity_count = QUANTITIES,
                                             .run = run,
                                             .ctx = &rows,
                                             .times = &rows.latency};
        status = sl_bench_turns_serve(&turns, &rows.options.common);
    }
    close_all(&rows);
    return status;
}
