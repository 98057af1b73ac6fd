/* Calls of the program's handler, which is one for all KV tables. Owner reactor. */
#ifndef SL_PS_SHARD_HANDLER_H
#define SL_PS_SHARD_HANDLER_H

#include "ps/shard/section.h"

/* Returns true when the request waits for its handler. */
bool sl_shard_handler_waits(const struct sl_shard *shard, const struct sl_shard_request *request);

/* Passes the section to the handler. Returns DONE, PARKED or the handler's error. */
int sl_shard_handler_run(struct sl_shard *shard, struct sl_shard_table *table,
                         struct sl_shard_request *request, uint8_t *reply,
                         struct sl_shard_slice *slice);

/* Sets the token that the handler keeps next; NULL: none. */
void sl_shard_handler_offer(struct sl_shard *shard, struct sl_kv_token *token);

/* Ends the wait of a request for another call of the handler. */
void sl_shard_handler_stop_waiting(struct sl_shard *shard, struct sl_shard_request *request);

void sl_shard_handler_lengths(const struct sl_shard *shard, const struct sl_shard_table *table,
                              const uint64_t *keys, uint32_t count, uint32_t *lengths);

#endif
