/* Declarations shared by kv.c, handler.c and load.c, for KV tables. Owner reactor. */
#ifndef SL_PS_SHARD_KV_H
#define SL_PS_SHARD_KV_H

#include "ps/shard/internal.h"

/* Checks that this shard owns the keys. Errors: WRONG_SHARD. */
int sl_shard_kv_check_owner(const struct sl_shard *shard, const struct sl_shard_request *request,
                            struct sl_shard_slice *slice, const uint64_t *keys, uint32_t count);

/* Let the table use what is left of the shard's memory limit, and count what it used. */
void sl_shard_kv_limit_memory(const struct sl_shard *shard, struct sl_shard_table *table);
void sl_shard_kv_count_memory(struct sl_shard *shard, struct sl_shard_table *table);

/* Passes the section to the handler. Returns DONE, PARKED or the handler's error. */
int sl_shard_handler_run(struct sl_shard *shard, struct sl_shard_table *table,
                         struct sl_shard_request *request, uint8_t *reply,
                         struct sl_shard_slice *slice);

void sl_shard_handler_lengths(const struct sl_shard *shard, const struct sl_shard_table *table,
                              const uint64_t *keys, uint32_t count, uint32_t *lengths);

#endif
