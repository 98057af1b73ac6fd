#include "bench/peers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"

#define START_MS      180000 /* Redis is filled */
#define SLACK_MS      120000 /* how much longer than asked a measurement may take */
#define DEVICE_MS     30000
#define NOT_INSTALLED 77
#define LINE_BYTES    256

int sl_bench_peer_start(struct sl_bench_peer *peer, const struct sl_bench_common *common,
                        const char *format, ...)
{
    char text[256];
    struct sl_bench_arguments argv = {0};
    *peer = (struct sl_bench_peer){.script = {.in = -1, .out = -1}};
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    int err = sl_bench_child_script("peers.py", &argv);
    if (err != 0) {
        return err;
    }
    char *rest = text;
    for (const char *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        sl_bench_arguments_add(&argv, "%s", word);
    }
    sl_bench_arguments_add(&argv, "--server-core=%d", common->server_core);
    sl_bench_arguments_add(&argv, "--client-core=%d", common->client_core);
    const struct sl_bench_child_options options = {
        .argv = argv.items, .core = -1, .reads = true, .writes = true};
    err = sl_bench_child_start(&options, &peer->script);
    err = err != 0 ? err : sl_bench_child_line(&peer->script, text, sizeof text, START_MS);
    if (err == 0) {
        return 0;
    }
    int status = 0;
    if (err == SL_ERR_CLOSED && waitpid(peer->script.pid, &status, 0) == peer->script.pid) {
        peer->script.pid = 0;
    }
    sl_bench_peer_stop(peer);
    return WIFEXITED(status) && WEXITSTATUS(status) == NOT_INSTALLED ? 0 : err;
}

void sl_bench_peer_stop(struct sl_bench_peer *peer)
{
    sl_bench_child_stop(&peer->script);
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct sl_bench_peer_load *load = ctx;
    struct sl_bench_child *script = &load->peer->script;
    const uint32_t timeout_ms = SLACK_MS + (uint32_t)(4000 * (common->warm_up + common->seconds));
    char line[LINE_BYTES];
    const int length = snprintf(line, sizeof line, "%.9g %.9g %s\n", common->warm_up,
                                common->seconds, load->words);
    if (write(script->in, line, (size_t)length) != length) {
        return SL_ERR_CLOSED;
    }
    const int err = sl_bench_child_line(script, line, sizeof line, timeout_ms);
    if (err != 0) {
        return err;
    }
    char *end;
    values[0] = strtod(line, &end);
    if (load->kind != SL_BENCH_PEER_BYTES) {
        values[1] = strtod(end, NULL);
    }
    return 0;
}

struct sl_bench_contestant sl_bench_peer_contestant(const char *name,
                                                    struct sl_bench_peer_load *load)
{
    static const struct sl_bench_quantity quantities[][2] = {
        [SL_BENCH_PEER_REQUESTS] = {{"requests", "1/s"}, {"keys", "1/s"}},
        [SL_BENCH_PEER_BYTES] = {{"bytes", "1/s"}},
        [SL_BENCH_PEER_MESSAGES] = {{"bytes", "1/s"}, {"messages", "1/s"}},
        [SL_BENCH_PEER_TRIPS] = {{"p50", "us"}, {"p99", "us"}},
    };
    const bool is_tcp = load->kind == SL_BENCH_PEER_REQUESTS || load->kind == SL_BENCH_PEER_BYTES;
    sl_assert(sl_bench_peer_is_there(load->peer));
    return (struct sl_bench_contestant){.name = name,
                                        .quantities = quantities[load->kind],
                                        .quantity_count = load->kind == SL_BENCH_PEER_BYTES ? 1 : 2,
                                        .transport = is_tcp ? "TCP" : NULL,
                                        .run = run,
                                        .ctx = load};
}

int sl_bench_peer_rdma_device(const char *name, const char *address,
                              struct sl_bench_rdma_device *out)
{
    struct sl_bench_arguments argv = {0};
    struct sl_bench_child child;
    char *text = NULL;
    int err = sl_bench_child_script("peers.py", &argv);
    if (err != 0) {
        return err;
    }
    sl_bench_arguments_add(&argv, "device");
    if (name != NULL) {
        sl_bench_arguments_add(&argv, "--device=%s", name);
    }
    if (address != NULL) {
        sl_bench_arguments_add(&argv, "--address=%s", address);
    }
    const struct sl_bench_child_options options = {.argv = argv.items, .core = -1, .reads = true};
    err = sl_bench_child_start(&options, &child);
    err = err != 0 ? err : sl_bench_child_collect(&child, DEVICE_MS, &text);
    if (err == 0 && sscanf(text, "%63s %63s %d", out->name, out->address, &out->gid) != 3) {
        err = SL_ERR_PROTOCOL;
    }
    free(text);
    return err == 0 ? 0 : SL_ERR_NOT_FOUND;
}
