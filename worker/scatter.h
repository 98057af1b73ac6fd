/* From a reply's bytes to the caller's rows. Pure; any thread. */
#ifndef SL_WORKER_SCATTER_H
#define SL_WORKER_SCATTER_H

#include "worker/operation.h"

/* Distributes a reply to where its request's reads say. payload: request->reply_bytes bytes,
 * aligned to 8 (the caller has compared the length). */
void sl_scatter_reply(const struct sl_request *request, const uint8_t *payload);

/* Adds up a pooled pull's partial sums, in the order of shards, and divides for means. */
void sl_scatter_pool(const struct sl_operation *operation);

#endif
