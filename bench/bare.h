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

/* Reads of whole rows by their place, in random order, and Adagrad's update of them (accumulator
 * beside the row), over rows in 2 MiB pages; ns a row, on the server's core. */
struct sl_bench_bare_rows {
    uint64_t rows; /* 1 to 2^32 - 1 */
    uint32_t dim, batch;
    /* Before each row, never looked at: a multiple of 4. 16 gives the places of a table's records,
     * 0 rows that lie close together. */
    uint32_t header_bytes;
    uint64_t seed;
};
int sl_bench_bare_rows_run(const struct sl_bench_bare_rows *options,
                           const struct sl_bench_common *common, double *gather_ns,
                           double *update_ns);

/* The same in steps, for many repeats over the same rows. *out is owned by the caller. Errors,
 * logged: NO_MEMORY. */
struct sl_bench_bare_rows_memory;
int sl_bench_bare_rows_create(const struct sl_bench_bare_rows *options,
                              struct sl_bench_bare_rows_memory **out);
int sl_bench_bare_rows_gather(struct sl_bench_bare_rows_memory *memory,
                              const struct sl_bench_common *common, double *ns);
int sl_bench_bare_rows_update(struct sl_bench_bare_rows_memory *memory,
                              const struct sl_bench_common *common, double *ns);
void sl_bench_bare_rows_destroy(struct sl_bench_bare_rows_memory **memory);

/* memcpy from one piece of memory to another of the same size, on the server's core or on both
 * cores at once, each with pieces of its own; bytes copied by all. */
struct sl_bench_bare_memory {
    uint64_t bytes;   /* of a piece, 64 to 1 GiB */
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
