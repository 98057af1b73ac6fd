/* starling-bench pull, push and pushpull: requests for rows to a real server. scale: pulls from
 * servers with several numbers of reactors, by number of connections. */
#include <inttypes.h>
#include <sched.h>
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

#define CELLS_MAX        64

/* Targets of scale: a thousand connections against sixteen, and two reactors against one. */
#define FEW_CONNECTIONS  16
#define MANY_CONNECTIONS 1000
#define OF_FEW           0.85
#define OF_ONE_REACTOR   1.9

/* The first three are values of enum sl_bench_operation. */
enum kind { PULL, PUSH, PUSH_PULL, SCALE };
static const char *const NAMES[] = {"pull", "push", "pushpull", "scale"};

/* As in enum sl_optimizer_kind, from its first on. */
#define OPTIMIZER_CHOICES                                                                          \
    "sum|sgd|momentum|adagrad|adagrad-decay|rmsprop|adam|adamw|adam-async|ftrl|ftrl-group"

struct options {
    enum kind kind;
    const char *keys_text, *depth_text, *connections_text, *reactors_text;
    const char *congestion, *coordinator;
    struct sl_bench_numbers keys, depths, connections, reactors;
    uint64_t dim, rows, seed;
    uint64_t outstanding; /* SCALE: requests in flight at each reactor, in place of depths */
    double rate, zipf;
    int optimizer, polling, distribution;
    struct sl_bench_common common;
};

/* The cores that this process may use, from the server's upwards; the client's is the last. */
struct cores {
    int items[CPU_SETSIZE];
    uint32_t count;
};

struct bench {
    struct options options;
    struct cores cores;
    struct sl_bench_ps *ps[SL_BENCH_NUMBERS_MAX]; /* one for each number of reactors */
    /* One for each combination of reactors, keys, depth and connections, in this order. */
    struct sl_bench_cell *cells;
    struct sl_bench_contestant *contestants;
    uint32_t cell_count;
};

/* ---- Flags ----------------------------------------------------------------------------------- */

static void set_defaults(struct options *options, enum kind kind)
{
    const bool is_scale = kind == SCALE;
    *options = (struct options){
        .kind = kind,
        .keys_text = is_scale ? "1" : "1,100",
        .depth_text = is_scale ? "1" : "1,32",
        .connections_text = is_scale ? "1,16,128,1000" : "1,16",
        .reactors_text = is_scale ? NULL : "1",
        .outstanding = 1024,
        .dim = 16,
        .rows = 1000000,
        .seed = 1,
        .zipf = 1.05,
        .optimizer = SL_OPTIMIZER_ADAGRAD,
        .distribution = SL_BENCH_UNIFORM,
        .common = sl_bench_common_defaults(),
    };
    options->common.seconds = 0.5;
    options->common.warm_up = 0.2;
}

static void find_cores(const struct sl_bench_common *common, struct cores *out)
{
    cpu_set_t allowed;
    *out = (struct cores){0};
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
    }
    for (int core = common->server_core; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, &allowed) && core != common->client_core) {
            out->items[out->count++] = core;
        }
    }
    out->items[out->count++] = common->client_core;
}

/* 1, 2, 4, ..., and as many as leave the client a core. */
static void choose_reactors(const struct cores *cores, struct sl_bench_numbers *out)
{
    const uint32_t most = cores->count > 1 ? cores->count - 1 : 1;
    for (uint32_t reactors = 1; reactors < most && out->count < SL_BENCH_NUMBERS_MAX - 1;
         reactors *= 2) {
        out->items[out->count++] = reactors;
    }
    out->items[out->count++] = most < SL_LIMIT_REACTORS ? most : SL_LIMIT_REACTORS;
}

static uint32_t combinations(const struct options *options)
{
    return options->reactors.count * options->keys.count * options->depths.count *
           options->connections.count;
}

