/* starling-bench peers: what Redis and iperf3 do on these two cores. */
#include "bench/bench.h"
#include "bench/options.h"
#include "bench/peers.h"

enum { REDIS_LOADS = 3, IPERF_WAYS = 2, CONTESTANTS_MAX = REDIS_LOADS + IPERF_WAYS };

struct options {
    uint64_t rows, keys, piece_bytes;
    const char *congestion;
    struct sl_bench_common common;
};

struct peers {
    struct sl_bench_redis *redis;
    struct sl_bench_redis_load loads[REDIS_LOADS];
    struct sl_bench_iperf ways[IPERF_WAYS];
    struct sl_bench_contestant contestants[CONTESTANTS_MAX];
    uint32_t count;
};

static void add_redis(struct peers *peers, const struct options *options)
{
    static const char *const names[REDIS_LOADS] = {"redis GET, pipelined x64", "redis MGET",
                                                   "redis MGET, pipelined x8"};
    static const uint32_t pipelines[REDIS_LOADS] = {64, 1, 8};
    for (uint32_t i = 0; i < REDIS_LOADS; i++) {
        peers->loads[i] = (struct sl_bench_redis_load){
            .redis = peers->redis,
            .keys = i == 0 ? 1 : (uint32_t)options->keys,
            .pipeline = pipelines[i],
        };
        peers->contestants[peers->count++] = sl_bench_redis_contestant(names[i], &peers->loads[i]);
    }
}

static void add_iperf(struct peers *peers, const struct options *options)
{
    static const char *const names[IPERF_WAYS] = {"iperf3 to the server", "iperf3 to the client"};
    for (uint32_t i = 0; i < IPERF_WAYS; i++) {
        peers->ways[i] = (struct sl_bench_iperf){
            .piece_bytes = (uint32_t)options->piece_bytes,
            .to_server = i == 0,
            .congestion = options->congestion,
        };
        peers->contestants[peers->count++] = sl_bench_iperf_contestant(names[i], &peers->ways[i]);
    }
}

static int measure(struct peers *peers, const struct options *options)
{
    int err = sl_bench_redis_start(options->rows, &options->common, &peers->redis);
    if (err != 0) {
        return err;
    }
    if (peers->redis != NULL) {
        add_redis(peers, options);
    }
    if (sl_bench_iperf_is_there()) {
        add_iperf(peers, options);
    }
    const struct sl_bench_contest contest = {
        .benchmark = "peers",
        .setting = "other systems, one server core, one client core",
        .contestants = peers->contestants,
        .count = peers->count,
    };
    return sl_bench_contest_report(&contest, &options->common);
}

int sl_bench_peers_run(int argc, char **argv)
{
    struct options options = {
        .rows = 1000000, .keys = 100, .piece_bytes = 1 << 20, .common = sl_bench_common_defaults()};
    const struct sl_cli_option own[] = {
        sl_bench_number("rows", &options.rows, 1, 1e8, "Values that Redis holds, of 256 bytes."),
        sl_bench_number("keys", &options.keys, 2, 1000, "Keys of one MGET."),
        sl_bench_number("piece", &options.piece_bytes, 1, 1 << 20, "Bytes of iperf3's pieces."),
        sl_bench_congestion(&options.congestion),
    };
    int parsed = sl_bench_parse("peers", "Measures Redis and iperf3, to compare with.", own,
                                sizeof own / sizeof own[0], &options.common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    struct peers peers = {0};
    int err = measure(&peers, &options);
    sl_bench_redis_stop(&peers.redis);
    return err == 0 ? 0 : 1;
}
