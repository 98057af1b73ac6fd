/* starling-bench dpdk: frames over DPDK's memif between two processes, in turns with bare packets
 * over memif of the same length and on the same cores. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/frames.h"
#include "bench/memif.h"
#include "bench/options.h"
#include "bench/stream.h"
#include "core/assert.h"
#include "core/log.h"
#include "net/dpdk/module.h"
#include "net/transport.h"
#include "tests/support/fault_port.h"

/* Targets. */
#define BULK_OF_BARE       0.8
#define ROUND_TRIP_OF_BARE 2.0 /* at most */
#define RATE_OF_BARE       0.5
#define RATE_OF_TCP        4.0
#define LOSSY_OF_LOSSLESS  0.7 /* with 1 % */
#define MANY_OF_ONE        0.9
#define SLOWEST_OF_FAIR    0.5

#define ETHERNET_BYTES     14U
#define FRAME_BYTES        64U
#define PATH_BYTES         256
#define SETTING_BYTES      768
#define ENDS_MAX           8U
#define CONTESTANTS_MAX    48U

#define PART_CHOICES       "all|bulk|round-trip|rate|loss|incast"
enum part { PART_ALL, PART_BULK, PART_ROUND_TRIP, PART_RATE, PART_LOSS, PART_INCAST };

static const uint32_t SENDERS[] = {1, 2, 4, 8};
static const uint32_t LOSSES[] = {0, 100, 1000, 10000, 50000}; /* in millionths */
#define LOSS_OF_TARGET 10000U

#define MTUS_MAX       4U
#define DEPTHS_MAX     6U

struct options {
    const char *size, *mtus_text, *depths_text;
    uint64_t bulk_depth;
    int part;
    struct sl_bench_common common;
    uint64_t bytes, mtus[MTUS_MAX], depths[DEPTHS_MAX];
    uint32_t mtu_count, depth_count;
};

/* Both ends of as many memifs as there are senders. The server has one address at all of them. */
struct ends {
    char arguments[2][ENDS_MAX][PATH_BYTES];
    char names[ENDS_MAX][32], addresses[ENDS_MAX][32];
    struct sl_dpdk_device servers[ENDS_MAX], clients[ENDS_MAX];
    struct sl_dpdk_options of_server, of_client;
};

struct bench;

struct entry {
    struct bench *bench;
    struct sl_bench_memif memif;
    struct sl_bench_frames frames;
    struct sl_bench_stream stream;
    struct ends ends;
    struct sl_dpdk_fault_medium faulty; /* around `medium` */
    struct sl_dpdk_medium medium;
    char name[SL_BENCH_NAME_BYTES];
};

struct bench {
    struct options options;
    char folder[32], endpoint[32];
    struct entry entries[CONTESTANTS_MAX];
    struct sl_bench_contestant contestants[CONTESTANTS_MAX];
    uint32_t count;
};

static const struct sl_bench_quantity BYTES[] = {
    {"bytes", "1/s"}, {"fair share", "1/s"}, {"slowest", "1/s"}};
static const struct sl_bench_quantity TRIPS[] = {{"p50", "us"}, {"p99", "us"}};
static const struct sl_bench_quantity RATES[] = {{"messages", "1/s"}};

/* ---- Devices --------------------------------------------------------------------------------- */

/* A buffer of memif's holds a packet whole. */
static uint32_t buffer_bytes(uint32_t mtu)
{
    const uint32_t bytes = mtu + ETHERNET_BYTES;
    return bytes <= 2048 ? 2048 : (bytes + 511) / 512 * 512;
}

static void make_end(const struct bench *bench, struct ends *ends, uint32_t which, uint32_t mtu)
{
    static const char *const roles[] = {"server", "client"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(ends->arguments[i][which], PATH_BYTES,
                       "role=%s,id=%" PRIu32 ",bsize=%" PRIu32 ",socket=%s/ours,socket-abstract=no",
                       roles[i], which, buffer_bytes(mtu), bench->folder);
    }
    (void)snprintf(ends->names[which], sizeof ends->names[which], "net_memif%" PRIu32, which);
    (void)snprintf(ends->addresses[which], sizeof ends->addresses[which], "10.0.0.%" PRIu32,
                   which + 2);
    ends->servers[which] = (struct sl_dpdk_device){
        .name = ends->names[which],
        .arguments = ends->arguments[0][which],
        .address = "10.0.0.1",
        .mtu = (uint16_t)mtu,
    };
    ends->clients[which] = ends->servers[which];
    ends->clients[which].arguments = ends->arguments[1][which];
    ends->clients[which].address = ends->addresses[which];
    ends->clients[which].first_reactor = which;
    ends->clients[which].reactors = 1;
}

