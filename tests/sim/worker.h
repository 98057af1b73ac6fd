/* A client process of a simulated cluster: a worker that trains, or the observer. The real client,
 * led through its life without blocking: start, tables, barrier, iterations, end. One thread. */
#ifndef SL_TESTS_SIM_WORKER_H
#define SL_TESTS_SIM_WORKER_H

#include "tests/sim/work.h"
#include "worker/client/client_internal.h"
#include "worker/client/table_opening.h"

#define SL_SIM_WORKS_MAX 48 /* steps of one client under way */

enum sl_sim_stage {
    SL_SIM_STAGE_STARTING,
    SL_SIM_STAGE_OPENING,
    SL_SIM_STAGE_BARRIER,
    SL_SIM_STAGE_TRAINING,
    SL_SIM_STAGE_FINISHING,
    SL_SIM_STAGE_CLOSING,
    SL_SIM_STAGE_DEAD /* its memory is free */
};

struct sl_sim_worker_options {
    struct sl_sim_network *network;
    struct sl_sim_oracle *oracle;
    const struct sl_sim_plan *plan;
    const void *secret;
    size_t secret_bytes;
    uint32_t host, task; /* task UINT32_MAX: the observer */
    bool joins;          /* a worker beyond the job's count */
    uint64_t seed, offset_ns;
    /* A step has ended, and is freed when this returns. May be NULL. */
    void (*ended)(void *ctx, struct sl_sim_work *work, int err);
    void *ctx;
};

struct sl_sim_worker {
    struct sl_sim_process process;
    struct sl_sim_worker_options options;
    enum sl_sim_stage stage;
    enum sl_sim_shape shape;
    uint64_t random;
    uint32_t instance;
    struct sl_client *client;
    struct sl_table *tables[SL_SIM_TABLES_MAX];
    struct sl_table_opening opening;
    bool is_opening;
    uint32_t opened;
    struct sl_control_op barrier;
    bool in_barrier;
    uint64_t stage_ns, late_ns; /* when the stage began; when its deadline was found over */
    uint64_t deadline_ns;       /* of the stage, by its own clock */
    uint64_t stage_paused_ns;

    uint32_t clock, phase;
    uint32_t failures; /* in a row */
    uint64_t next_ns;  /* when to begin the next step; the network's time */
    struct sl_sim_work works[SL_SIM_WORKS_MAX];
    bool working[SL_SIM_WORKS_MAX];
    uint32_t work_count;

    bool started;        /* the cluster knows it */
    bool wants_to_leave; /* after the step under way */
    bool failed;         /* it gives up: somebody may take its place */
    bool finished;       /* its task is done */
};

void sl_sim_worker_start(struct sl_sim_worker *worker, const struct sl_sim_worker_options *options);

/* Does what can be done now; after each step of its process, and when something else is due. */
void sl_sim_worker_poll(struct sl_sim_worker *worker);

/* It is gone from one moment to the next, and its memory is freed. Also when it has closed. */
void sl_sim_worker_kill(struct sl_sim_worker *worker, bool silent);

/* Begins to close in good order, once its steps have ended. */
void sl_sim_worker_close(struct sl_sim_worker *worker);

static inline bool sl_sim_worker_is_idle(const struct sl_sim_worker *worker)
{
    return worker->stage == SL_SIM_STAGE_TRAINING && worker->work_count == 0;
}

/* The observer: begins a step of its own. NULL: not now. */
struct sl_sim_work *sl_sim_worker_begin(struct sl_sim_worker *worker, uint32_t clock);
void sl_sim_worker_submit(struct sl_sim_worker *worker, struct sl_sim_work *work,
                          uint32_t timeout_ms);

#endif
