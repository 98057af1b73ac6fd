/* starling-bench ipc: co-located workers and server by shared memory and by TCP over loopback, in
 * turns, beside memcpy and what was measured of ps-lite: the counterpart of ps-lite's
 * test_ipc_benchmark. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/ipc_workers.h"
#include "bench/options.h"
#include "core/assert.h"
#include "core/limits.h"

#define SETTING_BYTES   512

#define CROWD_LEN       1024 /* bytes of a key's array with many workers */

/* Targets. */
#define TCP_OF_PSLITE   2.0
#define TCP_OF_BARE     0.8 /* from LONG_LEN on, with the handler that keeps */
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

/* Of each length by both ways, memcpy and ps-lite; round trips; crowds; bare sockets. */
#define ENTRIES_MAX (SL_BENCH_IPC_LENS_MAX * (WAYS + 2) + 2 * WAYS + 3)

/* Bare sockets, both ways at once: messages of the longest kind, as many bytes of them under way as
 * a server grants credit for. */
#define BARE        "bare echo"
#define BARE_TEXT   "64 KB both ways"
#define BARE_BYTES  SL_BENCH_BARE_MESSAGE_BYTES_MAX
#define BARE_DEPTH  (SL_LIMIT_CREDIT_BYTES / BARE_BYTES)

/* What ps-lite did on the machine that the targets were set on, by TCP over loopback: goodput of
 * push_pull with 40 keys under way, 1 worker, the better of dmlc's and BytePS's; and messages a
 * second of 8 workers at 1 KB. bench/README.md has the source. */
struct peer {
    uint64_t len;
    double goodput; /* Gb/s */
};
static const struct peer PSLITE[] = {{4ULL << 10, 1.13},
                                     {64ULL << 10, 4.9},
                                     {1ULL << 20, 12.2},
                                     {4ULL << 20, 11.6},
                                     {16ULL << 20, 12.6}};
#define PSLITE_LENS    (sizeof PSLITE / sizeof PSLITE[0])
#define PSLITE_KEYS    40
#define PSLITE_WORKERS 8
#define PSLITE_CROWD   66000.0 /* 1/s */

struct options {
    struct sl_bench_pslite_load load;
    uint64_t lens[SL_BENCH_IPC_LENS_MAX];
    uint32_t len_count, repeat; /* repeat 0: as many rounds as the time allows */
    uint64_t workers;
    int part, handler, polling;
    const char *congestion;
    struct sl_bench_common common;
};

/* Work of a contestant: turns of workers, a memcpy, or none (a constant). */
struct entry {
    const struct options *options;
    struct sl_bench_ipc_workers *workers;
    uint64_t len;
    struct sl_bench_ipc_turn turn;
    double constant;
};

struct bench {
    struct options options;
    struct sl_bench_ipc_workers *pairs[WAYS], *crowds[WAYS]; /* 1:1; many workers */
    struct entry entries[ENTRIES_MAX];
    struct sl_bench_contest contest;
};

static const struct sl_bench_quantity GOODPUT[] = {{"goodput", "Gb/s"}, {"time per key", "us"}};
static const struct sl_bench_quantity MESSAGES[] = {{"messages", "1/s"}};
static const struct sl_bench_quantity TRIPS[] = {{"p50", "us"}, {"p99", "us"}};

/* ---- Contestants ----------------------------------------------------------------------------- */

static int run_turn(const struct entry *entry, const struct sl_bench_common *common,
                    struct sl_bench_ipc_result *result)
{
    struct sl_bench_ipc_turn turn = entry->turn;
    turn.mode = entry->options->load.mode;
    turn.repeat = entry->options->repeat;
    turn.warm_up = common->warm_up;
    turn.seconds = common->seconds;
    return sl_bench_ipc_workers_run(entry->workers, &turn, result);
}

