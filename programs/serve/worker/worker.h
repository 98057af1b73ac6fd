/* A worker computes requests of gateways on views of the host's pool. It takes all waiting requests
 * of one model together (batch.h), opens the next model while it computes (version.h), and joins
 * its gateways again after they were away (peer.h).
 *
 * Owner: the first reactor of its engine; `create` and `destroy` wait, and run on another thread.
 * Two threads beside it open and compute; each has one job at a time. Allocates at start, for new
 * models, and until enough requests have been in progress at one time. */
#ifndef SL_SERVE_WORKER_H
#define SL_SERVE_WORKER_H

#include "core/reason.h"
#include "programs/serve/engine/engine.h"
#include "programs/serve/worker/schedule.h"

#define SL_SERVE_PEERS_MAX 16

struct sl_offload_job;
struct sl_serve_worker;

struct sl_serve_worker_options {
    struct sl_transfer *transfer; /* takes its notices named "serve" */
    struct sl_objects *objects;   /* for views; may be a node of this engine */
    const char *const *gateways;  /* names of their engines */
    uint32_t gateway_count;       /* 1 to SL_SERVE_PEERS_MAX */
    const char *host;             /* workers of one label share a pool */
    uint32_t batch_max;           /* rows, 1 to SL_SERVE_BATCH_ROWS_MAX */
    enum sl_serve_rule rule;
    uint64_t rule_bytes;
    const struct sl_engine *const *engines; /* a model is of the first one that opens it */
    uint32_t engine_count;
    int core;             /* of the computing thread; -1: any */
    uint64_t arena_bytes; /* for inputs of each gateway; 0: 64 MiB */
    /* A computation takes ten times as long as expected, longer than all deadlines of its requests,
     * and longer than patience_ns (0: 10 s); or the worker drains for that time. Nothing can stop
     * it but the end of the process, in which other gateways' requests go to other workers. NULL:
     * such a computation goes on. */
    void (*stuck)(void *ctx, const char *model);
    void *stuck_ctx;
    uint64_t patience_ns;
    /* Runs jobs that wait, elsewhere, such as on a fiber of a simulation; each kind in order, as
     * sl_offload_post. NULL: on threads of the worker's own. */
    void (*post)(void *ctx, bool computes, struct sl_offload_job *job);
    void *post_ctx;
};

/* All that `options` names outlives *out. Registers memory: waits. Errors: NO_MEMORY, and those of
 * sl_transfer_memory_create; with a reason. */
int sl_serve_worker_create(const struct sl_serve_worker_options *options,
                           struct sl_serve_worker **out, struct sl_reason *reason);

/* Connects to the gateways. Errors: NO_MEMORY, and those of sl_transfer_async_create; with a
 * reason. Owner. */
int sl_serve_worker_start(struct sl_serve_worker *worker, struct sl_reason *reason);

/* Answers what it has, leaves the gateways, and ends its connections; then drained(ctx) runs once.
 * Owner. */
void sl_serve_worker_drain(struct sl_serve_worker *worker, void (*drained)(void *ctx), void *ctx);

/* After drained, or without a start that succeeded; waits for the agent and for readers of memory.
 * Nulls *worker. */
void sl_serve_worker_destroy(struct sl_serve_worker **worker);

#endif
