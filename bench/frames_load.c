/* The load `frames`: frames over a bare transport between two processes; or over DPDK's ports the
 * packets alone. Over DPDK both are ends of a memif (without zero copy). */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/bare_ports.h"
#include "bench/bench.h"
#include "bench/frames.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/log.h"
#include "net/transport.h"

#define ETHERNET_BYTES 14U
#define PATH_BYTES     256

struct load {
    struct sl_bench_common common;
    struct sl_bench_frames frames;
    uint64_t bytes, depth, mtu;
    const char *socket;
    bool is_bare;
    char arguments[2][PATH_BYTES];
    struct sl_dpdk_device devices[2];
    struct sl_dpdk_options ends[2]; /* server, client */
};

enum { BYTES, MESSAGES, P50, P99, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {[BYTES] = {"bytes", "1/s"},
                                                                [MESSAGES] = {"messages", "1/s"},
                                                                [P50] = {"p50", "us"},
                                                                [P99] = {"p99", "us"}};

/* A buffer of memif's holds a packet whole. */
static unsigned buffer_bytes(uint64_t mtu)
{
    const unsigned bytes = (unsigned)mtu + ETHERNET_BYTES;
    return bytes <= 2048 ? 2048 : (bytes + 511) / 512 * 512;
}

static void make_ends(struct load *load)
{
    static const char *const roles[] = {"server", "client"};
    static const char *const addresses[] = {"10.0.0.1", "10.0.0.2"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(load->arguments[i], PATH_BYTES,
                       "role=%s,id=0,bsize=%u,socket=%s,socket-abstract=no", roles[i],
                       buffer_bytes(load->mtu), load->socket);
        load->devices[i] = (struct sl_dpdk_device){.name = "net_memif0",
                                                   .arguments = load->arguments[i],
                                                   .address = addresses[i],
                                                   .mtu = (uint16_t)load->mtu};
        load->ends[i] = (struct sl_dpdk_options){.devices = &load->devices[i], .device_count = 1};
    }
    load->frames.of_server = &load->ends[0];
    load->frames.of_client = &load->ends[1];
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct load *load = ctx;
    struct sl_bench_frames_result result;
    if (load->socket != NULL) {
        (void)unlink(load->socket); /* of a run that was killed */
    }
    if (load->is_bare) {
        return sl_bench_bare_ports_run(&load->frames, (uint32_t)load->mtu + ETHERNET_BYTES, common,
                                       &values[BYTES]);
    }
    const int err = sl_bench_frames_run(&load->frames, common, &result);
    if (err == 0 && load->frames.answers && !load->frames.rate_only) {
        values[P50] = (double)sl_metric_quantile(&result.latency, 0.5) / 1e3;
        values[P99] = (double)sl_metric_quantile(&result.latency, 0.99) / 1e3;
    } else if (err == 0) {
        values[MESSAGES] = result.frames_per_s;
        values[BYTES] = result.frames_per_s * (load->frames.bytes - SL_FRAME_HEADER_BYTES);
    }
    return err;
}

static int parse(struct load *load, int argc, char **argv)
{
    struct sl_bench_frames *frames = &load->frames;
    const struct sl_cli_option own[] = {
        sl_bench_text("endpoint", &frames->endpoint, "ENDPOINT",
                      "Where the server listens: tcp://127.0.0.1:0."),
        sl_bench_text("rdma-device", &frames->rdma_device, "NAME", "Without it any."),
        sl_bench_text("socket", &load->socket, "PATH", "Of a memif, for DPDK."),
        sl_bench_number("mtu", &load->mtu, 576, 9600, "Of a memif."),
        sl_bench_number("bytes", &load->bytes, SL_FRAME_HEADER_BYTES, SL_BENCH_FRAMES_BYTES_MAX,
                        "Of a frame, 32 of header included."),
        sl_bench_number("depth", &load->depth, 1, SL_BENCH_FRAMES_DEPTH_MAX, "Frames in flight."),
        SL_CLI_OPTION(BOOL, &frames->answers, .name = "answers",
                      .help = "Each frame is answered by one as long."),
        SL_CLI_OPTION(BOOL, &frames->rate_only, .name = "rate-only",
                      .help = "Read the clock with some of the answers only."),
        SL_CLI_OPTION(BOOL, &frames->touched, .name = "touched",
                      .help = "Payloads are written line by line and read word by word."),
        SL_CLI_OPTION(BOOL, &frames->polling, .name = "polling", .help = "Both sides spin."),
        SL_CLI_OPTION(BOOL, &load->is_bare, .name = "bare",
                      .help = "Packets over DPDK's ports, without the protocol."),
    };
    return sl_bench_parse_load("frames", own, sizeof own / sizeof own[0], &load->common, argc,
                               argv);
}

int sl_bench_frames_load_run(int argc, char **argv)
{
    static struct load load;
    load = (struct load){.common = sl_bench_common_defaults(),
                         .frames = {.endpoint = "tcp://127.0.0.1:0"},
                         .bytes = 64,
                         .depth = 1,
                         .mtu = 1500};
    const int parsed = parse(&load, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    load.frames.bytes = (uint32_t)load.bytes / SL_FRAME_HEADER_BYTES * SL_FRAME_HEADER_BYTES;
    load.frames.depth = (uint32_t)load.depth;
    const char *missing = load.socket == NULL ? NULL : sl_builtin_missing(SL_ENDPOINT_DPDK);
    if (load.frames.rdma_device != NULL) {
        missing = sl_builtin_missing(SL_ENDPOINT_RDMA);
    }
    if (missing != NULL) {
        sl_log_error("%s", missing);
        return 1;
    }
    make_ends(&load);
    return sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &load},
        &load.common);
}