static void make_ends(struct entry *entry, uint32_t count, uint32_t mtu)
{
    struct ends *ends = &entry->ends;
    for (uint32_t i = 0; i < count; i++) {
        make_end(entry->bench, ends, i, mtu);
    }
    ends->of_server = (struct sl_dpdk_options){.devices = ends->servers, .device_count = count};
    ends->of_client = (struct sl_dpdk_options){.devices = ends->clients, .device_count = count};
}

/* Of a run that was killed. */
static void remove_sockets(const struct bench *bench)
{
    static const char *const names[] = {"ours", "bare"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/%s", bench->folder, names[i]);
        (void)unlink(path);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static int run_memif(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    const struct sl_bench_memif *memif = &entry->memif;
    struct sl_bench_memif_result result;
    remove_sockets(entry->bench);
    const int err = sl_bench_memif_run(memif, common, &result);
    if (err == 0 && memif->part == SL_BENCH_MEMIF_TRIPS) {
        values[0] = result.p50_us;
        values[1] = result.p99_us;
    } else if (err == 0 && memif->part == SL_BENCH_MEMIF_RATE) {
        values[0] = result.frames_per_s;
    } else if (err == 0) {
        values[0] = result.frames_per_s * memif->frame_bytes;
        values[1] = values[0] / memif->senders;
        values[2] = result.slowest_frames_per_s * memif->frame_bytes;
    }
    return err;
}

static int run_stream(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_stream_result result;
    remove_sockets(entry->bench);
    const int err = sl_bench_stream_run(&entry->stream, common, &result);
    if (err == 0) {
        values[0] = result.bytes_per_s;
        values[1] = values[0] / entry->stream.senders;
        values[2] = result.slowest_bytes_per_s;
    }
    return err;
}

static int run_frames(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_frames_result result;
    remove_sockets(entry->bench);
    const int err = sl_bench_frames_run(&entry->frames, common, &result);
    if (err == 0 && entry->frames.rate_only) {
        values[0] = result.frames_per_s;
    } else if (err == 0) {
        values[0] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[1] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    }
    return err;
}

/* Of all but bulk. */
static uint32_t first_mtu(const struct bench *bench)
{
    return (uint32_t)bench->options.mtus[0];
}

/* ---- Contestants ----------------------------------------------------------------------------- */

static struct entry *add(struct bench *bench, const char *name,
                         const struct sl_bench_quantity *quantities, uint32_t quantity_count,
                         int (*run)(void *, const struct sl_bench_common *, double *))
{
    sl_assert(bench->count < CONTESTANTS_MAX);
    struct entry *entry = &bench->entries[bench->count];
    entry->bench = bench;
    (void)snprintf(entry->name, sizeof entry->name, "%s", name);
    bench->contestants[bench->count++] = (struct sl_bench_contestant){
        .name = entry->name,
        .quantities = quantities,
        .quantity_count = quantity_count,
        .run = run,
        .ctx = entry,
    };
    return entry;
}

static void name_stream(char name[SL_BENCH_NAME_BYTES], const char *who, uint32_t mtu,
                        uint32_t senders)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "%s, mtu %" PRIu32 ", %" PRIu32 " sender%s", who, mtu,
                   senders, senders == 1 ? "" : "s");
}

static void add_bare(struct bench *bench, enum sl_bench_memif_part part, const char *who,
                     uint32_t mtu, uint32_t senders, uint32_t depth)
{
    char name[SL_BENCH_NAME_BYTES];
    name_stream(name, who, mtu, senders);
    add(bench, name, BYTES, senders > 1 ? 3 : 1, run_memif)->memif = (struct sl_bench_memif){
        .part = part,
        .folder = bench->folder,
        .packet_bytes = mtu + ETHERNET_BYTES,
        .frame_bytes = (uint32_t)bench->options.bytes,
        .depth = depth,
        .senders = senders,
    };
}

