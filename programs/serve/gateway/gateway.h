/* A gateway takes requests of a front end, such as HTTP, and passes each to a worker, which it
 * chooses by what workers have reported (balance.h). It answers every request that it accepts, at
 * the latest 0.1 s after its deadline (admission.h). Gateways share no state.
 *
 * Workers join by themselves (message.h). Inputs are WRITTEN from the gateway's memory into the
 * worker's; outputs into memory of the gateway that only this worker writes, until it has left.
 *
 * Owner: the first reactor of its engine; `create` and `destroy` wait, and run on another thread.
 * Allocates at start, for each worker and each model, and until enough requests have been in
 * progress at one time. */
#ifndef SL_SERVE_GATEWAY_H
#define SL_SERVE_GATEWAY_H

#include <stdbool.h>

#include "programs/serve/base/request.h"
#include "programs/serve/gateway/balance.h"

struct sl_offload_job;
struct sl_serve_gateway;

struct sl_serve_gateway_options {
    struct sl_transfer *transfer; /* takes its notices named "serve" */
    struct sl_objects *objects;   /* for the list of models; may be a node of this engine */
    enum sl_serve_strategy strategy;
    uint64_t memory_bytes; /* for inputs of all requests; 0: 256 MiB */
    /* Runs jobs that wait, in order, elsewhere, such as on a fiber of a simulation. NULL: on a
     * thread of the gateway's own. */
    void (*post)(void *ctx, struct sl_offload_job *job);
    void *post_ctx;
};

/* All that `options` names outlives *out. Registers memory: waits. Errors: NO_MEMORY, and those of
 * sl_transfer_memory_create; with a reason. */
int sl_serve_gateway_create(const struct sl_serve_gateway_options *options,
                            struct sl_serve_gateway **out, struct sl_reason *reason);

/* Takes workers and requests from now on. Errors: NO_MEMORY, and those of sl_transfer_async_create;
 * with a reason. Owner. */
int sl_serve_gateway_start(struct sl_serve_gateway *gateway, struct sl_reason *reason);

/* Ends: no request is left. Tells no worker; ended(ctx) runs when nothing is in progress any more.
 * Then `destroy`, which nulls *gateway; also without a start, or after one that failed. */
void sl_serve_gateway_stop(struct sl_serve_gateway *gateway, void (*ended)(void *ctx), void *ctx);
void sl_serve_gateway_destroy(struct sl_serve_gateway **gateway);

/* Whether `done` of every submitted request has run. */
bool sl_serve_gateway_is_idle(const struct sl_serve_gateway *gateway);

/* Refuses further requests, and after 8 s those that are in progress. drained(ctx) runs once none
 * is, in a later turn. */
void sl_serve_gateway_drain(struct sl_serve_gateway *gateway, void (*drained)(void *ctx),
                            void *ctx);

/* Memory for the inputs of one request, at most SL_SERVE_BODY_BYTES_MAX, aligned to 64 bytes. NULL:
 * there is no room at present. After `submit` of a request with it, `cancel` or `release` free it;
 * before, sl_serve_gateway_memory_free does. */
uint8_t *sl_serve_gateway_memory(struct sl_serve_gateway *gateway, uint64_t bytes);
void sl_serve_gateway_memory_free(struct sl_serve_gateway *gateway, uint8_t *memory);

/* Takes a request, zero but for the front end's part. `done` runs once, in a later turn. Then the
 * front end reads the answer, and calls `release`: outputs end there. */
void sl_serve_gateway_submit(struct sl_serve_gateway *gateway, struct sl_serve_request *request);
void sl_serve_gateway_release(struct sl_serve_gateway *gateway, struct sl_serve_request *request);

/* Instead of both: the answer is not needed any more; `done` does not run. */
void sl_serve_gateway_cancel(struct sl_serve_gateway *gateway, struct sl_serve_request *request);

/* The versions of all objects, by name and version, at most 2 s old. NULL: the catalogue has not
 * answered yet. Valid during this turn. */
const struct sl_object_list *sl_serve_gateway_models(const struct sl_serve_gateway *gateway);

/* Those of one name: returns their number, and sets *first. 0: unknown. */
uint64_t sl_serve_gateway_versions(const struct sl_serve_gateway *gateway, const char *model,
                                   const struct sl_object_entry **first);

struct sl_serve_gateway_stats {
    uint64_t accepted;                    /* requests */
    uint64_t results[SL_SERVE_RESULTS];   /* of requests, also of those that were not accepted */
    uint64_t repeated;                    /* sent once more: another worker, more room */
    uint64_t lost_workers;                /* ended without LEAVE, or unreachable */
    uint32_t waiting, running;            /* requests now */
    uint32_t workers;                     /* joined now */
    uint32_t able_workers;                /* of these: 0: not ready */
    uint64_t memory_bytes, memory_in_use; /* for inputs */
    bool is_draining;
    bool has_models; /* the catalogue has answered */
};

void sl_serve_gateway_stats(const struct sl_serve_gateway *gateway,
                            struct sl_serve_gateway_stats *out);

#endif
