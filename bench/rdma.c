/* starling-bench rdma: pulls, pushes and frames over an RDMA device, in turns with perftest on the
 * same device and cores. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/frames.h"
#include "bench/ipc_workers.h"
#include "bench/options.h"
#include "bench/peers.h"
#include "core/assert.h"
#include "net/transport.h"

#define SETTING_BYTES     512
#define SIZES_MAX         4
#define BYTES_MAX         ((uint64_t)64 << 20)
#define FRAME_BYTES       64U

/* Targets, of what polls; those of the first two from LONG_LEN on. */
#define PULL_OF_WRITE     0.9
#define PUSH_OF_READ      0.9
#define ROUND_TRIP_OF_LAT 1.3 /* at most */
#define RATE_OF_SEND      0.8
#define LONG_LEN          (1ULL << 20)

#define PART_CHOICES      "all|bulk|round-trip|rate"
enum part { PART_ALL, PART_BULK, PART_ROUND_TRIP, PART_RATE };

enum mode { POLLING, EVENT, MODES };
static const char *const MODE_NAMES[MODES] = {[POLLING] = "polling", [EVENT] = "event mode"};

/* perftest's two and each mode's pull and push, of each size; round trips of perftest, frames and
 * rows in both modes; rates. */
#define CONTESTANTS_MAX (SIZES_MAX * (2 + 2 * MODES) + 3 * MODES + 1 + MODES)

struct options {
    const char *sizes, *device, *address;
    uint64_t depth, bulk_depth;
    int part;
    struct sl_bench_common common;
    uint64_t bytes[SIZES_MAX];
    uint32_t size_count;
};

struct bench;

/* What one contestant is made of: one of perftest and frames, or of the workers' turns. */
struct entry {
    struct bench *bench;
    enum mode mode;
    uint32_t size; /* which one */
    enum sl_bench_pslite_mode way;
    struct sl_bench_peer_load test;
    struct sl_bench_frames frames;
};

struct bench {
    struct options options;
    struct sl_bench_rdma_device device;
    char endpoint[96];
    struct sl_bench_peer perftest;
    struct sl_bench_ipc_workers *workers[MODES];
    struct entry entries[CONTESTANTS_MAX];
    struct sl_bench_contest contest;
};

static const struct sl_bench_quantity BYTES[] = {{"bytes", "1/s"}};
static const struct sl_bench_quantity TRIPS[] = {{"p50", "us"}, {"p99", "us"}};
static const struct sl_bench_quantity RATES[] = {{"messages", "1/s"}};

/* ---- Runs ------------------------------------------------------------------------------------ */

static int run_turn(const struct entry *entry, enum sl_bench_ipc_what what,
                    const struct sl_bench_common *common, struct sl_bench_ipc_result *result)
{
    const struct sl_bench_ipc_turn turn = {.what = what,
                                           .mode = entry->way,
                                           .len = entry->size,
                                           .warm_up = common->warm_up,
                                           .seconds = common->seconds};
    return sl_bench_ipc_workers_run(entry->bench->workers[entry->mode], &turn, result);
}

static int run_bulk(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_ipc_result result;
    const int err = run_turn(entry, SL_BENCH_IPC_ROUNDS, common, &result);
    if (err == 0) {
        values[0] = result.keys_per_s * (double)entry->bench->options.bytes[entry->size];
    }
    return err;
}

static void tell_trips(const struct sl_metric_histogram *latency, double *values)
{
    values[0] = (double)sl_metric_quantile(latency, 0.5) / 1e3;
    values[1] = (double)sl_metric_quantile(latency, 0.99) / 1e3;
}

static int run_row(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_ipc_result result;
    const int err = run_turn(ctx, SL_BENCH_IPC_ROUND_TRIPS, common, &result);
    if (err == 0) {
        tell_trips(&result.latency, values);
    }
    return err;
}

static int run_frames(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_frames_result result;
    const int err = sl_bench_frames_run(&entry->frames, common, &result);
    if (err == 0 && entry->frames.answers) {
        tell_trips(&result.latency, values);
    } else if (err == 0) {
        values[0] = result.frames_per_s;
    }
    return err;
}

