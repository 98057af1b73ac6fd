#include "bench/peers.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/child.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define START_MS       10000
#define START_TRIES    5
#define FILL_MS        120000
#define KEYS_MAX       1000
#define ARGUMENTS_MAX  (KEYS_MAX + 32)
#define NUMBER_BYTES   24
#define FIRST_KEYS     20000.0 /* of a repeat before anything is known */

#define REDIS_PACKAGES "redis-server and redis-tools"

/* ---- Redis: the server ----------------------------------------------------------------------- */

struct sl_bench_redis {
    struct sl_bench_child server;
    char client[SL_BENCH_PATH_BYTES]; /* redis-benchmark */
    char port[NUMBER_BYTES];
    char rows[NUMBER_BYTES];
};

/* Somebody else may take the port before Redis does: it then ends, and another port is tried. */
static int start_server(struct sl_bench_redis *redis, const char *program, int core)
{
    for (int i = 0; i < START_TRIES; i++) {
        uint16_t port;
        int err = sl_bench_child_port(&port);
        if (err != 0) {
            return err;
        }
        (void)snprintf(redis->port, sizeof redis->port, "%u", port);
        const char *const argv[] = {program,  "--port",     redis->port,    "--bind", "127.0.0.1",
                                    "--save", "",           "--appendonly", "no",     "--dir",
                                    "/tmp",   "--loglevel", "warning",      NULL};
        const struct sl_bench_child_options options = {.argv = argv, .core = core};
        err = sl_bench_child_start(&options, &redis->server);
        if (err != 0) {
            return err;
        }
        if (sl_bench_child_listens(port, START_MS / START_TRIES) == 0) {
            return 0;
        }
        sl_bench_child_stop(&redis->server);
    }
    sl_log_error("redis-server does not listen");
    return SL_ERR_DEADLINE;
}

/* By a script in the server, so that every key is there once. */
static int fill(struct sl_bench_redis *redis, uint64_t rows, int core)
{
    char script[256];
    (void)snprintf(script, sizeof script,
                   "for i = 0, %llu do redis.call('SET', string.format('key:%%012d', i), "
                   "string.rep('v', %u)) end return 1",
                   (unsigned long long)rows - 1, SL_BENCH_REDIS_VALUE_BYTES);
    const char *const argv[] = {redis->client, "-p",    redis->port, "-n",   "1", "-c",
                                "1",           "--csv", "EVAL",      script, "0", NULL};
    const struct sl_bench_child_options options = {.argv = argv, .core = core, .reads = true};
    struct sl_bench_child client;
    int err = sl_bench_child_start(&options, &client);
    char *text = NULL;
    err = err != 0 ? err : sl_bench_child_collect(&client, FILL_MS, &text);
    free(text);
    return err;
}

int sl_bench_redis_start(uint64_t rows, const struct sl_bench_common *common,
                         struct sl_bench_redis **out)
{
    sl_assert(rows > 0);
    char program[SL_BENCH_PATH_BYTES];
    struct sl_bench_redis *redis = calloc(1, sizeof *redis);
    if (redis == NULL) {
        sl_log_error("no memory to start Redis");
        return SL_ERR_NO_MEMORY;
    }
    redis->server.out = -1;
    if (!sl_bench_child_find("redis-server", program) ||
        !sl_bench_child_find("redis-benchmark", redis->client)) {
        (void)fprintf(stderr,
                      "Redis is left out: install Debian's " REDIS_PACKAGES " to compare\n");
        free(redis);
        *out = NULL;
        return 0;
    }
    (void)snprintf(redis->rows, sizeof redis->rows, "%llu", (unsigned long long)rows);
    int err = start_server(redis, program, common->server_core);
    err = err != 0 ? err : fill(redis, rows, common->client_core);
    if (err != 0) {
        sl_bench_redis_stop(&redis);
        return err;
    }
    (void)kill(redis->server.pid, SIGSTOP);
    *out = redis;
    return 0;
}

void sl_bench_redis_stop(struct sl_bench_redis **redis)
{
    if (*redis != NULL) {
        sl_bench_child_stop(&(*redis)->server);
        free(*redis);
        *redis = NULL;
    }
}

/* ---- Redis: the load ------------------------------------------------------------------------- */

