/* Scans: all rows of a sparse table, a few thousand for each request. A cursor is the number of a
 * record. Records never move, so a row that exists throughout a scan is returned once. Owner
 * reactor. Nothing allocates. */
#ifndef SL_PS_SHARD_SCAN_H
#define SL_PS_SHARD_SCAN_H

#include "ps/shard/section.h"

/* Checks the width of the rows. Errors: PROTOCOL. */
int sl_shard_scan_check(const struct sl_shard *shard, const struct sl_shard_table *table,
                        const struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Returns the cost of a scan that visits all of its records. */
uint64_t sl_shard_scan_cost(const struct sl_shard_table *table, const struct sl_request_view *view);

/* Begins at the first record. Errors: CLOSED (the record numbers are of another copy). */
int sl_shard_scan_begin(const struct sl_shard *shard, struct sl_shard_request *request,
                        struct sl_shard_slice *slice);

/* Continues; like sl_shard_run. */
int sl_shard_scan_run(const struct sl_shard *shard, const struct sl_shard_table *table,
                      struct sl_shard_request *request, uint8_t *reply,
                      struct sl_shard_slice *slice);

#endif
