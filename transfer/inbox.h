/* The inbox holds the notices that peers have sent, on the engine's first reactor, until the
 * application takes them. A peer that reconnects may send a notice again: the inbox remembers the
 * last sequence of each, until a while after its disconnect, so each notice is taken once.
 * Owner reactor. Allocates. */
#ifndef SL_TRANSFER_INBOX_H
#define SL_TRANSFER_INBOX_H

#include "net/control/message.h"
#include "transfer/io.h"

void sl_transfer_inbox_init(struct sl_transfer_inbox *inbox);
void sl_transfer_inbox_fini(struct sl_transfer_inbox *inbox);

/* Queues a notice of the client, unless it was queued before. Errors: AGAIN (the inbox is full),
 * NO_MEMORY. */
int sl_transfer_inbox_put(struct sl_transfer_io *io, uint64_t client_id,
                          const struct sl_message_notice *notice);

#endif
