/* A segment is the registered memory of a peer: a control session, which keeps the list of the
 * peer's buffers up to date, on one reactor (its home), and a route on every reactor.
 * The functions of the public API are in segment.c; any thread calls them. */
#ifndef SL_NET_TRANSFER_SEGMENT_H
#define SL_NET_TRANSFER_SEGMENT_H

#include "net/transfer/directory.h"
#include "net/transfer/route.h"

/* The list of the peer's buffers. */
enum sl_transfer_list_state {
    SL_TRANSFER_LIST_COMPLETE,
    SL_TRANSFER_LIST_REQUESTED, /* a page is requested */
    SL_TRANSFER_LIST_OUTDATED   /* a page is requested; the list begins anew when the page comes */
};

struct sl_transfer_segment {
    struct sl_list_link link; /* of the engine's, under its lock */
    struct sl_transfer *engine;
    struct sl_transfer_io *home;
    char name[SL_TRANSFER_NAME_BYTES];
    uint64_t client_id;           /* of all hellos to the peer: random */
    struct sl_transfer_call call; /* opens it, or closes it */
    bool ends_with_process; /* set in async.c: closed for good once no process listens any more */
    struct {
        uint32_t timeout_ms;
        bool is_done;
        struct sl_timer late; /* until it is done */
        /* By async.c, on the first reactor. */
        struct sl_transfer_segment **out;
        struct sl_list_link link;
        _Atomic bool is_abandoned; /* set there: it ends soon */
    } opening;

    /* The home reactor's. */
    struct sl_transfer_lookup lookup; /* of its record: incarnation 0: any; the first reactor's */
    struct sl_endpoint endpoint;      /* of the control connection; port 0: not found yet */
    uint64_t until_ns;                /* the call's deadline */
    struct sl_session *session;
    uint64_t incarnation; /* 0: not welcomed yet */
    struct {
        struct sl_endpoint *endpoints; /* port 0: not usable */
        uint32_t endpoint_count;
        struct sl_rail rails[SL_TRANSFER_RAILS_MAX];
        uint32_t rail_count;
        struct sl_matrix *matrix; /* of the peer's NICs; NULL: unknown */
    } offer;                      /* of the peer; from then on for all reactors */
    struct {
        struct sl_transfer_remote *remote; /* what the peer has sent so far */
        enum sl_transfer_list_state state;
        uint64_t above;                     /* the address that was given for the page */
        struct sl_transfer_work publishing; /* it has changed */
    } list;
    uint64_t notice_sequence; /* of the last notice */
    struct sl_list asking;    /* notices without their answer yet, ascending */
    struct sl_timer gone;     /* after a disconnect: until the peer counts as ended */
    int err;                  /* not 0: closed for good */
    char reason[SL_TRANSFER_REASON_BYTES];
    uint32_t mails_out; /* to the routes, unanswered */
    bool is_closing;
    struct {
        struct sl_transfer_call call; /* ends when err is set */
        bool is_on;
        bool ends_with_connection; /* a lost connection closes the segment for good */
    } watch;
    struct {
        _Atomic uint32_t count; /* unanswered; raised by any reactor, lowered at home */
        struct sl_timer look;   /* a close waits for fences */
    } fences;
    struct sl_transfer_route routes[]; /* by reactor */
};

/* (*out)->call, made on its home, opens the segment. If it fails, the segment has to be freed.
 * Errors: INVALID, NO_MEMORY, TOO_LARGE. Any thread. */
int sl_transfer_segment_create(struct sl_transfer *transfer, const char *name, uint32_t timeout_ms,
                               struct sl_transfer_segment **out);

/* segment->call, made again on its home, closes it; then it has to be freed. */
void sl_transfer_segment_prepare_close(struct sl_transfer_segment *segment);

/* Run function of segment->watch.call: it ends when the segment is closed for good, with the
 * reason. */
void sl_transfer_segment_watch(struct sl_transfer_io *io, struct sl_transfer_call *call);

/* Any thread. */
void sl_transfer_segment_free(struct sl_transfer_segment *segment);

/* Frees all segments of an engine that ends. */
void sl_transfer_segment_close_all(struct sl_transfer *transfer);

#endif
