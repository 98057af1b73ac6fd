/* Trains one worker's share: every step pulls what a batch needs, computes, pushes, and ticks.
 *
 * While a batch is computed on, the loader's thread prepares the next ones. In ASP and in SSP with
 * a staleness of at least 1, the parameters of the next batch are under way meanwhile: they are
 * asked for when the batch before it has been pushed. In BSP and SSP(0) the worker waits for them.
 *
 * The push of batch i, its tick and the pull for the next batch asked for are one step: by
 * "star_server_lite" one message a shard. Only in SSP with a staleness of at least 1 the pull is a
 * step of its own: it is for iteration i + 2, and must carry that clock, not that behind the tick,
 * or it would wait for too little.
 *
 * A worker that has no more data finishes its clock with its last push and holds nobody up. Given
 * the same files and number of workers, what a worker reads, and in BSP every bit of what it
 * pushes, is the same in every run.
 *
 * Iteration i trains on the i-th batch of the share, counted through all epochs. A worker begins
 * with the iteration that its client says: in the place of one that was lost, or in a job that
 * runs, it reads over the batches before. */
#ifndef SL_WORKER_TRAIN_TRAINER_H
#define SL_WORKER_TRAIN_TRAINER_H

#include <signal.h>
#include <stdbool.h>

#include "core/clock.h"
#include "worker/train/model.h"
#include "worker/train/train_report.h"

struct sl_trainer_options {
    struct sl_client *client;
    uint32_t worker_index, worker_count; /* the index may be beyond, of a worker that joined */
    const struct sl_model *model;
    struct sl_model_shape shape;
    struct sl_optimizer_spec optimizer;     /* of all of the model's tables */
    struct sl_consistency_spec consistency; /* as asked for; worker_count is filled in */
    uint32_t epochs, batch_rows;
    const struct sl_reader_options *test; /* to score after training; NULL: nobody does */
    uint32_t step_timeout_ms;
    uint32_t start_timeout_ms;         /* how long to wait for other workers to start */
    uint32_t barrier_timeout_ms;       /* and to finish */
    const volatile sig_atomic_t *stop; /* not 0: finish the step and leave */
    volatile sig_atomic_t *waiting;    /* set to 1 while it waits for the other workers */
    bool quiet;                        /* no progress */
    const struct sl_clock *clock;
};

/* Trains on `train`, then the worker of the lowest index that is still there scores the test data.
 * Owns the reader from now on. *report gets what was measured, also on failure; its job is the
 * caller's; `complete` tells whether the training was done. Errors, logged with the reason: those
 * of the client and the readers; CANCELLED after *stop. */
int sl_trainer_run(const struct sl_trainer_options *options, struct sl_reader *train,
                   struct sl_train_report *report);

/* Batches whose parameters are under way while one is computed on: 0 or 1. */
uint32_t sl_trainer_lead(const struct sl_consistency_spec *consistency);

#endif
