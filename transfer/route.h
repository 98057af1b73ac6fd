/* A route is what one reactor has of a segment: its lanes, the list of the peer's buffers, and the
 * parts of batches that wait for a turn. Owner reactor. */
#ifndef SL_TRANSFER_ROUTE_H
#define SL_TRANSFER_ROUTE_H

#include <stdatomic.h>

#include "transfer/lane.h"
#include "transfer/mapped.h"

struct sl_transfer_segment;

/* A buffer of the peer. */
struct sl_transfer_remote_buffer {
    uint64_t address, bytes, key;
    unsigned access; /* sl_transfer_access */
    bool is_mapped;  /* through shared memory, by the token */
    struct sl_transport_rma_token token;
    char location[SL_TRANSFER_LOCATION_BYTES];
};

/* The peer's buffers, by ascending address: a snapshot. */
struct sl_transfer_remote {
    uint32_t count;
    struct sl_transfer_remote_buffer buffers[];
};

struct sl_transfer_route {
    struct sl_transfer_io *io;
    const char *name;                    /* of the segment */
    struct sl_transfer_remote *remote;   /* owned; NULL: not known yet */
    const struct sl_endpoint *endpoints; /* of the peer's reactors; the segment's */
    uint32_t endpoint_count;
    uint64_t incarnation, client_id;
    int err; /* not 0: the peer is gone for good; `reason` */
    char reason[SL_TRANSFER_REASON_BYTES];
    struct sl_transfer_lane *lanes;       /* [lane_count]; opened at the first use */
    uint32_t lane_count;                  /* 0: not opened, or closed since they were idle */
    uint64_t used_ns;                     /* when a part was last in progress */
    struct sl_transfer_schedule schedule; /* of the lanes */
    struct sl_transfer_mapped mapped;
    struct sl_transfer_schedule mapped_schedule;
    struct sl_list parts; /* all that are not over */
    struct sl_timer stall;
    struct sl_transfer_work work;
    /* A lane was lost with WRITEs that may still be applied: the segment has them fenced, and
     * counts it in *fences at once. While that is not 0, nothing is sent; then the route is woken.
     */
    void (*fence)(struct sl_transfer_route *route, uint32_t lane, uint64_t epoch);
    _Atomic uint32_t *fences;
    struct sl_transfer_part *building[2]; /* batch.c: of the batch that is checked; by is_mapped */
};

void sl_transfer_route_init(struct sl_transfer_route *route, struct sl_transfer_io *io,
                            const char *name);

/* Replaces the list of buffers; takes it over. */
void sl_transfer_route_set_remote(struct sl_transfer_route *route,
                                  struct sl_transfer_remote *remote);

/* Finds the memory of the peer that the item names. Errors: INVALID, or that of a peer that is
 * gone; with *text. */
int sl_transfer_route_resolve(const struct sl_transfer_route *route, struct sl_transfer_item *item,
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

/* Writes why the peer has not answered: one clause for each lane. */
void sl_transfer_route_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes);

#endif
