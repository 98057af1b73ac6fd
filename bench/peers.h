/* Other systems that are measured beside Starling, in the same run: Redis and iperf3, as Debian has
 * them, each program pinned as Starling's are. Where one is not installed, a line says which
 * package holds it, and the benchmark goes on without it. One thread. */
#ifndef SL_BENCH_PEERS_H
#define SL_BENCH_PEERS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/contest.h"

/* ---- Redis ----------------------------------------------------------------------------------- */

#define SL_BENCH_REDIS_VALUE_BYTES 256 /* of each value: a row of 64 f32 */

/* One server on loopback, without persistence, on the server's core; stopped with SIGSTOP between
 * repeats. */
struct sl_bench_redis;

/* Starts it, and fills it with `rows` values. *out is NULL, with 0, where it is not installed; else
 * the caller's. Errors, logged: IO, DEADLINE, CLOSED, NO_MEMORY. */
int sl_bench_redis_start(uint64_t rows, const struct sl_bench_common *common,
                         struct sl_bench_redis **out);
void sl_bench_redis_stop(struct sl_bench_redis **redis);

/* A load that redis-benchmark makes from the client's core: GET of one random key, or MGET of
 * `keys`; as many connections as it has by default (50). */
struct sl_bench_redis_load {
    struct sl_bench_redis *redis;
    uint32_t keys;     /* 1: GET; 2 to 1000: MGET */
    uint32_t pipeline; /* requests under way on each connection */
    double keys_per_s; /* as the last repeat had it; 0 at first: how long the next one shall be */
};

/* "redis GET, pipelined x64": quantities "requests" and "keys", both 1/s. *load must outlive the
 * contest; its redis is there. */
struct sl_bench_contestant sl_bench_redis_contestant(const char *name,
                                                     struct sl_bench_redis_load *load);

/* ---- iperf3 ---------------------------------------------------------------------------------- */

struct sl_bench_iperf {
    uint32_t piece_bytes;   /* -l, 1 to 1 MiB */
    bool to_server;         /* as a push; else as a pull */
    const char *congestion; /* NULL: the system's */
};

/* Whether it is installed; says so where it is not. */
bool sl_bench_iperf_is_there(void);

/* One connection from the client's core to the server's; quantity "bytes", 1/s, as received. *iperf
 * must outlive the contest. */
struct sl_bench_contestant sl_bench_iperf_contestant(const char *name,
                                                     struct sl_bench_iperf *iperf);

#endif
