/* Process runs one starling-ps process: its reactors and servers, its cluster membership, and its
 * orderly shutdown; or a scheduler, which is a coordinator without shards. The main thread calls
 * sl_process_run, which waits for signals and for messages of the reactors. Allocates at start. */
#ifndef SL_PS_PROCESS_PROCESS_H
#define SL_PS_PROCESS_PROCESS_H

#include "core/endpoint.h"
#include "core/option_value.h"
#include "core/reason.h"
#include "core/secret.h"
#include "ps/coordinator/coordinator.h"

struct sl_disk;
struct sl_dpdk_options;
struct sl_metastore_address;
struct sl_http_listen;
struct sl_transport_tls;
struct sl_kv_handler;
struct sl_memory_plan;
struct sl_process;

enum sl_process_kind {
    SL_PROCESS_PS,     /* has a control endpoint; task 0 or the leader hosts the coordinator */
    SL_PROCESS_SERVER, /* a server of a job with a scheduler: only a data endpoint */
    SL_PROCESS_SCHEDULER
};

/* every_ns and incrementals_max are used by the coordinator only. */
struct sl_process_checkpoint {
    const char *directory;      /* of all checkpoints; outlives the run; NULL: no checkpoints */
    uint64_t every_ns;          /* interval; 0: only on request and at shutdown */
    uint32_t incrementals_max;  /* between two full checkpoints */
    uint32_t keep;              /* complete checkpoints to keep, at least 1 */
    uint32_t compression_level; /* of zstd; 0: no compression */
    uint32_t snapshot_budget;   /* cost that the walk over a shard may spend per turn; 0: adapts to
                                   the load */
    bool restores;
    uint64_t restore_number; /* 0: the newest complete one, if any */
    bool fallback;           /* if it is damaged, restore the newest older one that is intact */
    enum sl_coordinator_restore_policy policy;
    bool fresh;                 /* without `restores`: checkpoints of an earlier job are kept */
    const struct sl_disk *disk; /* outlives the run; NULL: the real one */
};

/* Further work of the process while its servers run. Main thread. */
struct sl_process_beside {
    /* The reactors run, and the process is a member of its cluster. Errors, which end the process,
     * are logged. */
    int (*start)(struct sl_process_beside *beside, struct sl_process *process);
    /* After a successful start. The servers have drained; their reactors still run. */
    void (*stop)(struct sl_process_beside *beside);
};

/* A program that runs the process on a thread of its own, on which all signals are blocked.
 * Signals, log, limits of resources, stdout and the service manager are the program's. */
struct sl_process_embedding {
    int fd; /* an eventfd; while it is readable, `woken` is called */
    void (*woken)(void *ctx, struct sl_process *process); /* the calling thread: embedding.h */
    void (*registered)(void *ctx, uint32_t task_index);   /* once; reactor 0 */
    void *ctx;
    int err; /* result: why the process could not start; 0: it did */
};

struct sl_process_options {
    enum sl_process_kind kind;
    uint32_t task_index;
    bool any_task; /* SERVER: the coordinator assigns it; task_index is 0 */
    uint32_t ps_count;
    uint32_t worker_count;           /* 0: unknown; SCHEDULER: not 0 */
    const char *worker_count_source; /* origin, e.g. "--worker-hosts"; NULL: unknown */
    struct sl_endpoint coordinator;  /* control endpoint of ps/0 or of the scheduler */
    /* Of this process. */
    struct {
        struct sl_endpoint control; /* not SERVER */
        struct sl_endpoint data;    /* may equal control; not SCHEDULER */
        struct sl_endpoint bypass;  /* RDMA or DPDK, beside data, which is TCP then */
        bool has_bypass;
    } endpoints;
    struct {
        uint32_t count;  /* SCHEDULER: 1 */
        uint32_t shards; /* of this process, at least `count`, at most SL_LIMIT_REACTORS */
        bool polling, pin;
        bool joins; /* a running job: it has no home shards, and gets as many of others */
    } reactors;
    uint32_t replicas; /* backups of each shard on another server: 0 or 1. 1 needs ps_count of at
                          least 2, data over TCP, and no kv_handler */
    bool checksum;
    size_t memory_bytes_max; /* of the process: ps/process/memory_plan.h; 0: no limit */
    struct {
        uint64_t start_timeout_ns, drain_timeout_ns;
        uint64_t slow_request_ns; /* as in struct sl_server_options */
        uint64_t lease_ns;        /* of members; the coordinator's value applies */
        uint64_t heartbeat_ns;    /* of this process; 0: a quarter of the lease */
    } times;
    struct {
        const struct sl_secret *cluster;
        const struct sl_secret *operators; /* see struct sl_server_options */
    } secrets;                             /* outlive the run; NULL: none */
    const struct sl_transport_tls *tls;    /* outlives the run; NULL: no TLS */
    const char *congestion_control;        /* NULL: the system's default */
    /* As in struct sl_transport_options. */
    struct {
        const char *device;
        bool has_gid_index;
        uint32_t gid_index;
    } rdma;
    const struct sl_dpdk_options *dpdk; /* outlives the run; for DPDK endpoints */
    bool shm;                           /* local workers may connect over shared memory */
    struct sl_process_checkpoint checkpoint;
    /* The etcd in which the coordinator is elected and keeps its log, with a prefix for the keys of
     * this job; outlives the run. NULL: the coordinator is at `coordinator`, and is lost with its
     * process. */
    const struct sl_metastore_address *metastore;
    struct {
        const struct sl_http_listen *listen; /* outlives the run; NULL: no HTTP */
        const char *title;                   /* of the job; outlives the run; NULL: none */
        struct sl_option_values shown;       /* by /api/process; outlive the run */
        uint64_t linger_ns; /* after the job, if the coordinator is here and not elected */
    } http;
    const struct sl_kv_handler *kv_handler; /* outlives the run; NULL: pushes are added */
    struct sl_process_beside *beside;       /* outlives the run; NULL: nothing */
    struct sl_process_embedding *embedding; /* outlives the run; NULL: a process of its own */
};

/* Returns why the options forbid replicas, e.g. "needs a second server, ..."; NULL: they do not. */
const char *sl_process_replica_flaw(const struct sl_process_options *options);

/* Divides the memory limit. Errors: INVALID: the limit is too small for the options; the reason
 * names the least one. */
int sl_process_memory_plan(const struct sl_process_options *options, struct sl_memory_plan *out,
                           struct sl_reason *reason);

/* Runs the process until SIGTERM or SIGINT, or until the scheduler's job has ended. Returns the
 * exit status, with the reason logged: 0 after an orderly shutdown; 2 if the directory has
 * checkpoints of an earlier job and the options do not say what is meant; 1 if:
 * - the process could not start, or another process has taken its task;
 * - the last checkpoint failed and writes are lost;
 * - SERVER: there was no connection to the scheduler for the start timeout, and no worker is left;
 * - SCHEDULER: not all tasks registered in time, a worker or a server expired without a
 *   replacement, or the signal came before all workers had left.
 *
 * A scheduler that gets a signal ends its job and notifies every server. A server keeps serving
 * while the coordinator is unreachable. Repeated signals have no effect. SIGQUIT exits at once with
 * 128 + its number. Blocks SIGTERM and SIGINT in the calling thread. With an embedding, there are
 * no signals. */
int sl_process_run(const struct sl_process_options *options);

#endif