static struct entry *add_stream(struct bench *bench, const char *name, uint32_t mtu,
                                uint32_t senders, uint32_t depth)
{
    struct entry *entry = add(bench, name, BYTES, senders > 1 ? 3 : 1, run_stream);
    make_ends(entry, senders, mtu);
    entry->stream = (struct sl_bench_stream){
        .endpoint = bench->endpoint,
        .of_receiver = &entry->ends.of_server,
        .of_senders = &entry->ends.of_client,
        .senders = senders,
        .bytes = (uint32_t)bench->options.bytes,
        .depth = depth,
    };
    return entry;
}

static void add_bulk(struct bench *bench, uint32_t mtu)
{
    const uint32_t depth = (uint32_t)bench->options.bulk_depth;
    char name[SL_BENCH_NAME_BYTES];
    add_bare(bench, SL_BENCH_MEMIF_STREAM, "bare, in place", mtu, 1, depth);
    add_bare(bench, SL_BENCH_MEMIF_MOVED, "bare", mtu, 1, depth);
    name_stream(name, "frames", mtu, 1);
    (void)add_stream(bench, name, mtu, 1, depth);
}

static void name_loss(char name[SL_BENCH_NAME_BYTES], uint32_t loss)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "frames, %g %% lost", loss / 1e4);
}

/* Around the receiver's devices. Without the plug-in the benchmark has ended before. */
static void add_faults(struct entry *entry, struct sl_dpdk_faults faults)
{
    const char *why;
    entry->faulty = (struct sl_dpdk_fault_medium){
        .inner = {.ops = sl_dpdk_module_ports(&why), .ctx = &entry->ends.of_server},
        .faults = faults};
    entry->medium = (struct sl_dpdk_medium){.ops = &sl_dpdk_fault_ports, .ctx = &entry->faulty};
    entry->stream.medium = &entry->medium;
}

static void add_losses(struct bench *bench)
{
    const uint32_t depth = (uint32_t)bench->options.bulk_depth;
    (void)add_stream(bench, "frames, no faults", first_mtu(bench), 1, depth);
    for (size_t i = 0; i < sizeof LOSSES / sizeof LOSSES[0]; i++) {
        char name[SL_BENCH_NAME_BYTES];
        name_loss(name, LOSSES[i]);
        struct entry *entry = add_stream(bench, name, first_mtu(bench), 1, depth);
        add_faults(entry, (struct sl_dpdk_faults){.loss = LOSSES[i], .seed = 1});
    }
}

static void add_incast(struct bench *bench, uint32_t senders)
{
    char name[SL_BENCH_NAME_BYTES];
    name_stream(name, "incast", first_mtu(bench), senders);
    add_bare(bench, SL_BENCH_MEMIF_MOVED, "bare incast", first_mtu(bench), senders, 2);
    (void)add_stream(bench, name, first_mtu(bench), senders, 2);
}

static void name_rate(char name[SL_BENCH_NAME_BYTES], const char *who, uint32_t depth)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "%s, %" PRIu32 " under way", who, depth);
}

static void add_frames(struct bench *bench, const char *name, bool is_tcp, bool rate_only,
                       uint32_t depth)
{
    struct entry *entry =
        add(bench, name, rate_only ? RATES : TRIPS, rate_only ? 1 : 2, run_frames);
    make_ends(entry, 1, first_mtu(bench));
    entry->frames = (struct sl_bench_frames){
        .endpoint = is_tcp ? "tcp://127.0.0.1:0" : bench->endpoint,
        .of_server = &entry->ends.of_server,
        .of_client = &entry->ends.of_client,
        .bytes = FRAME_BYTES,
        .depth = depth,
        .answers = true,
        .rate_only = rate_only,
        .touched = true,
        .polling = true,
    };
}

static void add_packets(struct bench *bench, const char *name, bool rate_only, uint32_t depth)
{
    add(bench, name, rate_only ? RATES : TRIPS, rate_only ? 1 : 2, run_memif)->memif =
        (struct sl_bench_memif){
            .part = rate_only ? SL_BENCH_MEMIF_RATE : SL_BENCH_MEMIF_TRIPS,
            .folder = bench->folder,
            .packet_bytes = FRAME_BYTES,
            .frame_bytes = FRAME_BYTES,
            .depth = depth,
            .senders = 1,
        };
}

static void add_round_trips(struct bench *bench)
{
    add_packets(bench, "bare round trip", false, 1);
    add_frames(bench, "round trip", false, false, 1);
    add_frames(bench, "round trip, tcp", true, false, 1);
}

