/* Placement of shards: which server is the primary of a shard, which has its backup. Every change
 * of roles begins a new epoch of the shard, which only the coordinator issues. At the job's start
 * the shards of ps/N, their home, are on ps/N and, with replicas, on the next server. Servers that
 * fail change that, and so do moves (move.h).
 *
 * A move of a shard makes its target the backup, and commits when that is in sync: then the target
 * is the primary. It ends without effect if the target fails before. */
#ifndef SL_PS_COORDINATOR_PLACEMENT_H
#define SL_PS_COORDINATOR_PLACEMENT_H

#include "ps/coordinator/state.h"

/* What servers have now, queued moves included. */
struct sl_coordinator_load {
    bool is_here[SL_LIMIT_PS]; /* a registered process has the task, and it is part of the job */
    uint32_t primaries[SL_LIMIT_PS], backups[SL_LIMIT_PS];
};

void sl_coordinator_placement_load(const struct sl_coordinator *coordinator,
                                   struct sl_coordinator_load *load);

/* True if the server may get shards: it is here, and not being drained. */
bool sl_coordinator_placement_takes(const struct sl_coordinator *coordinator,
                                    const struct sl_coordinator_load *load, uint32_t task);

/* Returns the server with the fewest primaries (with_backups: shards of both roles) that may get
 * one, except `but`; if possible on another host than `apart`. NO_TASK: none. */
uint32_t sl_coordinator_placement_least(const struct sl_coordinator *coordinator,
                                        const struct sl_coordinator_load *load, uint32_t but,
                                        uint32_t apart, bool with_backups);

/* Counts the degraded shards: with replicas, those whose backup is not in sync. */
uint32_t sl_coordinator_placement_degraded(const struct sl_coordinator *coordinator);

/* Retries failed catch-ups, and logs degraded shards once a minute. */
void sl_coordinator_placement_tick(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Returns true if the job cannot run without this server: it is the primary of some shards. */
bool sl_coordinator_placement_needs(const struct sl_coordinator *coordinator, uint32_t task);

/* Appends the servers that the job needs and that are not registered. Returns their number. */
uint32_t sl_coordinator_placement_list_missing(const struct sl_coordinator *coordinator,
                                               struct sl_message_waiting *waiting);

/* Returns the error in the replica settings of a registering server, or NULL. */
const char *sl_coordinator_placement_check(const struct sl_coordinator *coordinator,
                                           const struct sl_coordinator_member *member,
                                           const struct sl_message_register *reg);

/* True, for at most a lease, while no server that is here has some shard that moved, without
 * replicas: a coordinator without records does not know which servers have joined. */
bool sl_coordinator_placement_waits(struct sl_coordinator *coordinator, uint64_t now_ns);

/* Places the shards, once every server has registered; no effect if they are placed. Errors:
 * NO_MEMORY. */
int sl_coordinator_placement_begin(struct sl_coordinator *coordinator);

/* Ends the loading of records, and converts those of an older version. */
void sl_coordinator_placement_end_loading(struct sl_coordinator *coordinator);

/* Makes a registered server the backup of shards that need one, and applies its replica reports. */
void sl_coordinator_placement_register(struct sl_coordinator *coordinator,
                                       const struct sl_coordinator_member *member,
                                       const struct sl_message_register *reg, bool is_new,
                                       uint64_t now_ns);

/* Updates the shards of a server that is no longer a member; last_seen_ns: when it was last seen.
 */
void sl_coordinator_placement_leave(struct sl_coordinator *coordinator, uint32_t task,
                                    uint64_t last_seen_ns);

/* Returns the shard whose move has begun; shard_count: none. */
uint32_t sl_coordinator_placement_moving(const struct sl_coordinator *coordinator);

/* Makes `task` the backup of a shard: for its move there (moves_to), or in place of another. */
void sl_coordinator_placement_set_backup(struct sl_coordinator *coordinator, uint32_t shard,
                                         uint32_t task);

/* Ends the move of a shard: its target, which is in sync, becomes the primary. */
void sl_coordinator_placement_commit(struct sl_coordinator *coordinator, uint32_t shard,
                                     uint64_t last_seen_ns);

/* Ends the move of a shard without effect. */
void sl_coordinator_placement_abort(struct sl_coordinator *coordinator, uint32_t shard,
                                    const char *why);

/* Reports changed placement records. */
void sl_coordinator_placement_note(struct sl_coordinator *coordinator, uint32_t shard);

/* Fills in the placements of a Cluster message: the caller frees them. Errors: NO_MEMORY. */
int sl_coordinator_placement_fill(const struct sl_coordinator *coordinator,
                                  struct sl_message_cluster *out);

#endif
