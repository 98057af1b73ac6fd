/* One ps process: its reactors and their servers, its membership in the cluster, its orderly end.
 * The main thread calls sl_process_run and waits there, for signals and for what the reactors
 * report. */
#ifndef SL_PS_PROCESS_H
#define SL_PS_PROCESS_H

#include "core/endpoint.h"
#include "core/err.h"
#include "core/secret.h"

struct sl_transport_tls;

struct sl_process_options {
    uint32_t task_index;
    uint32_t ps_count;
    uint32_t worker_count;          /* 0: unknown */
    struct sl_endpoint coordinator; /* control endpoint of ps/0 */
    struct sl_endpoint control;     /* ours */
    struct sl_endpoint data;        /* ours; may equal control */
    uint32_t reactor_count;
    bool polling;
    bool pin;
    bool checksum;
    size_t memory_bytes_max; /* of the tables of all shards; 0: no limit */
    uint64_t start_timeout_ns;
    uint64_t drain_timeout_ns;
    uint64_t lease_ns;                  /* told by the coordinator; only task 0's counts */
    const struct sl_secret *secret;     /* outlives the run; NULL: the cluster has none */
    const struct sl_transport_tls *tls; /* likewise; NULL: in the clear */
    const char *congestion_control;     /* NULL: the system's */
    bool shm; /* workers of this host may come through shared memory, beside the data endpoint */
};

/* Runs the ps until SIGTERM or SIGINT. Returns the process's exit status: 0 after an orderly end, 1
 * when it could not start, or the cluster has no place for it any more (another process has taken
 * it), with the reason logged. While the coordinator is out of reach it serves on. A second signal
 * ends the process at once, with 128 + its number. Blocks both signals in the calling thread. */
int sl_process_run(const struct sl_process_options *options);

#endif