static uint64_t sum_of(const struct sl_bench_numbers *numbers)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < numbers->count; i++) {
        sum += numbers->items[i];
    }
    return sum;
}

static int read_numbers(struct bench *bench)
{
    struct options *options = &bench->options;
    const char *name = NAMES[options->kind];
    const struct {
        const char *flag, *text;
        uint64_t most;
        struct sl_bench_numbers *out;
    } lists[] = {
        {"keys", options->keys_text, SL_BENCH_LOAD_KEYS_MAX, &options->keys},
        {"depth", options->depth_text, SL_BENCH_LOAD_DEPTH_MAX, &options->depths},
        {"connections", options->connections_text, SL_LIMIT_CONNECTIONS, &options->connections},
        {"reactors", options->reactors_text, SL_LIMIT_REACTORS, &options->reactors},
    };
    find_cores(&options->common, &bench->cores);
    int err = 0;
    for (size_t i = 0; err == 0 && i < sizeof lists / sizeof lists[0]; i++) {
        if (lists[i].text == NULL) {
            choose_reactors(&bench->cores, lists[i].out);
        } else {
            err = sl_bench_list(name, lists[i].flag, lists[i].text, 1, lists[i].most,
                                lists[i].out->items, SL_BENCH_NUMBERS_MAX, &lists[i].out->count);
        }
    }
    if (err == 0 && combinations(options) > CELLS_MAX) {
        (void)fprintf(stderr, "starling-bench %s: %u combinations, more than %d\n", name,
                      combinations(options), CELLS_MAX);
        err = SL_ERR_INVALID;
    }
    /* Connections stay open until the end. */
    const uint64_t each = sum_of(&options->connections) * options->keys.count;
    return err != 0 ? err
                    : sl_bench_check_connections(name, each * options->depths.count *
                                                           sum_of(&options->reactors));
}

