/* starling-bench limits: what this machine can do, in the shapes in which Starling is measured,
 * with nothing of Starling on the way (bench/bare.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/echo.h"
#include "bench/options.h"
#include "core/assert.h"
#include "core/log.h"

#define CONTESTANTS_MAX      64
#define ECHO_CONNECTIONS_MAX 1000
#define MIB                  (1ULL << 20)
#define ROWS_MIB_MAX         ((1 << 19) - 1) /* 32 bits count the rows, of at least 128 bytes */

/* Before a record of a table stand 16 bytes of its own; rows at such places, and close together. */
#define RECORD_HEADER        16U

enum part { PART_ALL, PART_ECHO, PART_PULLS, PART_BULK, PART_MEMORY, PART_RING, PART_ROWS };
#define PART_CHOICES "all|echo|pulls|bulk|memory|ring|rows"

struct options {
    struct sl_bench_common common;
    int part;
    const char *congestion;
    uint64_t rows_mib, batch, seed;
};

/* What one contestant runs; which member is meant, its run() knows. */
union setup {
    struct sl_bench_bare_echo echo;
    struct sl_bench_bare_bulk bulk;
    struct sl_bench_bare_memory memory;
    uint32_t ring_batch;
    struct sl_bench_bare_rows_memory *rows;
};

struct limits {
    const struct options *options;
    struct sl_bench_contestant contestants[CONTESTANTS_MAX];
    union setup setups[CONTESTANTS_MAX];
    char names[CONTESTANTS_MAX][SL_BENCH_NAME_BYTES];
    uint32_t count;
};

static bool wanted(const struct limits *limits, enum part part)
{
    return limits->options->part == PART_ALL || limits->options->part == (int)part;
}

/* A further contestant, its name to be written. */
static struct sl_bench_contestant *add(struct limits *limits,
                                       int (*run)(void *, const struct sl_bench_common *, double *),
                                       const struct sl_bench_quantity *quantities, uint32_t count)
{
    sl_assert(limits->count < CONTESTANTS_MAX);
    struct sl_bench_contestant *contestant = &limits->contestants[limits->count];
    *contestant = (struct sl_bench_contestant){
        .name = limits->names[limits->count],
        .quantities = quantities,
        .quantity_count = count,
        .run = run,
        .ctx = &limits->setups[limits->count],
    };
    limits->count++;
    return contestant;
}

#define NAME(limits, ...)                                                                          \
    (void)snprintf((limits)->names[(limits)->count - 1], SL_BENCH_NAME_BYTES, __VA_ARGS__)

/* ---- Echo ------------------------------------------------------------------------------------ */

struct shape {
    uint32_t connections, depth, request_bytes, reply_bytes;
    bool sleeping;
    const char *what;
};

static const struct shape echoes[] = {
    {1, 1, 64, 64, false, "ping-pong"}, {1, 1, 64, 64, true, "ping-pong, sleeping"},
    {16, 1, 64, 64, false, NULL},       {16, 8, 64, 64, false, NULL},
    {16, 32, 64, 64, false, NULL},      {16, 32, 64, 64, true, "sleeping"},
    {16, 128, 64, 64, false, NULL},     {256, 1, 64, 64, false, NULL},
    {256, 8, 64, 64, false, NULL},      {ECHO_CONNECTIONS_MAX, 1, 64, 64, false, NULL},
};

/* What pulls and pushes put on the wire: headers, 8 bytes a key, 4 a value. */
static const struct shape pulls[] = {
    {1, 1, 80, 96, false, "as pulls of 1 row, dim 16"},
    {16, 32, 80, 96, false, "as pulls of 1 row, dim 16"},
    {4, 8, 872, 6432, false, "as pulls of 100 rows, dim 16"},
    {4, 8, 872, 25632, false, "as pulls of 100 rows, dim 64"},
    {4, 8, 80, 65536, false, "replies of 64 KiB"},
    {4, 8, 7272, 32, false, "as pushes of 100 rows, dim 16"},
};

