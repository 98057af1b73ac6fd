/* Declarations shared by the files load*.c and private to them. Owner reactor. */
#ifndef SL_PS_SHARD_LOAD_INTERNAL_H
#define SL_PS_SHARD_LOAD_INTERNAL_H

#include "ps/shard/load.h"
#include "ps/shard/section.h"

/* Writes "snapshot of shard 1 of 3, a block of rows of table emb: " and the message to the slice's
 * reason. Returns err. */
int sl_shard_load_fail(const struct sl_shard_load *load, struct sl_shard_slice *slice, int err,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Fails with CORRUPT: the current record is invalid. */
int sl_shard_load_fail_record(const struct sl_shard_load *load, struct sl_shard_slice *slice);

/* Fails with NO_MEMORY and names the limit. */
int sl_shard_load_fail_memory(const struct sl_shard_load *load, struct sl_shard_slice *slice);

/* Clears clocks and buffered pushes. */
void sl_shard_load_clocks_begin(struct sl_shard *shard);

/* Each loads one record. A buffered push returns AGAIN when the budget is used up; the cursor then
 * does not move. */
int sl_shard_load_clock(struct sl_shard_load *load, struct sl_shard_slice *slice);
int sl_shard_load_buffered_push(struct sl_shard_load *load, struct sl_shard_table *table,
                                struct sl_shard_slice *slice);

/* Completes the clocks after the last block. Errors: CORRUPT, NO_MEMORY. */
int sl_shard_load_clocks_end(struct sl_shard_load *load, struct sl_shard_slice *slice);

#endif
