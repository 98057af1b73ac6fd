/* starling-bench ipc: co-located workers and server by shared memory and by TCP over loopback, in
 * turns, beside memcpy and what was measured of ps-lite: the counterpart of ps-lite's
 * test_ipc_benchmark. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/ipc_workers.h"
#include "bench/options.h"
#include "core/assert.h"
#include "core/log.h"

#define REASON_BYTES    512
#define SETTING_BYTES   512

#define CROWD_LEN       1024 /* bytes of a key's array with many workers */

/* Targets. */
#define TCP_OF_PSLITE   2.0
#define SHM_OF_TCP      4.0 /* at SHORT_LEN */
#define SHM_OF_MEMCPY   0.7 /* from LONG_LEN on */
#define ROUND_TRIP_US   1.0 /* at most */
#define CROWD_OF_PSLITE 5.0
#define SHORT_LEN       (4ULL << 10)
#define LONG_LEN        (1ULL << 20)

#define PART_CHOICES    "all|goodput|round-trip|crowd"
enum part { PART_ALL, PART_GOODPUT, PART_ROUND_TRIP, PART_CROWD };

enum way { SHM, TCP, WAYS };
static const char *const TRANSPORTS[WAYS] = {[SHM] = "shared memory", [TCP] = "TCP"};
static const char *const WAY_NAMES[WAYS] = {[SHM] = "shm", [TCP] = "tcp"};

/* Of each length by both ways, memcpy and ps-lite; round trips; crowds. */
#define CONTESTANTS_MAX (SL_BENCH_IPC_LENS_MAX * (WAYS + 2) + 2 * WAYS + 2)

/* What ps-lite did on the machine that the targets were set on, by TCP over loopback: goodput of
 * push_pull with 40 keys under way, 1 worker, the better of dmlc's and BytePS's; and messages a
 * second of 8 workers at 1 KB. bench/README.md has the source. */
struct peer {
    uint64_t len;
    double goodput; /* Gb/s */
};
static const struct peer PSLITE[] = {
    {4ULL << 10, 1.13}, {64ULL << 10, 4.9},  {1ULL << 20, 12.2},
    {4ULL << 20, 11.6}, {16ULL << 20, 12.6},
};
#define PSLITE_KEYS    40
#define PSLITE_WORKERS 8
#define PSLITE_CROWD   66000.0 /* 1/s */

struct options {
    struct sl_bench_pslite_load load;
    bool has_len, has_repeat;
    uint64_t lens[SL_BENCH_IPC_LENS_MAX];
    uint32_t len_count;
    uint64_t workers;
    int part, handler, polling;
    const char *congestion;
    struct sl_bench_common common;
};

struct bench;

struct entry {
    struct bench *bench;
    enum way way;
    uint32_t len;                       /* which one */
    struct sl_bench_bare_memory memory; /* of a memcpy */
    double constant;                    /* of a peer */
    char name[SL_BENCH_NAME_BYTES];
};

struct bench {
    struct options options;
    struct sl_bench_ipc_workers *pairs[WAYS], *crowds[WAYS]; /* 1:1; many workers */
    struct entry entries[CONTESTANTS_MAX];
    struct sl_bench_contestant contestants[CONTESTANTS_MAX];
    uint32_t count;
};

static const struct sl_bench_quantity GOODPUT[] = {{"goodput", "Gb/s"}, {"time per key", "us"}};
static const struct sl_bench_quantity MESSAGES[] = {{"messages", "1/s"}};
static const struct sl_bench_quantity TRIPS[] = {{"p50", "us"}, {"p99", "us"}};
static const struct sl_bench_quantity P50[] = {{"p50", "us"}};

/* ---- Contestants ----------------------------------------------------------------------------- */

static void tell_goodput(double keys_per_s, uint64_t len, double *values)
{
    values[0] = keys_per_s * 8 * (double)len / 1e9;
    values[1] = 1e6 / keys_per_s;
}

static int run_turn(struct sl_bench_ipc_workers *workers, const struct entry *entry,
                    enum sl_bench_ipc_what what, const struct sl_bench_common *common,
                    struct sl_bench_ipc_result *result)
{
    const struct options *options = &entry->bench->options;
    const struct sl_bench_ipc_turn turn = {
        .what = what,
        .mode = options->load.mode,
        .len = entry->len,
        .repeat = options->has_repeat ? options->load.repeat : 0,
        .warm_up = common->warm_up,
        .seconds = common->seconds,
    };
    return sl_bench_ipc_workers_run(workers, &turn, result);
}

static int run_pair(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_ipc_result result;
    const int err =
        run_turn(entry->bench->pairs[entry->way], entry, SL_BENCH_IPC_ROUNDS, common, &result);
    if (err == 0) {
        tell_goodput(result.keys_per_s, entry->bench->options.lens[entry->len], values);
    }
    return err;
}

