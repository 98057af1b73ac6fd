/* Long frames one way over a bare transport: several senders, each a reactor with a transport of
 * its own, all driven in turns by one thread of one process; and who receives, one reactor in
 * another process. Each on a core of its own, polling. Payloads are touched (bench/touch.h). By any
 * scheme. One thread, the only one of its process. */
#ifndef SL_BENCH_STREAM_H
#define SL_BENCH_STREAM_H

#include <stdint.h>

#include "bench/report.h"
#include "net/dpdk/dpdk.h"

#define SL_BENCH_STREAM_SENDERS_MAX 16U

struct sl_bench_stream {
    const char *endpoint; /* where the receiver listens */
    /* DPDK only. The sender with index i has those of the second's devices whose first reactor is
     * i. */
    const struct sl_dpdk_options *of_receiver, *of_senders;
    const struct sl_dpdk_medium *medium; /* of the receiver; NULL: the plug-in */
    uint32_t senders;
    uint32_t bytes; /* of a payload, a multiple of a line of 64 */
    uint32_t depth; /* frames of each sender under way, each with memory of its own */
};

struct sl_bench_stream_result {
    double bytes_per_s;         /* of payload, of all together */
    double slowest_bytes_per_s; /* of the sender who came through least */
};

/* Errors, logged: INVALID (the endpoint), UNSUPPORTED, PROTOCOL (not what was sent), DEADLINE,
 * CLOSED. */
int sl_bench_stream_run(const struct sl_bench_stream *stream, const struct sl_bench_common *common,
                        struct sl_bench_stream_result *out);

#endif
