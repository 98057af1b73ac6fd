/* Sections of KV tables and their handler. Owner reactor. */
#ifndef SL_PS_SHARD_KV_H
#define SL_PS_SHARD_KV_H

#include "ps/shard/section.h"

/* Runs a section of a KV table, from ADMIT on. */
int sl_shard_kv_run(struct sl_shard *shard, struct sl_shard_table *table,
                    struct sl_shard_request *request, uint8_t *reply, struct sl_shard_slice *slice);

/* Returns true when the request pulls one existing array, or a chunk of it, with the right
 * length. */
bool sl_shard_kv_is_chunked(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Returns the next values of such a pull, in the table. */
uint8_t *sl_shard_kv_next_values(const struct sl_shard *shard,
                                 const struct sl_shard_request *request);

/* Writes values of `width` bytes each to a reply: as they are, or f32 ones in another precision. */
void sl_shard_kv_write(enum sl_precision precision, const uint8_t *values, uint64_t count,
                       uint32_t width, uint8_t *reply);

/* Ends the section's reservation and its wait. */
void sl_shard_kv_drop(struct sl_shard *shard, struct sl_shard_request *request);

/* Let the table use what is left of the shard's memory limit, and count what it used. */
void sl_shard_kv_limit_memory(const struct sl_shard *shard, struct sl_shard_table *table);
void sl_shard_kv_count_memory(struct sl_shard *shard, struct sl_shard_table *table);

#endif
