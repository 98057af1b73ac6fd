/* The client of a request, and how its requests are ordered among those of other clients. */
#ifndef SL_PS_SHARD_CLIENT_H
#define SL_PS_SHARD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

/* Consistency: ps/shard/clocks.h defines clocks, active workers and min_clock. Tables may differ in
 * mode and worker_count; clocks belong to the shard. When no worker is active, no request waits and
 * all buffered pushes are applied.
 *
 * Pulls: a pull of clock c is admitted
 * - ASP: always;
 * - BSP: when min_clock >= c;
 * - SSP(s): when min_clock + s >= c.
 *
 * Pushes: BSP buffers a push of clock c, which must be the worker's current clock. It is applied
 * when min_clock passes c: by iteration, then by worker, then by arrival, so that the result does
 * not depend on timing. A push_pull waits, then pushes; in BSP its rows do not show its own push.
 *
 * Requests never wait and pushes apply at once for these clients: without a clock; a worker beyond
 * worker_count that has not joined. Pushes of an inactive worker also apply at once. */
struct sl_shard_client {
    bool has_clock;
    uint32_t worker; /* task index if has_clock; below SL_LIMIT_WORKERS */
    uint64_t client; /* names the process; 0: unknown */
};

#endif