static int run_crowd(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_ipc_result result;
    const int err =
        run_turn(entry->bench->crowds[entry->way], entry, SL_BENCH_IPC_ROUNDS, common, &result);
    if (err == 0) {
        values[0] = result.keys_per_s;
    }
    return err;
}

static int run_round_trips(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_ipc_result result;
    const int err =
        run_turn(entry->bench->pairs[entry->way], entry, SL_BENCH_IPC_ROUND_TRIPS, common, &result);
    if (err == 0) {
        values[0] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[1] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    }
    return err;
}

static int run_memory(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    double bytes_per_s;
    const int err = sl_bench_bare_memory_run(&entry->memory, common, &bytes_per_s);
    if (err == 0) {
        const double len = (double)entry->memory.bytes;
        tell_goodput(bytes_per_s / len, entry->memory.bytes, values);
    }
    return err;
}

/* Not measured: what was, before. */
static int run_constant(void *ctx, const struct sl_bench_common *common, double *values)
{
    (void)common;
    const struct entry *entry = ctx;
    values[0] = entry->constant;
    return 0;
}

static struct entry *add(struct bench *bench,
                         int (*run)(void *, const struct sl_bench_common *, double *),
                         const struct sl_bench_quantity *quantities, uint32_t quantity_count)
{
    sl_assert(bench->count < CONTESTANTS_MAX);
    struct entry *entry = &bench->entries[bench->count];
    entry->bench = bench;
    bench->contestants[bench->count++] = (struct sl_bench_contestant){
        .name = entry->name,
        .quantities = quantities,
        .quantity_count = quantity_count,
        .run = run,
        .ctx = entry,
    };
    return entry;
}

static void set_way(struct bench *bench, struct entry *entry, enum way way)
{
    entry->way = way;
    bench->contestants[entry - bench->entries].transport = TRANSPORTS[way];
}

static void write_len(uint64_t len, char text[32])
{
    if (len % (1U << 20) == 0) {
        (void)snprintf(text, 32, "%" PRIu64 " MB", len >> 20);
    } else if (len % (1U << 10) == 0) {
        (void)snprintf(text, 32, "%" PRIu64 " KB", len >> 10);
    } else {
        (void)snprintf(text, 32, "%" PRIu64 " bytes", len);
    }
}

/* NULL: none was measured of this length, or of this load. */
static const struct peer *peer_of(const struct options *options, uint64_t len)
{
    if (options->load.mode != SL_BENCH_PSLITE_PUSH_PULL ||
        options->load.keys_per_server != PSLITE_KEYS) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof PSLITE / sizeof PSLITE[0]; i++) {
        if (PSLITE[i].len == len) {
            return &PSLITE[i];
        }
    }
    return NULL;
}

static void add_goodput(struct bench *bench, uint32_t which)
{
    const struct options *options = &bench->options;
    const uint64_t len = options->lens[which];
    const struct peer *peer = peer_of(options, len);
    char text[32];
    write_len(len, text);
    for (uint32_t way = 0; way < WAYS; way++) {
        struct entry *entry = add(bench, run_pair, GOODPUT, 2);
        set_way(bench, entry, (enum way)way);
        entry->len = which;
        (void)snprintf(entry->name, sizeof entry->name, "%s, %s", WAY_NAMES[way], text);
    }
    if (len >= LONG_LEN) {
        struct entry *entry = add(bench, run_memory, GOODPUT, 2);
        entry->memory =
            (struct sl_bench_bare_memory){.bytes = len, .pieces = options->load.keys_per_server};
        (void)snprintf(entry->name, sizeof entry->name, "memcpy, %s", text);
    }
    if (peer != NULL) {
        struct entry *entry = add(bench, run_constant, GOODPUT, 1);
        entry->constant = peer->goodput;
        (void)snprintf(entry->name, sizeof entry->name, "ps-lite (README), %s", text);
    }
}

static bool wanted(const struct options *options, enum part part)
{
    return options->part == PART_ALL || options->part == (int)part;
}

static bool crowd_has_peer(const struct options *options)
{
    return options->workers == PSLITE_WORKERS && options->load.mode == SL_BENCH_PSLITE_PUSH_PULL &&
           options->load.keys_per_server == PSLITE_KEYS;
}

