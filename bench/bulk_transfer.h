/* Dense bytes one way, over the real client library: steps of one table of one size, some of them
 * under way at once, from one thread. One thread. */
#ifndef SL_BENCH_BULK_TRANSFER_H
#define SL_BENCH_BULK_TRANSFER_H

#include <starling.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/ps_process.h"

#define SL_BENCH_BULK_DEPTH_MAX 16

struct sl_bench_bulk_transfer {
    const char *coordinator;
    uint64_t bytes; /* of a step, a multiple of 4 */
    bool push;
    bool polling; /* the client's reactor */
    uint32_t depth;
    enum sl_optimizer_kind optimizer; /* of the table, that pushes go through */
    const char *congestion;
    bool no_shm;   /* TCP, between processes of one machine too */
    float *memory; /* [depth][bytes / 4] */
};

/* Pages that are there, large ones where the system has them; to be freed. NULL: no memory. */
float *sl_bench_bulk_memory(uint64_t bytes);

struct sl_bench_bulk_result {
    uint64_t steps;
    double seconds;     /* measured */
    double cpu_seconds; /* of this process in them */
};

/* Connects, runs for warm_up seconds, measures for `seconds`, disconnects. The threads of the
 * client run on `core`. Errors, logged. */
int sl_bench_bulk_transfer_run(const struct sl_bench_bulk_transfer *transfer, int core,
                               double warm_up, double seconds, struct sl_bench_bulk_result *out);

#endif
