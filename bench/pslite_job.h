/* All processes of a job in ps-lite's roles, on this machine: a scheduler, a server on one core,
 * workers on another, forked from this one and found by DMLC_* variables as a cluster script would
 * set them. They are killed by the kernel when this process dies. One thread, the only one of its
 * process when the job starts. */
#ifndef SL_BENCH_PSLITE_JOB_H
#define SL_BENCH_PSLITE_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "bench/pslite_options.h"

struct sl_kv_handler;

struct sl_bench_pslite_job_options {
    uint32_t workers; /* 1 to SL_BENCH_PSLITE_WORKERS_MAX */
    int server_core, worker_core;
    bool no_shm;                             /* STARLING_SHM=0 */
    const char *rdma_address;                /* of the server, which serves by RDMA too; or NULL */
    const char *rdma_device;                 /* then, or NULL: any */
    const char *server_polling;              /* "true", "false", or NULL: as in our environment */
    const char *worker_polling;              /* the same */
    const char *congestion;                  /* of TCP; NULL: as in our environment */
    const struct sl_kv_handler *handler;     /* of the server; NULL: the sum */
    int (*work)(void *ctx, uint32_t worker); /* a worker's process; its exit status */
    void *ctx;
};

struct sl_bench_pslite_job {
    pid_t scheduler, server, workers[SL_BENCH_PSLITE_WORKERS_MAX]; /* 0: has ended */
    uint32_t worker_count;
    bool parked;
};

/* What the options point to outlives the job. On failure nothing runs. Errors, logged: IO, IN_USE.
 */
int sl_bench_pslite_job_start(const struct sl_bench_pslite_job_options *options,
                              struct sl_bench_pslite_job *out);

/* CLOSED, logged, when a process has ended that should not have: any before its workers are done,
 * or a worker with another status than 0. Never blocks. */
int sl_bench_pslite_job_look(struct sl_bench_pslite_job *job);

/* Until the workers have ended, and then the server and the scheduler by themselves. Errors,
 * logged: CLOSED as above, DEADLINE: those that are left are to be stopped. */
int sl_bench_pslite_job_wait(struct sl_bench_pslite_job *job, uint32_t timeout_ms);

/* Kills what still runs. A job of zeros has nothing. */
void sl_bench_pslite_job_stop(struct sl_bench_pslite_job *job);

/* Stops the server in its place, or lets it go on, so that others have the core meanwhile. */
void sl_bench_pslite_job_park(struct sl_bench_pslite_job *job, bool parks);

#endif