static void add_echoes(struct limits *limits, const struct shape *shapes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct shape *shape = &shapes[i];
        const uint32_t index = limits->count++;
        sl_assert(index < CONTESTANTS_MAX);
        limits->contestants[index] =
            sl_bench_echo_contestant(limits->names[index], &limits->setups[index].echo);
        limits->setups[index].echo = (struct sl_bench_bare_echo){
            .connections = shape->connections,
            .depth = shape->depth,
            .request_bytes = shape->request_bytes,
            .reply_bytes = shape->reply_bytes,
            .polling = !shape->sleeping,
            .congestion = limits->options->congestion,
        };
        NAME(limits, "echo %" PRIu32 "/%" PRIu32 " B, %" PRIu32 " x %" PRIu32 "%s%s",
             shape->request_bytes, shape->reply_bytes, shape->connections, shape->depth,
             shape->what == NULL ? "" : ", ", shape->what == NULL ? "" : shape->what);
    }
}

/* ---- Bulk ------------------------------------------------------------------------------------ */

static const struct sl_bench_quantity BYTES_QUANTITY = {"bytes", "GB/s"};

static int run_bulk(void *ctx, const struct sl_bench_common *common, double *values)
{
    int err = sl_bench_bare_bulk_run(ctx, common, values);
    values[0] /= 1e9;
    return err;
}

static void add_transfer(struct limits *limits, uint64_t bytes, const char *size, bool to_server,
                         enum sl_bench_bare_way way)
{
    add(limits, run_bulk, &BYTES_QUANTITY, 1);
    limits->setups[limits->count - 1].bulk = (struct sl_bench_bare_bulk){
        .bytes = bytes,
        .to_server = to_server,
        .depth = bytes < MIB ? 8 : 2,
        .way = way,
        .congestion = limits->options->congestion,
    };
    NAME(limits, "bulk %s, %s, %s", size, to_server ? "push" : "pull", sl_bench_bare_way_name(way));
}

static void add_bulk(struct limits *limits)
{
    for (int way = SL_BENCH_BARE_BEST + 1; way < SL_BENCH_BARE_WAYS; way++) {
        add_transfer(limits, MIB, "1 MiB", true, (enum sl_bench_bare_way)way);
        add_transfer(limits, 16 * MIB, "16 MiB", true, (enum sl_bench_bare_way)way);
    }
    add_transfer(limits, 64 << 10, "64 KiB", false, SL_BENCH_BARE_BEST);
    add_transfer(limits, MIB, "1 MiB", false, SL_BENCH_BARE_BEST);
    add_transfer(limits, 16 * MIB, "16 MiB", false, SL_BENCH_BARE_BEST);
}

/* ---- Memory and rings ------------------------------------------------------------------------ */

static int run_memory(void *ctx, const struct sl_bench_common *common, double *values)
{
    int err = sl_bench_bare_memory_run(ctx, common, values);
    values[0] /= 1e9;
    return err;
}

static void add_memory(struct limits *limits)
{
    static const uint64_t kib[] = {128, 256 << 10}; /* in the second-level cache; in none */
    for (size_t i = 0; i < sizeof kib / sizeof kib[0]; i++) {
        for (uint32_t threads = 1; threads <= 2; threads++) {
            add(limits, run_memory, &BYTES_QUANTITY, 1);
            limits->setups[limits->count - 1].memory = (struct sl_bench_bare_memory){
                .bytes = kib[i] << 10, .pieces = 1, .threads = threads};
            NAME(limits, "memcpy of %" PRIu64 " KiB, %" PRIu32 " thread%s", kib[i], threads,
                 threads == 1 ? "" : "s");
        }
    }
}

static int run_ring(void *ctx, const struct sl_bench_common *common, double *values)
{
    const union setup *setup = ctx;
    int err = sl_bench_bare_spsc_run(setup->ring_batch, common, values);
    values[0] /= 1e6;
    return err;
}

static int run_round_trip(void *ctx, const struct sl_bench_common *common, double *values)
{
    (void)ctx;
    return sl_bench_bare_spsc_round_trip(common, values);
}

