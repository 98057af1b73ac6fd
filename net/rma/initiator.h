/* The initiator of one-sided operations on one connection, a lane: sends slices as frames and
 * reports each slice when it is over. Owner reactor; no allocation.
 *
 * A slice is contiguous memory here and at the target. A READ is received into the local memory and
 * a WRITE is sent from it, without a copy if it is long and the transport allows it. Slices that
 * are sent together share one REQUEST frame. The credit of the target bounds the lane. */
#ifndef SL_NET_RMA_INITIATOR_H
#define SL_NET_RMA_INITIATOR_H

#include "core/list.h"
#include "net/credit.h"
#include "net/outbox.h"
#include "net/rma/wire.h"

struct sl_rma_initiator;

/* Storage of the caller, from send until `done`. The caller fills in the first five fields. */
struct sl_rma_slice {
    uint8_t *local; /* any alignment */
    uint64_t key;   /* of the target's memory */
    uint64_t offset;
    uint32_t bytes; /* 1 to SL_LIMIT_FRAME_PAYLOAD_BYTES */
    enum sl_rma_op op;

    struct sl_list_link link; /* in `in_flight` */
    struct sl_rma_initiator *lane;
    uint64_t id;
    int err; /* the target's answer; 0 before it */
    bool is_answered;
    bool is_lent; /* WRITE: the transport may still read `local` */
};

struct sl_rma_initiator_events {
    /* The slice is over, and nothing touches its local memory any more. err: 0: the bytes of a READ
     * are in `local`, a WRITE is applied; an error of the target; or that of `closed`. `text`
     * explains an error, and is valid during the call. Not called inside send or pump. May send;
     * must not close the lane. */
    void (*done)(void *ctx, struct sl_rma_slice *slice, int err, const char *text);
};

struct sl_rma_initiator {
    const struct sl_rma_initiator_events *events;
    void *ctx;
    struct sl_conn *conn; /* NULL: not open */
    struct sl_outbox *outbox;
    struct sl_outbox_queue *queue;
    struct sl_credit credit;
    struct sl_list in_flight; /* of sl_rma_slice, by ascending id */
    uint32_t in_flight_count;
    uint64_t in_flight_bytes;
    struct sl_rma_slice *unsent; /* the first WRITE whose DATA is still to be sent; NULL: none */
    uint64_t next_id;
    /* When the last answer came, or the first unanswered slice was sent: for detecting a stall. */
    uint64_t answered_ns;
};

void sl_rma_initiator_init(struct sl_rma_initiator *lane,
                           const struct sl_rma_initiator_events *events, void *ctx);

/* The target has welcomed the connection, and granted the credit. Until `closed`, pass it the
 * frames, sinks and `closed` of the connection. */
void sl_rma_initiator_open(struct sl_rma_initiator *lane, struct sl_conn *conn,
                           struct sl_outbox *outbox, struct sl_outbox_queue *queue,
                           struct sl_credit credit);

/* Sends the first slices, as far as credit and outbox allow, and returns how many: they belong to
 * the lane until `done`. budget_us: time to their deadline, > 0. count <=
 * SL_LIMIT_TRANSFER_SLICES. Retry after a `done`, and while `unsent` is set in a later turn. */
uint32_t sl_rma_initiator_send(struct sl_rma_initiator *lane, struct sl_rma_slice *const *slices,
                               uint32_t count, uint32_t budget_us);

/* Sends DATA for which the outbox had no room. Call in later turns while `unsent` is set. */
void sl_rma_initiator_pump(struct sl_rma_initiator *lane);

/* Takes a REPLY or CREDIT frame, and releases it. Returns 0, or PROTOCOL with the *violation: the
 * caller ends the connection. */
int sl_rma_initiator_received(struct sl_rma_initiator *lane,
                              const struct sl_transport_message *message, const char **violation);

/* The memory for a long REPLY. NULL: no READ in flight has this id and length: the caller ends the
 * connection. */
void *sl_rma_initiator_sink(struct sl_rma_initiator *lane, const struct sl_frame *header);

/* The connection has closed, and sl_outbox_closed was called: every slice in flight is reported
 * with `err`, a negative sl_err. The lane may be opened again; ids continue. */
void sl_rma_initiator_closed(struct sl_rma_initiator *lane, int err, const char *text);

#endif
