/* The loads `echo`, `sends` and `memory`: what the machine can do (bench/bare.h). */
#include <string.h>

#include "bench/bare.h"
#include "bench/bench.h"
#include "bench/options.h"
#include "bench/turns.h"

static const struct sl_bench_quantity bytes_quantity[] = {{"bytes", "1/s"}};

/* ---- Requests and replies -------------------------------------------------------------------- */

struct echo {
    struct sl_bench_common common;
    uint64_t connections, depth, request_bytes, reply_bytes;
    struct sl_bench_bare_echo bare;
    struct sl_metric_histogram latency;
};

static int run_echo(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct echo *echo = ctx;
    const int err = sl_bench_bare_echo_run(&echo->bare, common, &values[0], &echo->latency);
    if (err == 0) {
        values[1] = (double)sl_metric_quantile(&echo->latency, 0.5) / 1e3;
        values[2] = (double)sl_metric_quantile(&echo->latency, 0.99) / 1e3;
    }
    return err;
}

int sl_bench_echo_run(int argc, char **argv)
{
    static const struct sl_bench_quantity quantities[] = {
        {"requests", "1/s"}, {"p50", "us"}, {"p99", "us"}};
    static struct echo echo;
    echo.common = sl_bench_common_defaults();
    echo.connections = echo.depth = 1;
    echo.request_bytes = echo.reply_bytes = 64;
    const struct sl_cli_option own[] = {
        sl_bench_number("connections", &echo.connections, 1, 4096, "To the other end."),
        sl_bench_number("depth", &echo.depth, 1, 1024, "Requests under way on each."),
        sl_bench_number("request-bytes", &echo.request_bytes, 1, SL_BENCH_BARE_MESSAGE_BYTES_MAX,
                        "Of a request."),
        sl_bench_number("reply-bytes", &echo.reply_bytes, 1, SL_BENCH_BARE_MESSAGE_BYTES_MAX,
                        "Of a reply."),
        SL_CLI_OPTION(BOOL, &echo.bare.polling, .name = "polling", .help = "Both sides spin."),
        sl_bench_congestion(&echo.bare.congestion),
    };
    const int parsed =
        sl_bench_parse_load("echo", own, sizeof own / sizeof own[0], &echo.common, argc, argv);
    if (parsed != SL_CLI_RUN ||
        sl_bench_check_connections("load echo", 2 * echo.connections) != 0) {
        return parsed == SL_CLI_EXIT_OK ? 0 : 2;
    }
    echo.bare.connections = (uint32_t)echo.connections;
    echo.bare.depth = (uint32_t)echo.depth;
    echo.bare.request_bytes = (uint32_t)echo.request_bytes;
    echo.bare.reply_bytes = (uint32_t)echo.reply_bytes;
    return sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = 3, .run = run_echo, .ctx = &echo},
        &echo.common);
}

/* ---- Bytes one way --------------------------------------------------------------------------- */

/* Words of a turn: pull or push, bytes of a piece, and pieces of memory. */
static int run_sends(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_bare_bulk bulk = *(const struct sl_bench_bare_bulk *)ctx;
    const char *words = common->words;
    uint64_t pieces = 0;
    bulk.to_server = !sl_bench_turns_word(&words, "pull");
    int err = bulk.to_server && !sl_bench_turns_word(&words, "push") ? SL_ERR_INVALID : 0;
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, 1ULL << 30, &bulk.bytes);
    if (err == 0 && *words != '\0') {
        err = sl_bench_turns_number(&words, 1, 1ULL << 30, &pieces);
    }
    bulk.pieces = (uint32_t)pieces;
    return err != 0 ? err : sl_bench_bare_bulk_run(&bulk, common, &values[0]);
}

int sl_bench_sends_run(int argc, char **argv)
{
    struct sl_bench_bare_bulk bulk = {0};
    struct sl_bench_common common = sl_bench_common_defaults();
    uint64_t depth = 4;
    const struct sl_cli_option own[] = {
        sl_bench_number("depth", &depth, 1, 64, "Pieces under way."),
        sl_bench_congestion(&bulk.congestion),
    };
    const int parsed =
        sl_bench_parse_load("sends", own, sizeof own / sizeof own[0], &common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    bulk.depth = (uint32_t)depth;
    return sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = bytes_quantity, .quantity_count = 1, .run = run_sends, .ctx = &bulk},
        &common);
}

/* ---- memcpy ---------------------------------------------------------------------------------- */

/* Words of a turn: bytes of a piece, and pieces. */
static int run_memory(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_bare_memory memory = *(const struct sl_bench_bare_memory *)ctx;
    const char *words = common->words;
    uint64_t pieces = 0;
    int err = sl_bench_turns_number(&words, 64, 1ULL << 30, &memory.bytes);
    err = err != 0 ? err : sl_bench_turns_number(&words, 1, 4096, &pieces);
    memory.pieces = (uint32_t)pieces;
    return err != 0 ? err : sl_bench_bare_memory_run(&memory, common, &values[0]);
}

int sl_bench_memory_run(int argc, char **argv)
{
    struct sl_bench_bare_memory memory = {0};
    struct sl_bench_common common = sl_bench_common_defaults();
    const struct sl_cli_option own[] = {
        SL_CLI_OPTION(BOOL, &memory.is_shared, .name = "shared",
                      .help = "In memory that processes can share; else in huge pages."),
    };
    const int parsed =
        sl_bench_parse_load("memory", own, sizeof own / sizeof own[0], &common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    return sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = bytes_quantity, .quantity_count = 1, .run = run_memory, .ctx = &memory},
        &common);
}
