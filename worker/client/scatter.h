/* Copies replies into the caller's arrays. Pure; any thread. */
#ifndef SL_WORKER_CLIENT_SCATTER_H
#define SL_WORKER_CLIENT_SCATTER_H

#include "worker/client/operation.h"

/* Copies a reply, widened to f32, to the destinations of the request's reads. payload:
 * request->reply_bytes bytes, aligned to 8; the caller has checked the length. */
void sl_scatter_reply(const struct sl_request *request, const uint8_t *payload);

/* Adds the partial sums of a pooled pull in the order of shards; divides for means. */
void sl_scatter_pool(const struct sl_operation *operation);

#endif