static void add_entries(struct bench *bench)
{
    const struct options *options = &bench->options;
    for (uint32_t i = 0; wanted(options, PART_GOODPUT) && i < options->len_count; i++) {
        add_goodput(bench, i);
    }
    for (uint32_t way = 0; wanted(options, PART_ROUND_TRIP) && way < WAYS; way++) {
        struct entry *entry = add(bench, run_round_trips, TRIPS, 2);
        set_way(bench, entry, (enum way)way);
        (void)snprintf(entry->name, sizeof entry->name, "%s, round trip", WAY_NAMES[way]);
    }
    if (wanted(options, PART_ROUND_TRIP)) {
        struct entry *entry = add(bench, run_constant, P50, 1);
        entry->constant = ROUND_TRIP_US;
        (void)snprintf(entry->name, sizeof entry->name, "a microsecond, round trip");
    }
    for (uint32_t way = 0; wanted(options, PART_CROWD) && way < WAYS; way++) {
        struct entry *entry = add(bench, run_crowd, MESSAGES, 1);
        set_way(bench, entry, (enum way)way);
        (void)snprintf(entry->name, sizeof entry->name, "%s, %" PRIu64 ":1, 1 KB", WAY_NAMES[way],
                       options->workers);
    }
    if (wanted(options, PART_CROWD) && crowd_has_peer(options)) {
        struct entry *entry = add(bench, run_constant, MESSAGES, 1);
        entry->constant = PSLITE_CROWD;
        (void)snprintf(entry->name, sizeof entry->name, "ps-lite (README), 8:1, 1 KB");
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

/* The figure of the contestant of this name; NULL: it was not among them. */
static const struct sl_bench_figure *figure_of(const struct bench *bench, const char *who,
                                               const char *what)
{
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s, %s", who, what);
    for (uint32_t i = 0; i < bench->count; i++) {
        if (strcmp(bench->entries[i].name, name) == 0) {
            return bench->contestants[i].figures[0];
        }
    }
    return NULL;
}

/* `who` over `other`, where both were measured. */
static void add_ratio(const struct bench *bench, struct sl_bench_report *report, const char *what,
                      const char *who, const char *other, double least)
{
    const struct sl_bench_figure *a = figure_of(bench, who, what);
    const struct sl_bench_figure *b = figure_of(bench, other, what);
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s, %s / %s", who, what, other);
    if (a != NULL && b != NULL) {
        sl_bench_report_ratio_of_transports(report, name, a, b, least, 0);
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const struct options *options = &bench->options;
    for (uint32_t i = 0; i < options->len_count; i++) {
        const uint64_t len = options->lens[i];
        char text[32];
        write_len(len, text);
        add_ratio(bench, report, text, "tcp", "ps-lite (README)", TCP_OF_PSLITE);
        add_ratio(bench, report, text, "shm", "tcp", len == SHORT_LEN ? SHM_OF_TCP : 0);
        add_ratio(bench, report, text, "shm", "memcpy", SHM_OF_MEMCPY);
    }
    const struct sl_bench_figure *trip = figure_of(bench, "shm", "round trip");
    if (trip != NULL) {
        sl_bench_report_ratio(report, "shm, round trip, p50 / a microsecond", trip,
                              figure_of(bench, "a microsecond", "round trip"), 0, 1);
    }
    char crowd[32];
    (void)snprintf(crowd, sizeof crowd, "%" PRIu64 ":1, 1 KB", options->workers);
    add_ratio(bench, report, crowd, "tcp", "ps-lite (README)", CROWD_OF_PSLITE);
    add_ratio(bench, report, crowd, "shm", "ps-lite (README)", CROWD_OF_PSLITE);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int start_pair(struct bench *bench, enum way way)
{
    const struct options *options = &bench->options;
    struct sl_bench_ipc_options of_workers = {
        .workers = 1,
        .no_shm = way == TCP,
        .server_polls = options->polling != 0,
        .workers_poll = options->polling != 0,
        .congestion = options->congestion,
        .server_core = options->common.server_core,
        .worker_core = options->common.client_core,
        .load = options->load,
        .len_count = options->len_count,
    };
    memcpy(of_workers.lens, options->lens, sizeof of_workers.lens);
    if (!wanted(options, PART_GOODPUT)) {
        of_workers.len_count = 1; /* no more memory than is used */
        of_workers.lens[0] = SHORT_LEN;
    }
    return sl_bench_ipc_workers_start(&of_workers, &bench->pairs[way]);
}

/* Many workers share their core: none of them spins. */
static int start_crowd(struct bench *bench, enum way way)
{
    const struct options *options = &bench->options;
    const struct sl_bench_ipc_options of_workers = {
        .workers = (uint32_t)options->workers,
        .no_shm = way == TCP,
        .server_polls = options->polling != 0,
        .congestion = options->congestion,
        .server_core = options->common.server_core,
        .worker_core = options->common.client_core,
        .load = options->load,
        .len_count = 1,
        .lens = {CROWD_LEN},
    };
    return sl_bench_ipc_workers_start(&of_workers, &bench->crowds[way]);
}

static int start(struct bench *bench)
{
    const struct options *options = &bench->options;
    int err = 0;
    for (uint32_t way = 0; err == 0 && way < WAYS; way++) {
        if (wanted(options, PART_GOODPUT) || wanted(options, PART_ROUND_TRIP)) {
            err = start_pair(bench, (enum way)way);
        }
        if (err == 0 && wanted(options, PART_CROWD)) {
            err = start_crowd(bench, (enum way)way);
        }
    }
    return err;
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[SETTING_BYTES];
    (void)snprintf(setting, sizeof setting,
                   "%s of %u keys under way, %s; round trips are pulls of one row of 64 bytes; %s, "
                   "TCP congestion control %s",
                   sl_bench_pslite_mode_name(options->load.mode), options->load.keys_per_server,
                   options->load.handler == SL_BENCH_PSLITE_SUM
                       ? "the server adds pushes up"
                       : "the server keeps the first push of a key",
                   options->polling != 0 ? "polling" : "event mode", options->congestion);
    const struct sl_bench_contest contest = {
        .benchmark = "ipc",
        .setting = setting,
        .contestants = bench->contestants,
        .count = bench->count,
        .conclude = conclude,
        .ctx = bench,
    };
    return sl_bench_contest_report(&contest, &options->common);
}

static int parse_flags(struct options *options, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_choice("part", &options->part, PART_CHOICES, "What is measured."),
        sl_bench_number("workers", &options->workers, 1, SL_BENCH_PSLITE_WORKERS_MAX,
                        "Of one server, where there are many."),
        sl_bench_choice("handler", &options->handler, "keep|sum",
                        "What the server does with pushes: as test_ipc_benchmark's own it keeps "
                        "the first of each key and acknowledges the others; or it adds up f32."),
        sl_bench_choice("polling", &options->polling, "false|true",
                        "Whether server and worker spin when they are idle; of many workers none "
                        "does."),
        sl_bench_congestion(&options->congestion),
    };
    static const struct sl_bench_program program = {
        .name = "ipc",
        .summary = "Workers and server of one machine: shared memory, TCP over loopback and "
                   "memcpy in turns. LEN bytes of each key (without it 4 KB to 16 MB), REPEAT "
                   "rounds in each turn (without it as many as --seconds allow), MODE 0 push then "
                   "pull, 1 push_pull (the default), 2 push, 3 pull; NUM_KEY_PER_SERVER (40).",
        .usage = "[LEN [REPEAT [MODE]]] [options]",
    };
    return sl_bench_parse_program(&program, own, sizeof own / sizeof own[0], &options->common, argc,
                                  argv);
}

static void choose_lens(struct options *options)
{
    if (options->has_len) {
        options->lens[options->len_count++] = options->load.len;
        return;
    }
    for (size_t i = 0; i < sizeof PSLITE / sizeof PSLITE[0]; i++) {
        options->lens[options->len_count++] = PSLITE[i].len;
    }
}

/* SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. */
static int parse(struct options *options, int argc, char **argv)
{
    char reason[REASON_BYTES];
    int taken = 0;
    int err = sl_bench_pslite_options_arguments(&options->load, argc, argv, &taken, reason,
                                                sizeof reason);
    if (err == 0) {
        err = sl_bench_pslite_options_environment(&options->load, reason, sizeof reason);
    }
    if (err == 0) {
        argv[taken] = argv[0];
        const int parsed = parse_flags(options, argc - taken, argv + taken);
        if (parsed != SL_CLI_RUN) {
            return parsed;
        }
        options->has_len = taken >= 1;
        options->has_repeat = taken >= 2;
        options->load.handler = (enum sl_bench_pslite_handler)options->handler;
        err = sl_bench_pslite_options_check(&options->load, reason, sizeof reason);
        choose_lens(options);
    }
    if (err != 0) {
        (void)fprintf(stderr, "starling-bench ipc: %s\n", reason);
    }
    return err;
}

int sl_bench_ipc_run(int argc, char **argv)
{
    static struct bench bench;
    bench.options = (struct options){
        .load = sl_bench_pslite_options_defaults(),
        .workers = PSLITE_WORKERS,
        .polling = 1,
        .congestion = "cubic",
        .common = sl_bench_common_defaults(),
    };
    const int parsed = parse(&bench.options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    add_entries(&bench);
    int err = start(&bench);
    err = err != 0 ? err : measure(&bench);
    for (uint32_t way = 0; way < WAYS; way++) {
        sl_bench_ipc_workers_stop(&bench.pairs[way]);
        sl_bench_ipc_workers_stop(&bench.crowds[way]);
    }
    return err == 0 ? 0 : 1;
}