static void add_rates(struct bench *bench, uint32_t depth)
{
    char name[SL_BENCH_NAME_BYTES];
    name_rate(name, "bare requests", depth);
    add_packets(bench, name, true, depth);
    name_rate(name, "requests", depth);
    add_frames(bench, name, false, true, depth);
    name_rate(name, "requests, tcp", depth);
    add_frames(bench, name, true, true, depth);
}

static bool wanted(const struct bench *bench, enum part part)
{
    return bench->options.part == PART_ALL || bench->options.part == (int)part;
}

static void add_all(struct bench *bench)
{
    for (uint32_t i = 0; wanted(bench, PART_BULK) && i < bench->options.mtu_count; i++) {
        add_bulk(bench, (uint32_t)bench->options.mtus[i]);
    }
    if (wanted(bench, PART_ROUND_TRIP)) {
        add_round_trips(bench);
    }
    for (uint32_t i = 0; wanted(bench, PART_RATE) && i < bench->options.depth_count; i++) {
        add_rates(bench, (uint32_t)bench->options.depths[i]);
    }
    if (wanted(bench, PART_LOSS)) {
        add_losses(bench);
    }
    for (size_t i = 0; wanted(bench, PART_INCAST) && i < sizeof SENDERS / sizeof SENDERS[0]; i++) {
        add_incast(bench, SENDERS[i]);
    }
}

/* ---- Ratios ---------------------------------------------------------------------------------- */

static void conclude_bulk(const struct bench *bench, struct sl_bench_report *report)
{
    for (uint32_t i = 0; i < bench->options.mtu_count; i++) {
        const uint32_t mtu = (uint32_t)bench->options.mtus[i];
        char ours[SL_BENCH_NAME_BYTES], moved[SL_BENCH_NAME_BYTES], in_place[SL_BENCH_NAME_BYTES];
        name_stream(ours, "frames", mtu, 1);
        name_stream(moved, "bare", mtu, 1);
        name_stream(in_place, "bare, in place", mtu, 1);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "bytes", ours, moved,
                               BULK_OF_BARE, 0);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "bytes", ours, in_place, 0,
                               0);
    }
}

/* Of the most under way there are targets. */
static void conclude_rates(const struct bench *bench, struct sl_bench_report *report)
{
    for (uint32_t i = 0; i < bench->options.depth_count; i++) {
        const uint32_t depth = (uint32_t)bench->options.depths[i];
        const bool held = i + 1 == bench->options.depth_count;
        char ours[SL_BENCH_NAME_BYTES], bare[SL_BENCH_NAME_BYTES], tcp[SL_BENCH_NAME_BYTES];
        name_rate(ours, "requests", depth);
        name_rate(bare, "bare requests", depth);
        name_rate(tcp, "requests, tcp", depth);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "messages", ours, bare,
                               held ? RATE_OF_BARE : 0, 0);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "messages", ours, tcp,
                               held ? RATE_OF_TCP : 0, 0);
    }
}

static void conclude_losses(const struct bench *bench, struct sl_bench_report *report)
{
    char lossless[SL_BENCH_NAME_BYTES], name[SL_BENCH_NAME_BYTES];
    name_loss(lossless, 0);
    sl_bench_contest_ratio(bench->contestants, bench->count, report, "bytes", lossless,
                           "frames, no faults", 0, 0);
    for (size_t i = 1; i < sizeof LOSSES / sizeof LOSSES[0]; i++) {
        name_loss(name, LOSSES[i]);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "bytes", name, lossless,
                               LOSSES[i] <= LOSS_OF_TARGET ? LOSSY_OF_LOSSLESS : 0, 0);
    }
}