/* Flags of all four, then those of scale, or of the others. */
static int parse(struct bench *bench, int argc, char **argv)
{
    static const char *const summaries[] = {
        "Reads rows of a real ps, from one core, by a load that speaks the protocol.",
        "Sends gradients to a real ps, from one core, by a load that speaks the protocol.",
        "Sends gradients to a real ps and reads the rows behind them, in one trip.",
        "Pulls from servers of several sizes, with the same number of requests in flight.",
    };
    struct options *options = &bench->options;
    const bool is_scale = options->kind == SCALE;
    const struct sl_cli_option shared[] = {
        sl_bench_text("keys", &options->keys_text, "N,...", "Keys of one request, 1 to 8192."),
        sl_bench_text("connections", &options->connections_text, "N,...",
                      "Connections to each shard. Everything is measured with each combination."),
        sl_bench_text("reactors", &options->reactors_text, "N,...",
                      "Of the ps, on the cores from the server's upwards; scale has by default 1, "
                      "2, 4, ... and as many as leave the client a core."),
        sl_bench_number("dim", &options->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("rows", &options->rows, 1, 1e9, "Rows of the table."),
        sl_bench_choice("polling", &options->polling, "false|true",
                        "Whether both sides spin when they are idle."),
        sl_bench_congestion(&options->congestion),
    };
    const struct sl_cli_option of_scale[] = {
        sl_bench_number("outstanding", &options->outstanding, 1, 1e6,
                        "Requests under way at each reactor, over all its connections, as far as "
                        "128 on each, and at least one, allow."),
    };
    const struct sl_cli_option of_others[] = {
        sl_bench_text("depth", &options->depth_text, "N,...",
                      "Requests under way on each connection, 1 to 128."),
        sl_bench_real(
            "rate", &options->rate, 0, 1e9,
            "Requests a second over all connections, due at fixed intervals whatever the "
            "server does, with latency counted from when they were due; 0: each reply lets "
            "the next go."),
        sl_bench_choice("distribution", &options->distribution, SL_BENCH_DISTRIBUTION_CHOICES,
                        "Of the keys."),
        sl_bench_exponent("zipf", &options->zipf),
        sl_bench_number("seed", &options->seed, 0, 9007199254740992.0, "Of the keys."),
        sl_bench_choice("optimizer", &options->optimizer, OPTIMIZER_CHOICES, "Of the table."),
        sl_bench_text("coordinator", &options->coordinator, "HOST:PORT",
                      "Measure a cluster that runs already, instead of starting a ps."),
    };
    const uint32_t shared_count = sizeof shared / sizeof shared[0];
    const uint32_t count =
        is_scale ? sizeof of_scale / sizeof of_scale[0] : sizeof of_others / sizeof of_others[0];
    struct sl_cli_option
        own[sizeof shared / sizeof shared[0] + sizeof of_others / sizeof of_others[0]];
    memcpy(own, shared, sizeof shared);
    memcpy(own + shared_count, is_scale ? of_scale : of_others, count * sizeof own[0]);
    const int result = sl_bench_parse(NAMES[options->kind], summaries[options->kind], own,
                                      shared_count + count, &options->common, argc, argv);
    return result != SL_CLI_RUN ? result : read_numbers(bench);
}

/* ---- Contestants ----------------------------------------------------------------------------- */

/* Client threads: one, or in scale one per reactor, but at most as many as connections and cores
 * that are left. */
static uint32_t load_count(const struct bench *bench, uint32_t reactors, uint32_t connections)
{
    const uint32_t left = bench->cores.count > reactors ? bench->cores.count - reactors : 1;
    uint32_t loads = bench->options.kind == SCALE ? reactors : 1;
    loads = loads < left ? loads : left;
    loads = loads < connections ? loads : connections;
    return loads < SL_BENCH_CELL_LOADS_MAX ? loads : SL_BENCH_CELL_LOADS_MAX;
}

static uint32_t depth_of(const struct options *options, uint32_t depth, uint32_t connections)
{
    if (options->kind != SCALE) {
        return depth;
    }
    const uint64_t each = options->outstanding / connections;
    return each < 1 ? 1 : each > SL_BENCH_LOAD_DEPTH_MAX ? SL_BENCH_LOAD_DEPTH_MAX : (uint32_t)each;
}

static struct sl_bench_load_options load_options(const struct options *options)
{
    char name[32];
    (void)snprintf(name, sizeof name, "bench-%llu-%d", (unsigned long long)options->dim,
                   options->optimizer);
    return (struct sl_bench_load_options){
        .coordinator = options->coordinator,
        .table =
            sl_bench_rows_table(name, options->dim, (enum sl_optimizer_kind)options->optimizer),
        .operation =
            options->kind == SCALE ? SL_BENCH_PULL : (enum sl_bench_operation)options->kind,
        .distribution = (enum sl_bench_distribution)options->distribution,
        .rows = options->rows,
        .zipf_exponent = options->zipf,
        .seed = options->seed,
        .rate = options->rate,
        .polling = options->polling != 0,
        .congestion = options->congestion,
    };
}

static void write_name(const struct options *options, uint32_t reactors, struct sl_bench_cell *cell)
{
    const struct sl_bench_load_options *load = &cell->options;
    char sized[32] = "";
    if (options->kind == SCALE || options->reactors.count > 1) {
        (void)snprintf(sized, sizeof sized, "%u reactor%s", reactors, sl_log_plural(reactors));
    }
    if (options->kind == SCALE) {
        (void)snprintf(cell->name, sizeof cell->name, "%s", sized);
    } else {
        (void)snprintf(cell->name, sizeof cell->name, "%s %u key%s, %u x %u%s%s",
                       NAMES[options->kind], load->keys, sl_log_plural(load->keys),
                       load->connections, load->depth, sized[0] == '\0' ? "" : ", ", sized);
    }
}

/* which: of the numbers of reactors. */
static void add_cell(struct bench *bench, uint32_t which, uint32_t keys, uint32_t depth,
                     uint32_t connections)
{
    const struct options *options = &bench->options;
    const uint32_t reactors = (uint32_t)options->reactors.items[which];
    struct sl_bench_cell *cell = &bench->cells[bench->cell_count];
    *cell = (struct sl_bench_cell){
        .options = load_options(options),
        .ps = bench->ps[which],
        .parks = options->reactors.count > 1 && options->coordinator == NULL,
        .load_count = load_count(bench, reactors, connections),
    };
    cell->options.keys = keys;
    cell->options.depth = depth_of(options, depth, connections);
    cell->options.connections = connections;
    for (uint32_t i = 0; i < cell->load_count; i++) {
        cell->cores[i] = bench->cores.items[bench->cores.count - 1 - i];
    }
    write_name(options, reactors, cell);
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
        uint32_t rest = i / options->connections.count;
        const uint32_t depth = rest % options->depths.count;
        rest /= options->depths.count;
        add_cell(bench, rest / options->keys.count,
                 (uint32_t)options->keys.items[rest % options->keys.count],
                 (uint32_t)options->depths.items[depth],
                 (uint32_t)options->connections.items[i % options->connections.count]);
    }
    return 0;
}

