/* Erases of sparse tables. They are never buffered: a buffered push creates the rows again that
 * were erased before its iteration was complete. Owner reactor. */
#ifndef SL_PS_SHARD_ERASE_H
#define SL_PS_SHARD_ERASE_H

#include "ps/shard/section.h"

/* Starts the erase of a section. DONE: continue with COLLECT; AGAIN: a long push is in progress,
 * which holds record indexes. */
int sl_shard_erase_begin(struct sl_shard *shard, struct sl_shard_request *request);

/* Continues the erase from COLLECT on, which checks all keys before the first row is removed. DONE:
 * the rows are removed. Errors: WRONG_SHARD. */
int sl_shard_erase_run(struct sl_shard *shard, struct sl_shard_table *table,
                       struct sl_shard_request *request, struct sl_shard_slice *slice);

#endif
