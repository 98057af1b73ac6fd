/* The dispatcher passes accepted requests to workers and takes their answers. It repeats requests
 * of workers that are lost, and answers those whose deadline passes. It knows the workers of a
 * gateway, from their notices. Owner: the gateway's reactor. */
#ifndef SL_SERVE_DISPATCH_H
#define SL_SERVE_DISPATCH_H

#include "programs/serve/gateway/admission.h"
#include "programs/serve/gateway/flight.h"
#include "programs/serve/gateway/gateway.h"

struct sl_serve_dispatch {
    /* Of the gateway. */
    struct sl_reactor *reactor;
    const char *list_reason;  /* why the catalogue does not answer */
    void (*ended)(void *ctx); /* a request, or what was left of a worker */
    void *ctx;
    /* Shared with it. */
    struct sl_serve_balance balance;
    struct sl_serve_admission admission;
    struct sl_serve_remote_events events; /* async and post are the gateway's */
    struct sl_serve_flights flights;      /* free_memory too */
    struct sl_serve_gateway_stats stats;
    /* Private */
    struct sl_list remotes;
    struct sl_timer due;
    bool is_stopping;
};

/* Before the members of the gateway are set. */
void sl_serve_dispatch_init(struct sl_serve_dispatch *dispatch, enum sl_serve_strategy strategy,
                            struct sl_transfer *transfer);
void sl_serve_dispatch_fini(struct sl_serve_dispatch *dispatch);

/* Gives up all workers: `ended` runs when the last one is gone. No request is left. */
void sl_serve_dispatch_stop(struct sl_serve_dispatch *dispatch);

/* A notice; ctx: the dispatcher. */
void sl_serve_dispatch_arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                               struct sl_transfer_asked *asked);

/* Sends what can be sent. After each change of the queue, or of memory that workers use. */
void sl_serve_dispatch_run(struct sl_serve_dispatch *dispatch);

/* Ends an accepted request: without an answer; with this error. */
void sl_serve_dispatch_end(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request);
void sl_serve_dispatch_fail(struct sl_serve_dispatch *dispatch, struct sl_serve_request *request,
                            int err, const char *text);

#endif
