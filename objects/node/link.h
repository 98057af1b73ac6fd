/* Link carries the messages of one node to others and back, as notices named "objects/2": requests
 * with an answer and a deadline, and messages without. Peers are named by their engine's address;
 * messages to the node's own address do not go through the engine. A
 * peer's segment is opened once, by the first use, and closed when it was not used for 60 s; when
 * the peer ends, its requests fail at once.
 *
 * A message from a peer is checked and, if it is unreadable or answers nothing, refused and
 * counted. What waits to be sent is bounded by SL_LIMIT_OBJECTS_SENDS.
 *
 * Owner: the node's reactor. Nothing waits. Allocates. Callbacks may call any function here but
 * destroy. They do not run inside the call that they end, except `sent` of an answer, or
 * without memory. */
#ifndef SL_OBJECTS_NODE_LINK_H
#define SL_OBJECTS_NODE_LINK_H

#include "core/list.h"
#include "net/transfer/async.h"
#include "objects/catalogue/message.h"
#include "reactor/timer.h"

struct sl_objects_link;
struct sl_objects_link_peer;

/* A message of a peer that is no answer, or that to NEWS, which the catalogue numbers itself. It is
 * valid during the call, like `address`, the name of the sender's engine. */
typedef void sl_objects_link_message_fn(void *ctx, const char *address,
                                        const struct sl_objects_message *message);

/* On the engine's first reactor, the node's. id: of this node; all its messages carry it. Errors:
 * TOO_LARGE (the engine's name: SL_OBJECTS_ADDRESS_BYTES), and those of sl_transfer_async_create,
 * with text in sl_transfer_last_error. */
int sl_objects_link_create(struct sl_transfer *transfer, uint64_t id,
                           sl_objects_link_message_fn *arrived, void *ctx,
                           struct sl_objects_link **out);

/* Cancels requests without their callback, and fails messages (CANCELLED). All uses of segments
 * were put before. Then ended(ctx) runs, when nothing is left. Nulls *link. */
void sl_objects_link_destroy(struct sl_objects_link **link, void (*ended)(void *ctx), void *ctx);

/* Storage of the caller, until answered() runs or it is cancelled. */
struct sl_objects_request {
    /* answer NULL: none came: DEADLINE, CLOSED (the peer has ended), AGAIN (it or this node has too
     * much to do), or why it cannot be reached. Else err is that of the answer, and reason its
     * text. May free the request, or make it again. */
    void (*answered)(struct sl_objects_request *request, const struct sl_objects_message *answer,
                     int err, const char *reason);
    /* Private. Zero at first. */
    struct sl_list_link link;
    struct sl_objects_link_peer *peer; /* NULL: it is over */
    struct sl_objects_link_send *send; /* on its way; NULL: it has arrived */
    uint32_t kind, timeout_ms;
    struct sl_timer timer;
};

/* Sends the message, whose `request` and `node` it sets, and waits for the answer. It is carried
 * out once, also if the connection is lost meanwhile. */
void sl_objects_link_request(struct sl_objects_link *link, struct sl_objects_request *request,
                             const char *address, struct sl_objects_message *message,
                             uint32_t timeout_ms);

/* Without callback. No effect on a request that is over. */
void sl_objects_link_cancel(struct sl_objects_link *link, struct sl_objects_request *request);

/* Sends a message without answer, or an answer (is_answer, and the request's number); the address
 * of an answer does not count, but for NEWS. `sent`, if not NULL, runs when the peer's engine has
 * queued a message without answer (err 0), or with the error; of an answer at once. Sets `node`. */
void sl_objects_link_send(struct sl_objects_link *link, const char *address,
                          struct sl_objects_message *message, sl_transfer_done_fn *sent, void *ctx);

/* Answers a message with an error, if it asks for an answer. */
void sl_objects_link_refuse(struct sl_objects_link *link, const char *address,
                            const struct sl_objects_message *message, int err, const char *text);

/* A use of the peer's segment, for READs. Storage of the caller from get until put, or until
 * opened() runs with an error. */
struct sl_objects_peer_use {
    /* NULL: of no interest. */
    void (*opened)(struct sl_objects_peer_use *use, struct sl_transfer_segment *segment, int err,
                   const char *reason);
    /* The peer has ended after opened(): the use is put. NULL: it has to be put. */
    void (*ended)(struct sl_objects_peer_use *use, const char *reason);
    bool ends_with_connection; /* the peer also counts as ended when its connection is lost */
    /* Private. Zero at first. */
    struct sl_list_link link;
    struct sl_objects_link_peer *peer; /* NULL: none */
    struct sl_timer no_memory;
    bool has_opened;
};

/* Returns the segment if it is open; then opened() does not run, nor ever for this node's own
 * address, which has no segment. If the peer ends later, the batches fail. timeout_ms counts if
 * this is the first use; later ones wait for the same opening. */
struct sl_transfer_segment *sl_objects_link_peer_get(struct sl_objects_link *link,
                                                     struct sl_objects_peer_use *use,
                                                     const char *address, uint32_t timeout_ms);

/* Also before opened(), which then does not run. No batch to the segment may be in progress. No
 * effect if there is no use. */
void sl_objects_link_peer_put(struct sl_objects_link *link, struct sl_objects_peer_use *use);

/* For batches. */
struct sl_transfer_async *sl_objects_link_async(struct sl_objects_link *link);

/* Number of messages that were refused so far. */
uint64_t sl_objects_link_refused(const struct sl_objects_link *link);

#endif
