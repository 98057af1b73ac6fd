/* starling-bench pull, push and pushpull: requests for rows to a real ps. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/contest.h"
#include "bench/load_internal.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/log.h"

#define CELLS_MAX 64

static const char *const NAMES[] = {"pull", "push", "pushpull"};

/* As in enum sl_optimizer_kind, from its first on. */
#define OPTIMIZER_CHOICES                                                                          \
    "sum|sgd|momentum|adagrad|adagrad-decay|rmsprop|adam|adamw|adam-async|ftrl|ftrl-group"

struct options {
    enum sl_bench_operation operation;
    const char *keys_text, *depth_text, *connections_text;
    const char *congestion, *coordinator;
    struct sl_bench_numbers keys, depths, connections;
    uint64_t dim, rows, reactors, seed;
    double rate, zipf;
    int optimizer, polling, distribution;
    struct sl_bench_common common;
};

struct bench {
    struct options options;
    struct sl_bench_ps *ps;
    struct sl_bench_cell *cells; /* one for each combination of keys, depth and connections */
    struct sl_bench_contestant *contestants;
    uint32_t cell_count;
};

/* ---- Flags ----------------------------------------------------------------------------------- */

static void set_defaults(struct options *options, enum sl_bench_operation operation)
{
    *options = (struct options){
        .operation = operation,
        .keys_text = "1,100",
        .depth_text = "1,32",
        .connections_text = "1,16",
        .dim = 16,
        .rows = 1000000,
        .reactors = 1,
        .seed = 1,
        .zipf = 1.05,
        .optimizer = SL_OPTIMIZER_ADAGRAD,
        .distribution = SL_BENCH_UNIFORM,
        .common = sl_bench_common_defaults(),
    };
    options->common.seconds = 0.5;
    options->common.warm_up = 0.2;
}

static uint32_t combinations(const struct options *options)
{
    return options->keys.count * options->depths.count * options->connections.count;
}

/* Connections stay open until the end. */
static uint64_t all_connections(const struct options *options)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < options->connections.count; i++) {
        all += options->connections.items[i];
    }
    return all * options->keys.count * options->depths.count * options->reactors;
}

static int read_numbers(struct options *options)
{
    const char *name = NAMES[options->operation];
    int err = sl_bench_list(name, "keys", options->keys_text, 1, SL_BENCH_LOAD_KEYS_MAX,
                            options->keys.items, SL_BENCH_NUMBERS_MAX, &options->keys.count);
    if (err == 0) {
        err = sl_bench_list(name, "depth", options->depth_text, 1, SL_BENCH_LOAD_DEPTH_MAX,
                            options->depths.items, SL_BENCH_NUMBERS_MAX, &options->depths.count);
    }
    if (err == 0) {
        err = sl_bench_list(name, "connections", options->connections_text, 1, SL_LIMIT_CONNECTIONS,
                            options->connections.items, SL_BENCH_NUMBERS_MAX,
                            &options->connections.count);
    }
    if (err == 0 && combinations(options) > CELLS_MAX) {
        (void)fprintf(stderr, "starling-bench %s: %u combinations, more than %d\n", name,
                      combinations(options), CELLS_MAX);
        err = SL_ERR_INVALID;
    }
    return err != 0 ? err : sl_bench_check_connections(name, all_connections(options));
}