/* ---- Scale: curves and ratios ---------------------------------------------------------------- */

static const struct sl_bench_figure *requests_of(const struct bench *bench, uint32_t which,
                                                 uint32_t index)
{
    return bench->contestants[which * bench->options.connections.count + index]
        .figures[SL_BENCH_CELL_REQUESTS];
}

/* Many connections against few, with as many requests in flight. */
static void add_connection_ratios(const struct bench *bench, struct sl_bench_report *report,
                                  uint32_t which)
{
    const struct sl_bench_numbers *connections = &bench->options.connections;
    const uint32_t reactors = (uint32_t)bench->options.reactors.items[which];
    for (uint32_t i = 0; i < connections->count * connections->count; i++) {
        const uint32_t few = i / connections->count;
        const uint32_t many = i % connections->count;
        char name[SL_BENCH_NAME_BYTES];
        if (connections->items[few] == FEW_CONNECTIONS &&
            connections->items[many] > FEW_CONNECTIONS) {
            (void)snprintf(name, sizeof name, "%u connections to each of %u reactor%s against %u",
                           (unsigned)connections->items[many], reactors, sl_log_plural(reactors),
                           FEW_CONNECTIONS);
            sl_bench_report_ratio(report, name, requests_of(bench, which, many),
                                  requests_of(bench, which, few),
                                  connections->items[many] == MANY_CONNECTIONS ? OF_FEW : 0, 0);
        }
    }
}

/* Several reactors against the first number of them. Two against one have a target where each had
 * a core of the client. */
