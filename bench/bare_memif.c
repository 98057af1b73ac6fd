/* starling-bare-memif PART PACKET_BYTES FRAME_BYTES DEPTH SENDERS SERVER_CORE CLIENT_CORE WARM_UP
 * SECONDS FOLDER: prints "seconds X", a line "sender N" for each, and "p50 X", "p99 X" in us. */
#include "bench/bare_memif.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/fork.h"
#include "core/clock.h"
#include "core/log.h"

#define START_MS 20000
#define SLACK_MS 20000
#define PAUSE_US 1000

static const char *const PARTS[SL_BENCH_BARE_PARTS] = {
    [SL_BENCH_BARE_STREAM] = "stream",
    [SL_BENCH_BARE_MOVED] = "moved",
    [SL_BENCH_BARE_TRIPS] = "trips",
    [SL_BENCH_BARE_RATE] = "rate",
};

static bool is_stream(const struct sl_bench_bare *bare)
{
    return bare->part == SL_BENCH_BARE_STREAM || bare->part == SL_BENCH_BARE_MOVED;
}

static void await_links(const struct sl_bench_bare *bare,
                        const struct sl_bench_bare_device *devices)
{
    for (uint32_t i = 0; i < bare->senders; i++) {
        while (!sl_bench_bare_is_up(&devices[i])) {
            (void)usleep(PAUSE_US);
        }
    }
}

/* The server makes the sockets, and says so; then it takes streams, and answers. */
static void serve(const struct sl_bench_bare *bare, int to)
{
    static struct sl_bench_bare_result result;
    static struct sl_bench_bare_device devices[SL_BENCH_BARE_SENDERS_MAX];
    result.err = sl_bench_bare_open(bare, true, devices);
    sl_bench_fork_tell(to, &result, sizeof result);
    if (result.err != 0) {
        _exit(1);
    }
    await_links(bare, devices);
    if (is_stream(bare)) {
        result.err = sl_bench_bare_take_stream(bare, devices, &result);
        sl_bench_fork_tell(to, &result, sizeof result);
    } else {
        sl_bench_bare_answer(bare, devices);
    }
    _exit(1);
}

static void ask(const struct sl_bench_bare *bare, int to)
{
    static struct sl_bench_bare_result result;
    static struct sl_bench_bare_device devices[SL_BENCH_BARE_SENDERS_MAX];
    result.err = sl_bench_bare_open(bare, false, devices);
    if (result.err == 0) {
        await_links(bare, devices);
        if (is_stream(bare)) {
            sl_bench_bare_send_stream(bare, devices);
            _exit(1);
        }
        result.err = sl_bench_bare_ask(bare, devices, &result);
    }
    sl_bench_fork_tell(to, &result, sizeof result);
    _exit(0);
}

static int hear(struct sl_bench_fork *process, uint64_t timeout_ms,
                struct sl_bench_bare_result *result)
{
    const int err = sl_bench_fork_hear(process, timeout_ms, result, sizeof *result);
    return err != 0 ? err : result->err;
}

static int run(const struct sl_bench_bare *bare, struct sl_bench_bare_result *result)
{
    struct sl_bench_fork server = {.from = -1}, client = {.from = -1};
    const uint64_t lasts_ms = (uint64_t)((bare->warm_up + bare->seconds) * 1000);
    int to = -1;
    int err = sl_bench_fork_start(&server, bare->server_core, &to);
    if (err == 0 && server.pid == 0) {
        serve(bare, to);
    }
    err = err != 0 ? err : hear(&server, START_MS, result);
    if (err == 0) {
        err = sl_bench_fork_start(&client, bare->client_core, &to);
        if (err == 0 && client.pid == 0) {
            ask(bare, to);
        }
    }
    err = err != 0 ? err : hear(is_stream(bare) ? &server : &client, lasts_ms + SLACK_MS, result);
    sl_bench_fork_end(&client);
    sl_bench_fork_end(&server);
    return err;
}

static int find_part(const char *name, enum sl_bench_bare_part *out)
{
    for (int i = 0; i < SL_BENCH_BARE_PARTS; i++) {
        if (strcmp(name, PARTS[i]) == 0) {
            *out = (enum sl_bench_bare_part)i;
            return 0;
        }
    }
    return SL_ERR_NOT_FOUND;
}

static void print(const struct sl_bench_bare *bare, const struct sl_bench_bare_result *result)
{
    printf("seconds %.9g\n", result->seconds);
    for (uint32_t i = 0; i < bare->senders; i++) {
        printf("sender %llu\n", (unsigned long long)result->each[i]);
    }
    printf("p50 %.9g\n", (double)sl_metric_quantile(&result->latency, 0.5) / 1e3);
    printf("p99 %.9g\n", (double)sl_metric_quantile(&result->latency, 0.99) / 1e3);
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    static struct sl_bench_bare_result result;
    struct sl_bench_bare bare = {0};
    sl_log_setup(SL_LOG_INFO, "bare-memif");
    if (argc != 11 || find_part(argv[1], &bare.part) != 0) {
        (void)fprintf(stderr, "starling-bare-memif is a part of starling-bench dpdk\n");
        return 2;
    }
    bare.packet_bytes = number(argv[2]);
    bare.frame_bytes = number(argv[3]);
    bare.depth = number(argv[4]);
    bare.senders = number(argv[5]);
    bare.server_core = (int)number(argv[6]);
    bare.client_core = (int)number(argv[7]);
    bare.warm_up = strtod(argv[8], NULL);
    bare.seconds = strtod(argv[9], NULL);
    bare.folder = argv[10];
    if (bare.senders < 1 || bare.senders > SL_BENCH_BARE_SENDERS_MAX || bare.depth < 1 ||
        bare.packet_bytes < 64 || bare.frame_bytes % 64 != 0) {
        return 2;
    }
    const int err = run(&bare, &result);
    if (err != 0) {
        sl_log_error("%s: %s", argv[1], sl_err_name(err));
        return 1;
    }
    print(&bare, &result);
    return 0;
}
