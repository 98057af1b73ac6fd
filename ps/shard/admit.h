/* Decides whether a section may run now. Owner reactor. */
#ifndef SL_PS_SHARD_ADMIT_H
#define SL_PS_SHARD_ADMIT_H

#include "ps/shard/section.h"

/* Returns true when pushes of this worker to the table are buffered. */
bool sl_shard_buffers_pushes(const struct sl_shard *shard, const struct sl_shard_table *table,
                             const struct sl_shard_client *caller);

/* Returns true when a pull of this clock may be served now. */
bool sl_shard_admits(const struct sl_shard *shard, const struct sl_shard_table *table,
                     const struct sl_shard_client *caller, uint32_t clock);

/* Returns true when a handler runs the operation and may return AGAIN. */
static inline bool sl_shard_may_ask_again(const struct sl_shard *shard, uint8_t op)
{
    return shard->options.kv_handler != NULL && sl_shard_op_kv(op);
}

#endif