static void add_reactor_ratios(const struct bench *bench, struct sl_bench_report *report,
                               uint32_t which)
{
    const struct options *options = &bench->options;
    const uint32_t first = (uint32_t)options->reactors.items[0];
    const uint32_t reactors = (uint32_t)options->reactors.items[which];
    for (uint32_t i = 0; which > 0 && i < options->connections.count; i++) {
        const uint32_t connections = (uint32_t)options->connections.items[i];
        const struct sl_bench_cell *cell = &bench->cells[which * options->connections.count + i];
        const bool is_target =
            first == 1 && reactors == 2 && cell->load_count == 2 && connections == FEW_CONNECTIONS;
        char name[SL_BENCH_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%u reactors against %u, %u connections to each",
                       reactors, first, connections);
        sl_bench_report_ratio(report, name, requests_of(bench, which, i), requests_of(bench, 0, i),
                              is_target ? OF_ONE_REACTOR : 0, 0);
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const bool is_scale = bench->options.kind == SCALE;
    for (uint32_t i = 0; i < bench->cell_count; i++) {
        const struct sl_bench_contestant *contestant = &bench->contestants[i];
        for (uint32_t f = 0; is_scale && f < contestant->quantity_count; f++) {
            sl_bench_figure_at(contestant->figures[f], "connections per reactor",
                               bench->cells[i].options.connections);
        }
        if (!is_scale) {
            sl_bench_report_histogram(report, bench->cells[i].name, &bench->cells[i].latency);
        }
    }
    for (uint32_t which = 0; is_scale && which < bench->options.reactors.count; which++) {
        add_connection_ratios(bench, report, which);
        add_reactor_ratios(bench, report, which);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int start_ps(struct bench *bench)
{
    const struct options *options = &bench->options;
    int err = 0;
    for (uint32_t i = 0; err == 0 && options->coordinator == NULL && i < options->reactors.count;
         i++) {
        err = sl_bench_ps_start(
            &(struct sl_bench_ps_options){
                .reactors = (uint32_t)options->reactors.items[i],
                .first_core = options->common.server_core,
                .polling = options->polling != 0,
                .congestion = options->congestion,
            },
            &bench->ps[i]);
        if (err == 0 && options->reactors.count > 1) {
            sl_bench_ps_park(bench->ps[i]);
        }
    }
    return err;
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[512], rate[64] = "closed loop", depth[64];
    if (options->rate > 0) {
        (void)snprintf(rate, sizeof rate, "open loop, %g requests/s", options->rate);
    }
    (void)snprintf(depth, sizeof depth, "depth %.40s", options->depth_text);
    if (options->kind == SCALE) {
        (void)snprintf(depth, sizeof depth, "%" PRIu64 " under way at each reactor",
                       options->outstanding);
    }
    (void)snprintf(setting, sizeof setting,
                   "keys %s, %s, connections %s, dim %" PRIu64 ", %" PRIu64
                   " rows, %s, %s, %s, %s, reactors %s, congestion control %s",
                   options->keys_text, depth, options->connections_text, options->dim,
                   options->rows, options->distribution == SL_BENCH_ZIPF ? "zipf" : "uniform", rate,
                   options->polling != 0 ? "polling" : "event mode",
                   options->coordinator != NULL ? options->coordinator : "a ps of its own",
                   options->reactors_text != NULL ? options->reactors_text : "by cores",
                   options->congestion != NULL ? options->congestion : "the system's");
    struct sl_bench_contest contest = {.contestants = bench->contestants,
                                       .count = bench->cell_count};
    return sl_bench_contest_report(&contest, NAMES[options->kind], setting, conclude, bench,
                                   &options->common);
}

static int exchange(enum kind kind, int argc, char **argv)
{
    static struct bench bench;
    set_defaults(&bench.options, kind);
    const int parsed = parse(&bench, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed == SL_CLI_EXIT_OK ? 0 : 2;
    }
    int err = start_ps(&bench);
    err = err != 0 ? err : add_cells(&bench);
    err = err != 0 ? err : measure(&bench);
    for (uint32_t i = 0; i < SL_BENCH_NUMBERS_MAX && bench.ps[i] != NULL; i++) {
        sl_bench_ps_unpark(bench.ps[i]); /* for the goodbyes */
    }
    for (uint32_t i = 0; i < bench.cell_count; i++) {
        sl_bench_cell_fini(&bench.cells[i]);
    }
    for (uint32_t i = 0; i < SL_BENCH_NUMBERS_MAX; i++) {
        sl_bench_ps_stop(&bench.ps[i]);
    }
    free(bench.cells);
    free(bench.contestants);
    return err == 0 ? 0 : 1;
}

int sl_bench_pull_run(int argc, char **argv)
{
    return exchange(PULL, argc, argv);
}

int sl_bench_push_run(int argc, char **argv)
{
    return exchange(PUSH, argc, argv);
}

int sl_bench_pushpull_run(int argc, char **argv)
{
    return exchange(PUSH_PULL, argc, argv);
}

int sl_bench_scale_run(int argc, char **argv)
{
    return exchange(SCALE, argc, argv);
}
