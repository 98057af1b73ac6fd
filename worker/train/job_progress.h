/* What the job as a whole has reached, for workers that come later than others: a replacement must
 * not wait at a barrier that the others have passed. Kept in a table of its own on the ps, as a
 * count of workers that said so, so that it outlives each of them. Pulls and pushes of it never
 * wait for clocks. The trainer's thread. */
#ifndef SL_WORKER_TRAIN_JOB_PROGRESS_H
#define SL_WORKER_TRAIN_JOB_PROGRESS_H

#include <starling.h>

#define SL_JOB_PROGRESS_TABLE "starling-worker/milestones"

enum sl_job_progress {
    SL_JOB_PROGRESS_STARTED = 0,   /* all workers were there, and began to train */
    SL_JOB_PROGRESS_EVALUATED = 1, /* the model was evaluated, or could not be */
    SL_JOB_PROGRESS_FAILED = 2,    /* ... it could not be; reached before EVALUATED */
};

struct sl_milestones {
    struct sl_client *client;
    struct sl_table *table; /* NULL: not opened */
    uint32_t timeout_ms;    /* of each step */
};

/* Errors, logged: those of sl_client_table_open. */
int sl_job_progress_open(struct sl_milestones *milestones, struct sl_client *client,
                         uint32_t timeout_ms);

/* The job has reached it. Errors, logged: those of a step. */
int sl_job_progress_reach(const struct sl_milestones *milestones, enum sl_job_progress milestone);

/* Whether any worker has said so. Errors, logged: those of a step. */
int sl_job_progress_is_reached(const struct sl_milestones *milestones,
                               enum sl_job_progress milestone, bool *out);

#endif