static int run_goodput(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_ipc_result result;
    int err;
    if (entry->workers != NULL) {
        err = run_turn(entry, common, &result);
    } else {
        const struct sl_bench_bare_memory memory = {.bytes = entry->len,
                                                    .pieces = entry->options->load.keys_per_server};
        err = sl_bench_bare_memory_run(&memory, common, &result.keys_per_s);
        result.keys_per_s /= (double)entry->len;
    }
    if (err == 0) {
        values[0] = result.keys_per_s * 8 * (double)entry->len / 1e9;
        values[1] = 1e6 / result.keys_per_s;
    }
    return err;
}

static int run_bare(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct options *options = ((const struct entry *)ctx)->options;
    const struct sl_bench_bare_echo echo = {.connections = 1,
                                            .depth = BARE_DEPTH,
                                            .request_bytes = BARE_BYTES,
                                            .reply_bytes = BARE_BYTES,
                                            .polling = options->polling != 0,
                                            .congestion = options->congestion};
    struct sl_metric_histogram latency;
    double requests_per_s;
    const int err = sl_bench_bare_echo_run(&echo, common, &requests_per_s, &latency);
    values[0] = err != 0 ? 0 : requests_per_s * 8 * BARE_BYTES / 1e9;
    return err;
}

static int run_crowd(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_ipc_result result;
    const int err = run_turn(ctx, common, &result);
    if (err == 0) {
        values[0] = result.keys_per_s;
    }
    return err;
}

static int run_round_trips(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_ipc_result result;
    const int err = run_turn(ctx, common, &result);
    if (err == 0) {
        values[0] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[1] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    }
    return err;
}

/* Not measured: what was, before. */
static int run_constant(void *ctx, const struct sl_bench_common *common, double *values)
{
    values[0] = ((const struct entry *)ctx)->constant;
    return 0;
}

typedef int run_fn(void *ctx, const struct sl_bench_common *common, double *values);

/* Writes "contestant, measurement". */
static void add(struct bench *bench, const struct entry *entry, run_fn *run,
                const struct sl_bench_quantity *quantities, uint32_t quantity_count,
                const char *transport, const char *who, const char *what)
{
    sl_assert(bench->contest.count < ENTRIES_MAX);
    struct entry *own = &bench->entries[bench->contest.count];
    *own = *entry;
    own->options = &bench->options;
    const struct sl_bench_contestant contestant = {.quantities = quantities,
                                                   .quantity_count = quantity_count,
                                                   .transport = transport,
                                                   .run = run,
                                                   .ctx = own};
    (void)sl_bench_contest_add(&bench->contest, &contestant, "%s, %s", who, what);
}

static void add_constant(struct bench *bench, double constant,
                         const struct sl_bench_quantity *quantity, const char *who,
                         const char *what)
{
    add(bench, &(struct entry){.constant = constant}, run_constant, quantity, 1, NULL, who, what);
}

/* The same load was measured of ps-lite. */
static bool has_peer(const struct options *options)
{
    return options->load.mode == SL_BENCH_PSLITE_PUSH_PULL &&
           options->load.keys_per_server == PSLITE_KEYS;
}

static void add_goodput(struct bench *bench, uint32_t which)
{
    const struct options *options = &bench->options;
    const uint64_t len = options->lens[which];
    char text[SL_BENCH_SIZE_BYTES];
    sl_bench_size_text(len, text);
    for (uint32_t way = 0; way < WAYS; way++) {
        const struct entry entry = {.workers = bench->pairs[way],
                                    .len = len,
                                    .turn = {.what = SL_BENCH_IPC_ROUNDS, .len = which}};
        add(bench, &entry, run_goodput, GOODPUT, 2, TRANSPORTS[way], WAY_NAMES[way], text);
    }
    if (len >= LONG_LEN) {
        add(bench, &(struct entry){.len = len}, run_goodput, GOODPUT, 2, NULL, "memcpy", text);
    }
    for (size_t i = 0; has_peer(options) && i < PSLITE_LENS; i++) {
        if (PSLITE[i].len == len) {
            add_constant(bench, PSLITE[i].goodput, GOODPUT, "ps-lite (README)", text);
        }
    }
}

