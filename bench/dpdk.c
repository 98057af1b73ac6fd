/* starling-bench dpdk: frames over DPDK's memif between two processes, in turns with packets of the
 * same ports without the protocol, and with frames over TCP, on the same cores. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bare_ports.h"
#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/frames.h"
#include "bench/options.h"
#include "core/assert.h"
#include "net/transport.h"

/* Targets. */
#define BULK_OF_BARE    0.8
#define RATE_OF_TCP     4.0

#define ETHERNET_BYTES  14U
#define FRAME_BYTES     64U
#define PATH_BYTES      256
#define SETTING_BYTES   768
#define MTUS_MAX        4U
#define DEPTHS_MAX      6U
#define CONTESTANTS_MAX (2 * MTUS_MAX + 1 + 2 + 2 * DEPTHS_MAX)

#define PART_CHOICES    "all|bulk|round-trip|rate"
enum part { PART_ALL, PART_BULK, PART_ROUND_TRIP, PART_RATE };

struct options {
    const char *size, *mtus_text, *depths_text;
    uint64_t bulk_depth;
    int part;
    struct sl_bench_common common;
    uint64_t bytes, mtus[MTUS_MAX], depths[DEPTHS_MAX];
    uint32_t mtu_count, depth_count;
};

struct bench;

/* A contestant: frames, and the two ends of a memif where they do not go over TCP. */
struct entry {
    const struct bench *bench;
    struct sl_bench_frames frames;
    char arguments[2][PATH_BYTES];
    struct sl_dpdk_device devices[2];
    struct sl_dpdk_options ends[2]; /* server, client */
    bool is_bare;                   /* packets without the protocol */
};

struct bench {
    struct options options;
    char folder[32], socket[48];
    struct entry entries[CONTESTANTS_MAX];
    struct sl_bench_contest contest;
};

static const struct sl_bench_quantity BYTES[] = {{"bytes", "1/s"}};
static const struct sl_bench_quantity TRIPS[] = {{"p50", "us"}, {"p99", "us"}};
static const struct sl_bench_quantity RATES[] = {{"messages", "1/s"}};

/* ---- Contestants ----------------------------------------------------------------------------- */

/* A buffer of memif's holds a packet whole. */
static uint32_t buffer_bytes(uint32_t mtu)
{
    const uint32_t bytes = mtu + ETHERNET_BYTES;
    return bytes <= 2048 ? 2048 : (bytes + 511) / 512 * 512;
}

static void make_ends(struct entry *entry, uint32_t mtu)
{
    static const char *const roles[] = {"server", "client"};
    static const char *const addresses[] = {"10.0.0.1", "10.0.0.2"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(entry->arguments[i], PATH_BYTES,
                       "role=%s,id=0,bsize=%" PRIu32 ",socket=%s,socket-abstract=no", roles[i],
                       buffer_bytes(mtu), entry->bench->socket);
        entry->devices[i] = (struct sl_dpdk_device){.name = "net_memif0",
                                                    .arguments = entry->arguments[i],
                                                    .address = addresses[i],
                                                    .mtu = (uint16_t)mtu};
        entry->ends[i] = (struct sl_dpdk_options){.devices = &entry->devices[i], .device_count = 1};
    }
}

static int run_frames(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct entry *entry = ctx;
    struct sl_bench_frames_result result;
    (void)unlink(entry->bench->socket); /* of a run that was killed */
    if (entry->is_bare) {
        return sl_bench_bare_ports_run(&entry->frames, entry->devices[0].mtu + ETHERNET_BYTES,
                                       common, values);
    }
    const int err = sl_bench_frames_run(&entry->frames, common, &result);
    if (err == 0 && entry->frames.answers && !entry->frames.rate_only) {
        values[0] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[1] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    } else if (err == 0) {
        const uint32_t payload = entry->frames.bytes - SL_FRAME_HEADER_BYTES;
        values[0] = result.frames_per_s * (entry->frames.rate_only ? 1 : payload);
    }
    return err;
}

/* mtu: 0 for TCP. */
static struct entry *add(struct bench *bench, const struct sl_bench_quantity *quantities,
                         uint32_t quantity_count, uint32_t mtu, const char *name)
{
    sl_assert(bench->contest.count < CONTESTANTS_MAX);
    struct entry *entry = &bench->entries[bench->contest.count];
    entry->bench = bench;
    make_ends(entry, mtu);
    entry->frames = (struct sl_bench_frames){
        .endpoint = mtu == 0 ? "tcp://127.0.0.1:0" : "dpdk://10.0.0.1:0",
        .of_server = &entry->ends[0],
        .of_client = &entry->ends[1],
        .bytes = FRAME_BYTES,
        .depth = 1,
        .answers = true,
        .touched = true,
        .polling = true,
    };
    const struct sl_bench_contestant contestant = {.quantities = quantities,
                                                   .quantity_count = quantity_count,
                                                   .run = run_frames,
                                                   .ctx = entry};
    (void)sl_bench_contest_add(&bench->contest, &contestant, "%s", name);
    return entry;
}

