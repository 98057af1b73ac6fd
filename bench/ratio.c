/* starling-bench ratio: many workers of one ps, each pulling and pushing rows of several tables in
 * a step, by both protocols. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/options.h"
#include "bench/ps_process.h"
#include "bench/ratio_workers.h"
#include "core/limits.h"
#include "core/log.h"

#define LITE_OF_PLAIN 2.0 /* the target: steps/s */

enum { SHAPES_MAX = 8, CROWDS = 2, PROTOCOLS = 2 };

#define ENTRIES_MAX ((SHAPES_MAX) * (SHAPES_MAX) * (CROWDS) * (PROTOCOLS))

static const char *const PROTOCOL_NAMES[PROTOCOLS] = {
    [SL_PROTOCOL_STAR_SERVER] = "star_server",
    [SL_PROTOCOL_STAR_SERVER_LITE] = "star_server_lite",
};

struct options {
    uint64_t processes, clients, tables, rows, seed;
    const char *dims_text, *keys_text;
    uint64_t dims[SHAPES_MAX], keys[SHAPES_MAX];
    uint32_t dim_count, keys_count;
    double exponent;
    int ps_mode, client, over;
    const char *congestion;
    struct sl_bench_common common;
};

struct entry {
    struct sl_bench_ps *ps;
    struct sl_bench_ratio_workers workers;
    char name[SL_BENCH_NAME_BYTES];
};

struct bench {
    const struct options *options;
    struct sl_bench_ps *ps;
    struct entry entries[ENTRIES_MAX];
    struct sl_bench_contestant contestants[ENTRIES_MAX];
    uint32_t entry_count;
};

static const struct sl_bench_quantity QUANTITIES[] = {
    {"steps", "1/s"},      {"keys", "1/s"},         {"step p50", "us"},      {"step p99", "us"},
    {"bytes a step", "B"}, {"requests a step", ""}, {"workers' time", "us"}, {"ps' time", "us"}};

static int run_entry(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct entry *entry = ctx;
    struct sl_bench_ratio_result *result = malloc(sizeof *result);
    if (result == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_bench_ps_unpark(entry->ps);
    const double cpu_before = sl_bench_ps_cpu_seconds(entry->ps);
    int err = sl_bench_ratio_workers_run(&entry->workers, common->client_core, common->warm_up,
                                         common->seconds, result);
    const double cpu_seconds = sl_bench_ps_cpu_seconds(entry->ps) - cpu_before;
    sl_bench_ps_park(entry->ps);
    if (err != 0) {
        sl_bench_ps_show_log(entry->ps);
    } else {
        const double rate = (double)result->steps / common->seconds;
        values[0] = rate;
        values[1] = (double)result->keys / common->seconds;
        values[2] = (double)sl_metric_quantile(&result->latency, 0.5) / 1e3;
        values[3] = (double)sl_metric_quantile(&result->latency, 0.99) / 1e3;
        values[4] = result->bytes_per_step;
        values[5] = result->requests_per_step;
        values[6] = result->cpu_seconds * 1e6;
        values[7] = rate > 0 ? cpu_seconds / (rate * (common->seconds + common->warm_up)) * 1e6 : 0;
    }
    free(result);
    return err;
}

/* One shape of a step. */
struct shape {
    uint32_t clients, keys, dim;
};

static void add_entry(struct bench *bench, struct shape shape, enum sl_protocol protocol)
{
    const struct options *options = bench->options;
    struct entry *entry = &bench->entries[bench->entry_count];
    *entry = (struct entry){
        .ps = bench->ps,
        .workers =
            {
                .coordinator = sl_bench_ps_coordinator(bench->ps),
                .processes = (uint32_t)options->processes,
                .clients = shape.clients,
                .tables = (uint32_t)options->tables,
                .keys = shape.keys,
                .dim = shape.dim,
                .rows = options->rows,
                .zipf_exponent = options->exponent,
                .protocol = protocol,
                .driven = options->client == 0,
                .congestion = options->congestion,
                .no_shm = options->over == SL_BENCH_OVER_TCP,
                .seed = options->seed,
            },
    };
    (void)snprintf(entry->name, sizeof entry->name, "%u:1, %u keys, dim %u, %s",
                   entry->workers.processes * shape.clients, shape.keys, shape.dim,
                   PROTOCOL_NAMES[protocol]);
    bench->contestants[bench->entry_count++] = (struct sl_bench_contestant){
        .name = entry->name,
        .quantities = QUANTITIES,
        .quantity_count = sizeof QUANTITIES / sizeof QUANTITIES[0],
        .transport = sl_bench_over_names[options->over],
        .run = run_entry,
        .ctx = entry,
    };
}

static void add_entries(struct bench *bench)
{
    const struct options *options = bench->options;
    uint32_t crowds = options->clients == 1 ? 1 : CROWDS;
    for (uint32_t i = 0; i < options->dim_count * options->keys_count * crowds; i++) {
        const struct shape shape = {
            .clients = i % crowds == 0 ? 1 : (uint32_t)options->clients,
            .keys = (uint32_t)options->keys[i / crowds % options->keys_count],
            .dim = (uint32_t)options->dims[i / crowds / options->keys_count],
        };
        add_entry(bench, shape, SL_PROTOCOL_STAR_SERVER);
        add_entry(bench, shape, SL_PROTOCOL_STAR_SERVER_LITE);
    }
}

/* star_server and star_server_lite stand side by side. */
static void add_ratios(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < bench->entry_count; i += PROTOCOLS) {
        const struct sl_bench_contestant *plain = &bench->contestants[i];
        const struct sl_bench_contestant *lite = &bench->contestants[i + 1];
        char name[SL_BENCH_NAME_BYTES];
        (void)snprintf(name, sizeof name, "%.70s / star_server", lite->name);
        (void)sl_bench_report_ratio(report, name, lite->figures[0], plain->figures[0],
                                    LITE_OF_PLAIN, 0);
    }
}

