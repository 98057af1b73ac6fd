/* starling-bench scale: what more reactors bring, and what more connections cost. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/contest.h"
#include "bench/load_internal.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/workload.h"
#include "core/log.h"

#define CELLS_MAX        (SL_BENCH_NUMBERS_MAX * SL_BENCH_NUMBERS_MAX)

/* The targets: a thousand connections against so many, and two reactors against one. */
#define FEW_CONNECTIONS  16
#define MANY_CONNECTIONS 1000
#define OF_FEW           0.85
#define OF_ONE_REACTOR   1.9

struct options {
    const char *connections_text, *reactors_text, *congestion;
    struct sl_bench_numbers connections, reactors;
    uint64_t keys, outstanding, dim, rows, loads;
    int polling;
    struct sl_bench_common common;
};

/* Cores that we may run on, from the server's upwards; the client's is the last. */
struct cores {
    int items[CPU_SETSIZE];
    uint32_t count;
};

struct bench {
    struct options options;
    struct cores cores;
    struct sl_bench_ps *ps[SL_BENCH_NUMBERS_MAX]; /* of each number of reactors */
    struct sl_bench_cell *cells;                  /* reactors by connections */
    struct sl_bench_contestant contestants[CELLS_MAX];
    uint32_t cell_count;
};

/* ---- Flags ----------------------------------------------------------------------------------- */

static void set_defaults(struct options *options)
{
    *options = (struct options){
        .connections_text = "1,16,128,1000",
        .keys = 1,
        .outstanding = 1024,
        .dim = 16,
        .rows = 1000000,
        .common = sl_bench_common_defaults(),
    };
    options->common.seconds = 0.5;
    options->common.warm_up = 0.2;
}

