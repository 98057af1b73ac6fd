/* The runner of a worker answers the requests of open models: it chooses the oldest that can be
 * computed, takes others of its model along, and computes them on a thread, one batch at a time.
 * Owner: the worker's reactor. */
#ifndef SL_SERVE_RUNNER_H
#define SL_SERVE_RUNNER_H

#include "programs/serve/worker/model_table.h"
#include "programs/serve/worker/worker.h"
#include "reactor/offload.h"

struct sl_serve_runner {
    /* Of the worker */
    const struct sl_serve_worker_options *options;
    struct sl_reactor *reactor;
    struct sl_serve_model_table *models;
    struct sl_list *queue; /* pendings, by arrival */
    void (*post)(void *ctx, struct sl_offload_job *job);
    void (*ended)(void *ctx); /* a job has ended */
    void *ctx;

    /* Private */
    struct sl_offload_job job;
    struct sl_serve_model_entry *entry; /* NULL: there is no job */
    struct sl_serve_version *version;
    struct sl_serve_batch batch; /* empty: the job waits for all bytes, for LOAD */
    uint64_t begun_ns, deadline_ns;
    struct sl_serve_times times;
    float layers[SL_SERVE_LAYERS_MAX];
    int err;
    struct sl_reason reason;
    const struct sl_serve_model_entry
        *stalled; /* its bytes did not come: others are computed first */
    uint8_t *scratch;
    uint64_t scratch_bytes;
    bool is_pinned;
};

/* The members of the worker are set, others are zero. */
void sl_serve_runner_init(struct sl_serve_runner *runner);
/* No job is in progress. */
void sl_serve_runner_fini(struct sl_serve_runner *runner);

static inline bool sl_serve_runner_is_busy(const struct sl_serve_runner *runner)
{
    return runner->entry != NULL;
}

/* Begins the next job, if there is none; answers requests that need none. */
void sl_serve_runner_next(struct sl_serve_runner *runner);

/* The gateway has gone: its requests of the batch that is computed need no answers. */
struct sl_serve_peer;
void sl_serve_runner_forget(struct sl_serve_runner *runner, const struct sl_serve_peer *peer);

/* Whether the batch that is computed takes ten times as long as runs before, longer than all
 * deadlines of its requests, and longer than least_ns. */
bool sl_serve_runner_is_stuck(const struct sl_serve_runner *runner, uint64_t least_ns);

/* Expected ns until the batch that is computed ends. */
double sl_serve_runner_left_ns(const struct sl_serve_runner *runner);

#endif
