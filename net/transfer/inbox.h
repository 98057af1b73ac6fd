/* The inbox holds the notices that peers have sent, on the engine's first reactor, until the
 * application takes them, or, those whose name begins with its prefix, a reader. A peer
 * that reconnects may send a notice again: the inbox remembers the last sequence of each, until a
 * while after its disconnect, so each notice is taken once. Owner reactor. Allocates. */
#ifndef SL_NET_TRANSFER_INBOX_H
#define SL_NET_TRANSFER_INBOX_H

#include "net/session/message.h"
#include "net/transfer/io.h"

/* A call on the first reactor: takes the oldest notice. */
struct sl_transfer_take {
    struct sl_transfer_call call;
    uint32_t timeout_ms;
    struct sl_transfer_noticed *out;
    struct sl_list_link link; /* private, like the timer */
    struct sl_timer timer;
};

/* Notices that ask, of all senders, with their kept answers. */
#define SL_TRANSFER_INBOX_ASKED_MAX 65536

/* A notice that asks. Its answer is kept until the sender says that it has it, or is silent for
 * long: the notice comes again if the connection was lost. */
struct sl_transfer_asked {
    struct sl_list_link link;     /* of its sender's, ascending */
    struct sl_list_link by_guest; /* target.c: of its connection's; not linked: that has ended */
    struct sl_transfer_io *io;
    /* Answers it, once. bytes NULL: with an error. */
    void (*answer)(struct sl_transfer_asked *asked, const void *bytes, uint32_t count);
    void *guest;                       /* target.c: its connection, while it is linked there */
    struct sl_transfer_sender *sender; /* NULL: it is forgotten */
    uint64_t message_id, sequence;
    uint8_t *bytes; /* of the answer; NULL: there is none yet */
    uint32_t count;
    struct {
        struct sl_list_link link;
        uint64_t number, since_ns;
    } reader; /* its own */
};

/* A part of the process, on the first reactor, that takes the notices with its name. Before a '/'
 * is what they are about, behind it the version of their contents. */
struct sl_transfer_inbox_reader {
    const char *name;
    void (*put)(struct sl_transfer_inbox_reader *reader); /* there are more */
    struct sl_transfer_inbox_queue queue;                 /* private, like the link */
    struct sl_list_link link;
};

/* Also takes the notices that came before. name and put are set. Errors: EXISTS: there is one for
 * what they are about. */
int sl_transfer_inbox_open(struct sl_transfer_inbox *inbox,
                           struct sl_transfer_inbox_reader *reader);

/* Drops what was not taken, and answers it with an error. No effect on one that is not open. */
void sl_transfer_inbox_close(struct sl_transfer_inbox_reader *reader);

/* Takes the oldest notice, which has to be answered if *asked is not NULL. Its attachment belongs
 * to the queue until the next call. False: there is none. */
bool sl_transfer_inbox_next(struct sl_transfer_inbox_reader *reader,
                            struct sl_transfer_noticed *out, struct sl_transfer_asked **asked);

/* Memory for the attachment of a notice. Some is kept for the next one: the system takes longer
 * to map 72 KiB than a notice is on its way. NULL: no memory; NULL may be put. */
uint8_t *sl_transfer_inbox_memory_get(struct sl_transfer_inbox *inbox, uint32_t bytes);
void sl_transfer_inbox_memory_put(struct sl_transfer_inbox *inbox, uint8_t *memory);

void sl_transfer_inbox_init(struct sl_transfer_inbox *inbox);
void sl_transfer_inbox_fini(struct sl_transfer_inbox *inbox);

/* Queues a notice of the client, unless it was queued before. A reader's takes over what is
 * attached to it, and few wait with that. *asked: NULL, unless it asks; if it was queued before, as
 * it was left then, with its answer if it has one. Errors: AGAIN: the inbox is full, or it asks and
 * has no reader; NO_MEMORY; VERSION: the reader's name has another version; CLOSED: it asks, and
 * its answer is not kept any more. */
int sl_transfer_inbox_put(struct sl_transfer_io *io, uint64_t client_id,
                          struct sl_message_notice *notice, struct sl_transfer_asked **asked,
                          struct sl_reason *reason);

/* It was answered: keeps the answer, or frees it if nobody needs it. bytes NULL: with an error,
 * which is not kept. */
void sl_transfer_inbox_keep(struct sl_transfer_asked *asked, const void *bytes, uint32_t count);

#endif
