/* The opener of a worker decides which model is opened or closed next, and does it on a thread, one
 * at a time: first it closes what is of no more use, then it opens the model of the oldest request
 * that has none open, then a newer version of an open one. Owner: the worker's reactor. */
#ifndef SL_SERVE_OPENER_H
#define SL_SERVE_OPENER_H

#include "programs/serve/worker/model_table.h"
#include "programs/serve/worker/worker.h"
#include "reactor/offload.h"

struct sl_serve_opener {
    /* Of the worker */
    const struct sl_serve_worker_options *options;
    struct sl_reactor *reactor;
    struct sl_serve_model_table *models;
    struct sl_list *queue; /* pendings, by arrival */
    void (*post)(void *ctx, struct sl_offload_job *job);
    /* A job has ended. err: the model cannot be opened, for entry->reason. */
    void (*opened)(void *ctx, struct sl_serve_model_entry *entry, int err);
    void *ctx;

    /* Private */
    struct sl_offload_job job;
    struct sl_serve_model_entry *entry; /* NULL: there is no job */
    uint64_t full_ns;                   /* when the pool last had no room; 0: never */
    struct sl_serve_open open;          /* name NULL: only closes */
    uint64_t newest; /* version, when the job began that opens it beside another */
    struct sl_serve_search search;
    struct sl_list old; /* versions that are closed first */
    struct sl_subscription *spare, *subscription;
    struct sl_serve_version *made;
    int err;
    struct sl_reason reason;
};

static inline bool sl_serve_opener_is_busy(const struct sl_serve_opener *opener)
{
    return opener->entry != NULL;
}

/* Begins the next job, if there is none and something is to be done. */
void sl_serve_opener_next(struct sl_serve_opener *opener);

#endif
