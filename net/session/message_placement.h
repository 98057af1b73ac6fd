/* Parts of control messages about the places of shards. */
#ifndef SL_NET_SESSION_MESSAGE_PLACEMENT_H
#define SL_NET_SESSION_MESSAGE_PLACEMENT_H

#include <stdbool.h>
#include <stdint.h>

/* A server's role for a shard. */
enum sl_message_replica_role {
    SL_MESSAGE_REPLICA_PRIMARY,
    SL_MESSAGE_REPLICA_BACKUP,
    SL_MESSAGE_REPLICA_NEITHER, /* other servers have the shard */
};

/* State of a shard, from the sender's view. */
struct sl_message_replica_report {
    uint32_t shard; /* index in the cluster */
    uint64_t epoch;
    enum sl_message_replica_role role;
    /* From the primary: the backup is in sync. From the backup: the coordinator's last
     * statement. */
    bool in_sync;
    /* The primary has not decided yet. If false and not in_sync: the backup will not get in
     * sync. */
    bool is_undecided;
};

/* Where a shard is. */
struct sl_message_placement {
    uint64_t epoch;         /* from 1; every change of roles begins a new one */
    uint32_t primary;       /* the task that serves it */
    uint32_t backup_plus_1; /* the task that has its backup, or receives it, plus 1; 0: none */
    bool in_sync;           /* the backup has all acknowledged writes */
    bool moves;             /* the backup becomes the primary when it is in sync */
};

/* Returns whether the task has the shard, or receives it. */
static inline bool sl_message_placement_has(const struct sl_message_placement *placement,
                                            uint32_t task)
{
    return placement->primary == task || placement->backup_plus_1 == task + 1;
}

enum sl_message_placement_verb {
    SL_MESSAGE_PLACEMENT_MOVE,    /* of one shard to a task */
    SL_MESSAGE_PLACEMENT_DRAIN,   /* of all shards away from a task, which then ends */
    SL_MESSAGE_PLACEMENT_BALANCE, /* until all tasks have as many shards, but for one */
};

struct sl_message_placement_change {
    enum sl_message_placement_verb verb;
    uint32_t shard; /* MOVE */
    uint32_t task;  /* MOVE: the new primary; DRAIN: the server to drain */
    bool dry_run;   /* changes nothing */
};

struct sl_message_move {
    uint32_t shard, from, to;
};

/* One move is made after the other. Which ones follow the first is decided anew each time. */
struct sl_message_moves {
    struct sl_message_move *items; /* owned */
    uint32_t count;
};

#endif
