/* Pushes to sparse and dense tables. Owner reactor. */
#ifndef SL_PS_SHARD_PUSH_H
#define SL_PS_SHARD_PUSH_H

#include "ps/shard/section.h"

/* Starts the push of a section and takes its working memory. DONE: continue with COLLECT; AGAIN:
 * the scratch is in use. Errors: PROTOCOL, NO_MEMORY. */
int sl_shard_push_begin(struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Continues the push from COLLECT on. DONE: applied or buffered. */
int sl_shard_push_run(struct sl_shard *shard, struct sl_shard_table *table,
                      struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Releases the working memory of a push that will not complete. */
void sl_shard_push_drop(struct sl_shard *shard, struct sl_shard_request *request);

/* Mark a push as partly applied at the end of a slice, and as done or abandoned. Both are
 * idempotent. */
static inline void sl_shard_part_begin(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (!sl_flags_has(request->flags, SL_SHARD_IN_PART)) {
        sl_flags_set(&request->flags, SL_SHARD_IN_PART, true);
        shard->snapshots.pushes_in_part++;
    }
}

static inline void sl_shard_part_end(struct sl_shard *shard, struct sl_shard_request *request)
{
    if (sl_flags_has(request->flags, SL_SHARD_IN_PART)) {
        sl_flags_set(&request->flags, SL_SHARD_IN_PART, false);
        shard->snapshots.pushes_in_part--;
    }
}

#endif
