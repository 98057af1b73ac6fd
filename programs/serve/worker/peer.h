/* A peer is a gateway as a worker sees it: the segment to it, the memory into which it WRITEs
 * inputs, and the notices to it. A worker joins each of its gateways, and joins again after a
 * gateway was away. Owner: the worker's reactor. */
#ifndef SL_SERVE_PEER_H
#define SL_SERVE_PEER_H

#include "net/transfer/async.h"
#include "programs/serve/base/message.h"
#include "programs/serve/worker/worker.h"
#include "reactor/reactor.h"

/* A notice on its way, perhaps with a WRITE before it. Storage of the caller until `done`. */
struct sl_serve_send {
    void (*done)(struct sl_serve_send *send);
    void *ctx;
    struct sl_serve_peer *peer;
    struct sl_transfer_batch *batch; /* created by the first WRITE, and then kept */
};

struct sl_serve_peer {
    /* Of the worker, set before start. */
    const struct sl_serve_worker_options *options;
    const char *address;
    struct sl_transfer_async *async;
    struct sl_serve_message *message; /* a place to make notices in */
    void *arena;
    /* The gateway's requests need no answers any more. */
    void (*gone)(struct sl_serve_peer *peer);
    void (*idle)(struct sl_serve_peer *peer); /* after stop: nothing is in progress */
    void *ctx;
    uint64_t seen; /* the worker's number of the last change that was reported */
    struct {
        bool is_sent, is_confirmed; /* by the gateway */
    } leave;

    /* Private */
    enum sl_serve_peer_state {
        SL_SERVE_PEER_AWAY,
        SL_SERVE_PEER_OPENING,
        SL_SERVE_PEER_OPEN,
        SL_SERVE_PEER_FAILED, /* the next turn tells the worker */
        SL_SERVE_PEER_CLOSING /* what is being sent ends first */
    } state;
    bool is_stopping, has_warned;
    uint32_t sending;
    struct sl_transfer_segment *segment;
    struct {
        struct sl_serve_send send; /* JOIN, LEAVE, LOAD: one at a time */
        bool is_busy;
    } own;
    struct sl_timer timer;
};

/* Connects until stop, and sends JOIN each time. */
void sl_serve_peer_start(struct sl_serve_peer *peer);

/* Closes the segment; `idle` runs once, in this turn or a later one. */
void sl_serve_peer_stop(struct sl_serve_peer *peer);

static inline bool sl_serve_peer_is_open(const struct sl_serve_peer *peer)
{
    return peer->state == SL_SERVE_PEER_OPEN;
}

/* Whether it is open, and its engine has this incarnation: its notices may come under a name that
 * is not its address. */
bool sl_serve_peer_is(const struct sl_serve_peer *peer, uint64_t incarnation);

/* Sends *peer->message, after `bytes` bytes at `local` were WRITTEN to `remote` (0: none). done
 * runs once, perhaps at once, also if the notice has not arrived: then the peer is connected again.
 * Only while it is open. */
void sl_serve_peer_send(struct sl_serve_peer *peer, struct sl_serve_send *send, void *local,
                        uint64_t remote, uint64_t bytes);

/* The same without WRITE and callback, for JOIN, LEAVE and LOAD. False: another one is on its way;
 * try again later. */
bool sl_serve_peer_tell(struct sl_serve_peer *peer);

#endif