static bool wanted(const struct options *options, enum part part)
{
    return options->part == PART_ALL || options->part == (int)part;
}

static void write_crowd(const struct options *options, char text[SL_BENCH_SIZE_BYTES])
{
    (void)snprintf(text, SL_BENCH_SIZE_BYTES, "%" PRIu64 ":1, 1 KB", options->workers);
}

static void add_entries(struct bench *bench)
{
    const struct options *options = &bench->options;
    char crowd[SL_BENCH_SIZE_BYTES];
    write_crowd(options, crowd);
    for (uint32_t i = 0; wanted(options, PART_GOODPUT) && i < options->len_count; i++) {
        add_goodput(bench, i);
    }
    if (wanted(options, PART_GOODPUT)) {
        add(bench, &(struct entry){0}, run_bare, GOODPUT, 1, TRANSPORTS[TCP], BARE, BARE_TEXT);
    }
    for (uint32_t way = 0; wanted(options, PART_ROUND_TRIP) && way < WAYS; way++) {
        const struct entry entry = {.workers = bench->pairs[way],
                                    .turn = {.what = SL_BENCH_IPC_ROUND_TRIPS}};
        add(bench, &entry, run_round_trips, TRIPS, 2, TRANSPORTS[way], WAY_NAMES[way],
            "round trip");
    }
    if (wanted(options, PART_ROUND_TRIP)) {
        add_constant(bench, ROUND_TRIP_US, TRIPS, "a microsecond", "round trip");
    }
    for (uint32_t way = 0; wanted(options, PART_CROWD) && way < WAYS; way++) {
        const struct entry entry = {.workers = bench->crowds[way],
                                    .turn = {.what = SL_BENCH_IPC_ROUNDS}};
        add(bench, &entry, run_crowd, MESSAGES, 1, TRANSPORTS[way], WAY_NAMES[way], crowd);
    }
    if (wanted(options, PART_CROWD) && has_peer(options) && options->workers == PSLITE_WORKERS) {
        add_constant(bench, PSLITE_CROWD, MESSAGES, "ps-lite (README)", crowd);
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

/* The figure of the contestant of this name; NULL: it was not among them. */
static const struct sl_bench_figure *figure_of(const struct bench *bench, const char *who,
                                               const char *what, const char *quantity)
{
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s, %s", who, what);
    return sl_bench_contest_figure(&bench->contest, name, quantity);
}

/* `who` over `other`, where both were measured. */
static void add_ratio(const struct bench *bench, struct sl_bench_report *report, const char *what,
                      const char *quantity, const char *who, const char *other, double least)
{
    const struct sl_bench_figure *a = figure_of(bench, who, what, quantity);
    const struct sl_bench_figure *b = figure_of(bench, other, what, quantity);
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s, %s / %s", who, what, other);
    if (a != NULL && b != NULL) {
        sl_bench_report_ratio_of_transports(report, name, a, b, least, 0);
    }
}

static void add_bare_ratio(const struct bench *bench, struct sl_bench_report *report, uint64_t len,
                           const char *what)
{
    const struct sl_bench_figure *tcp = figure_of(bench, "tcp", what, "goodput");
    const struct sl_bench_figure *bare = figure_of(bench, BARE, BARE_TEXT, "goodput");
    const bool keeps = bench->options.handler == 0;
    char name[SL_BENCH_NAME_BYTES];
    (void)snprintf(name, sizeof name, "tcp, %s / " BARE, what);
    if (tcp != NULL && bare != NULL && len >= LONG_LEN) {
        sl_bench_report_ratio(report, name, tcp, bare, keeps ? TCP_OF_BARE : 0, 0);
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const struct options *options = &bench->options;
    char text[SL_BENCH_SIZE_BYTES];
    for (uint32_t i = 0; i < options->len_count; i++) {
        const double least = options->lens[i] == SHORT_LEN ? SHM_OF_TCP : 0;
        sl_bench_size_text(options->lens[i], text);
        add_ratio(bench, report, text, "goodput", "tcp", "ps-lite (README)", TCP_OF_PSLITE);
        add_bare_ratio(bench, report, options->lens[i], text);
        add_ratio(bench, report, text, "goodput", "shm", "tcp", least);
        add_ratio(bench, report, text, "goodput", "shm", "memcpy", SHM_OF_MEMCPY);
    }
    const struct sl_bench_figure *trip = figure_of(bench, "shm", "round trip", "p50");
    if (trip != NULL) {
        sl_bench_report_ratio(report, "shm, round trip, p50 / a microsecond", trip,
                              figure_of(bench, "a microsecond", "round trip", "p50"), 0, 1);
    }
    write_crowd(options, text);
    add_ratio(bench, report, text, "messages", "tcp", "ps-lite (README)", CROWD_OF_PSLITE);
    add_ratio(bench, report, text, "messages", "shm", "ps-lite (README)", CROWD_OF_PSLITE);
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Many workers share their core: none of them spins. */
static int start_one(const struct options *options, enum way way, bool is_crowd,
                     struct sl_bench_ipc_workers **out)
{
    struct sl_bench_ipc_options of_workers = {
        .workers = is_crowd ? (uint32_t)options->workers : 1,
        .no_shm = way == TCP,
        .server_polls = options->polling != 0,
        .workers_poll = options->polling != 0 && !is_crowd,
        .congestion = options->congestion,
        .server_core = options->common.server_core,
        .worker_core = options->common.client_core,
        .load = options->load,
        .lens = {is_crowd ? CROWD_LEN : SHORT_LEN},
        .len_count = 1,
    };
    if (!is_crowd && wanted(options, PART_GOODPUT)) {
        memcpy(of_workers.lens, options->lens, sizeof of_workers.lens);
        of_workers.len_count = options->len_count;
    }
    return sl_bench_ipc_workers_start(&of_workers, out);
}

static int start(struct bench *bench)
{
    const struct options *options = &bench->options;
    int err = 0;
    for (uint32_t way = 0; err == 0 && way < WAYS; way++) {
        if (wanted(options, PART_GOODPUT) || wanted(options, PART_ROUND_TRIP)) {
            err = start_one(options, (enum way)way, false, &bench->pairs[way]);
        }
        if (err == 0 && wanted(options, PART_CROWD)) {
            err = start_one(options, (enum way)way, true, &bench->crowds[way]);
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
    add_entries(bench);
    return sl_bench_contest_report(&bench->contest, "ipc", setting, conclude, bench,
                                   &options->common);
}

static void choose_lens(struct options *options, bool has_len)
{
    options->len_count = has_len ? 1 : (uint32_t)PSLITE_LENS;
    for (uint32_t i = 0; i < options->len_count; i++) {
        options->lens[i] = has_len ? options->load.len : PSLITE[i].len;
    }
}

static int parse(struct options *options, int argc, char **argv)
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
    int taken;
    const int parsed =
        sl_bench_pslite_options_parse(&program, own, sizeof own / sizeof own[0], &options->common,
                                      &options->handler, &options->load, &taken, argc, argv);
    if (parsed == SL_CLI_RUN) {
        options->repeat = taken >= 2 ? options->load.repeat : 0;
        choose_lens(options, taken >= 1);
    }
    return parsed;
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
    int err = start(&bench);
    err = err != 0 ? err : measure(&bench);
    for (uint32_t way = 0; way < WAYS; way++) {
        sl_bench_ipc_workers_stop(&bench.pairs[way]);
        sl_bench_ipc_workers_stop(&bench.crowds[way]);
    }
    return err == 0 ? 0 : 1;
}
