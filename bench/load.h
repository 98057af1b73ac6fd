/* A load on one cluster from one thread on one core, as many workers make it: each connection is a
 * client of its own that speaks the protocol (docs/protocol.md) over net/ and keeps `depth`
 * requests under way; no client library in between, so that one core can drive a server's. Closed
 * loop: a reply lets the next request go. Open loop: requests are due at fixed intervals whatever
 * the server does, and latency counts from when a request was due, so that a pause is not left out.
 */
#ifndef SL_BENCH_LOAD_H
#define SL_BENCH_LOAD_H

#include <starling.h>

#include <stdbool.h>
#include <stdint.h>

#include "bench/workload.h"
#include "core/err.h"
#include "core/metric.h"

enum sl_bench_operation {
    SL_BENCH_PULL = 0,
    SL_BENCH_PUSH = 1,
    SL_BENCH_PUSH_PULL = 2,
};

struct sl_bench_load;

struct sl_bench_load_options {
    const char *coordinator;    /* "host:port" */
    struct sl_table_spec table; /* opened by the load, its rows created before anything is timed */
    enum sl_bench_operation operation;
    enum sl_precision returned; /* what pulls ask for */
    uint32_t connections;       /* to each shard */
    uint32_t depth;             /* requests under way on each, 1 to 128 */
    uint32_t keys;              /* of one request; sparse: 1 to 8192; dense: elements */
    enum sl_bench_distribution distribution;
    uint64_t rows; /* the population */
    double zipf_exponent;
    uint64_t seed;
    double rate;  /* requests a second over all connections; 0: closed loop */
    int core;     /* that the load's thread is pinned to; -1: none */
    bool polling; /* it spins when idle */
    const char *congestion;
    /* Another load, whose thread is to drive this one too, instead of one of its own; NULL: none.
     * It is closed after this one; core and polling are then its. */
    struct sl_bench_load *host;
};

struct sl_bench_load_result {
    uint64_t requests, keys; /* answered in the time measured */
    uint64_t all_requests;   /* answered since the run began: what a server's time is divided by */
    /* Open loop: due in the time measured, and not sent in it, since the server was behind. Each
     * has its delay so far in `latency`. */
    uint64_t unsent;
    double seconds;     /* measured */
    double cpu_seconds; /* of the load's own thread in them */
    /* ns, of each request: closed loop: answered in the time measured; open loop: due in it. To
     * within the time in which the load takes 32 replies: they share a reading of the clock. */
    struct sl_metric_histogram latency;
};

/* Connects, opens the table, creates the rows; sends one request to each shard and checks what it
 * does against the client library. Errors, logged: INVALID, REFUSED, DEADLINE, CORRUPT, … */
int sl_bench_load_open(const struct sl_bench_load_options *options, struct sl_bench_load **out);

/* Lets it run: warm_up seconds uncounted, then `seconds`; then waits for what is under way. May be
 * called again. Between runs it takes no processor time. Errors, logged: a reply that is refused,
 * or has the wrong length, or a connection that ends, ends the load. */
int sl_bench_load_run(struct sl_bench_load *load, double warm_up, double seconds,
                      struct sl_bench_load_result *out);

/* The same in two steps, for several loads at a time: each that has begun is waited for. */
int sl_bench_load_begin(struct sl_bench_load *load, double warm_up, double seconds);
int sl_bench_load_wait(struct sl_bench_load *load, struct sl_bench_load_result *out);

void sl_bench_load_close(struct sl_bench_load **load);

#endif
