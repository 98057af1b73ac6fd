/* Payloads pushed by verbs alone, with nothing of Starling on the way: which side shall move them?
 * A worker's process and a server's, a thread and a core each, which poll; between them so many
 * queue pairs, made by rdma_cm. Nobody looks at the payloads. Pushes are begun for as long as is
 * measured, and all that were begun are ended. No warm-up: all memory has been touched. */
#ifndef SL_BENCH_BARE_VERBS_H
#define SL_BENCH_BARE_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/report.h"

#define SL_BENCH_BARE_VERBS_CONNECTIONS_MAX 16U
#define SL_BENCH_BARE_VERBS_DEPTH_MAX       16U

/* Each push ends with a message of the server's that says so. Messages are SENDs of 64 bytes. */
enum sl_bench_bare_verbs_way {
    SL_BENCH_BARE_VERBS_READ,    /* the worker says where it lies, and the server READs it */
    SL_BENCH_BARE_VERBS_ASKED,   /* the worker asks, the server grants memory, the worker WRITEs */
    SL_BENCH_BARE_VERBS_GRANTED, /* it WRITEs to what was granted for good */
};

struct sl_bench_bare_verbs {
    const char *address; /* of the device, IPv4 */
    enum sl_bench_bare_verbs_way way;
    uint32_t bytes;       /* of a payload */
    uint32_t connections; /* to CONNECTIONS_MAX */
    uint32_t depth;       /* pushes under way on each, to DEPTH_MAX, each from memory of its own */
};

/* *pushes_per_s of all connections together. Errors, logged: UNSUPPORTED (no libraries, or built
 * without), IO, DEADLINE, CLOSED. */
int sl_bench_bare_verbs_run(const struct sl_bench_bare_verbs *verbs,
                            const struct sl_bench_common *common, double *pushes_per_s);

#endif
