/* A thread context is the port of an application thread to the reactors of a client
 * (reactor/port.h), with the steps of that thread.
 *
 * Its work is bounded so that no lane is ever full: a step posts one mail to each reactor and
 * receives at most two; a control operation, one and one, and as many when it is cancelled. */
#ifndef SL_WORKER_CLIENT_THREAD_CTX_H
#define SL_WORKER_CLIENT_THREAD_CTX_H

#include <stdint.h>

#include "core/metrics.h"
#include "reactor/port.h"
#include "worker/client/client_cells.h"

struct sl_step;

/* Limit of steps of one thread context that are submitted and not returned. */
#define SL_THREAD_CTX_STEPS_MAX 256

struct sl_thread_ctx {
    struct sl_port port;        /* first */
    struct sl_step *steps;      /* all steps created here */
    struct sl_step *free_steps; /* reusable */
    uint32_t steps_out;         /* submitted and not returned */
    uint64_t random;            /* state of sl_hash_random: the seeds of random rounding */
    struct sl_thread_ctx_cells cells;
    struct sl_metrics_source
        metrics; /* of the cells; in the client's registry from the first step */
};

/* `port`: of a client. */
static inline struct sl_thread_ctx *sl_thread_ctx_of(struct sl_port *port)
{
    return (struct sl_thread_ctx *)port;
}

#endif
