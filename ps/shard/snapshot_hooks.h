/* Calls of pushes and iterations into a snapshot in progress. Owner reactor. */
#ifndef SL_PS_SHARD_SNAPSHOT_HOOKS_H
#define SL_PS_SHARD_SNAPSHOT_HOOKS_H

#include "ps/shard/state.h"

/* Returns and clears the cost of the snapshot copies that this slice's pushes caused. */
static inline uint32_t sl_shard_snapshot_copy_debt(struct sl_shard *shard)
{
    if (shard->snapshots.current == NULL) {
        return 0;
    }
    const uint32_t owed = shard->snapshots.blocks.copy_debt;
    shard->snapshots.blocks.copy_debt = 0;
    return owed;
}

/* Frees an entry removed from the front of its queue, unless a snapshot has yet to copy it. */
void sl_shard_snapshot_iteration_applied(struct sl_shard *shard,
                                         struct sl_shard_push_buffer_queue *queue,
                                         struct sl_shard_buffered_push *entry);

/* Frees a list of entries removed from the end of the queue, except those that a snapshot has yet
 * to copy. */
void sl_shard_snapshot_dropped(struct sl_shard *shard, struct sl_shard_push_buffer_queue *queue,
                               struct sl_shard_buffered_push *entries);

/* Aborts the snapshot to free the push buffer space that it holds. Returns false when it holds
 * none. */
bool sl_shard_snapshot_yield(struct sl_shard *shard);

/* A table is about to get another policy: fails the snapshot if it still copies tables. */
void sl_shard_snapshot_fail_for_policy(struct sl_shard *shard);

#endif