static int start(struct bench *bench)
{
    const struct options *options = bench->options;
    const struct sl_bench_ps_options ps = {
        .reactors = 1,
        .first_core = options->common.server_core,
        .polling = options->ps_mode == 1,
        .worker_count = 1,
        .congestion = options->congestion,
    };
    int err = sl_bench_ps_start(&ps, &bench->ps);
    if (err != 0) {
        return err;
    }
    add_entries(bench);
    const uint32_t of_dim = bench->entry_count / options->dim_count;
    for (uint32_t i = 0; err == 0 && i < bench->entry_count; i += of_dim) {
        err = sl_bench_ratio_fill(&bench->entries[i].workers);
    }
    sl_bench_ps_park(bench->ps);
    return err;
}

static int measure(struct bench *bench)
{
    const struct options *options = bench->options;
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "a step pulls, then pushes keys of each of %" PRIu64 " tables of %" PRIu64
                   " rows, Zipf %.2f, Adagrad; %" PRIu64 " processes on one core, over %s",
                   options->tables, options->rows, options->exponent, options->processes,
                   sl_bench_over_names[options->over]);
    struct sl_bench_contest contest = {
        .benchmark = "ratio",
        .setting = setting,
        .contestants = bench->contestants,
        .count = bench->entry_count,
        .conclude = add_ratios,
        .ctx = bench,
    };
    return sl_bench_contest_report(&contest, &options->common);
}

static int read_lists(struct options *options)
{
    int err = sl_bench_list("ratio", "dims", options->dims_text, 1, SL_LIMIT_DIM, options->dims,
                            SHAPES_MAX, &options->dim_count);
    return err != 0 ? err
                    : sl_bench_list("ratio", "keys", options->keys_text, 1, 8192, options->keys,
                                    SHAPES_MAX, &options->keys_count);
}

static int parse(struct options *options, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_number("processes", &options->processes, 1, 32, "Worker processes."),
        sl_bench_number("clients", &options->clients, 1, 8,
                        "Workers that each process plays where it plays several."),
        sl_bench_number("tables", &options->tables, 1, SL_BENCH_RATIO_TABLES_MAX,
                        "Tables that a step visits."),
        sl_bench_text("dims", &options->dims_text, "LIST", "Columns of the rows."),
        sl_bench_text("keys", &options->keys_text, "LIST", "Keys of each table in a step."),
        sl_bench_number("rows", &options->rows, 1, 1e8, "Rows of each table."),
        sl_bench_exponent("exponent", &options->exponent),
        sl_bench_number("seed", &options->seed, 0, 0, "Seed of the keys drawn."),
        sl_bench_choice("ps-mode", &options->ps_mode, "event|polling", "How the ps waits."),
        sl_bench_choice("client", &options->client, "caller|reactor",
                        "Who serves a worker's connection: its own thread or another."),
        sl_bench_over(&options->over),
        sl_bench_congestion(&options->congestion),
    };
    int parsed = sl_bench_parse("ratio", "Measures many workers of one ps.", own,
                                sizeof own / sizeof own[0], &options->common, argc, argv);
    int err = parsed == SL_CLI_RUN ? read_lists(options) : 0;
    return err != 0 ? err : parsed;
}

int sl_bench_ratio_run(int argc, char **argv)
{
    struct options options = {.processes = 8,
                              .clients = 8,
                              .tables = 8,
                              .dims_text = "16,64",
                              .keys_text = "4,32",
                              .rows = 100000,
                              .seed = 1,
                              .exponent = 1.05,
                              .common = sl_bench_common_defaults()};
    int parsed = parse(&options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        sl_log_error("no memory for the benchmark");
        return 1;
    }
    bench->options = &options;
    int err = start(bench);
    err = err != 0 ? err : measure(bench);
    sl_bench_ps_stop(&bench->ps);
    free(bench);
    return err == 0 ? 0 : 1;
}
