/* A route is what one reactor has of a segment: its rails with their lanes, the list of the peer's
 * buffers, and the parts of batches that wait to be scheduled. Owner reactor.
 *
 * A slice takes a rail of the first scheme that has rails that are up, and there the lane with the
 * least in flight, of the rail with the least. Slices that a lost lane has not answered are
 * sent again, on any rail. */
#ifndef SL_NET_TRANSFER_ROUTE_H
#define SL_NET_TRANSFER_ROUTE_H

#include <stdatomic.h>

#include "net/transfer/lane.h"
#include "net/transfer/rail.h"
#include "net/transfer/remote.h"

struct sl_transfer_segment;

struct sl_transfer_route_rail {
    const struct sl_rail *pair;
    struct sl_transfer_lane *lanes; /* [lane_count]; opened at the first use */
    uint32_t lane_count;
    uint64_t opened_ns;    /* when its lanes were opened; 0: they are not */
    uint64_t pause_end_ns; /* its lanes were refused: when they are opened again */
    uint64_t
        rest_end_ns; /* it is up again after a loss: until then others are used, if there are any */
    bool is_down;    /* no lane is open, although one was or should be */
};

struct sl_transfer_route {
    struct sl_transfer_io *io;
    const char *name;                    /* of the segment */
    struct sl_transfer_remote *remote;   /* owned; NULL: not known yet */
    const struct sl_endpoint *endpoints; /* of the peer; the segment's */
    uint32_t endpoint_count;
    const struct sl_rail *pairs;          /* [rail_count]; the segment's */
    struct sl_transfer_route_rail *rails; /* [rail_count] */
    uint32_t rail_count;                  /* 0: the peer's endpoints are not known yet */
    struct sl_transfer_lane *lanes;       /* [lane_count]: those of all rails */
    uint32_t lane_count;
    uint64_t incarnation, client_id;
    const struct sl_transfer_lane_events *lane_events;
    int err; /* not 0: the peer is gone for good; `reason` */
    char reason[SL_TRANSFER_REASON_BYTES];
    uint64_t used_ns;   /* when a part was last in progress */
    uint64_t small_ns;  /* when a small part was last added */
    uint32_t usable[2]; /* rails that carry slices now, as bits; [1]: of a part that needs frames */
    struct sl_transfer_schedule schedule;
    struct sl_list parts; /* all that are not over */
    struct sl_timer stall;
    struct sl_transfer_work work;
    /* A lane was lost with WRITEs that may still be applied: the segment has them fenced, and
     * counts it in *fences at once. While that is not 0, nothing is sent; then the route is woken.
     */
    void (*fence)(struct sl_transfer_route *route, uint32_t lane, uint64_t epoch);
    _Atomic uint32_t *fences;
    struct sl_transfer_part *building; /* batch.c: of the batch that is checked */
};

void sl_transfer_route_init(struct sl_transfer_route *route, struct sl_transfer_io *io,
                            const char *name);

/* Replaces the list of buffers; takes it over. */
void sl_transfer_route_set_remote(struct sl_transfer_route *route,
                                  struct sl_transfer_remote *remote);

/* Finds the memory of the peer that the item names. local: that of the item. Errors: INVALID, or
 * that of a peer that is gone; with *text. */
int sl_transfer_route_resolve(const struct sl_transfer_route *route,
                              const struct sl_transfer_region *local, struct sl_transfer_item *item,
                              const char **text);

/* Starts a part: its `over` follows in a later turn. */
void sl_transfer_route_add(struct sl_transfer_route *route, struct sl_transfer_part *part);

/* The part sends nothing more. Returns true if it is over; else `over` follows when the slices in
 * flight are answered. */
bool sl_transfer_route_stop(struct sl_transfer_route *route, struct sl_transfer_part *part);

/* Ends the lanes that have slices of the part in flight. Not in an upcall. */
void sl_transfer_route_break(struct sl_transfer_route *route, const struct sl_transfer_part *part,
                             const char *why);

/* The peer is gone for good: all parts fail, also later ones. */
void sl_transfer_route_fail(struct sl_transfer_route *route, int err, const char *reason);

/* No part may be left. */
void sl_transfer_route_fini(struct sl_transfer_route *route);

/* WRITEs may still be applied: nothing is sent. The counter is raised before a batch ends with
 * them, so a thread that submits the next batch, to any reactor, has seen the new value. */
static inline bool sl_transfer_route_is_fencing(const struct sl_transfer_route *route)
{
    return atomic_load_explicit(route->fences, memory_order_acquire) > 0;
}

static inline const struct sl_transfer_device *
sl_transfer_route_device(const struct sl_transfer_route *route,
                         const struct sl_transfer_route_rail *rail)
{
    return &route->io->devices[rail->pair->device];
}

#endif
