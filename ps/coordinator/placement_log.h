/* Log of changed placements: one line for all shards of a home with the same change. Owner reactor.
 */
#ifndef SL_PS_COORDINATOR_PLACEMENT_LOG_H
#define SL_PS_COORDINATOR_PLACEMENT_LOG_H

#include "ps/coordinator/state.h"

/* Notes a change of the shard for the log; from: the other task that it is about. */
void sl_coordinator_placement_mark(struct sl_coordinator_shard *shard,
                                   enum sl_coordinator_shard_change change, uint32_t from);

/* Logs the changes noted since the last call. */
void sl_coordinator_placement_log(struct sl_coordinator *coordinator);

#endif
