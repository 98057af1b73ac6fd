/* A real starling-ps process, pinned, as a benchmark needs it: started with a port of its own, with
 * its log out of the way, ended with the benchmark whatever happens. One thread. */
#ifndef SL_BENCH_PS_PROCESS_H
#define SL_BENCH_PS_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/limits.h"

struct sl_bench_ps_options {
    uint32_t reactors;      /* cores of it: NETWORK_PS_CORE_NUMBER */
    int first_core;         /* the reactors are pinned from here upwards */
    bool polling;           /* NETWORK_PS_POLLING */
    uint32_t worker_count;  /* that the cluster expects: workers with a clock */
    const char *congestion; /* of TCP; NULL: the system's */
    /* One of several: all of them, "127.0.0.1:1,127.0.0.1:2", and which one it is; NULL: it is the
     * only one, at a port that is free. */
    const char *hosts;
    uint16_t port;
    uint32_t task_index;
    uint32_t replicas; /* of each shard */
    /* Where checkpoints are, which are made when a client asks, and at an orderly end; NULL: none.
     */
    const char *checkpoint_dir;
    uint32_t checkpoint_adds;  /* in a row that add; 0: each is full */
    uint32_t checkpoint_level; /* of zstd; 0: not packed */
    bool restores;             /* it begins from the newest */
};

struct sl_bench_ps;

/* Ports of 127.0.0.1 that are free, and differ. Errors, logged: IN_USE. */
int sl_bench_ps_ports(uint32_t count, uint16_t *ports);

/* Starts it, and waits until it can be connected to. *out is owned by the caller. Errors, logged
 * with the last lines of its log: NOT_FOUND (no starling-ps beside this program), IO, DEADLINE,
 * NO_MEMORY. */
int sl_bench_ps_start(const struct sl_bench_ps_options *options, struct sl_bench_ps **out);

/* Ends it (SIGTERM, after a second SIGKILL) and waits for it. */
void sl_bench_ps_stop(struct sl_bench_ps **ps);

/* Ends it by SIGKILL: without the checkpoint of an orderly end. */
void sl_bench_ps_kill(struct sl_bench_ps **ps);

/* "127.0.0.1:port" of its coordinator. */
const char *sl_bench_ps_coordinator(const struct sl_bench_ps *ps);

/* Stops it in its place, or lets it go on, so that others have the core meanwhile; well within the
 * cluster's lease and the peers' timeouts, or with nobody connected. */
void sl_bench_ps_park(struct sl_bench_ps *ps);
void sl_bench_ps_unpark(struct sl_bench_ps *ps);

/* Processor time of all its threads so far, in seconds. */
double sl_bench_ps_cpu_seconds(const struct sl_bench_ps *ps);

/* Says whether it has ended, and prints the last lines of its log to stderr: something else has
 * failed, and this may say why. */
void sl_bench_ps_show_log(struct sl_bench_ps *ps);

/* What the kernel says of its memory, in bytes: what it has of it now, and the most since the last
 * sl_bench_ps_forget_peak. Errors, logged: IO. */
struct sl_bench_ps_memory {
    uint64_t resident, peak;
};
int sl_bench_ps_memory(const struct sl_bench_ps *ps, struct sl_bench_ps_memory *out);
int sl_bench_ps_forget_peak(const struct sl_bench_ps *ps);

/* Turns that were too long, as its reactors' lines in the log since *at have it, which is moved to
 * the end of the log. Such a line names the longest only of one second, and how many there were: a
 * turn may be told of in a later line than its own. */
struct sl_bench_ps_stalls {
    uint64_t count;
    double longest_ms;
};
struct sl_bench_ps_stalls sl_bench_ps_stalls(const struct sl_bench_ps *ps, uint64_t *at);

#endif
