/* One process of the ps program: its reactors and their servers, its membership in the cluster, its
 * orderly end; or a scheduler, which is a coordinator without shards. The main thread calls
 * sl_process_run and waits there, for signals and for what the reactors report. */
#ifndef SL_PS_PROCESS_PROCESS_H
#define SL_PS_PROCESS_PROCESS_H

#include "core/endpoint.h"
#include "core/err.h"
#include "core/secret.h"

struct sl_disk;
struct sl_dpdk_options;
struct sl_etcd_options;
struct sl_transport_tls;
struct sl_kv_handler;
struct sl_memory_plan;

enum sl_process_kind {
    SL_PROCESS_PS,     /* with a control endpoint; task 0 hosts the coordinator */
    SL_PROCESS_SERVER, /* a ps of a job with a scheduler: a data endpoint, and no other */
    SL_PROCESS_SCHEDULER
};

/* Of the coordinator: every_ns and adds. */
struct sl_process_checkpoint {
    const char *directory; /* that of all checkpoints; outlives the run; NULL: there are none */
    uint64_t every_ns;     /* from one to the next; 0: only when a client asks, and at the end */
    uint32_t incrementals_max;  /* in a row, which hold only what changed, between two full ones */
    uint32_t keep;              /* complete ones, 1 at least */
    uint32_t compression_level; /* of zstd; 0: not packed */
    uint32_t
        snapshot_budget; /* of a turn, for the walk over a shard; 0: by what else is to be done */
    bool restores;
    uint64_t restore_number;    /* 0: the newest that is complete, or none where there is none */
    bool fall_back;             /* to the newest before it that is whole, where it is damaged */
    const struct sl_disk *disk; /* outlives the run; NULL: the machine's */
};

struct sl_process_options {
    enum sl_process_kind kind;
    uint32_t task_index;
    bool any_task; /* SERVER: the coordinator chooses it; task_index is 0 */
    uint32_t ps_count;
    uint32_t worker_count;           /* 0: unknown; SCHEDULER: known */
    const char *worker_count_source; /* "--worker-hosts", ...: where it is from; NULL: unknown */
    struct sl_endpoint coordinator;  /* control endpoint of ps/0 or the scheduler */
    struct sl_endpoint control;      /* ours; not SERVER */
    struct sl_endpoint data;         /* ours; may equal control; not SCHEDULER */
    struct sl_endpoint bypass;       /* ours, of rdma or dpdk, beside data, which is tcp then */
    bool has_bypass;
    uint32_t reactor_count; /* SCHEDULER: 1 */
    uint32_t replicas; /* backups of each shard, on other ps: 0 or 1; with 1, server_count is 2 or
                        * more, data is tcp, and there is no handler */
    bool polling;
    bool pin;
    bool checksum;
    size_t memory_bytes_max; /* of the process: ps/process/memory_plan.h; 0: no limit */
    uint64_t start_timeout_ns;
    uint64_t drain_timeout_ns;
    uint64_t lease_ns;                  /* told by the coordinator; only its own counts */
    uint64_t heartbeat_ns;              /* between two of ours; 0: a quarter of the lease */
    const struct sl_secret *secret;     /* outlives the run; NULL: the cluster has none */
    const struct sl_transport_tls *tls; /* likewise; NULL: in the clear */
    const char *congestion_control;     /* NULL: the system's */
    const char *rdma_device;            /* as struct sl_transport_options has the two */
    uint32_t rdma_gid;
    const struct sl_dpdk_options *dpdk; /* outlives the run; where an endpoint is of dpdk */
    bool shm; /* workers of this host may come through shared memory, beside the data endpoint */
    struct sl_process_checkpoint checkpoint;
    /* Where the coordinator is elected, and what it must not forget is kept; outlives the run.
     * NULL: it is where `coordinator` says, and dies with that process. */
    const struct sl_etcd_options *metastore;
    const char *metastore_prefix;           /* of this job's keys */
    const struct sl_kv_handler *kv_handler; /* outlives the run; NULL: pushes are added up */
};

/* What does not go with the replicas that they ask for, "needs a second ps, ..."; NULL: nothing. */
const char *sl_process_replica_flaw(const struct sl_process_options *options);

/* How the process divides its memory limit. Errors: INVALID: the limit is too small for what the
 * options ask for; the reason names the least one. */
int sl_process_memory_plan(const struct sl_process_options *options, struct sl_memory_plan *out,
                           char *reason, size_t reason_bytes);

/* Runs the process until SIGTERM or SIGINT, or, in a job with a scheduler, until that has ended.
 * Returns the process's exit status: 0 after an orderly end, 1 when it could not start, or the
 * cluster has no place for it any more (another process has taken it); a SERVER's also when it has
 * had no connection to the scheduler for its start timeout, and no worker is left; a scheduler's
 * also when not all have come in time, a worker or a ps was lost for good, or the signal came
 * before all workers had left; with the reason logged. A scheduler that gets a signal ends its job:
 * every ps is told. While the coordinator is out of reach a ps serves on. A repeated signal changes
 * nothing; SIGQUIT ends the process at once, with 128 + its number. Blocks SIGTERM and SIGINT in
 * the calling thread. */
int sl_process_run(const struct sl_process_options *options);

#endif
