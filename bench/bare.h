/* The baselines: what the machine does in the shapes that the benchmarks measure, with nothing of
 * Starling on the way (liburing, sockets and plain loops only). Each is one repeat: starts its
 * server on the server's core in a process of its own, measures, ends it. Errors, logged. */
#ifndef SL_BENCH_BARE_H
#define SL_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/options.h"
#include "core/metric.h"

#define SL_BENCH_BARE_MESSAGE_BYTES_MAX (64U << 10)

/* Requests and replies of a size, whole messages counted from the byte stream; `depth` of them
 * under way on each connection. With one connection and depth 1 it is the ping-pong. */
struct sl_bench_bare_echo {
    uint32_t connections, depth;         /* 1 to 4096; 1 to 1024 */
    uint32_t request_bytes, reply_bytes; /* 1 to 64 KiB each */
    bool polling;                        /* both sides spin */
    const char *congestion;              /* NULL: the system's */
};

/* latency: in ns, of each request as the client sees it, written anew. Errors, logged: INVALID,
 * UNSUPPORTED, DEADLINE (no reply at all), IO, NO_MEMORY. */
int sl_bench_bare_echo_run(const struct sl_bench_bare_echo *options,
                           const struct sl_bench_common *common, double *requests_per_s,
                           struct sl_metric_histogram *latency);

/* Bytes one way over one connection in pieces of `bytes` from and into memory of this program, by
 * blocking calls, than which no form of io_uring was faster here;
 * `depth` pieces may be under way: for each that has arrived 32 bytes go back, which let the next
 * one go. */
struct sl_bench_bare_bulk {
    uint64_t bytes;         /* 1 to 1 GiB */
    bool to_server;         /* as a push; else as a pull */
    uint32_t depth;         /* 1 to 64 */
    uint32_t pieces;        /* of memory on each side, one after the other; 0: `depth` */
    const char *congestion; /* NULL: the system's */
};
/* Errors, logged: as of the echo. */
int sl_bench_bare_bulk_run(const struct sl_bench_bare_bulk *options,
                           const struct sl_bench_common *common, double *bytes_per_s);

/* memcpy from pieces of memory to others of the same size, one after the other and again from the
 * first, on the server's core; bytes copied, each counted once. */
struct sl_bench_bare_memory {
    uint64_t bytes;  /* of a piece, 64 to 1 GiB */
    uint32_t pieces; /* on each side, 1 to 4096 */
    bool is_shared;  /* in memory that processes can share, with its pages; else in huge pages */
};
int sl_bench_bare_memory_run(const struct sl_bench_bare_memory *options,
                             const struct sl_bench_common *common, double *bytes_per_s);

#endif
