/* starling-bench serving: one ps reactor serving one core of clients, held against what the machine
 * can do in the same shape, and against Redis. Each comparison is a contest of its own: all that it
 * compares is measured in turns. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/cell.h"
#include "bench/options.h"
#include "bench/peers.h"
#include "bench/table_reads.h"
#include "bench/workload.h"
#include "core/assert.h"
#include "core/log.h"

#define CELLS_MAX     16
#define CONNECTIONS   4200 /* of all cells, and both ends of a bare echo */

/* On the wire (docs/protocol.md): a request's header, prefix and section, a reply's header. */
#define REQUEST_BYTES 72U
#define REPLY_BYTES   32U
#define KEY_BYTES     8U

#define SEND_BYTES    ((uint64_t)64 << 10)

enum part {
    PART_ALL,
    PART_ONE_ROW,
    PART_LATENCY,
    PART_WIDE_ROWS,
    PART_ROWS,
    PART_CONNECTIONS,
    PART_IDLE
};
#define PART_CHOICES "all|one-row|latency|wide-rows|rows|connections|idle"

struct options {
    struct sl_bench_common common;
    int part;
    const char *congestion;
    uint64_t rows;
};

struct bench {
    const struct options *options;
    struct sl_bench_report *report;
    struct sl_bench_ps *polling, *event;
    struct sl_bench_cell *cells[CELLS_MAX];
    uint32_t cell_count;
    struct sl_bench_peer redis;
    struct sl_bench_table_reads *reads; /* of the comparison in progress */
};

/* ---- Contestants ----------------------------------------------------------------------------- */

/* Bytes on the wire of a pull of `keys` rows. */
static struct sl_bench_bare_echo echo_of_pulls(const struct options *options, uint32_t connections,
                                               uint32_t depth, uint32_t keys, uint32_t dim)
{
    return (struct sl_bench_bare_echo){
        .connections = connections,
        .depth = depth,
        .request_bytes = REQUEST_BYTES + keys * KEY_BYTES,
        .reply_bytes = REPLY_BYTES + keys * dim * (uint32_t)sizeof(float),
        .polling = true,
        .congestion = options->congestion,
    };
}

static int run_send(void *ctx, const struct sl_bench_common *common, double *values)
{
    return sl_bench_bare_bulk_run(ctx, common, &values[0]);
}

struct shape {
    enum sl_bench_operation operation;
    uint32_t connections, depth, keys, dim;
};

/* A load on one of the two ps; it lives until the end. */
static struct sl_bench_contestant load_contestant(struct bench *bench, struct sl_bench_ps *ps,
                                                  const char *name, const struct shape *shape)
{
    sl_assert(bench->cell_count < CELLS_MAX);
    const struct options *options = bench->options;
    struct sl_bench_cell *cell = calloc(1, sizeof *cell);
    if (cell == NULL) {
        sl_log_error("no memory for another load");
        exit(1);
    }
    bench->cells[bench->cell_count++] = cell;
    char table[32];
    (void)snprintf(table, sizeof table, "serving-%u", shape->dim);
    *cell = (struct sl_bench_cell){
        .options = {.table = sl_bench_rows_table(table, shape->dim, SL_OPTIMIZER_ADAGRAD),
                    .operation = shape->operation,
                    .connections = shape->connections,
                    .depth = shape->depth,
                    .keys = shape->keys,
                    .distribution = SL_BENCH_UNIFORM,
                    .rows = options->rows,
                    .seed = 1,
                    .polling = ps == bench->polling,
                    .congestion = options->congestion},
        .ps = ps,
        .parks = true,
        .load_count = 1,
        .cores = {options->common.client_core},
    };
    (void)snprintf(cell->name, sizeof cell->name, "%s", name);
    return sl_bench_cell_contestant(cell);
}

/* ---- Comparisons ----------------------------------------------------------------------------- */

static int run_contest(struct bench *bench, struct sl_bench_contestant *contestants, uint32_t count)
{
    return sl_bench_contest_run(contestants, count, &bench->options->common, bench->report);
}

static void hold(struct bench *bench, const char *name, const struct sl_bench_figure *a,
                 const struct sl_bench_figure *b, double least, double most)
{
    sl_bench_report_ratio(bench->report, name, a, b, least, most);
}

