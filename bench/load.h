/* A load on one cluster from one thread on one core, as many workers make it: each connection is a
 * client of its own that speaks the protocol (docs/protocol.md) over net/ and keeps `depth`
 * requests under way; no client library in between, so that one core can drive a server's. Closed
 * loop: a reply lets the next request go. Open loop: requests are due at fixed intervals whatever
 * the server does, and latency counts from when a request was due, so that a pause is not left out.
 */
#ifndef SL_BENCH_LOAD_H
#define SL_BENCH_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/workload.h"
#include "core/err.h"
#include "core/metric.h"
#include "include/starling.h"

enum sl_bench_operation {
    SL_BENCH_PULL = 0,
    SL_BENCH_PUSH = 1,
    SL_BENCH_PUSH_PULL = 2,
};

struct sl_bench_load_options {
    const char *coordinator;    /* "host:port" */
    struct sl_table_spec table; /* opened by the load, its rows created before anything is timed */
    enum sl_bench_operation operation;
    uint32_t connections; /* to each shard */
    uint32_t depth;       /* requests under way on each, 1 to 128 */
    uint32_t keys;        /* of one request; sparse: 1 to 8192; dense: elements */
    enum sl_bench_distribution distribution;
    uint64_t rows; /* the population */
    double zipf_exponent;
    uint64_t seed;
    double rate;  /* requests a second over all connections; 0: closed loop */
    int core;     /* that the load's thread is pinned to; -1: none */
    bool polling; /* it spins when idle */
    const char *congestion;
};

struct sl_bench_load;

struct sl_bench_load_result {
    uint64_t requests, keys, failures;
    double seconds;                     /* measured */
    double cpu_seconds;                 /* of the load's own thread in them */
    struct sl_metric_histogram latency; /* ns, of each request */
};

/* Connects, opens the table, creates the rows. Errors, logged: INVALID, REFUSED, DEADLINE, … */
int sl_bench_load_open(const struct sl_bench_load_options *options, struct sl_bench_load **out);

/* Lets it run: warm_up seconds uncounted, then `seconds`; then waits for what is under way. May be
 * called again. Errors, logged. */
int sl_bench_load_run(struct sl_bench_load *load, double warm_up, double seconds,
                      struct sl_bench_load_result *out);

void sl_bench_load_close(struct sl_bench_load **load);

#endif
