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
#include "ps/replication/replication.h"
#include "ps/server/checkpoint.h"
#include "ps/server/server.h"
#include "reactor/offload.h"

#define SL_PROCESS_STAGES (SL_COORDINATOR_OVER + 1)

struct sl_process;
struct sl_process_hosted;
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

/* One reactor, and the server that has its transports and connections but no shard: the servers of
 * shards join it. Used by the reactor's thread, except what is set before start. */
struct sl_process_core {
    struct sl_process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_server *server;
    struct sl_mailbox_lane *to_core; /* used by the main thread */
    struct sl_mailbox_lane *to_main; /* used by the reactor */
    struct sl_message_stats stats;   /* written at stop, read after join */
};

struct sl_process {
    struct sl_process_options options;
    struct sl_message_dropped dropped; /* tables, that the servers know of. Reactor 0 */
    struct sl_memory_plan memory;
    struct sl_process_metrics metrics;
    uint64_t incarnation;
    struct sl_process_core *cores; /* [reactors.count] */
    struct sl_reactor **reactors;
    struct sl_server **servers; /* [reactors.count]: those of the cores */
    struct {
        /* By ascending shard: hosted.h. Reactor 0 adds, any thread may walk. */
        _Atomic(struct sl_process_hosted *) first;
        struct sl_server_options server;           /* of each; set before start */
        struct sl_replication_options replication; /* likewise */
        /* Reactor 0: */
        bool has_joined;
        bool has_news;        /* for the coordinator, of a shard that cannot be here */
        uint32_t starts_left; /* of the start: to create, and 1 while a checkpoint is restored */
        uint32_t drains_left; /* of the end: servers that drain */
        size_t tables_bytes;  /* limit of the tables of each now */
        struct {
            const struct sl_kv_handler *set; /* NULL: pushes are added up */
            bool is_set;
        } handler; /* that an embedding has set after the start */
    } shards;
    uint32_t created_count; /* reactors */
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
        uint32_t first_shard, shard_count; /* its home shards begin at first_shard; of the job */
        uint32_t task_index;               /* valid once the cluster is known */
        uint64_t lease_ns;
    } member;
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

/* The coordinator's functions, for the server on its reactor. */
extern const struct sl_server_coordinator_ops sl_process_coordinator_ops;

#endif
