/* A lane is one data connection to a peer: a session that reconnects by itself, and the slices that
 * it has in flight. It sends slices as frames (net/rma), or posts them as one-sided operations of
 * the transport. Owner reactor. Opening allocates. */
#ifndef SL_NET_TRANSFER_LANE_H
#define SL_NET_TRANSFER_LANE_H

#include "net/session/session.h"
#include "net/transfer/io.h"
#include "net/transfer/part.h"
#include "net/transport_rma.h"

#define SL_TRANSFER_LANE_NAME_BYTES  (SL_TRANSFER_NAME_BYTES + SL_LIMIT_ENDPOINT_BYTES + 32)
/* The most slices of one send. */
#define SL_TRANSFER_LANE_GROUP_COUNT 128

struct sl_transfer_lane;

struct sl_transfer_lane_events {
    /* The lane can send: the handshake is complete, or there is room again. */
    void (*ready)(void *ctx, struct sl_transfer_lane *lane);
    /* The connection was lost. Its unanswered WRITEs (sl_transfer_lane_owes_writes) may still be
     * applied: then the peer must close this lane's connections up to lane->epoch before anything
     * else is sent. `done` of the slices follows. */
    void (*lost)(void *ctx, struct sl_transfer_lane *lane, const char *reason);
    /* The slice is over: nothing touches its local memory any more. err, text: as of
     * sl_rma_initiator_events. With lane->is_open false the connection was lost. */
    void (*done)(void *ctx, struct sl_transfer_lane *lane, struct sl_transfer_slice *slice, int err,
                 const char *text);
    /* The peer refuses the lane. No slice is in flight; it may be opened again. CANCELLED: the
     * transport closes. */
    void (*refused)(void *ctx, struct sl_transfer_lane *lane, int err, const char *text);
};

struct sl_transfer_lane {
    const struct sl_transfer_lane_events *events;
    void *ctx;
    struct sl_transfer_io *io;
    uint32_t number;            /* from 1, unique among the lanes to the peer */
    uint32_t rail;              /* of the route */
    struct sl_session *session; /* NULL: refused, or not opened */
    bool is_open;               /* the handshake is complete */
    uint64_t epoch;             /* increases with each connection */
    uint64_t in_flight_bytes;
    uint32_t in_flight_count;
    struct sl_rma_initiator rma; /* slices that were sent as frames */
    /* Slices that were posted: */
    struct sl_list posted;          /* to be completed by the transport, in this order */
    struct sl_list written;         /* WRITEs that are completed here and wait for a FLUSH */
    uint32_t operation_count;       /* posted and not completed, with FLUSHes */
    uint64_t completed_ns;          /* when the last one was completed, or the first was posted */
    struct sl_transfer_slice flush; /* the cookie of all FLUSHes */

    struct sl_transfer_slice *slices;       /* [SL_LIMIT_TRANSFER_SLICES]; NULL: closed */
    struct sl_list free;                    /* of them */
    char name[SL_TRANSFER_LANE_NAME_BYTES]; /* "10.0.0.2:12345 lane 1 (tcp://10.0.0.2:4242)" */
    uint64_t bytes_read, bytes_written, failures;
};

struct sl_transfer_lane_options {
    const struct sl_transfer_lane_events *events;
    void *ctx;
    struct sl_transfer_io *io;
    struct sl_transport *transport;
    const char *peer_name; /* the segment's name */
    const struct sl_endpoint *endpoint;
    uint64_t incarnation; /* of the peer */
    uint64_t client_id;   /* sent in the handshake */
    uint32_t number;      /* from 1, unique among the lanes to the peer */
    uint32_t rail;
};

/* Begins to connect. `lane`: zeros, refused or closed: it keeps its counters. Errors: NO_MEMORY. */
int sl_transfer_lane_open(struct sl_transfer_lane *lane,
                          const struct sl_transfer_lane_options *options);

/* No slice may be in flight, nor wait to be sent again. No effect if it is not open. */
void sl_transfer_lane_close(struct sl_transfer_lane *lane);

/* Whether the lane would take a slice of `bytes` behind others of `more_bytes` in all. Its
 * list of free slices does not count: it also sends slices that another lane has lost. */
bool sl_transfer_lane_has_room(const struct sl_transfer_lane *lane, uint32_t bytes,
                               uint32_t more_count, uint64_t more_bytes);

/* Sends slices as frames, as sl_rma_initiator_send. */
uint32_t sl_transfer_lane_send(struct sl_transfer_lane *lane, struct sl_rma_slice *const *slices,
                               uint32_t count, uint32_t budget_us);

/* Posts slices as one-sided operations; tokens[count]. Returns how many it took: fewer if the
 * connection is closing. */
uint32_t sl_transfer_lane_post(struct sl_transfer_lane *lane, struct sl_rma_slice *const *slices,
                               const struct sl_transport_rma_token *const *tokens, uint32_t count);

/* The `completed` of struct sl_transport_rma_events, for all one-sided transports. */
void sl_transfer_lane_completed(void *ctx, struct sl_conn *conn, void *cookie, int err);

/* Ends the connection at once; its slices in flight are reported by `done` in a later turn, and it
 * reconnects. Must not be called in an upcall. */
void sl_transfer_lane_break(struct sl_transfer_lane *lane, const char *why);

/* Whether a WRITE is unanswered. */
bool sl_transfer_lane_owes_writes(const struct sl_transfer_lane *lane);

/* Whether a slice of the part is in flight. */
bool sl_transfer_lane_carries(const struct sl_transfer_lane *lane,
                              const struct sl_transfer_part *part);

/* Slices are in flight, and none was answered since then. */
bool sl_transfer_lane_is_stalled(const struct sl_transfer_lane *lane, uint64_t since_ns);

/* Whether it is not open, and an attempt to open it has failed. */
bool sl_transfer_lane_has_failed(const struct sl_transfer_lane *lane);

/* Why it is not open. */
const char *sl_transfer_lane_last_error(const struct sl_transfer_lane *lane);

static inline struct sl_transfer_slice *sl_transfer_lane_slice(struct sl_rma_slice *slice)
{
    return SL_CONTAINER_OF(slice, struct sl_transfer_slice, rma);
}

#endif
