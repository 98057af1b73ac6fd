/* Scans: all rows of a sparse table, a few thousand for each request. A cursor is the number of a
 * record. While a scan is in use no row moves to another record, so one that exists throughout is
 * returned once. A scan that rests too long is CLOSED if the table has shrunk. Owner reactor.
 * Nothing allocates. */
#ifndef SL_PS_SHARD_SCAN_H
#define SL_PS_SHARD_SCAN_H

#include "ps/shard/section.h"

/* Checks the width of the rows. Errors: PROTOCOL. */
int sl_shard_scan_check(const struct sl_shard *shard, const struct sl_shard_table *table,
                        const struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Returns the cost of a scan that visits all of its records. */
uint64_t sl_shard_scan_cost(const struct sl_shard_table *table, const struct sl_request_view *view);

/* Begins at the first record, and keeps rows in place for a while. Errors: CLOSED (rows may have
 * other records than when the scan began). */
int sl_shard_scan_begin(const struct sl_shard *shard, struct sl_shard_table *table,
                        struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Continues; like sl_shard_run. */
int sl_shard_scan_run(const struct sl_shard *shard, const struct sl_shard_table *table,
                      struct sl_shard_request *request, uint8_t *reply,
                      struct sl_shard_slice *slice);

#endif
