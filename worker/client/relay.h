/* Messages of this process to others of the job, and from them, through the coordinator. A sender's
 * message is a control operation with a request for each receiver. Messages of others wait in the
 * inbox of the program until it takes them; the coordinator delivers no more than 64 that have no
 * answer. */
#ifndef SL_WORKER_CLIENT_RELAY_H
#define SL_WORKER_CLIENT_RELAY_H

#include <pthread.h>

#include "worker/client/control_op.h"

struct sl_client_io;
struct sl_mailbox_lane;
struct sl_reactor;

/* Sending */

struct sl_relay_target {
    struct sl_relay *relay;
    uint32_t group, rank;
    bool is_answered; /* out: head and body of the answer */
    struct sl_message_relay answer;
};

struct sl_relay {
    /* Sends to all targets, and completes when each has answered or failed. Errors: CLOSED (also: a
     * receiver has ended), DEADLINE, VERSION, NO_MEMORY, INVALID. */
    struct sl_control_op op;
    uint32_t head;
    uint8_t *body; /* body_bytes, behind the targets */
    uint32_t body_bytes;
    uint32_t target_count;
    struct sl_relay_target targets[];
};

/* Allocates a message with a copy of the body; the caller fills groups and ranks of the targets.
 * NULL: no memory. Any thread. */
struct sl_relay *sl_relay_create(uint32_t head, const void *body, uint32_t body_bytes,
                                 uint32_t target_count);
void sl_relay_destroy(struct sl_relay **relay);

/* Receiving */

#define SL_RELAY_INBOX_MAX 256 /* messages that the program has not taken */

struct sl_relay_item {
    struct sl_relay_item *next;
    struct sl_message_relay message; /* `body` is behind the item */
};

struct sl_relay_inbox {
    pthread_mutex_t lock; /* for all below, but is_rung */
    struct sl_relay_item *first, *last;
    uint32_t count;
    struct sl_mailbox_lane *lane; /* to the taking thread; NULL: not open */
    bool rings;                   /* a mail to the taking thread is in flight */
    struct sl_relay_item *first_answer, *last_answer;
    struct sl_mailbox_lane *answer_lane; /* to the reactor of client_io 0 */
    struct sl_client_io *io;             /* client_io 0 */
    bool flushes;                        /* a mail to that reactor is in flight */
    bool is_rung;                        /* the taking thread's: there may be messages */
};

void sl_relay_inbox_init(struct sl_relay_inbox *inbox);

/* Lets messages wake the calling thread, which drives `driven`, and answers be sent. Errors:
 * NO_MEMORY, TOO_LARGE. */
int sl_relay_inbox_open(struct sl_relay_inbox *inbox, struct sl_client_io *io,
                        struct sl_reactor *driven);

/* Before the client is destroyed. */
void sl_relay_inbox_close(struct sl_relay_inbox *inbox);

/* After the client is destroyed. */
void sl_relay_inbox_fini(struct sl_relay_inbox *inbox);

/* Takes all messages, in order; the caller frees each. The taking thread. */
struct sl_relay_item *sl_relay_inbox_take(struct sl_relay_inbox *inbox);

/* Sends the answer to the message of this token. A message that has failed meanwhile ignores it.
 * Errors: NO_MEMORY, CLOSED. Any thread. */
int sl_relay_inbox_answer(struct sl_relay_inbox *inbox, uint64_t token, uint32_t head,
                          const void *body, uint32_t body_bytes);

/* Takes a message from the coordinator. Reactor of client_io 0. */
void sl_relay_receive(struct sl_client_io *io, const struct sl_message_relay *message);

#endif
