/* The parts of starling-bench transfer. */
#ifndef SL_BENCH_TRANSFER_H
#define SL_BENCH_TRANSFER_H

#include "bench/transfer_options.h"
#include "core/metric.h"

/* The engine of this process and its registered buffers, one for each NUMA node. */
#define SL_BENCH_TRANSFER_NODES_MAX 16
struct sl_bench_transfer_engine {
    struct sl_transfer *transfer;
    uint8_t *buffers[SL_BENCH_TRANSFER_NODES_MAX];
    uint64_t buffer_bytes;
    uint32_t count;
    bool is_shared;
};

/* Errors, logged. In any case *engine needs close. */
int sl_bench_transfer_engine_open(struct sl_bench_transfer_engine *engine,
                                  const struct sl_bench_transfer_options *options,
                                  uint64_t buffer_bytes);
void sl_bench_transfer_engine_close(struct sl_bench_transfer_engine *engine);

/* The result of an initiator's run: the work of all its threads. */
struct sl_bench_transfer_moved {
    double seconds;
    uint64_t batches, bytes;
    uint64_t wrong_bytes;               /* found by --verify */
    uint64_t bulk_bytes;                /* of the thread that writes beside them */
    struct sl_metric_histogram latency; /* ns, of batches */
};

/* Opens the segment and runs options->threads threads for options->duration. prints: each thread
 * prints "Worker N stopped!". Errors, logged: of the first failed batch, with its text. */
int sl_bench_transfer_initiate(struct sl_bench_transfer_engine *engine,
                               const struct sl_bench_transfer_options *options,
                               const char *segment_id, bool prints,
                               struct sl_bench_transfer_moved *moved);

#endif