static void conclude_incast(const struct bench *bench, struct sl_bench_report *report,
                            const char *who, bool held)
{
    char one[SL_BENCH_NAME_BYTES], name[SL_BENCH_NAME_BYTES];
    char text[2 * SL_BENCH_NAME_BYTES];
    name_stream(one, who, first_mtu(bench), 1);
    for (size_t i = 1; i < sizeof SENDERS / sizeof SENDERS[0]; i++) {
        name_stream(name, who, first_mtu(bench), SENDERS[i]);
        sl_bench_contest_ratio(bench->contestants, bench->count, report, "bytes", name, one,
                               held ? MANY_OF_ONE : 0, 0);
        const struct sl_bench_figure *slowest =
            sl_bench_contest_figure(bench->contestants, bench->count, name, "slowest");
        (void)snprintf(text, sizeof text, "%s: slowest / fair share", name);
        if (slowest != NULL) {
            (void)sl_bench_report_ratio(
                report, text, slowest,
                sl_bench_contest_figure(bench->contestants, bench->count, name, "fair share"),
                held ? SLOWEST_OF_FAIR : 0, 0);
        }
    }
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    conclude_bulk(bench, report);
    sl_bench_contest_ratio(bench->contestants, bench->count, report, "p50", "round trip",
                           "bare round trip", 0, ROUND_TRIP_OF_BARE);
    sl_bench_contest_ratio(bench->contestants, bench->count, report, "p50", "round trip, tcp",
                           "round trip", 0, 0);
    conclude_rates(bench, report);
    conclude_losses(bench, report);
    conclude_incast(bench, report, "incast", true);
    conclude_incast(bench, report, "bare incast", false);
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[SETTING_BYTES];
    (void)snprintf(setting, sizeof setting,
                   "memif without zero copy; frames of %" PRIu64 " bytes of payload, %" PRIu64
                   " under way (incast: 2 of each sender); requests and answers of %u bytes; "
                   "payloads are written line by line and read word by word",
                   options->bytes, options->bulk_depth, FRAME_BYTES);
    const struct sl_bench_contest contest = {
        .benchmark = "dpdk",
        .setting = setting,
        .contestants = bench->contestants,
        .count = bench->count,
        .conclude = conclude,
        .ctx = bench,
    };
    return sl_bench_contest_report(&contest, &options->common);
}

static int parse(struct options *options, int argc, char **argv)
{
    uint32_t count;
    const struct sl_cli_option own[] = {
        sl_bench_choice("part", &options->part, PART_CHOICES, "What is measured."),
        sl_bench_text("size", &options->size, "SIZE", "Bytes of a long frame, such as 1M."),
        sl_bench_text("mtu", &options->mtus_text, "N,...",
                      "Bytes of a packet without its Ethernet header; of all parts but bulk the "
                      "first is taken."),
        sl_bench_number("bulk-depth", &options->bulk_depth, 1, 64, "Long frames under way."),
        sl_bench_text("depth", &options->depths_text, "N,...",
                      "Requests of 64 bytes under way; the last counts."),
    };
    int parsed =
        sl_bench_parse("dpdk", "Frames over DPDK's memif, in turns with bare packets over memif.",
                       own, sizeof own / sizeof own[0], &options->common, argc, argv);
    if (parsed == SL_CLI_RUN) {
        parsed = sl_bench_sizes("dpdk", "size", options->size, 65536, 64 << 20, &options->bytes, 1,
                                &count);
    }
    if (parsed == SL_CLI_RUN) {
        parsed = sl_bench_list("dpdk", "mtu", options->mtus_text, 576, 9600, options->mtus,
                               MTUS_MAX, &options->mtu_count);
    }
    return parsed != SL_CLI_RUN ? parsed
                                : sl_bench_list("dpdk", "depth", options->depths_text, 1, 1024,
                                                options->depths, DEPTHS_MAX, &options->depth_count);
}

static int check(void)
{
    const char *missing = sl_builtin_missing(SL_ENDPOINT_DPDK);
    if (missing == NULL && !sl_bench_memif_is_there()) {
        missing = "starling-bare-memif is not beside this program";
    }
    if (missing != NULL) {
        (void)fprintf(stderr, "starling-bench dpdk: %s\n", missing);
    }
    return missing == NULL ? 0 : SL_ERR_UNSUPPORTED;
}

int sl_bench_dpdk_run(int argc, char **argv)
{
    static struct bench bench = {.folder = "/tmp/starling-bench-XXXXXX",
                                 .endpoint = "dpdk://10.0.0.1:0"};
    bench.options = (struct options){
        .size = "1M",
        .mtus_text = "1500,9000",
        .depths_text = "8,64,512",
        .bulk_depth = 4,
        .common = sl_bench_common_defaults(),
    };
    const int parsed = parse(&bench.options, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    if (check() != 0) {
        return 1;
    }
    if (mkdtemp(bench.folder) == NULL) {
        perror(bench.folder);
        return 1;
    }
    add_all(&bench);
    const int err = measure(&bench);
    remove_sockets(&bench);
    (void)rmdir(bench.folder);
    return err == 0 ? 0 : 1;
}