/* Pulls of one row from 16 connections, 32 under way on each. */
static int compare_one_row(struct bench *bench)
{
    static const struct shape shape = {SL_BENCH_PULL, 16, 32, 1, 16};
    struct sl_bench_bare_echo echo = echo_of_pulls(bench->options, 16, 32, 1, 16);
    struct sl_bench_peer_load get = {&bench->redis, SL_BENCH_PEER_REQUESTS, "1 64"};
    struct sl_bench_contestant contestants[4] = {
        load_contestant(bench, bench->polling, "pull 1 row, 16 x 32, polling", &shape),
        load_contestant(bench, bench->event, "pull 1 row, 16 x 32, event", &shape),
        sl_bench_bare_echo_contestant("bare echo, 16 x 32", &echo),
    };
    if (sl_bench_peer_is_there(&bench->redis)) {
        contestants[3] = sl_bench_peer_contestant("redis GET, pipelined x64", &get);
    }
    int err = run_contest(bench, contestants, sl_bench_peer_is_there(&bench->redis) ? 4 : 3);
    if (err != 0) {
        return err;
    }
    const struct sl_bench_figure *pulls = contestants[0].figures[SL_BENCH_CELL_REQUESTS];
    hold(bench, "pulls of 1 row, 16 x 32 / bare echo", pulls,
         contestants[2].figures[SL_BENCH_ECHO_REQUESTS], 0.55, 0);
    hold(bench, "event mode / polling, at full load",
         contestants[1].figures[SL_BENCH_CELL_REQUESTS], pulls, 0.95, 0);
    if (sl_bench_peer_is_there(&bench->redis)) {
        hold(bench, "pulls of 1 row, 16 x 32 / redis GET x64", pulls, contestants[3].figures[0], 4,
             0);
    }
    return 0;
}

/* One request at a time. */
static int compare_latency(struct bench *bench)
{
    static const struct shape shape = {SL_BENCH_PULL, 1, 1, 1, 16};
    struct sl_bench_bare_echo echo = echo_of_pulls(bench->options, 1, 1, 1, 16);
    struct sl_bench_contestant contestants[] = {
        load_contestant(bench, bench->polling, "pull 1 row, 1 x 1, polling", &shape),
        sl_bench_bare_echo_contestant("bare ping-pong", &echo),
    };
    int err = run_contest(bench, contestants, 2);
    if (err == 0) {
        hold(bench, "latency of 1 row, p50 / bare ping-pong",
             contestants[0].figures[SL_BENCH_CELL_P50], contestants[1].figures[SL_BENCH_ECHO_P50],
             0, 1.3);
        hold(bench, "latency of 1 row, p99 / bare ping-pong",
             contestants[0].figures[SL_BENCH_CELL_P99], contestants[1].figures[SL_BENCH_ECHO_P99],
             0, 1.5);
    }
    return err;
}

/* Keys a second of one core that does nothing but read the rows and send them: 1 / (time of a key
 * in process + its bytes / bare rate of 64 KB sends), round by round. */
static const struct sl_bench_figure *add_model(struct bench *bench,
                                               const struct sl_bench_figure *rows_per_s,
                                               const struct sl_bench_figure *bytes_per_s,
                                               double bytes)
{
    struct sl_bench_figure *model =
        sl_bench_report_figure(bench->report, "in process and sent, computed", "keys", "1/s");
    sl_bench_figure_over(model, "TCP");
    for (uint32_t i = 0; i < rows_per_s->count && i < bytes_per_s->count; i++) {
        sl_bench_figure_sample(model,
                               1 / (1 / rows_per_s->samples[i] + bytes / bytes_per_s->samples[i]));
    }
    return model;
}

static int create_reads(struct bench *bench, const struct shape *shape)
{
    sl_bench_table_reads_destroy(&bench->reads);
    return sl_bench_table_reads_create(bench->options->rows, shape->dim, shape->keys,
                                       &bench->reads);
}

static const struct sl_bench_quantity bytes_quantity = {"bytes", "1/s"};

