/* The inbox holds the notices that peers have sent, on the engine's first reactor, until the
 * application takes them, or, those whose name begins with its prefix, a reactor outside. A peer
 * that reconnects may send a notice again: the inbox remembers the last sequence of each, until a
 * while after its disconnect, so each notice is taken once. Owner reactor. Allocates. */
#ifndef SL_NET_TRANSFER_INBOX_H
#define SL_NET_TRANSFER_INBOX_H

#include "net/session/message.h"
#include "net/transfer/io.h"

/* A call on the first reactor: takes the oldest notice. */
struct sl_transfer_take {
    struct sl_transfer_call call; /* run: sl_transfer_inbox_take */
    /* For the reactor outside: how the names of its notices begin; timeout_ms is ignored: none.
     * NULL: for the application. */
    const char *outside_prefix;
    uint32_t timeout_ms;
    struct sl_transfer_noticed *out;
    struct sl_list_link link; /* private, like the timer */
    struct sl_timer timer;
};

/* Run functions of calls. Taking may end with DEADLINE or, after stop, CANCELLED. Stop: the reactor
 * outside takes no more; what waits for it is dropped. */
void sl_transfer_inbox_take(struct sl_transfer_io *io, struct sl_transfer_call *call);
void sl_transfer_inbox_stop(struct sl_transfer_io *io, struct sl_transfer_call *call);

void sl_transfer_inbox_init(struct sl_transfer_inbox *inbox);
void sl_transfer_inbox_fini(struct sl_transfer_inbox *inbox);

/* Queues a notice of the client, unless it was queued before. Errors: AGAIN (the inbox is full),
 * NO_MEMORY. */
int sl_transfer_inbox_put(struct sl_transfer_io *io, uint64_t client_id,
                          const struct sl_message_notice *notice);

#endif
