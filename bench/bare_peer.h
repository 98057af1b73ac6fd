/* The other end of a baseline: a process of its own on the server's core, connected with this one
 * over loopback TCP. It ends with the baseline, and with this process whatever happens to that. One
 * thread. */
#ifndef SL_BENCH_BARE_PEER_H
#define SL_BENCH_BARE_PEER_H

#include <stdint.h>
#include <sys/types.h>

#include "bench/fork.h"
#include "bench/options.h"

#define SL_BENCH_BARE_CONNECTIONS_MAX 4096

/* Logs `what` with errno. Returns what stands for errno. */
int sl_bench_bare_fail(const char *what);

/* What the process does with its ends of the connections; it ends when this returns. Errors, logged
 * there, are those of the process. */
typedef int (*sl_bench_bare_serve_fn)(const void *ctx, const int *fds, uint32_t count);

struct sl_bench_bare_peer {
    pid_t pid;
    uint32_t count;
    int *fds;         /* our ends */
    cpu_set_t before; /* cores of this thread */
};

/* Starts the process, pinned to common->server_core, connects `connections` times and pins this
 * thread to common->client_core (-1: no pinning). congestion: of both ends; NULL: the system's.
 * Errors, logged: INVALID (no such congestion control, core), IO, NO_MEMORY. */
int sl_bench_bare_peer_start(struct sl_bench_bare_peer *peer, uint32_t connections,
                             const char *congestion, const struct sl_bench_common *common,
                             sl_bench_bare_serve_fn serve, const void *ctx);

/* Closes our ends, which is how the process is to learn that all is over, waits for it (kills it if
 * it does not end) and lets this thread run where it ran before. Errors, logged: IO, the process
 * failed. */
int sl_bench_bare_peer_end(struct sl_bench_bare_peer *peer);

#endif
