/* Buffered pushes of BSP tables and the iteration that applies them. Owner reactor. */
#ifndef SL_PS_SHARD_ITERATION_H
#define SL_PS_SHARD_ITERATION_H

#include "ps/shard/state.h"

/* Appends a complete entry to its worker's queue. */
void sl_shard_iteration_add(struct sl_shard *shard, struct sl_shard_table *table, uint32_t worker,
                            struct sl_shard_buffered_push *entry);

/* Makes room for queue_count queues. Errors: NO_MEMORY. */
int sl_shard_iteration_reserve(struct sl_shard_table *table, uint32_t queue_count);

/* Drops the worker's buffered pushes of iteration `clock` and later, in all tables. No min_clock of
 * its groups may have passed `clock`. */
void sl_shard_iteration_drop(struct sl_shard *shard, uint32_t worker, uint32_t clock);

/* Drops all buffered pushes of a table. None of them is due. */
void sl_shard_iteration_drop_table(struct sl_shard *shard, struct sl_shard_table *table);

/* Checks whether buffered pushes are due, after a min_clock may have changed. */
void sl_shard_iteration_update(struct sl_shard *shard);

#endif