/* 1, 2, 4, ..., and as many as leave the client a core. */
static void choose_reactors(const struct cores *cores, struct sl_bench_numbers *out)
{
    const uint32_t most = cores->count > 1 ? cores->count - 1 : 1;
    *out = (struct sl_bench_numbers){0};
    for (uint32_t reactors = 1; reactors < most && out->count < SL_BENCH_NUMBERS_MAX - 1;
         reactors *= 2) {
        out->items[out->count++] = reactors;
    }
    out->items[out->count++] = most < SL_LIMIT_REACTORS ? most : SL_LIMIT_REACTORS;
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

/* Of the largest ps, and of the client to all of them: connections stay open until the end. */
static uint64_t most_connections(const struct options *options)
{
    uint64_t connections = 0;
    uint64_t reactors = 0;
    for (uint32_t i = 0; i < options->connections.count; i++) {
        connections += options->connections.items[i];
    }
    for (uint32_t i = 0; i < options->reactors.count; i++) {
        reactors += options->reactors.items[i];
    }
    return connections * reactors;
}

static int parse(struct bench *bench, int argc, char **argv)
{
    struct options *options = &bench->options;
    const struct sl_cli_option own[] = {
        sl_bench_text("connections", &options->connections_text, "N,...",
                      "Connections to each reactor."),
        sl_bench_text(
            "reactors", &options->reactors_text, "N,...",
            "Of the ps, on the cores from the server's upwards; without the flag 1, 2, 4, "
            "... and as many as leave the client a core."),
        sl_bench_number("loads", &options->loads, 0, SL_BENCH_CELL_LOADS_MAX,
                        "Client threads, from the last core downwards; 0: as many as reactors, "
                        "where there are cores."),
        sl_bench_number("outstanding", &options->outstanding, 1, 1e6,
                        "Requests under way at each reactor, over all its connections, as far as "
                        "128 on each, and at least one, allow."),
        sl_bench_number("keys", &options->keys, 1, SL_BENCH_LOAD_KEYS_MAX, "Of one pull."),
        sl_bench_number("dim", &options->dim, 1, SL_LIMIT_DIM, "Columns of a row, in f32."),
        sl_bench_number("rows", &options->rows, 1, 1e9, "Rows of the table."),
        sl_bench_choice("polling", &options->polling, "false|true",
                        "Whether both sides spin when they are idle."),
        sl_bench_congestion(&options->congestion),
    };
    int result = sl_bench_parse("scale",
                                "Pulls from ps processes of several sizes, over few and many "
                                "connections, with the same number of requests under way.",
                                own, sizeof own / sizeof own[0], &options->common, argc, argv);
    if (result != SL_CLI_RUN) {
        return result;
    }
    find_cores(&options->common, &bench->cores);
    choose_reactors(&bench->cores, &options->reactors);
    result = sl_bench_list("scale", "connections", options->connections_text, 1,
                           SL_LIMIT_CONNECTIONS, options->connections.items, SL_BENCH_NUMBERS_MAX,
                           &options->connections.count);
    if (result == 0 && options->reactors_text != NULL) {
        result =
            sl_bench_list("scale", "reactors", options->reactors_text, 1, SL_LIMIT_REACTORS,
                          options->reactors.items, SL_BENCH_NUMBERS_MAX, &options->reactors.count);
    }
    return result != 0 ? result : sl_bench_check_connections("scale", most_connections(options));
}

/* ---- Contestants ----------------------------------------------------------------------------- */

/* Threads that make the load on so many reactors: one each where cores are left, and never more
 * than connections. */
static uint32_t load_count(const struct bench *bench, uint32_t reactors, uint32_t connections)
{
    uint32_t left = bench->cores.count > reactors ? bench->cores.count - reactors : 1;
    uint32_t loads = bench->options.loads != 0 ? (uint32_t)bench->options.loads : reactors;
    loads = loads < left ? loads : left;
    loads = loads < connections ? loads : connections;
    return loads < SL_BENCH_CELL_LOADS_MAX ? loads : SL_BENCH_CELL_LOADS_MAX;
}

static uint32_t depth_of(const struct options *options, uint32_t connections)
{
    const uint64_t depth = options->outstanding / connections;
    return depth < 1                         ? 1
           : depth > SL_BENCH_LOAD_DEPTH_MAX ? SL_BENCH_LOAD_DEPTH_MAX
                                             : (uint32_t)depth;
}

static void add_cell(struct bench *bench, uint32_t which, uint32_t connections)
{
    const struct options *options = &bench->options;
    const uint32_t reactors = (uint32_t)options->reactors.items[which];
    struct sl_bench_cell *cell = &bench->cells[bench->cell_count];
    *cell = (struct sl_bench_cell){
        .options = {.table = sl_bench_rows_table("scale", options->dim, SL_OPTIMIZER_ADAGRAD),
                    .operation = SL_BENCH_PULL,
                    .connections = connections,
                    .depth = depth_of(options, connections),
                    .keys = (uint32_t)options->keys,
                    .distribution = SL_BENCH_UNIFORM,
                    .rows = options->rows,
                    .seed = 1,
                    .polling = options->polling != 0,
                    .congestion = options->congestion},
        .ps = bench->ps[which],
        .parks = true,
        .load_count = load_count(bench, reactors, connections),
    };
    for (uint32_t i = 0; i < cell->load_count; i++) {
        cell->cores[i] = bench->cores.items[bench->cores.count - 1 - i];
    }
    (void)snprintf(cell->name, sizeof cell->name, "%u reactor%s", reactors,
                   reactors == 1 ? "" : "s");
    bench->contestants[bench->cell_count++] = sl_bench_cell_contestant(cell);
}

static int start_one(struct bench *bench, uint32_t which)
{
    const struct options *options = &bench->options;
    const int err = sl_bench_ps_start(
        &(struct sl_bench_ps_options){
            .reactors = (uint32_t)options->reactors.items[which],
            .first_core = options->common.server_core,
            .polling = options->polling != 0,
            .congestion = options->congestion,
        },
        &bench->ps[which]);
    if (err == 0) {
        sl_bench_ps_park(bench->ps[which]);
    }
    return err;
}

static int start(struct bench *bench)
{
    const struct options *options = &bench->options;
    bench->cells = calloc(CELLS_MAX, sizeof *bench->cells);
    if (bench->cells == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t which = 0; which < options->reactors.count; which++) {
        const int err = start_one(bench, which);
        if (err != 0) {
            return err;
        }
        for (uint32_t i = 0; i < options->connections.count; i++) {
            add_cell(bench, which, (uint32_t)options->connections.items[i]);
        }
    }
    return 0;
}

/* ---- The report ------------------------------------------------------------------------------ */

static void place(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->cell_count; i++) {
        for (uint32_t j = 0; j < bench->contestants[i].quantity_count; j++) {
            sl_bench_figure_at(bench->contestants[i].figures[j], "connections per reactor",
                               bench->cells[i].options.connections);
        }
    }
}

