/* A version of a model, open at a worker: its view, the engine that reads it, and the groups in
 * which its bytes arrive. These functions block: a worker calls them on its threads for opening and
 * for computing. A subscription and its views are used by one thread at a time; but once a version
 * is complete, sl_serve_version_run makes no call to the agent, and others may. */
#ifndef SL_SERVE_VERSION_H
#define SL_SERVE_VERSION_H

#include "core/clock.h"
#include "programs/serve/worker/batch.h"
#include "programs/serve/worker/schedule.h"

#define SL_SERVE_LAYERS_MAX 4096

/* Times of earlier runs of a model. Zero at first. */
struct sl_serve_profile {
    uint32_t layer_count;
    struct sl_serve_profile_layer {
        uint64_t image_end;
        float share; /* of run_us */
    } * layers;
    double run_us; /* of a run with as many rows as are expected */
    uint64_t head; /* bytes of the images that an engine's open reads; 0: unknown */
};

struct sl_serve_version {
    struct sl_list_link link; /* the worker's */
    struct sl_view *view;
    const struct sl_engine *engine;
    void *model;
    const struct sl_engine_info *info;
    uint64_t number;
    uint64_t bytes;      /* of all images */
    uint64_t verified;   /* bytes from the beginning that may be read */
    const uint8_t *base; /* where the images lie; NULL: in several places */
    uint64_t head;       /* bytes that the engine's open has read */
    uint64_t resident;   /* bytes that were in the pool before it was opened */
    uint32_t stop_count;
    uint64_t stops[SL_SERVE_GROUPS_MAX]; /* bytes where groups end */
};

struct sl_serve_open {
    struct sl_objects *objects;
    const char *name;
    uint64_t number; /* 0: the newest */
    const struct sl_engine *const *engines;
    uint32_t engine_count, rows_max;
    enum sl_serve_rule rule;
    uint64_t rule_bytes;
    const struct sl_serve_profile *profile;
    double flops_per_us; /* measured with other models */
    uint32_t rows;       /* that are expected */
    struct sl_serve_search *search;
    uint32_t timeout_ms;
};

/* Opens a version as a stream, and its engine as soon as the tensors are there whose names begin
 * with ".". *subscription: NULL: opened too, and then kept, also after an error. The caller owns
 * *out. Errors: those of sl_subscription_open and sl_view_open, and of the engine's open
 * (UNSUPPORTED: no engine computes it); with a reason. */
int sl_serve_version_open(const struct sl_serve_open *open, struct sl_subscription **subscription,
                          struct sl_serve_version **out, struct sl_reason *reason);

/* Nulls *version. */
void sl_serve_version_close(struct sl_serve_version **version);

static inline bool sl_serve_version_is_complete(const struct sl_serve_version *version)
{
    return version->verified >= version->bytes;
}

struct sl_serve_times {
    uint64_t wait_ns, run_ns;
    float *layers; /* [layer_count]: us of each */
    float *waits;  /* [layer_count]: us before each; NULL: not wanted */
};

/* Computes a batch: copies its inputs to the scratch, runs each layer when its bytes are there, and
 * copies the outputs to the requests. A batch without requests only waits for all bytes. Errors:
 * DEADLINE (or bytes have not come for half a second), CANCELLED, CLOSED (as sl_view_wait), those
 * of the engine; with a reason. */
int sl_serve_version_run(struct sl_serve_version *version, const struct sl_serve_batch *batch,
                         uint8_t *scratch, uint64_t deadline_ns, const struct sl_clock *clock,
                         struct sl_serve_times *times, struct sl_reason *reason);

#endif