/* Pulls of 100 rows of 64 columns. */
static int compare_wide_rows(struct bench *bench)
{
    static const struct shape shape = {SL_BENCH_PULL, 4, 8, 100, 64};
    int err = create_reads(bench, &shape);
    if (err != 0) {
        return err;
    }
    struct sl_bench_bare_bulk send = {
        .bytes = SEND_BYTES, .depth = 8, .congestion = bench->options->congestion};
    struct sl_bench_peer_load mget = {&bench->redis, SL_BENCH_PEER_REQUESTS, "100 1"};
    struct sl_bench_contestant contestants[4] = {
        load_contestant(bench, bench->polling, "pull 100 rows, dim 64, 4 x 8", &shape),
        sl_bench_table_reads_contestant("in process, 100 rows, dim 64", bench->reads),
        {.name = "bare 64 KB sends",
         .transport = "TCP",
         .quantities = &bytes_quantity,
         .quantity_count = 1,
         .run = run_send,
         .ctx = &send},
    };
    if (sl_bench_peer_is_there(&bench->redis)) {
        contestants[3] = sl_bench_peer_contestant("redis MGET of 100", &mget);
    }
    err = run_contest(bench, contestants, sl_bench_peer_is_there(&bench->redis) ? 4 : 3);
    if (err != 0) {
        return err;
    }
    const struct sl_bench_figure *pulls = contestants[0].figures[SL_BENCH_CELL_KEYS];
    const double bytes = shape.dim * (double)sizeof(float) + REPLY_BYTES / (double)shape.keys;
    hold(bench, "pulls of 100 rows, dim 64 / in process and sent", pulls,
         add_model(bench, contestants[1].figures[0], contestants[2].figures[0], bytes), 0.75, 0);
    if (sl_bench_peer_is_there(&bench->redis)) {
        hold(bench, "pulls of 100 rows, dim 64 / redis MGET", pulls, contestants[3].figures[1], 6,
             0);
    }
    return 0;
}

/* Pulls and pushes of 100 rows of 16 columns. */
static int compare_rows(struct bench *bench)
{
    static const struct shape pull = {SL_BENCH_PULL, 4, 8, 100, 16};
    static const struct shape push = {SL_BENCH_PUSH, 4, 8, 100, 16};
    int err = create_reads(bench, &pull);
    if (err != 0) {
        return err;
    }
    struct sl_bench_contestant contestants[] = {
        load_contestant(bench, bench->polling, "pull 100 rows, dim 16, 4 x 8", &pull),
        load_contestant(bench, bench->polling, "push 100 rows, dim 16, 4 x 8", &push),
        sl_bench_table_reads_contestant("in process, 100 rows, dim 16", bench->reads),
    };
    err = run_contest(bench, contestants, 3);
    if (err == 0) {
        const struct sl_bench_figure *pulls = contestants[0].figures[SL_BENCH_CELL_KEYS];
        hold(bench, "pulls of 100 rows, dim 16 / in process", pulls, contestants[2].figures[0], 0.5,
             0);
        hold(bench, "pushes of 100 rows, dim 16 / pulls",
             contestants[1].figures[SL_BENCH_CELL_KEYS], pulls, 0.7, 0);
    }
    return err;
}

/* As many requests under way, on many connections or on few. Where requests are small the kernel's
 * work for each connection decides: bare sockets beside them show how much. */
static int compare_connections(struct bench *bench)
{
    static const struct shape many = {SL_BENCH_PULL, 1000, 2, 100, 64};
    static const struct shape few = {SL_BENCH_PULL, 16, 125, 100, 64};
    static const struct shape many_small = {SL_BENCH_PULL, 1000, 2, 1, 16};
    static const struct shape few_small = {SL_BENCH_PULL, 16, 125, 1, 16};
    struct sl_bench_bare_echo echo_many = echo_of_pulls(bench->options, 1000, 2, 1, 16);
    struct sl_bench_bare_echo echo_few = echo_of_pulls(bench->options, 16, 125, 1, 16);
    struct sl_bench_contestant contestants[] = {
        load_contestant(bench, bench->polling, "pull 100 rows, dim 64, 1000 x 2", &many),
        load_contestant(bench, bench->polling, "pull 100 rows, dim 64, 16 x 125", &few),
        load_contestant(bench, bench->polling, "pull 1 row, 1000 x 2", &many_small),
        load_contestant(bench, bench->polling, "pull 1 row, 16 x 125", &few_small),
        sl_bench_bare_echo_contestant("bare echo, 1000 x 2", &echo_many),
        sl_bench_bare_echo_contestant("bare echo, 16 x 125", &echo_few),
    };
    int err = run_contest(bench, contestants, 6);
    if (err == 0) {
        hold(bench, "100 rows from 1000 connections / from 16", contestants[0].figures[0],
             contestants[1].figures[0], 0.85, 0);
        hold(bench, "1 row from 1000 connections / from 16", contestants[2].figures[0],
             contestants[3].figures[0], 0, 0);
        hold(bench, "bare echo, 1000 connections / 16", contestants[4].figures[0],
             contestants[5].figures[0], 0, 0);
        hold(bench, "1 row from 1000 connections / bare echo", contestants[2].figures[0],
             contestants[4].figures[0], 0, 0);
    }
    return err;
}

