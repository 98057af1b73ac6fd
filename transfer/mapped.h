/* The path through shared memory. Memory of sl_transfer_memory_create is a region of the first
 * reactor's shm transport; an initiator on the same host maps it and copies each slice once, while
 * the target is idle. Owner reactor. */
#ifndef SL_TRANSFER_MAPPED_H
#define SL_TRANSFER_MAPPED_H

#include "net/control/session.h"
#include "net/transport_rma.h"
#include "transfer/io.h"
#include "transfer/part.h"

/* The target's side */

/* Of a device; its context is the device. */
extern const struct sl_transport_rma_events sl_transfer_mapped_rma_events;

/* On the first reactor: begins to offer the region to peers on this host. True: the call is
 * answered, and the region announced, in a later turn. False: it cannot be mapped. */
bool sl_transfer_mapped_add(struct sl_transfer_io *io, struct sl_transfer_region *region,
                            struct sl_transfer_call *call);

/* No new access. region->is_unmapping until no peer reaches the memory once its owner has unmapped
 * it; then the removals are looked at. */
void sl_transfer_mapped_remove(struct sl_transfer_io *io, struct sl_transfer_region *region);

/* The initiator's side: one connection to a peer, and the slices in flight */

struct sl_transfer_mapped_events {
    /* The path was opened, or is not usable any more. */
    void (*changed)(void *ctx);
    /* The slice is over: nothing touches its memory on either side any more. err: it was not moved,
     * or not wholly. */
    void (*done)(void *ctx, struct sl_transfer_slice *slice, int err);
};

/* Zero at first, but for the first three members. */
struct sl_transfer_mapped {
    const struct sl_transfer_mapped_events *events;
    void *ctx;
    struct sl_transfer_io *io;
    const struct sl_endpoint *endpoint; /* of the peer; NULL: it offers no such path */
    struct sl_session *session;         /* NULL: not opened, or refused */
    bool is_open;                       /* welcomed */
    bool has_failed;                    /* lost and not welcomed again */
    uint64_t pause_end_ns;              /* refused: when it is tried again */
    uint64_t epoch;
    struct sl_transfer_slice *slices; /* [SL_LIMIT_TRANSFER_SLICES] */
    struct sl_list free;              /* of them */
    struct sl_list in_flight;
    uint32_t in_flight_count;
    uint64_t in_flight_bytes;
    uint64_t answered_ns; /* as of sl_rma_initiator */
    uint64_t bytes_read, bytes_written, failures;
};

struct sl_transfer_mapped_options {
    const char *peer_name;
    uint64_t incarnation; /* of the peer */
    uint64_t client_id;   /* of the hellos */
    uint32_t number;      /* unique among the lanes to the peer */
};

/* Connects, unless it has; returns whether slices may wait for it. */
bool sl_transfer_mapped_open(struct sl_transfer_mapped *mapped,
                             const struct sl_transfer_mapped_options *options);

/* No slice may be in flight. No effect if it is not open. */
void sl_transfer_mapped_close(struct sl_transfer_mapped *mapped);

/* Whether it is open, or connects for the first time. */
static inline bool sl_transfer_mapped_is_usable(const struct sl_transfer_mapped *mapped)
{
    return mapped->session != NULL && !mapped->has_failed;
}

bool sl_transfer_mapped_has_room(const struct sl_transfer_mapped *mapped);

/* False: the connection is closing; the slice is the caller's. */
bool sl_transfer_mapped_post(struct sl_transfer_mapped *mapped, struct sl_transfer_slice *slice,
                             const struct sl_transport_rma_token *token);

/* Ends the connection at once; `done` of its slices follows in a later turn, and it reconnects. Not
 * in an upcall. */
void sl_transfer_mapped_break(struct sl_transfer_mapped *mapped, const char *why);

#endif
