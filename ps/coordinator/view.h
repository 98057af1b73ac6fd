/* The coordinator's view of the job, for a reader on another thread (reactor/view.h): members,
 * placements, stage. Times are of the reactor's clock. */
#ifndef SL_PS_COORDINATOR_VIEW_H
#define SL_PS_COORDINATOR_VIEW_H

#include "core/limits.h"
#include "ps/coordinator/coordinator.h"

/* Members and tasks in one slice of a view. */
#define SL_COORDINATOR_VIEW_SLICE 2048

/* A server that restores a checkpoint counts as running; its own view knows better (is_open). */
enum sl_coordinator_view_state {
    SL_COORDINATOR_VIEW_UNKNOWN,  /* no process has come for this task */
    SL_COORDINATOR_VIEW_STARTING, /* connected; not registered, or the job has not begun */
    SL_COORDINATOR_VIEW_RUNNING,
    SL_COORDINATOR_VIEW_DISCONNECTED, /* its lease has not ended */
    SL_COORDINATOR_VIEW_EXPIRED,
    SL_COORDINATOR_VIEW_LEFT,
};

struct sl_coordinator_view_member {
    enum sl_coordinator_view_state state;
    uint64_t last_seen_ns; /* 0: unknown. EXPIRED, LEFT: of a worker, the end of its membership */
};

struct sl_coordinator_view_shard {
    uint32_t primary, backup; /* tasks; SL_COORDINATOR_NO_TASK */
    bool in_sync;
    uint32_t moves_to; /* task that becomes the primary; SL_COORDINATOR_NO_TASK */
};

struct sl_coordinator_view {
    bool is_here; /* false: another process hosts the coordinator, and the rest is empty */
    enum sl_coordinator_stage stage;   /* without a scheduler: WAITING or RUNNING */
    struct sl_message_waiting missing; /* tasks that the job waits for */
    /* The strictest of the tables: BSP, or SSP with the least staleness, if there is one. */
    struct sl_consistency_spec consistency;
    bool has_tables;
    uint32_t ps_count; /* above all servers' tasks */
    struct {
        struct sl_coordinator_view_member member;
        bool is_part;         /* false: it was drained, or there never was one with this task */
        bool drains;          /* its shards move away */
        uint32_t shard_count; /* at the job's start */
        char data_endpoint[SL_LIMIT_ENDPOINT_BYTES];
    } servers[SL_LIMIT_PS];
    uint32_t replicas;    /* of each shard */
    uint32_t shard_count; /* 0: the job has not begun */
    struct sl_coordinator_view_shard shards[SL_LIMIT_SHARDS];
    struct sl_coordinator_view_member workers[SL_LIMIT_WORKERS];
    uint32_t worker_end; /* above all workers with a state */

    /* The next slice. */
    uint32_t next_task, next_member;
    uint32_t task_end;   /* above all tasks that the coordinator or an older view has known */
    uint64_t departures; /* of the coordinator, when the walk over the members began */
};

/* A sl_view_fill_fn. ctx: struct sl_coordinator **, NULL in it: it is not here. into: struct
 * sl_coordinator_view. Owner reactor. */
bool sl_coordinator_view_fill(void *ctx, void *into, uint32_t slice);

#endif
