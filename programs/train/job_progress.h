/* Job progress records what the job as a whole has reached. A late worker, such as a replacement,
 * then does not wait at a barrier that the others have passed. It is stored in its own table on the
 * servers, as counts of workers, and so outlives each worker. Its pulls and pushes never wait for
 * clocks. The trainer's thread. */
#ifndef SL_PROGRAMS_TRAIN_JOB_PROGRESS_H
#define SL_PROGRAMS_TRAIN_JOB_PROGRESS_H

#include <starling.h>

#define SL_JOB_PROGRESS_TABLE "starling-worker/milestones"

enum sl_job_progress {
    SL_JOB_PROGRESS_STARTED = 0,   /* all workers had joined and began to train */
    SL_JOB_PROGRESS_EVALUATED = 1, /* the model was evaluated and saved, or that failed */
    SL_JOB_PROGRESS_FAILED = 2,    /* it failed; reached before EVALUATED */
    SL_JOB_PROGRESS_ENOUGH = 3,    /* the training ends before the last epoch */
    SL_JOB_PROGRESS_BEST = 4,      /* the first of the rows of struct sl_job_progress_best */
};

/* The best evaluation while the job trains. */
struct sl_job_progress_best {
    uint32_t evaluations; /* since then, with that one; 0: none has ended yet */
    double auc, epoch;
    uint64_t saved_rows; /* of the model that was saved then */
};

struct sl_milestones {
    struct sl_client *client;
    struct sl_table *table; /* NULL: not opened */
    uint32_t timeout_ms;    /* of each step */
};

/* Errors, logged: as sl_client_table_open. */
int sl_job_progress_open(struct sl_milestones *milestones, struct sl_client *client,
                         uint32_t timeout_ms);

/* Records that the job has reached the milestone. Errors, logged: those of a step. */
int sl_job_progress_reach(const struct sl_milestones *milestones, enum sl_job_progress milestone);

/* Withdraws the milestone. Errors, logged: those of a step. */
int sl_job_progress_withdraw(const struct sl_milestones *milestones,
                             enum sl_job_progress milestone);

/* Record and read the best evaluation. Errors, logged: those of a step. */
int sl_job_progress_set_best(const struct sl_milestones *milestones,
                             const struct sl_job_progress_best *best);
int sl_job_progress_get_best(const struct sl_milestones *milestones,
                             struct sl_job_progress_best *out);

/* Writes whether any worker has recorded the milestone. Errors, logged: those of a step. */
int sl_job_progress_is_reached(const struct sl_milestones *milestones,
                               enum sl_job_progress milestone, bool *out);

#endif
