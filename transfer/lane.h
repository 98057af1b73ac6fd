/* A lane is one data connection to a reactor of a peer: a session that reconnects by itself, the
 * one-sided operations on it, and the slices that it may have in flight. Owner reactor. Opening
 * allocates. */
#ifndef SL_TRANSFER_LANE_H
#define SL_TRANSFER_LANE_H

#include "net/control/session.h"
#include "transfer/io.h"
#include "transfer/part.h"

#define SL_TRANSFER_LANE_NAME_BYTES (SL_TRANSFER_NAME_BYTES + SL_LIMIT_ENDPOINT_BYTES + 32)

struct sl_transfer_lane;

struct sl_transfer_lane_events {
    /* The lane can send: it was welcomed, or has room again. */
    void (*ready)(void *ctx, struct sl_transfer_lane *lane);
    /* The connection was lost with unanswered WRITEs, which may still be applied: the peer must
     * close the lane's connections of this epoch before anything else is sent. `done` of the slices
     * follows. */
    void (*broken)(void *ctx, struct sl_transfer_lane *lane, uint64_t epoch);
    /* The slice is over: nothing touches its local memory any more. err, text: as of
     * sl_rma_initiator_events. With lane->is_open false the connection was lost. */
    void (*done)(void *ctx, struct sl_transfer_lane *lane, struct sl_transfer_slice *slice, int err,
                 const char *text);
    /* The peer refuses the lane for good. No slice is in flight. */
    void (*refused)(void *ctx, struct sl_transfer_lane *lane, int err, const char *text);
};

struct sl_transfer_lane {
    const struct sl_transfer_lane_events *events;
    void *ctx;
    struct sl_transfer_io *io;
    uint32_t number;            /* from 1, unique among the lanes to the peer */
    struct sl_session *session; /* NULL: refused, or not opened */
    bool is_open;               /* welcomed */
    uint64_t epoch;             /* of the connection; ascends with each */
    struct sl_rma_initiator rma;
    struct sl_transfer_slice *slices;       /* [SL_LIMIT_TRANSFER_SLICES] */
    struct sl_list free;                    /* of them */
    char name[SL_TRANSFER_LANE_NAME_BYTES]; /* "10.0.0.2:12345 lane 1 (tcp://10.0.0.2:4242)" */
    uint64_t bytes_read, bytes_written, failures;
};

struct sl_transfer_lane_options {
    const struct sl_transfer_lane_events *events;
    void *ctx;
    struct sl_transfer_io *io;
    const char *peer_name; /* the segment's name */
    const struct sl_endpoint *endpoint;
    uint64_t incarnation; /* of the peer */
    uint64_t client_id;   /* of the hellos */
    uint32_t number;      /* from 1, unique among the lanes to the peer */
};

/* Begins to connect. `lane`: zeros, or closed: it keeps its counters. Errors: NO_MEMORY. */
int sl_transfer_lane_open(struct sl_transfer_lane *lane,
                          const struct sl_transfer_lane_options *options);

/* No slice may be in flight. No effect if it is not open. */
void sl_transfer_lane_close(struct sl_transfer_lane *lane);

/* Whether the lane would take a slice of this length now. The lane's own slices need not be free:
 * it also sends those again that another lane has lost. */
bool sl_transfer_lane_has_room(const struct sl_transfer_lane *lane, uint32_t bytes);

/* Ends the connection at once; its slices in flight are reported by `done` in a later turn, and it
 * reconnects. Not in an upcall. */
void sl_transfer_lane_break(struct sl_transfer_lane *lane, const char *why);

/* Whether a WRITE is unanswered. */
bool sl_transfer_lane_owes_writes(const struct sl_transfer_lane *lane);

/* Why it is not open. */
const char *sl_transfer_lane_last_error(const struct sl_transfer_lane *lane);

static inline struct sl_transfer_slice *sl_transfer_lane_slice(struct sl_rma_slice *slice)
{
    return SL_CONTAINER_OF(slice, struct sl_transfer_slice, rma);
}

#endif