/* "requests a second" of a line such as "GET","803212.88","0.061",...; -1: there is none. */
static double rate_of(const char *csv)
{
    const char *at = strstr(csv, "\n\""); /* behind the line of headings */
    at = at == NULL ? csv : at + 1;
    at = strstr(at, "\",\"");
    return at == NULL ? -1 : strtod(at + 3, NULL);
}

/* One run of redis-benchmark: requests a second. */
static int offer(const struct sl_bench_redis_load *load, uint64_t requests, int core, double *per_s)
{
    char count[NUMBER_BYTES];
    char pipeline[NUMBER_BYTES];
    (void)snprintf(count, sizeof count, "%llu", (unsigned long long)requests);
    (void)snprintf(pipeline, sizeof pipeline, "%u", load->pipeline);
    const char *argv[ARGUMENTS_MAX] = {load->redis->client,
                                       "-p",
                                       load->redis->port,
                                       "-r",
                                       load->redis->rows,
                                       "-P",
                                       pipeline,
                                       "-n",
                                       count,
                                       "--csv"};
    uint32_t used = 10;
    argv[used++] = load->keys == 1 ? "GET" : "MGET";
    for (uint32_t i = 0; i < load->keys; i++) {
        argv[used++] = "key:__rand_int__";
    }
    argv[used] = NULL;
    const struct sl_bench_child_options options = {.argv = argv, .core = core, .reads = true};
    struct sl_bench_child client;
    char *text = NULL;
    int err = sl_bench_child_start(&options, &client);
    err = err != 0 ? err : sl_bench_child_collect(&client, FILL_MS, &text);
    if (err != 0) {
        return err;
    }
    *per_s = rate_of(text);
    if (!(*per_s > 0)) {
        sl_log_error("redis-benchmark said no rate: %.200s", text);
        err = SL_ERR_PROTOCOL;
    }
    free(text);
    return err;
}

/* It counts requests, not seconds: how many, the rate before tells. A first repeat looks twice. */
static int measure(struct sl_bench_redis_load *load, const struct sl_bench_common *common,
                   double *requests_per_s)
{
    double known = load->keys_per_s > 0 ? load->keys_per_s / load->keys : 0;
    double warm = known > 0 ? known * common->warm_up : FIRST_KEYS / load->keys;
    int err = offer(load, (uint64_t)fmax(warm, 1000), common->client_core, requests_per_s);
    if (err == 0) {
        known = known > 0 ? known : *requests_per_s;
        err = offer(load, (uint64_t)fmax(known * common->seconds, 1000), common->client_core,
                    requests_per_s);
    }
    return err;
}

static int run_redis(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_redis_load *load = ctx;
    (void)kill(load->redis->server.pid, SIGCONT);
    int err = measure(load, common, &values[0]);
    (void)kill(load->redis->server.pid, SIGSTOP);
    if (err == 0) {
        values[1] = values[0] * load->keys;
        load->keys_per_s = values[1];
    }
    return err;
}

struct sl_bench_contestant sl_bench_redis_contestant(const char *name,
                                                     struct sl_bench_redis_load *load)
{
    static const struct sl_bench_quantity quantities[] = {{"requests", "1/s"}, {"keys", "1/s"}};
    sl_assert(load->redis != NULL);
    sl_assert(load->keys >= 1);
    sl_assert(load->keys <= KEYS_MAX);
    return (struct sl_bench_contestant){.name = name,
                                        .quantities = quantities,
                                        .quantity_count = 2,
                                        .transport = "TCP",
                                        .run = run_redis,
                                        .ctx = load};
}

/* ---- iperf3 ---------------------------------------------------------------------------------- */

bool sl_bench_iperf_is_there(void)
{
    char path[SL_BENCH_PATH_BYTES];
    bool there = sl_bench_child_find("iperf3", path);
    if (!there) {
        (void)fprintf(stderr, "iperf3 is left out: install Debian's iperf3 to compare\n");
    }
    return there;
}

