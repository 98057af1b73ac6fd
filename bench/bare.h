/* The baselines: what the machine does in the shapes that the benchmarks measure, with nothing of
 * Starling on the way (liburing, sockets and plain loops only). Each is one repeat: starts its
 * server on the server's core in a process of its own, measures, ends it. Errors, logged. */
#ifndef SL_BENCH_BARE_H
#define SL_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/report.h"
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

/* How the bytes of a bulk transfer are received. */
enum sl_bench_bare_way {
    SL_BENCH_BARE_BEST = 0,  /* the one that was the fastest here: bench/README.md */
    SL_BENCH_BARE_BLOCKING,  /* recv, waiting for all, in place */
    SL_BENCH_BARE_SPINNING,  /* recv, not waiting, again and again, in place */
    SL_BENCH_BARE_WAIT_ALL,  /* io_uring, waiting for all, in place */
    SL_BENCH_BARE_MULTISHOT, /* io_uring, multishot into a ring of provided buffers */
    SL_BENCH_BARE_BUNDLES,   /* the same, several buffers at a time: Linux 6.10 or later */
    SL_BENCH_BARE_WAYS
};
const char *sl_bench_bare_way_name(enum sl_bench_bare_way way);

/* Bytes one way over one connection in pieces of `bytes` from and into memory of this program;
 * `depth` pieces may be under way: for each that has arrived 32 bytes go back, which let the next
 * one go. */
struct sl_bench_bare_bulk {
    uint64_t bytes; /* 1 to 1 GiB */
    bool to_server; /* as a push; else as a pull */
    uint32_t depth; /* 1 to 64 */
    enum sl_bench_bare_way way;
    const char *congestion; /* NULL: the system's */
};
/* Errors, logged: as of the echo. */
int sl_bench_bare_bulk_run(const struct sl_bench_bare_bulk *options,
                           const struct sl_bench_common *common, double *bytes_per_s);

/* Whole rows by their addresses, in the order given and again and again. */
struct sl_bench_bare_rows {
    float *const *rows; /* [row_count]: dim values each, behind them an accumulator for each */
    uint64_t row_count; /* at least 1; a row may come more than once */
    uint32_t dim, batch;
    float *values;          /* [batch][dim]: where rows are gathered */
    const float *gradients; /* [batch][dim] */
};

/* Copies of the values; Adagrad's update of values and accumulators. ns a row, on the server's
 * core. Errors, logged: INVALID. */
int sl_bench_bare_rows_gather(const struct sl_bench_bare_rows *rows,
                              const struct sl_bench_common *common, double *ns);
int sl_bench_bare_rows_update(const struct sl_bench_bare_rows *rows,
                              const struct sl_bench_common *common, double *ns);

/* Rows of their own in 2 MiB pages, drawn at random. */
struct sl_bench_bare_rows_drawn {
    uint64_t rows; /* 1 to 2^32 - 1 */
    uint32_t dim, batch;
    /* Before each row, never looked at: a multiple of 4. 16 gives the places of a table's records,
     * 0 rows that lie close together. */
    uint32_t header_bytes;
    uint64_t seed;
};

/* *out is owned by the caller. Errors, logged: NO_MEMORY. */
struct sl_bench_bare_rows_memory;
int sl_bench_bare_rows_create(const struct sl_bench_bare_rows_drawn *options,
                              struct sl_bench_bare_rows_memory **out);
void sl_bench_bare_rows_destroy(struct sl_bench_bare_rows_memory **memory);

/* Valid until the memory is destroyed. */
const struct sl_bench_bare_rows *
sl_bench_bare_rows_of(const struct sl_bench_bare_rows_memory *memory);

/* memcpy from pieces of memory to others of the same size, one after the other and again from the
 * first, on the server's core or on both cores at once, each with pieces of its own; bytes copied
 * by all, each counted once. */
struct sl_bench_bare_memory {
    uint64_t bytes;   /* of a piece, 64 to 1 GiB */
    uint32_t pieces;  /* on each side, 1 to 4096 */
    uint32_t threads; /* 1 or 2 */
};
int sl_bench_bare_memory_run(const struct sl_bench_bare_memory *options,
                             const struct sl_bench_common *common, double *bytes_per_s);

/* A ring of 64-byte messages from a thread on the server's core to one on the client's, made known
 * `batch` at a time (1 to 64). */
int sl_bench_bare_spsc_run(uint32_t batch, const struct sl_bench_common *common,
                           double *messages_per_s);

/* A message there and another back, through two rings. */
int sl_bench_bare_spsc_round_trip(const struct sl_bench_common *common, double *ns);

#endif
