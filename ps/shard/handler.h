/* Calls of the program's handler, which is one for all KV tables. Owner reactor. */
#ifndef SL_PS_SHARD_HANDLER_H
#define SL_PS_SHARD_HANDLER_H

#include <starling_kv.h>

#include "ps/shard/section.h"

/* Returns true when the request waits for its handler. */
bool sl_shard_handler_waits(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Passes the section to the handler, which is set. Returns DONE, PARKED or the handler's error. */
int sl_shard_handler_run(struct sl_shard *shard, struct sl_shard_table *table,
                         struct sl_shard_request *request, uint8_t *reply,
                         struct sl_shard_slice *slice);

/* Replaces the handler; requests that wait for one go to it. */
void sl_shard_handler_set(struct sl_shard *shard, const struct sl_kv_handler *handler);

/* Returns true when the handler is not set yet: all requests to KV tables wait. */
static inline bool sl_shard_handler_is_awaited(const struct sl_shard *shard)
{
    return shard->options.kv_handler != NULL && shard->options.kv_handler->handle == NULL;
}

/* Parks a request until the handler has dealt with another one, or is set. */
int sl_shard_handler_ask_again(struct sl_shard *shard, struct sl_shard_request *request);

/* Sets the token that the handler keeps next; NULL: none. */
void sl_shard_handler_offer(struct sl_shard *shard, struct sl_kv_token *token);

/* Ends the wait of a request for another call of the handler. */
void sl_shard_handler_stop_waiting(struct sl_shard *shard, struct sl_shard_request *request);

void sl_shard_handler_lengths(const struct sl_shard *shard, const struct sl_shard_table *table,
                              const uint64_t *keys, uint32_t count, uint32_t *lengths);

#endif
