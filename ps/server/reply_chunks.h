/* Replies that are made while they are sent: long pulls of dense or KV arrays. No reply needs a
 * buffer of its own. A transport that can send at once takes the values from the table itself, as
 * many as it has room for, while the reactor waits for it: nothing can change them meanwhile, nor
 * need they be kept when the reader is slow. For others (TLS), and in another precision than that
 * of the table, values are copied in chunks, which the transport reads while they are cached. Owner
 * reactor. */
#ifndef SL_PS_SERVER_REPLY_CHUNKS_H
#define SL_PS_SERVER_REPLY_CHUNKS_H

#include "ps/server/request.h"

/* Returns true when the reply to this request, which has not started, is sent in chunks. */
bool sl_server_reply_chunks_fits(const struct sl_server_channel *channel,
                                 const struct sl_shard_request *work);

/* Returns true when it may start now: a later request must not make part of a step visible in
 * it. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request);

/* Makes and sends the chunks that the connection may have in flight, at a cost of about `keys`.
 * ANSWERED: all; the caller discards the request. */
enum sl_server_outcome sl_server_reply_chunks_run(struct sl_server_request *request, uint32_t keys,
                                                  uint32_t *spent);

#endif
