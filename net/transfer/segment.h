/* A segment is the registered memory of a peer: a control session, which keeps the list of the
 * peer's buffers up to date, on one reactor (its home), and a route on every reactor.
 * The functions of the public API are in segment.c; any thread calls them. */
#ifndef SL_NET_TRANSFER_SEGMENT_H
#define SL_NET_TRANSFER_SEGMENT_H

#include "net/transfer/directory.h"
#include "net/transfer/route.h"

struct sl_transfer_segment {
    struct sl_list_link link; /* of the engine's, under its lock */
    struct sl_transfer *engine;
    struct sl_transfer_io *home;
    char name[SL_TRANSFER_NAME_BYTES];
    uint64_t client_id;           /* of all hellos to the peer: random */
    struct sl_transfer_call call; /* opens it, or closes it */
    uint32_t timeout_ms;          /* of the opening */
    /* Of an opening by a reactor outside (async.c). */
    struct sl_transfer_segment **out;
    struct sl_list_link opening;
    _Atomic bool is_abandoned; /* set there: it ends soon */
    bool ends_with_process;    /* set there: closed for good once no process listens any more */

    /* The home reactor's. */
    struct sl_transfer_lookup lookup; /* of its record: incarnation 0: any; the first reactor's */
    struct sl_endpoint endpoint;      /* of the control connection; port 0: not found yet */
    uint64_t until_ns;                /* the call's deadline */
    struct sl_session *session;
    uint64_t incarnation; /* 0: not welcomed yet */
    /* What the peer offers; from then on for all reactors. Port 0: not usable. */
    struct sl_endpoint *endpoints;
    uint32_t endpoint_count;
    struct sl_rail rails[SL_TRANSFER_RAILS_MAX];
    uint32_t rail_count;
    struct sl_matrix *matrix;           /* of the peer's NICs; NULL: unknown */
    struct sl_transfer_remote *remote;  /* what the peer has sent so far */
    bool is_listing;                    /* a page is requested: the list is not complete */
    bool is_stale;                      /* the list begins anew when that page comes */
    uint64_t above;                     /* the address that was given for that page */
    struct sl_transfer_work publishing; /* the list has changed */
    uint64_t notice_sequence;           /* of the last notice */
    struct sl_timer open_late;          /* disarmed once the segment is open */
    struct sl_timer fence_look;         /* a close waits for fences */
    struct sl_timer gone;               /* after a disconnect: until the peer counts as ended */
    int err;                            /* not 0: closed for good */
    char reason[SL_TRANSFER_REASON_BYTES];
    uint32_t mails_out; /* to the routes, unanswered */
    bool has_opened, is_closing;
    struct sl_transfer_call watch; /* ends when err is set */
    bool is_watched;

    _Atomic uint32_t fences;           /* unanswered; raised by any reactor, lowered at home */
    struct sl_transfer_route routes[]; /* by reactor */
};

/* (*out)->call, made on its home, opens the segment. If it fails, the segment has to be freed.
 * Errors: INVALID, NO_MEMORY, TOO_LARGE. Any thread. */
int sl_transfer_segment_create(struct sl_transfer *transfer, const char *name, uint32_t timeout_ms,
                               struct sl_transfer_segment **out);

/* segment->call, made again on its home, closes it; then it has to be freed. */
void sl_transfer_segment_prepare_close(struct sl_transfer_segment *segment);

/* Run function of segment->watch: it ends when the segment is closed for good, with the reason. */
void sl_transfer_segment_watch(struct sl_transfer_io *io, struct sl_transfer_call *call);

/* Any thread. */
void sl_transfer_segment_free(struct sl_transfer_segment *segment);

/* Frees all segments of an engine that ends. */
void sl_transfer_segment_close_all(struct sl_transfer *transfer);

#endif
