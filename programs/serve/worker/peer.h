/* A peer is a gateway as a worker sees it: the segment to it, the memory into which it WRITEs
 * inputs, the notices and the outputs to it. A worker joins each of its gateways, and joins again
 * after a gateway was away. Owner: the worker's reactor. */
#ifndef SL_SERVE_PEER_H
#define SL_SERVE_PEER_H

#include "core/backoff.h"
#include "net/transfer/async.h"
#include "programs/serve/base/message.h"
#include "programs/serve/worker/worker.h"
#include "reactor/reactor.h"

/* A WRITE on its way. Storage of the caller until `done`. */
struct sl_serve_write {
    void (*done)(struct sl_serve_write *write, int err);
    struct sl_serve_peer *peer;
    struct sl_transfer_batch *batch; /* created by the first one, and then kept */
};

struct sl_serve_peer {
    /* Of the worker, set before start. */
    const struct sl_serve_worker_options *options;
    struct sl_reactor *reactor;
    const char *address;
    struct sl_transfer_async *async;
    struct sl_serve_message *message; /* a place to make notices in */
    void *arena;
    /* The gateway's requests need no answers any more. */
    void (*gone)(struct sl_serve_peer *peer);
    void (*idle)(struct sl_serve_peer *peer); /* after stop: nothing is in progress */
    void *ctx;
    uint64_t seen;         /* the worker's number of the last change that was reported */
    uint64_t last_request; /* the gateway's number of the last INFER; 0: none */
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
    uint32_t sending; /* notices and WRITEs */
    struct sl_transfer_segment *segment;
    bool is_telling; /* JOIN, LEAVE, LOAD: one at a time */
    struct sl_timer timer;
    struct sl_backoff backoff;
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

/* WRITEs the bytes into the gateway's memory. done runs once, perhaps at once; after an error the
 * peer is connected again. Only while it is open. */
void sl_serve_peer_write(struct sl_serve_peer *peer, struct sl_serve_write *write, void *local,
                         uint64_t remote, uint64_t bytes);

/* Sends *peer->message: JOIN, LEAVE or LOAD. If it does not arrive, the peer is connected again.
 * False: another one is on its way, or it is not open; try again later. */
bool sl_serve_peer_tell(struct sl_serve_peer *peer);

#endif