static void name_bulk(char name[SL_BENCH_NAME_BYTES], const char *what, uint32_t mtu)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, mtu == 0 ? "%s, tcp" : "%s, mtu %" PRIu32, what, mtu);
}

static void add_bulk(struct bench *bench, const char *what, uint32_t mtu)
{
    char name[SL_BENCH_NAME_BYTES];
    name_bulk(name, what, mtu);
    struct entry *entry = add(bench, BYTES, 1, mtu, name);
    entry->frames.bytes = (uint32_t)bench->options.bytes + SL_FRAME_HEADER_BYTES;
    entry->frames.depth = (uint32_t)bench->options.bulk_depth;
    entry->frames.answers = false;
    entry->is_bare = strcmp(what, "packets") == 0;
}

static void name_rate(char name[SL_BENCH_NAME_BYTES], uint32_t mtu, uint32_t depth)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "requests%s, %" PRIu32 " under way",
                   mtu == 0 ? ", tcp" : "", depth);
}

static void add_rate(struct bench *bench, uint32_t mtu, uint32_t depth)
{
    char name[SL_BENCH_NAME_BYTES];
    name_rate(name, mtu, depth);
    struct entry *entry = add(bench, RATES, 1, mtu, name);
    entry->frames.depth = depth;
    entry->frames.rate_only = true;
}

static bool wanted(const struct bench *bench, enum part part)
{
    return bench->options.part == PART_ALL || bench->options.part == (int)part;
}

/* All parts but bulk have the first MTU. */
static void add_all(struct bench *bench)
{
    const struct options *options = &bench->options;
    const uint32_t mtu = (uint32_t)options->mtus[0];
    if (wanted(bench, PART_BULK)) {
        for (uint32_t i = 0; i < options->mtu_count; i++) {
            add_bulk(bench, "packets", (uint32_t)options->mtus[i]);
            add_bulk(bench, "frames", (uint32_t)options->mtus[i]);
        }
        add_bulk(bench, "frames", 0);
    }
    if (wanted(bench, PART_ROUND_TRIP)) {
        (void)add(bench, TRIPS, 2, mtu, "round trip");
        (void)add(bench, TRIPS, 2, 0, "round trip, tcp");
    }
    for (uint32_t i = 0; wanted(bench, PART_RATE) && i < options->depth_count; i++) {
        add_rate(bench, mtu, (uint32_t)options->depths[i]);
        add_rate(bench, 0, (uint32_t)options->depths[i]);
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Of the most requests under way there is a target. */
static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const struct options *options = &bench->options;
    char ours[SL_BENCH_NAME_BYTES], tcp[SL_BENCH_NAME_BYTES], bare[SL_BENCH_NAME_BYTES];
    name_bulk(tcp, "frames", 0);
    for (uint32_t i = 0; i < options->mtu_count; i++) {
        name_bulk(ours, "frames", (uint32_t)options->mtus[i]);
        name_bulk(bare, "packets", (uint32_t)options->mtus[i]);
        sl_bench_contest_ratio(&bench->contest, report, "bytes", ours, bare, BULK_OF_BARE, 0);
        sl_bench_contest_ratio(&bench->contest, report, "bytes", ours, tcp, 0, 0);
    }
    sl_bench_contest_ratio(&bench->contest, report, "p50", "round trip, tcp", "round trip", 0, 0);
    for (uint32_t i = 0; i < options->depth_count; i++) {
        name_rate(ours, (uint32_t)options->mtus[0], (uint32_t)options->depths[i]);
        name_rate(tcp, 0, (uint32_t)options->depths[i]);
        sl_bench_contest_ratio(&bench->contest, report, "messages", ours, tcp,
                               i + 1 == options->depth_count ? RATE_OF_TCP : 0, 0);
    }
}

static int measure(struct bench *bench)
{
    const struct options *options = &bench->options;
    char setting[SETTING_BYTES];
    (void)snprintf(setting, sizeof setting,
                   "memif without zero copy; frames of %" PRIu64 " bytes of payload, %" PRIu64
                   " under way; requests and answers of %u bytes; payloads are written line by "
                   "line and read word by word",
                   options->bytes, options->bulk_depth, FRAME_BYTES);
    return sl_bench_contest_report(&bench->contest, "dpdk", setting, conclude, bench,
                                   &options->common);
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
        sl_bench_parse("dpdk", "Frames over DPDK's memif, in turns with bare packets and TCP.", own,
                       sizeof own / sizeof own[0], &options->common, argc, argv);
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

int sl_bench_dpdk_run(int argc, char **argv)
{
    static struct bench bench = {.folder = "/tmp/starling-bench-XXXXXX"};
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
    const char *missing = sl_builtin_missing(SL_ENDPOINT_DPDK);
    if (missing != NULL) {
        (void)fprintf(stderr, "starling-bench dpdk: %s\n", missing);
        return 1;
    }
    if (mkdtemp(bench.folder) == NULL) {
        perror(bench.folder);
        return 1;
    }
    (void)snprintf(bench.socket, sizeof bench.socket, "%s/memif", bench.folder);
    add_all(&bench);
    const int err = measure(&bench);
    (void)unlink(bench.socket);
    (void)rmdir(bench.folder);
    return err == 0 ? 0 : 1;
}