/* ---- Contestants ----------------------------------------------------------------------------- */

/* Writes "contestant, measurement". A contestant without a ctx has its entry. */
static struct entry *add(struct bench *bench, enum mode mode,
                         const struct sl_bench_contestant *contestant, const char *who,
                         const char *what)
{
    sl_assert(bench->contest.count < CONTESTANTS_MAX);
    const uint32_t index = sl_bench_contest_add(&bench->contest, contestant, "%s, %s", who, what);
    struct entry *entry = &bench->entries[index];
    entry->bench = bench;
    entry->mode = mode;
    if (contestant->ctx == NULL) {
        bench->contest.contestants[index].ctx = entry;
    }
    return entry;
}

/* size: bytes of a message; depth: messages in flight. */
static void add_perftest(struct bench *bench, const char *tool, const char *what, uint64_t size,
                         uint64_t depth, enum mode mode)
{
    struct sl_bench_peer_load *load = &bench->entries[bench->contest.count].test;
    if (!sl_bench_peer_is_there(&bench->perftest)) {
        return;
    }
    *load = (struct sl_bench_peer_load){
        .peer = &bench->perftest,
        .kind = strcmp(tool, "ib_send_lat") == 0 ? SL_BENCH_PEER_TRIPS : SL_BENCH_PEER_MESSAGES};
    (void)snprintf(load->words, sizeof load->words, "%s %" PRIu64 " %" PRIu64 " %s", tool, size,
                   depth, mode == EVENT ? "events" : "poll");
    const struct sl_bench_contestant contestant = sl_bench_peer_contestant(tool, load);
    (void)add(bench, mode, &contestant, tool, what);
}

static const struct sl_bench_contestant OUR_BULK = {
    .quantities = BYTES, .quantity_count = 1, .run = run_bulk};
static const struct sl_bench_contestant OUR_ROWS = {
    .quantities = TRIPS, .quantity_count = 2, .run = run_row};
static const struct sl_bench_contestant OUR_TRIPS = {
    .quantities = TRIPS, .quantity_count = 2, .run = run_frames};
static const struct sl_bench_contestant OUR_RATES = {
    .quantities = RATES, .quantity_count = 1, .run = run_frames};

static void add_ours(struct bench *bench, enum mode mode, enum sl_bench_pslite_mode way,
                     uint32_t size, const char *what)
{
    char who[SL_BENCH_NAME_BYTES];
    (void)snprintf(who, sizeof who, "%s, %s", sl_bench_pslite_mode_name(way), MODE_NAMES[mode]);
    struct entry *entry = add(bench, mode, &OUR_BULK, who, what);
    entry->way = way;
    entry->size = size;
}

static void add_bulk(struct bench *bench, uint32_t size)
{
    const uint64_t bytes = bench->options.bytes[size], depth = bench->options.bulk_depth;
    char what[32];
    sl_bench_size_text(bench->options.bytes[size], what);
    add_perftest(bench, "ib_write_bw", what, bytes, depth, POLLING);
    add_ours(bench, POLLING, SL_BENCH_PSLITE_PULL, size, what);
    add_ours(bench, EVENT, SL_BENCH_PSLITE_PULL, size, what);
    add_perftest(bench, "ib_read_bw", what, bytes, depth, POLLING);
    add_ours(bench, POLLING, SL_BENCH_PSLITE_PUSH, size, what);
    add_ours(bench, EVENT, SL_BENCH_PSLITE_PUSH, size, what);
}

static void add_frames(struct bench *bench, enum mode mode, bool answers)
{
    struct entry *entry =
        add(bench, mode, answers ? &OUR_TRIPS : &OUR_RATES, "frames", MODE_NAMES[mode]);
    entry->frames = (struct sl_bench_frames){
        .endpoint = bench->endpoint,
        .rdma_device = bench->device.name,
        .bytes = FRAME_BYTES,
        .depth = answers ? 1 : (uint32_t)bench->options.depth,
        .answers = answers,
        .polling = mode == POLLING,
    };
}