static void add_rings(struct limits *limits)
{
    static const struct sl_bench_quantity messages = {"messages", "M/s"};
    static const struct sl_bench_quantity time = {"time", "ns"};
    for (uint32_t batch = 1; batch <= 16; batch *= 16) {
        add(limits, run_ring, &messages, 1);
        limits->setups[limits->count - 1].ring_batch = batch;
        NAME(limits, "ring of 64 B messages, %" PRIu32 " at a time", batch);
    }
    add(limits, run_round_trip, &time, 1);
    NAME(limits, "ring there and back");
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static const struct sl_bench_quantity ROW_QUANTITIES[] = {{"gather per row", "ns"},
                                                          {"adagrad per row", "ns"}};

static int run_rows(void *ctx, const struct sl_bench_common *common, double *values)
{
    const union setup *setup = ctx;
    const struct sl_bench_bare_rows *rows = sl_bench_bare_rows_of(setup->rows);
    int err = sl_bench_bare_rows_gather(rows, common, &values[0]);
    return err != 0 ? err : sl_bench_bare_rows_update(rows, common, &values[1]);
}

static int add_rows(struct limits *limits)
{
    static const uint32_t dims[] = {16, 64, 128};
    const struct options *options = limits->options;
    for (size_t i = 0; i < 2 * sizeof dims / sizeof dims[0]; i++) {
        const uint32_t header = i % 2 == 0 ? RECORD_HEADER : 0;
        const uint32_t dim = dims[i / 2];
        const uint32_t record_bytes = header + 2 * dim * (uint32_t)sizeof(float);
        const struct sl_bench_bare_rows_drawn rows = {
            .rows = options->rows_mib * MIB / record_bytes,
            .dim = dim,
            .batch = (uint32_t)options->batch,
            .header_bytes = header,
            .seed = options->seed,
        };
        struct sl_bench_bare_rows_memory *memory;
        int err = sl_bench_bare_rows_create(&rows, &memory);
        if (err != 0) {
            return err;
        }
        add(limits, run_rows, ROW_QUANTITIES, 2);
        limits->setups[limits->count - 1].rows = memory;
        NAME(limits, "rows, dim %" PRIu32 ", %" PRIu32 " B apart", dim, record_bytes);
    }
    return 0;
}

static void destroy_rows(struct limits *limits)
{
    for (uint32_t i = 0; i < limits->count; i++) {
        if (limits->contestants[i].run == run_rows) {
            sl_bench_bare_rows_destroy(&limits->setups[i].rows);
        }
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int add_all(struct limits *limits)
{
    if (wanted(limits, PART_ECHO)) {
        add_echoes(limits, echoes, sizeof echoes / sizeof echoes[0]);
    }
    if (wanted(limits, PART_PULLS)) {
        add_echoes(limits, pulls, sizeof pulls / sizeof pulls[0]);
    }
    if (wanted(limits, PART_BULK)) {
        add_bulk(limits);
    }
    if (wanted(limits, PART_MEMORY)) {
        add_memory(limits);
    }
    if (wanted(limits, PART_RING)) {
        add_rings(limits);
    }
    return wanted(limits, PART_ROWS) ? add_rows(limits) : 0;
}

static int measure(struct limits *limits)
{
    const struct options *options = limits->options;
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "congestion control %s, rows in %" PRIu64 " MiB, batches of %" PRIu64,
                   options->congestion, options->rows_mib, options->batch);
    const struct sl_bench_contest contest = {
        .benchmark = "limits",
        .setting = setting,
        .contestants = limits->contestants,
        .count = limits->count,
    };
    return sl_bench_contest_report(&contest, &options->common);
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_choice("part", &o->part, PART_CHOICES, "Which baselines."),
        sl_bench_congestion(&o->congestion),
        sl_bench_number("rows-mib", &o->rows_mib, 1, ROWS_MIB_MAX,
                        "Memory of the rows of each kind."),
        sl_bench_number("batch", &o->batch, 1, 65536, "Rows of one call."),
        sl_bench_number("seed", &o->seed, 0, 0, "Seed of the rows drawn."),
    };
    const int parsed =
        sl_bench_parse("limits", "Measures the machine, with nothing of Starling on the way.",
                       table, sizeof table / sizeof table[0], &o->common, argc, argv);
    const bool echoes_wanted = o->part == PART_ALL || o->part == PART_ECHO;
    return parsed != SL_CLI_RUN || !echoes_wanted
               ? parsed
               : sl_bench_check_connections("limits", ECHO_CONNECTIONS_MAX);
}

int sl_bench_limits_run(int argc, char **argv)
{
    struct options options = {
        .common = sl_bench_common_defaults(),
        .congestion = "cubic",
        .rows_mib = 1024,
        .batch = 256,
        .seed = 1,
    };
    const int parsed = parse(argc, argv, &options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct limits *limits = calloc(1, sizeof *limits);
    if (limits == NULL) {
        sl_log_error("no memory for the benchmark");
        return 1;
    }
    limits->options = &options;
    int err = add_all(limits);
    if (err == 0) {
        err = measure(limits);
    }
    destroy_rows(limits);
    free(limits);
    return err == 0 ? 0 : 1;
}