/* A ps in event mode that nobody asks anything. */
static int run_idle(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_ps *ps = ctx;
    sl_bench_ps_unpark(ps);
    const double before = sl_bench_ps_cpu_seconds(ps);
    const unsigned seconds = common->seconds < 2 ? 2 : (unsigned)common->seconds;
    unsigned left = seconds;
    while (left > 0) {
        left = sleep(left);
    }
    values[0] = sl_bench_ps_cpu_seconds(ps) - before;
    values[1] = seconds;
    sl_bench_ps_park(ps);
    return 0;
}

static int compare_idle(struct bench *bench)
{
    static const struct sl_bench_quantity quantities[] = {{"processor time", "s"}, {"time", "s"}};
    struct sl_bench_contestant idle = {.name = "idle ps, event",
                                       .quantities = quantities,
                                       .quantity_count = 2,
                                       .run = run_idle,
                                       .ctx = bench->event};
    int err = run_contest(bench, &idle, 1);
    if (err == 0) {
        hold(bench, "share of a core of an idle reactor, event mode", idle.figures[0],
             idle.figures[1], 0, 0.005);
    }
    return err;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int compare(struct bench *bench)
{
    static const struct {
        enum part part;
        int (*compare)(struct bench *bench);
    } parts[] = {
        {PART_ONE_ROW, compare_one_row},         {PART_LATENCY, compare_latency},
        {PART_WIDE_ROWS, compare_wide_rows},     {PART_ROWS, compare_rows},
        {PART_CONNECTIONS, compare_connections}, {PART_IDLE, compare_idle},
    };
    int err = 0;
    for (size_t i = 0; err == 0 && i < sizeof parts / sizeof parts[0]; i++) {
        if (bench->options->part == PART_ALL || bench->options->part == (int)parts[i].part) {
            err = parts[i].compare(bench);
        }
    }
    return err;
}

static int start_ps(const struct options *options, bool polling, struct sl_bench_ps **out)
{
    const struct sl_bench_ps_options ps = {.reactors = 1,
                                           .first_core = options->common.server_core,
                                           .polling = polling,
                                           .congestion = options->congestion};
    int err = sl_bench_ps_start(&ps, out);
    if (err == 0) {
        sl_bench_ps_park(*out);
    }
    return err;
}

static int start(struct bench *bench)
{
    const struct options *options = bench->options;
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "one ps reactor, one core of clients, %llu rows, uniform keys, congestion "
                   "control %s",
                   (unsigned long long)options->rows, options->congestion);
    bench->report = sl_bench_report_create("serving", setting);
    int err = start_ps(options, true, &bench->polling);
    err = err != 0 ? err : start_ps(options, false, &bench->event);
    if (err == 0 && (options->part == PART_ALL || options->part == PART_ONE_ROW ||
                     options->part == PART_WIDE_ROWS)) {
        err = sl_bench_peer_start(&bench->redis, &options->common, "redis --rows=%llu",
                                  (unsigned long long)options->rows);
    }
    return err;
}

static void end(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->cell_count; i++) {
        sl_bench_cell_fini(bench->cells[i]);
        free(bench->cells[i]);
    }
    sl_bench_peer_stop(&bench->redis);
    sl_bench_ps_stop(&bench->polling);
    sl_bench_ps_stop(&bench->event);
    sl_bench_table_reads_destroy(&bench->reads);
    sl_bench_report_destroy(&bench->report);
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_choice("part", &o->part, PART_CHOICES, "Which comparisons."),
        sl_bench_number("rows", &o->rows, 1, 1e8, "Rows of each table."),
        sl_bench_congestion(&o->congestion),
    };
    const int parsed = sl_bench_parse(
        "serving", "Holds one reactor against what the machine can do, and against Redis.", table,
        sizeof table / sizeof table[0], &o->common, argc, argv);
    return parsed != SL_CLI_RUN ? parsed : sl_bench_check_connections("serving", CONNECTIONS);
}

int sl_bench_serving_run(int argc, char **argv)
{
    struct options options = {
        .common = sl_bench_common_defaults(), .congestion = "cubic", .rows = 1000000};
    const int parsed = parse(argc, argv, &options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct bench bench = {.options = &options};
    int err = start(&bench);
    err = err != 0 ? err : compare(&bench);
    err = err != 0 ? err : sl_bench_report_finish(bench.report, &options.common);
    end(&bench);
    return err == 0 ? 0 : 1;
}
