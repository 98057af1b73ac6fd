/* Frames over a bare transport (net/transport.h): two processes, each with a reactor on a core of
 * its own, and between them nothing of Starling but the transport; by any scheme. One thread, the
 * only one of its process. */
#ifndef SL_BENCH_FRAMES_H
#define SL_BENCH_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/options.h"
#include "core/metric.h"
#include "net/dpdk/dpdk.h"

#define SL_BENCH_FRAMES_BYTES_MAX    ((64U << 20) + 32)
#define SL_BENCH_FRAMES_ANSWER_BYTES 32
#define SL_BENCH_FRAMES_DEPTH_MAX    4096
#define SL_BENCH_FRAMES_RATE_READS   32

struct sl_bench_frames {
    const char *endpoint;    /* where the server listens: "rdma://10.0.0.1:0" */
    const char *rdma_device; /* NULL: any */
    const struct sl_dpdk_options *of_server, *of_client; /* DPDK only */
    uint32_t bytes; /* of a frame, 32 of header included: 64, or 16 KiB and more for long ones */
    uint32_t depth; /* frames under way, to 4096 */
    bool answers;   /* each is answered by one as long, or a short one when it is long; else each
                     * quarter of the depth, or each when that is less: so that those which count
                     * have been received by the program */
    bool rate_only; /* the clock is read with one answer in SL_BENCH_FRAMES_RATE_READS, and no
                       latency is told */
    bool touched;   /* a word of each line of a payload is written, and every word is read */
    bool polling;   /* both sides spin; else they sleep as soon as there is nothing to do */
};

struct sl_bench_frames_result {
    double frames_per_s;                /* that were answered, one way */
    struct sl_metric_histogram latency; /* ns, from a frame to its answer */
};

/* What `touched` does to a payload of an index: one word of each line is written, the rest stays 0;
 * and whether the sum of all words is that. `allocate`: such memory, of zeros; NO_MEMORY. */
void sl_bench_frames_touch(uint8_t *payload, uint32_t bytes, uint64_t index);
bool sl_bench_frames_is_touched(const uint8_t *payload, uint32_t bytes, uint64_t index);
int sl_bench_frames_allocate(size_t bytes, uint8_t **out);

/* Errors, logged: INVALID (the endpoint), UNSUPPORTED, DEADLINE, CLOSED. */
int sl_bench_frames_run(const struct sl_bench_frames *frames, const struct sl_bench_common *common,
                        struct sl_bench_frames_result *out);

#endif
