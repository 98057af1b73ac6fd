/* Whole arrays for a handler that asks for them (sl_kv_handler.whole_bytes). Clients send and ask
 * for a long array in chunks, one request each. Here the pushed chunks become one array. One of the
 * requests, the last chunk of a push or the first one of a pull, asks the handler; the other chunks
 * of a pull or push-pull wait for its answer, and are answered from it.
 *
 * The chunks of an operation come in order; those of two operations on a key do not overlap. Memory
 * counts for the shard's limit. It is freed with the last chunk's reply, with the client's next
 * operation on the key, or when the client leaves. Owner reactor. */
#ifndef SL_PS_SHARD_WHOLE_H
#define SL_PS_SHARD_WHOLE_H

#include <starling_kv.h>

#include "ps/shard/section.h"

/* Returns true for a chunk that belongs to a whole array. */
static inline bool sl_shard_whole_is_wanted(const struct sl_shard *shard,
                                            const struct sl_request_section *section)
{
    return shard->options.kv_handler->whole_bytes != 0 && section->bag_count != 0;
}

/* Finds or creates the array of a chunk, as request->kept.whole, and adds what the chunk pushes.
 * Returns DONE, or an error: TOO_LARGE (over whole_bytes), INVALID (an earlier chunk is missing),
 * NO_MEMORY. */
int sl_shard_whole_attach(struct sl_shard *shard, struct sl_shard_table *table,
                          struct sl_shard_request *request, struct sl_shard_slice *slice);

/* Returns true when the request asks the handler for the array. */
bool sl_shard_whole_asks(const struct sl_shard_request *request);

/* Returns true when the answer is not there yet. */
bool sl_shard_whole_is_awaited(const struct sl_shard_request *request);

/* Changes the call of a chunk to one of the whole array. Errors: NO_MEMORY, for what is pulled. */
int sl_shard_whole_call(struct sl_shard *shard, struct sl_shard_request *request,
                        struct sl_kv_request *call);

/* The handler has answered with an error, or 0. values: where the pulled values are, permanently;
 * NULL: in the call's `pull`. copies: they are not there permanently. */
void sl_shard_whole_answered(struct sl_shard *shard, struct sl_shard_request *request, int err,
                             const void *values, bool copies);

/* Writes the chunk's part of the answer to the reply, if it pulls, and leaves the array. Returns
 * the answer's error. */
int sl_shard_whole_reply(struct sl_shard *shard, struct sl_shard_request *request, uint8_t *reply);

/* The request will not run again, or has failed. No effect without a whole array. */
void sl_shard_whole_leave(struct sl_shard *shard, struct sl_shard_request *request);

/* The client has left or expired, and none of its requests waits: frees its arrays. client: as in
 * struct sl_shard_client. */
void sl_shard_whole_client_left(struct sl_shard *shard, uint64_t client);

/* Frees all arrays. No request waits. */
void sl_shard_whole_fini(struct sl_shard *shard);

#endif
