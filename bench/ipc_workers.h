/* Workers of one server that stay: a job in ps-lite's roles (bench/pslite_job.h) whose worker
 * processes do what they are told in turns, and sleep in between. One thread. */
#ifndef SL_BENCH_IPC_WORKERS_H
#define SL_BENCH_IPC_WORKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/pslite_options.h"
#include "core/metric.h"

#define SL_BENCH_IPC_LENS_MAX 16

/* Work of all workers in one turn. */
struct sl_bench_ipc_turn {
    enum sl_bench_ipc_what {
        SL_BENCH_IPC_ROUNDS,      /* of all keys: bench/pslite_arrays.h */
        SL_BENCH_IPC_ROUND_TRIPS, /* pulls of one row of a sparse table, one at a time */
        SL_BENCH_IPC_END,
    } what;
    enum sl_bench_pslite_mode mode; /* ROUNDS */
    uint32_t len;                   /* ROUNDS: which of the lens */
    uint32_t repeat; /* ROUNDS: so many at least, in place of `seconds`; 0: as long as that */
    double warm_up, seconds;
};

struct sl_bench_ipc_options {
    uint32_t workers;
    bool no_shm;
    const char *rdma_address,
        *rdma_device; /* as of a job; then what goes another way is an error */
    bool server_polls, workers_poll;
    const char *congestion;
    int server_core, worker_core;
    /* Its len is the first of these. */
    struct sl_bench_pslite_load load;
    uint64_t lens[SL_BENCH_IPC_LENS_MAX];
    uint32_t len_count;
};

/* Combined results. */
struct sl_bench_ipc_result {
    double keys_per_s;                  /* ROUNDS */
    struct sl_metric_histogram latency; /* ROUND_TRIPS: ns */
};

struct sl_bench_ipc_workers;

/* Starts the job and waits until all workers have joined; its server is then parked. *out is owned
 * by the caller. Errors, logged: IO, CLOSED, DEADLINE, NO_MEMORY. */
int sl_bench_ipc_workers_start(const struct sl_bench_ipc_options *options,
                               struct sl_bench_ipc_workers **out);

/* Tells the workers to end, waits for the end of all; what does not end is killed. */
void sl_bench_ipc_workers_stop(struct sl_bench_ipc_workers **workers);

/* One turn; the server is parked before and after. Errors, logged: CLOSED, DEADLINE. */
int sl_bench_ipc_workers_run(struct sl_bench_ipc_workers *workers,
                             const struct sl_bench_ipc_turn *turn, struct sl_bench_ipc_result *out);

#endif
