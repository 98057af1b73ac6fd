/* State of the shards at the coordinator, which placement.c changes. Owner reactor. */
#ifndef SL_PS_COORDINATOR_SHARD_STATE_H
#define SL_PS_COORDINATOR_SHARD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/backoff.h"

/* Why the placement of a shard has changed, for the log. */
enum sl_coordinator_shard_change {
    SL_COORDINATOR_SHARD_UNCHANGED,
    SL_COORDINATOR_SHARD_IN_SYNC,
    SL_COORDINATOR_SHARD_OUT_OF_SYNC,
    SL_COORDINATOR_SHARD_BACKUP_STARTED,
    SL_COORDINATOR_SHARD_BACKUP_LOST,
    SL_COORDINATOR_SHARD_BACKUP_OVERDUE,
    SL_COORDINATOR_SHARD_PROMOTED,
    SL_COORDINATOR_SHARD_PROMOTED_AT_START, /* of this coordinator */
    SL_COORDINATOR_SHARD_UNAVAILABLE,
    SL_COORDINATOR_SHARD_LOST,
};

/* Where a shard is: placement.c. */
struct sl_coordinator_shard {
    uint32_t home;       /* the task that had it at the job's start */
    uint64_t epoch;      /* from 1 */
    uint32_t primary;    /* task */
    uint32_t backup;     /* task that has its backup, or receives the shard; NO_TASK */
    bool in_sync;        /* the backup has all acknowledged writes */
    uint32_t partner;    /* with replicas: task that gets the backup if there is none */
    uint32_t moves_to;   /* task that becomes the primary, now if it is the backup, else later;
                            NO_TASK */
    uint32_t failures;   /* of catch-ups of the move */
    uint64_t deposed_id; /* client_id of the primary that was last replaced by promotion */
    uint64_t degraded_since_ns, degraded_warned_ns; /* degraded since; last warning; 0: in sync */
    struct sl_backoff backoff; /* least_ns 0: no catch-up has failed since it was last in sync */
    uint64_t retry_ns;         /* when the next epoch begins after a failure; 0: none is due */
    enum sl_coordinator_shard_change change; /* not logged yet */
    uint32_t change_from;                    /* the other task that it is about */
};

struct sl_coordinator_placement {
    struct sl_coordinator_shard *shards; /* [shard_count] */
    uint32_t shard_count;                /* 0: the shards are not placed yet */
    uint32_t ps_end;                     /* above all tasks that were ever part of the job */
    uint32_t replicas;                   /* of each shard, of the last server that registered */
    bool has_new_roles;                  /* since the start: servers get each new cluster */
    bool balances;                       /* shards move until all servers have as many */
    uint64_t wait_until_ns;              /* sl_coordinator_placement_waits; 0: it did not wait */
    uint64_t move_pause_ns;              /* after a failed move: no other begins before this */
};

#endif
