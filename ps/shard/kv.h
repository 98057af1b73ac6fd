/* What the files about KV tables share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_SHARD_KV_H
#define SL_PS_SHARD_KV_H

#include "ps/shard/internal.h"

/* Errors: WRONG_SHARD, when one of the keys is another shard's. */
int sl_shard_kv_owns(const struct sl_shard *shard, const struct sl_shard_exec *work,
                     struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count);

/* What the shard may still use of memory, is the table's to use; and what it has used, is counted.
 */
void sl_shard_kv_limit_memory(const struct sl_shard *shard, struct sl_shard_table *table);
void sl_shard_kv_count_memory(struct sl_shard *shard, struct sl_shard_table *table);

/* Shows the section to the handler: DONE, PARKED, or its error. */
int sl_shard_handler_run(struct sl_shard *shard, struct sl_shard_table *table,
                         struct sl_shard_exec *work, uint8_t *reply, struct sl_shard_slice *slice);

void sl_shard_handler_lengths(const struct sl_shard *shard, const struct sl_shard_table *table,
                              const uint64_t *keys, uint32_t count, uint32_t *lengths);

#endif
