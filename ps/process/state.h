/* State of a process, shared by its files. */
#ifndef SL_PS_PROCESS_STATE_H
#define SL_PS_PROCESS_STATE_H

#include <inttypes.h>

#include "net/shm/shm.h"
#include "ps/agent/agent.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/memory_plan.h"
#include "ps/process/metrics.h"
#include "ps/process/process.h"
#include "ps/server/checkpoint.h"
#include "ps/server/server.h"
#include "reactor/offload.h"

#define SL_PROCESS_STAGES (SL_COORDINATOR_OVER + 1)

struct sl_process;
struct sl_process_checkpoints;
struct sl_process_restore;
struct sl_process_leadership;
struct sl_process_views;
struct sl_process_observe;
struct sl_process_cluster;

/* Hooks by which a simulation replaces the main thread, the time of day, and the waiting of a
 * thread that reads tables. */
struct sl_process_sim_hooks {
    void (*answer)(void *ctx, uint32_t core, int result);
    int64_t (*time_s)(void *ctx);
    void (*wait)(void *ctx); /* may return early */
    void *ctx;
};

struct sl_process_core;

/* Names one server of a core for a callback. */
struct sl_process_server_ref {
    struct sl_process_core *core;
    uint32_t which; /* SL_PROCESS_HOME or SL_PROCESS_PARTNER */
};

/* One home shard, the partner's shard of the same index, and their reactor, which may have further
 * shards: core i is on reactor i modulo reactors.count. Used by the reactor's thread, except what
 * is set before start. */
struct sl_process_core {
    struct sl_process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_process_server_ref server_refs[SL_PROCESS_HOSTED_MAX];
    bool loads[SL_PROCESS_HOSTED_MAX]; /* the server loads a checkpoint */
    uint32_t drains_left;
    struct sl_mailbox_lane *to_core; /* used by the main thread */
    struct sl_mailbox_lane *to_main; /* used by the reactor */
    struct sl_message_stats stats;   /* written at stop, read after join */
};

enum sl_process_report {
    SL_PROCESS_REPORT_NOTHING,
    SL_PROCESS_REPORT_IN_SYNC,
    SL_PROCESS_REPORT_FAILED,
};

/* A replica group of which this process has one copy. Reactor 0. */
struct sl_process_replica_group {
    struct sl_message_ps ps;     /* owner of the shards, as last received */
    struct sl_message_ps backup; /* holder of the backups, if any */
    uint64_t notified_epoch;     /* last epoch sent to the cores */
    uint32_t in_sync_count;      /* cores that reported in sync */
    enum sl_process_report report;
};

#define SL_PROCESS_IN_SYNC ((uint64_t)1 << 32)

/* One set of hosted shards. Reactor 0; the cores read it after the mail that announces it. */
struct sl_process_hosted {
    uint32_t first_shard;
    bool restores;      /* the cores load a checkpoint */
    bool switches_over; /* the coordinator will promote the backup when this process leaves */
    struct sl_process_replica_group group; /* with replicas */
};

struct sl_process {
    struct sl_process_options options;
    struct sl_message_dropped dropped; /* tables, that the servers know of. Reactor 0 */
    struct sl_memory_plan memory;
    struct sl_process_metrics metrics;
    uint64_t incarnation;
    struct sl_process_core *cores; /* [reactors.shards] */
    struct sl_reactor **reactors;
    struct sl_server **servers; /* by HOME, PARTNER, then by core: sl_process_server */
    uint32_t created_count;     /* reactors */
    uint32_t started_count;
    struct sl_coordinator *coordinator;
    struct {
        struct sl_endpoint control, data, bypass;
    } bound;
    char host[SL_SHM_HOST_BYTES]; /* "": shared memory is not used */
    char name[16];                /* "ps/1", "scheduler"; "ps" until the task is known */

    /* Reactor 0. Other threads read the member's numbers after the mail that announces them. */
    struct sl_agent *agent;
    struct {
        uint32_t shard_count;
        uint32_t task_index; /* valid once the cluster is known */
        uint64_t lease_ns;
    } member;
    struct sl_process_hosted hosted[SL_PROCESS_HOSTED_MAX]; /* by HOME, PARTNER */
    bool has_shards;                                        /* the cores have their shard numbers */
    bool is_open; /* clients are welcomed, or will be at once */
    /* Of the checkpoint directory; NULL: there is none. */
    struct {
        struct sl_process_checkpoints *checkpoints;
        struct sl_process_restore *restore;
        bool is_unsaved; /* the last checkpoint failed; written by reactor 0 until it stops */
        bool is_misused; /* the options do not fit it */
    } directory;
    struct sl_process_leadership *leadership; /* NULL: none */
    struct {
        char why[SL_PROCESS_STAGES][SL_MESSAGE_TEXT_BYTES]; /* each written once, before its mail */
        bool ends_by_signal;                                /* SCHEDULER */
        bool is_abandoned; /* last reactor: no scheduler and no worker is left */
    } job;
    const struct sl_process_sim_hooks *sim_hooks; /* NULL: a real process */

    struct {
        struct sl_process_views *views;
        struct sl_process_observe *observe; /* NULL: none, in a simulation */
        struct sl_process_cluster *cluster; /* NULL: none, in a simulation */
    } observer;
    struct {
        struct sl_mailbox *mailbox;
        int signal_fd;
        int signal;              /* received; 0: none */
        uint32_t answers_wanted; /* from cores */
        int result;              /* first error of a core */
        bool is_over;            /* the job has ended, and this process stops */
        bool job_failed;         /* SCHEDULER: the job ended with an error */
    } main;
};

/* Number of hosted sets of shards. */
static inline uint32_t sl_process_hosted_count(const struct sl_process *process)
{
    return 1 + process->options.replicas;
}

/* Any thread. */
static inline struct sl_server *sl_process_server(const struct sl_process *process, uint32_t which,
                                                  uint32_t core)
{
    return process->servers[which * process->options.reactors.shards + core];
}

/* The reactor of a server by its index in process->servers, or of a core. */
static inline uint32_t sl_process_reactor_of(const struct sl_process *process, uint32_t index)
{
    return index % process->options.reactors.shards % process->options.reactors.count;
}

/* Number of servers: home shards and those of the partner. */
static inline uint32_t sl_process_server_count(const struct sl_process *process)
{
    return process->options.reactors.shards * sl_process_hosted_count(process);
}

/* The coordinator's functions, for the server on its reactor. */
extern const struct sl_server_coordinator_ops sl_process_coordinator_ops;

#endif