/* Serves one test and ends. */
static int start_iperf_server(const char *program, int core, char port[NUMBER_BYTES],
                              struct sl_bench_child *server)
{
    for (int i = 0; i < START_TRIES; i++) {
        uint16_t number;
        int err = sl_bench_child_port(&number);
        if (err != 0) {
            return err;
        }
        (void)snprintf(port, NUMBER_BYTES, "%u", number);
        const char *const argv[] = {program,  "-s",        "-1",           "-p", port,
                                    "--bind", "127.0.0.1", "--forceflush", NULL};
        const struct sl_bench_child_options options = {.argv = argv, .core = core, .reads = true};
        err = sl_bench_child_start(&options, server);
        if (err != 0) {
            return err;
        }
        if (sl_bench_child_await(server, "listening", START_MS / START_TRIES) == 0) {
            return 0;
        }
        sl_bench_child_stop(server);
    }
    sl_log_error("iperf3 -s does not listen");
    return SL_ERR_DEADLINE;
}

/* What its JSON says: bytes a second that arrived. */
static int received(const char *text, double *bytes_per_s)
{
    json_error_t fault;
    json_t *root = json_loads(text, 0, &fault);
    double bits = 0;
    const char *error = "";
    if (root != NULL &&
        json_unpack(root, "{s:{s:{s:F}}}", "end", "sum_received", "bits_per_second", &bits) != 0) {
        (void)json_unpack(root, "{s:s}", "error", &error);
    }
    *bytes_per_s = bits / 8;
    if (!(bits > 0)) {
        sl_log_error("iperf3 received nothing: %s", root == NULL ? fault.text : error);
    }
    json_decref(root);
    return bits > 0 ? 0 : SL_ERR_PROTOCOL;
}

/* It counts whole seconds only. */
static int transfer(const struct sl_bench_iperf *iperf, const struct sl_bench_common *common,
                    const char *program, const char *port, char **text)
{
    struct sl_bench_arguments argv = {0};
    sl_bench_arguments_add(&argv, "%s", program);
    sl_bench_arguments_add(&argv, "-c127.0.0.1");
    sl_bench_arguments_add(&argv, "-p%s", port);
    sl_bench_arguments_add(&argv, "-l%u", iperf->piece_bytes);
    sl_bench_arguments_add(&argv, "-t%.0f", ceil(common->seconds));
    sl_bench_arguments_add(&argv, "-O%.0f", ceil(common->warm_up));
    sl_bench_arguments_add(&argv, iperf->to_server ? "-J" : "-JR");
    if (iperf->congestion != NULL) {
        sl_bench_arguments_add(&argv, "-C%s", iperf->congestion);
    }
    const struct sl_bench_child_options options = {
        .argv = argv.items, .core = common->client_core, .reads = true};
    struct sl_bench_child client;
    int err = sl_bench_child_start(&options, &client);
    uint32_t timeout_ms = START_MS + (uint32_t)(2000 * (common->seconds + common->warm_up + 1));
    return err != 0 ? err : sl_bench_child_collect(&client, timeout_ms, text);
}

/* Errors: PROTOCOL (it received nothing), and others. */
static int try_iperf(const struct sl_bench_iperf *iperf, const struct sl_bench_common *common,
                     const char *program, double *values)
{
    char port[NUMBER_BYTES];
    struct sl_bench_child server;
    int err = start_iperf_server(program, common->server_core, port, &server);
    if (err != 0) {
        return err;
    }
    char *text = NULL;
    err = transfer(iperf, common, program, port, &text);
    err = err != 0 ? err : received(text, &values[0]);
    free(text);
    sl_bench_child_stop(&server);
    return err;
}

/* A test that a machine slept through, or that was over before it, says nothing: another follows.
 */
static int run_iperf(void *ctx, const struct sl_bench_common *common, double *values)
{
    char program[SL_BENCH_PATH_BYTES];
    if (!sl_bench_child_find("iperf3", program)) {
        return SL_ERR_NOT_FOUND;
    }
    int err = SL_ERR_PROTOCOL;
    for (int i = 0; i < START_TRIES && err == SL_ERR_PROTOCOL; i++) {
        err = try_iperf(ctx, common, program, values);
    }
    return err;
}

struct sl_bench_contestant sl_bench_iperf_contestant(const char *name, struct sl_bench_iperf *iperf)
{
    static const struct sl_bench_quantity quantities[] = {{"bytes", "1/s"}};
    return (struct sl_bench_contestant){
        .name = name,
        .quantities = quantities,
        .quantity_count = 1,
        .transport = "TCP",
        .run = run_iperf,
        .ctx = iperf,
    };
}