static int parse(struct options *options, int argc, char **argv)
{
    static const char *const summaries[] = {
        "Reads rows of a real ps, from one core, by a load that speaks the protocol.",
        "Sends gradients to a real ps, from one core, by a load that speaks the protocol.",
        "Sends gradients to a real ps and reads the rows behind them, in one trip.",
    };
    const struct sl_cli_option own[] = {
        {.kind = SL_CLI_SECTION, .name = "What is asked"},
        sl_bench_text("keys", &options->keys_text, "N,...", "Keys of one request, 1 to 8192."),
        sl_bench_text("depth", &options->depth_text, "N,...",
                      "Requests under way on each connection, 1 to 128."),
        sl_bench_text("connections", &options->connections_text, "N,...",
                      "Connections to each shard. Everything is measured with each combination."),
        sl_bench_real(
            "rate", &options->rate, 0, 1e9,
            "Requests a second over all connections, due at fixed intervals whatever the "
            "server does, with latency counted from when they were due; 0: each reply lets "
            "the next go."),
        sl_bench_choice("distribution", &options->distribution, SL_BENCH_DISTRIBUTION_CHOICES,
                        "Of the keys."),
        sl_bench_exponent("zipf", &options->zipf),
        sl_bench_number("seed", &options->seed, 0, 9007199254740992.0, "Of the keys."),
        {.kind = SL_CLI_SECTION, .name = "Of what"},
        sl_bench_number("dim", &options->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("rows", &options->rows, 1, 1e9, "Rows of the table."),
        sl_bench_choice("optimizer", &options->optimizer, OPTIMIZER_CHOICES, "Of the table."),
        {.kind = SL_CLI_SECTION, .name = "Of whom"},
        sl_bench_number("reactors", &options->reactors, 1, SL_LIMIT_REACTORS,
                        "Of the ps, on the cores from the server's upwards."),
        sl_bench_choice("polling", &options->polling, "false|true",
                        "Whether both sides spin when they are idle."),
        sl_bench_congestion(&options->congestion),
        sl_bench_text("coordinator", &options->coordinator, "HOST:PORT",
                      "Measure a cluster that runs already, instead of starting a ps."),
    };
    int result = sl_bench_parse(NAMES[options->operation], summaries[options->operation], own,
                                sizeof own / sizeof own[0], &options->common, argc, argv);
    if (result != SL_CLI_RUN) {
        return result;
    }
    return read_numbers(options);
}

/* ---- Contestants ----------------------------------------------------------------------------- */

static struct sl_bench_load_options load_options(const struct options *options)
{
    char name[32];
    (void)snprintf(name, sizeof name, "bench-%llu-%d", (unsigned long long)options->dim,
                   options->optimizer);
    return (struct sl_bench_load_options){
        .coordinator = options->coordinator,
        .table =
            sl_bench_rows_table(name, options->dim, (enum sl_optimizer_kind)options->optimizer),
        .operation = options->operation,
        .distribution = (enum sl_bench_distribution)options->distribution,
        .rows = options->rows,
        .zipf_exponent = options->zipf,
        .seed = options->seed,
        .rate = options->rate,
        .polling = options->polling != 0,
        .congestion = options->congestion,
    };
}

static void add_cell(struct bench *bench, uint32_t keys, uint32_t depth, uint32_t connections)
{
    const struct options *options = &bench->options;
    struct sl_bench_cell *cell = &bench->cells[bench->cell_count];
    *cell = (struct sl_bench_cell){.options = load_options(options),
                                   .ps = bench->ps,
                                   .load_count = 1,
                                   .cores = {options->common.client_core}};
    cell->options.keys = keys;
    cell->options.depth = depth;
    cell->options.connections = connections;
    (void)snprintf(cell->name, sizeof cell->name, "%s %u key%s, %u x %u", NAMES[options->operation],
                   keys, keys == 1 ? "" : "s", connections, depth);
    bench->contestants[bench->cell_count++] = sl_bench_cell_contestant(cell);
}

static int add_cells(struct bench *bench)
{
    const struct options *options = &bench->options;
    const uint32_t count = combinations(options);
    bench->cells = calloc(count, sizeof *bench->cells);
    bench->contestants = calloc(count, sizeof *bench->contestants);
    if (bench->cells == NULL || bench->contestants == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t rest = i / options->connections.count;
        add_cell(bench, (uint32_t)options->keys.items[rest / options->depths.count],
                 (uint32_t)options->depths.items[rest % options->depths.count],
                 (uint32_t)options->connections.items[i % options->connections.count]);
    }
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int start_ps(struct bench *bench)
{
    const struct options *options = &bench->options;
    if (options->coordinator != NULL) {
        return 0;
    }
    return sl_bench_ps_start(
        &(struct sl_bench_ps_options){
            .reactors = (uint32_t)options->reactors,
            .first_core = options->common.server_core,
            .polling = options->polling != 0,
            .congestion = options->congestion,
        },
        &bench->ps);
}

static void add_latencies(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < bench->cell_count; i++) {
        sl_bench_report_histogram(report, bench->cells[i].name, &bench->cells[i].latency);
    }
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[512];
    char rate[64] = "closed loop";
    if (options->rate > 0) {
        (void)snprintf(rate, sizeof rate, "open loop, %g requests/s", options->rate);
    }
    (void)snprintf(setting, sizeof setting,
                   "keys %s, depth %s, connections %s, dim %" PRIu64 ", %" PRIu64
                   " rows, %s, %s, %s, %s, %" PRIu64 " reactor%s, congestion control %s",
                   options->keys_text, options->depth_text, options->connections_text, options->dim,
                   options->rows, options->distribution == SL_BENCH_ZIPF ? "zipf" : "uniform", rate,
                   options->polling != 0 ? "polling" : "event mode",
                   options->coordinator != NULL ? options->coordinator : "a ps of its own",
                   options->reactors, options->reactors == 1 ? "" : "s",
                   options->congestion != NULL ? options->congestion : "the system's");
    struct sl_bench_contest contest = {.contestants = bench->contestants,
                                       .count = bench->cell_count};
    return sl_bench_contest_report(&contest, NAMES[options->operation], setting, add_latencies,
                                   bench, &options->common);
}

static int exchange(enum sl_bench_operation operation, int argc, char **argv)
{
    struct bench bench = {0};
    set_defaults(&bench.options, operation);
    const int parsed = parse(&bench.options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed == SL_CLI_EXIT_OK ? 0 : 2;
    }
    int err = start_ps(&bench);
    err = err != 0 ? err : add_cells(&bench);
    err = err != 0 ? err : measure(&bench);
    for (uint32_t i = 0; i < bench.cell_count; i++) {
        sl_bench_cell_fini(&bench.cells[i]);
    }
    sl_bench_ps_stop(&bench.ps);
    free(bench.cells);
    free(bench.contestants);
    return err == 0 ? 0 : 1;
}

int sl_bench_pull_run(int argc, char **argv)
{
    return exchange(SL_BENCH_PULL, argc, argv);
}

int sl_bench_push_run(int argc, char **argv)
{
    return exchange(SL_BENCH_PUSH, argc, argv);
}

int sl_bench_pushpull_run(int argc, char **argv)
{
    return exchange(SL_BENCH_PUSH_PULL, argc, argv);
}