static void add_round_trips(struct bench *bench)
{
    for (int mode = 0; mode < MODES; mode++) {
        add_perftest(bench, "ib_send_lat", MODE_NAMES[mode], FRAME_BYTES, 1, (enum mode)mode);
        add_frames(bench, (enum mode)mode, true);
        (void)add(bench, (enum mode)mode, &OUR_ROWS, "pull of a row", MODE_NAMES[mode]);
    }
}

static void add_rates(struct bench *bench)
{
    add_perftest(bench, "ib_send_bw", "64 bytes", FRAME_BYTES, bench->options.depth, POLLING);
    for (int mode = 0; mode < MODES; mode++) {
        add_frames(bench, (enum mode)mode, false);
    }
}

static bool wanted(const struct bench *bench, enum part part)
{
    return bench->options.part == PART_ALL || bench->options.part == (int)part;
}

static void add_all(struct bench *bench)
{
    for (uint32_t i = 0; wanted(bench, PART_BULK) && i < bench->options.size_count; i++) {
        add_bulk(bench, i);
    }
    if (wanted(bench, PART_ROUND_TRIP)) {
        add_round_trips(bench);
    }
    if (wanted(bench, PART_RATE)) {
        add_rates(bench);
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

static void conclude_bulk(const struct bench *bench, struct sl_bench_report *report, uint32_t size)
{
    const bool is_long = bench->options.bytes[size] >= LONG_LEN;
    char what[32], name[SL_BENCH_NAME_BYTES], write[64], read[64];
    sl_bench_size_text(bench->options.bytes[size], what);
    (void)snprintf(write, sizeof write, "ib_write_bw, %s", what);
    (void)snprintf(read, sizeof read, "ib_read_bw, %s", what);
    for (int mode = 0; mode < MODES; mode++) {
        const bool held = is_long && mode == POLLING;
        (void)snprintf(name, sizeof name, "pull, %s, %s", MODE_NAMES[mode], what);
        sl_bench_contest_ratio(&bench->contest, report, "bytes", name, write,
                               held ? PULL_OF_WRITE : 0, 0);
        (void)snprintf(name, sizeof name, "push, %s, %s", MODE_NAMES[mode], what);
        sl_bench_contest_ratio(&bench->contest, report, "bytes", name, read,
                               held ? PUSH_OF_READ : 0, 0);
    }
    sl_bench_contest_ratio(&bench->contest, report, "bytes", read, write, 0, 0);
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    for (uint32_t i = 0; i < bench->options.size_count; i++) {
        conclude_bulk(bench, report, i);
    }
    for (int mode = 0; mode < MODES; mode++) {
        const double most = mode == POLLING ? ROUND_TRIP_OF_LAT : 0;
        const double least = mode == POLLING ? RATE_OF_SEND : 0;
        char frames[64], row[64], other[64];
        (void)snprintf(frames, sizeof frames, "frames, %s", MODE_NAMES[mode]);
        (void)snprintf(row, sizeof row, "pull of a row, %s", MODE_NAMES[mode]);
        (void)snprintf(other, sizeof other, "ib_send_lat, %s", MODE_NAMES[mode]);
        sl_bench_contest_ratio(&bench->contest, report, "p50", frames, other, 0, most);
        sl_bench_contest_ratio(&bench->contest, report, "p50", row, other, 0, 0);
        sl_bench_contest_ratio(&bench->contest, report, "messages", frames, "ib_send_bw, 64 bytes",
                               least, 0);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int start(struct bench *bench)
{
    const struct options *options = &bench->options;
    int err = 0;
    const bool needed = wanted(bench, PART_BULK) || wanted(bench, PART_ROUND_TRIP);
    for (int mode = 0; err == 0 && mode < MODES && needed; mode++) {
        struct sl_bench_ipc_options of_workers = {
            .workers = 1,
            .no_shm = true,
            .rdma_address = bench->device.address,
            .rdma_device = bench->device.name,
            .server_polls = mode == POLLING,
            .workers_poll = mode == POLLING,
            .server_core = options->common.server_core,
            .worker_core = options->common.client_core,
            .load = sl_bench_pslite_options_defaults(),
            .len_count = options->size_count,
        };
        of_workers.load.keys_per_server = (uint32_t)options->bulk_depth;
        memcpy(of_workers.lens, options->bytes, sizeof options->bytes);
        err = sl_bench_ipc_workers_start(&of_workers, &bench->workers[mode]);
    }
    return err;
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[SETTING_BYTES];
    (void)snprintf(setting, sizeof setting,
                   "%s at %s; pulls and pushes of %" PRIu64
                   " arrays under way, as many messages of "
                   "ib_write_bw and ib_read_bw; the server keeps the first push of a key; frames "
                   "of %u bytes, %" PRIu64 " under way one way; round trips of one, and of a row "
                   "of 64 bytes",
                   bench->device.name, bench->device.address, options->bulk_depth, FRAME_BYTES,
                   options->depth);
    return sl_bench_contest_report(&bench->contest, "rdma", setting, conclude, bench,
                                   &options->common);
}

static int parse(struct options *options, int argc, char **argv)
{
    const struct sl_cli_option own[] = {
        sl_bench_choice("part", &options->part, PART_CHOICES, "What is measured."),
        sl_bench_text("device", &options->device, "NAME",
                      "The RDMA device; without it the first that is active."),
        sl_bench_text("address", &options->address, "IP",
                      "Of the device's network interface, where the system does not tell it."),
        sl_bench_text("sizes", &options->sizes, "SIZE,...",
                      "Bytes of what is pulled and pushed, such as 64K,1M."),
        sl_bench_number("bulk-depth", &options->bulk_depth, 1, 128,
                        "Of them under way at once, each an array of its own."),
        sl_bench_number("depth", &options->depth, 1, SL_BENCH_FRAMES_DEPTH_MAX,
                        "Messages of 64 bytes under way at once, one way."),
    };
    int parsed = sl_bench_parse("rdma",
                                "Pulls, pushes and frames over an RDMA device, by a ps and a "
                                "worker of this machine, in turns with perftest.",
                                own, sizeof own / sizeof own[0], &options->common, argc, argv);
    return parsed != SL_CLI_RUN ? parsed
                                : sl_bench_sizes("rdma", "sizes", options->sizes, 1024, BYTES_MAX,
                                                 options->bytes, SIZES_MAX, &options->size_count);
}

/* The device, and whether this program can use it. Errors, printed: NOT_FOUND, UNSUPPORTED. */
static int find_device(struct bench *bench)
{
    const char *missing = sl_builtin_missing(SL_ENDPOINT_RDMA);
    const int err = missing != NULL
                        ? SL_ERR_UNSUPPORTED
                        : sl_bench_peer_rdma_device(bench->options.device, bench->options.address,
                                                    &bench->device);
    if (err != 0) {
        (void)fprintf(stderr,
                      "starling-bench rdma: %s\n(in a virtual machine that has a device: "
                      "bench/rdma-vm; or tests/rdma-vm/rdma-vm -- starling-bench rdma)\n",
                      missing != NULL ? missing : "no device");
        return err;
    }
    (void)snprintf(bench->endpoint, sizeof bench->endpoint, "rdma://%s:0", bench->device.address);
    return 0;
}

int sl_bench_rdma_run(int argc, char **argv)
{
    static struct bench bench;
    bench.options = (struct options){
        .sizes = "1M", .depth = 64, .bulk_depth = 16, .common = sl_bench_common_defaults()};
    const int parsed = parse(&bench.options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    int err = find_device(&bench);
    if (err == 0) {
        err = sl_bench_peer_start(&bench.perftest, &bench.options.common,
                                  "perftest --device=%s --address=%s --gid=%d", bench.device.name,
                                  bench.device.address, bench.device.gid);
    }
    if (err == 0) {
        add_all(&bench);
        err = start(&bench);
    }
    err = err != 0 ? err : measure(&bench);
    for (int mode = 0; mode < MODES; mode++) {
        sl_bench_ipc_workers_stop(&bench.workers[mode]);
    }
    sl_bench_peer_stop(&bench.perftest);
    return err == 0 ? 0 : 1;
}