static const struct sl_bench_figure *requests_of(const struct bench *bench, uint32_t which,
                                                 uint32_t index)
{
    return bench->contestants[which * bench->options.connections.count + index]
        .figures[SL_BENCH_CELL_REQUESTS];
}

/* Many connections against few, with as many requests under way. */
static void add_connection_ratios(const struct bench *bench, struct sl_bench_report *report,
                                  uint32_t which)
{
    const struct sl_bench_numbers *connections = &bench->options.connections;
    for (uint32_t few = 0; few < connections->count; few++) {
        for (uint32_t many = 0; many < connections->count; many++) {
            if (connections->items[few] != FEW_CONNECTIONS ||
                connections->items[many] <= FEW_CONNECTIONS) {
                continue;
            }
            char name[SL_BENCH_NAME_BYTES];
            const uint32_t reactors = (uint32_t)bench->options.reactors.items[which];
            (void)snprintf(name, sizeof name, "%u connections to each of %u reactor%s against %u",
                           (unsigned)connections->items[many], reactors, reactors == 1 ? "" : "s",
                           FEW_CONNECTIONS);
            sl_bench_report_ratio(report, name, requests_of(bench, which, many),
                                  requests_of(bench, which, few),
                                  connections->items[many] == MANY_CONNECTIONS ? OF_FEW : 0, 0);
        }
    }
}

/* Several reactors against the first number of them. Two against one are held against the target
 * where each had a client's core. */
static void add_reactor_ratios(const struct bench *bench, struct sl_bench_report *report,
                               uint32_t which)
{
    const uint32_t first = (uint32_t)bench->options.reactors.items[0];
    const uint32_t reactors = (uint32_t)bench->options.reactors.items[which];
    for (uint32_t i = 0; which > 0 && i < bench->options.connections.count; i++) {
        const uint32_t connections = (uint32_t)bench->options.connections.items[i];
        const struct sl_bench_cell *cell =
            &bench->cells[which * bench->options.connections.count + i];
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
    struct bench *bench = ctx;
    place(bench);
    for (uint32_t which = 0; which < bench->options.reactors.count; which++) {
        add_connection_ratios(bench, report, which);
        add_reactor_ratios(bench, report, which);
    }
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[512];
    (void)snprintf(setting, sizeof setting,
                   "pulls of %" PRIu64 " keys, %" PRIu64 " under way at each reactor, dim %" PRIu64
                   ", %" PRIu64 " rows, connections %s, %s, congestion control %s",
                   options->keys, options->outstanding, options->dim, options->rows,
                   options->connections_text, options->polling != 0 ? "polling" : "event mode",
                   options->congestion != NULL ? options->congestion : "the system's");
    struct sl_bench_contest contest = {.contestants = bench->contestants,
                                       .count = bench->cell_count};
    return sl_bench_contest_report(&contest, "scale", setting, conclude, bench, &options->common);
}

int sl_bench_scale_run(int argc, char **argv)
{
    static struct bench bench;
    set_defaults(&bench.options);
    const int parsed = parse(&bench, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed == SL_CLI_EXIT_OK ? 0 : 2;
    }
    int err = start(&bench);
    err = err != 0 ? err : measure(&bench);
    for (uint32_t i = 0; i < SL_BENCH_NUMBERS_MAX; i++) {
        if (bench.ps[i] != NULL) {
            sl_bench_ps_unpark(bench.ps[i]); /* for the goodbyes */
        }
    }
    for (uint32_t i = 0; i < bench.cell_count; i++) {
        sl_bench_cell_fini(&bench.cells[i]);
    }
    for (uint32_t i = 0; i < SL_BENCH_NUMBERS_MAX; i++) {
        sl_bench_ps_stop(&bench.ps[i]);
    }
    free(bench.cells);
    return err == 0 ? 0 : 1;
}
