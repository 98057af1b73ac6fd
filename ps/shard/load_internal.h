/* What the files that load a shard share; nobody else includes it. Owner reactor. */
#ifndef SL_PS_SHARD_LOAD_INTERNAL_H
#define SL_PS_SHARD_LOAD_INTERNAL_H

#include "ps/shard/internal.h"
#include "ps/shard/load.h"

/* Writes "image of shard 1 of 3, a block of rows of table emb: " and the message into the reason;
 * returns err. */
int sl_shard_load_fail(const struct sl_shard_load *load, struct sl_shard_slice *slice, int err,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A record of the block at work is none. */
int sl_shard_load_fail_record(const struct sl_shard_load *load, struct sl_shard_slice *slice);

/* NO_MEMORY, which names the limit of tables. */
int sl_shard_load_fail_memory(const struct sl_shard_load *load, struct sl_shard_slice *slice);

/* The records of the keys; those that are missing are made, without values. Errors: NO_MEMORY. */
int sl_shard_load_find(struct sl_shard *shard, struct sl_shard_table *table, const uint64_t *keys,
                       uint32_t count, uint32_t *records);

/* Forgets clocks and what is kept aside. */
void sl_shard_load_clocks_begin(struct sl_shard *shard);

/* One record each. Of a piece of a push that is kept aside: DONE, or AGAIN when the budget is used
 * up; then the cursor stands where it stood. */
int sl_shard_load_clock(struct sl_shard_load *load, struct sl_shard_slice *slice);
int sl_shard_load_buffered_push(struct sl_shard_load *load, struct sl_shard_table *table,
                                struct sl_shard_slice *slice);

/* All workers have been named. Errors: CORRUPT, NO_MEMORY. */
int sl_shard_load_clocks_end(struct sl_shard_load *load, struct sl_shard_slice *slice);

#endif
