/* Jobs of a reactor that block (reactor/offload.h): a thread of the application, which is a fiber,
 * runs them in order. One thread. */
#ifndef SL_TESTS_SIM_JOBS_H
#define SL_TESTS_SIM_JOBS_H

#include "reactor/offload.h"
#include "tests/sim/app.h"

struct sl_sim_jobs {
    struct sl_sim_app *app;
    struct sl_mailbox_lane *lane; /* to the reactor */
    struct sl_offload_job *first, **last;
    struct sl_offload_job *running;
    struct sl_completion idle, delivered; /* the fiber waits for a job; for the job's `done` */
    uint32_t count;                       /* that are not done */
    bool is_closed;
};

/* Adds the thread. The lane is the caller's. */
void sl_sim_jobs_init(struct sl_sim_jobs *jobs, struct sl_sim_app *app,
                      struct sl_mailbox_lane *lane);

void sl_sim_jobs_post(struct sl_sim_jobs *jobs, struct sl_offload_job *job);

/* In a thread: waits until all jobs are done, and all other threads of the application have ended.
 * Those of these jobs do. */
void sl_sim_jobs_close(struct sl_sim_jobs *jobs, uint32_t count);

#endif
