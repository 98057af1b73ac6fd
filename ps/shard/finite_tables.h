/* Tables that accept finite values only. Owner reactor. */
#ifndef SL_PS_SHARD_FINITE_TABLES_H
#define SL_PS_SHARD_FINITE_TABLES_H

#include "core/reason.h"
#include "ps/shard/shard.h"

/* Checks the values of a request after sl_shard_begin, before anything else of it runs. The reason
 * names the table and the first key or element. Errors: INVALID. */
int sl_shard_check_finite(const struct sl_shard *shard, const struct sl_shard_request *request,
                          struct sl_reason *reason);

#endif
