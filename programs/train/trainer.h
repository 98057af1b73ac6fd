/* The trainer trains a model on one worker's share: every step pulls the parameters of a batch,
 * computes, pushes, and ticks. Iteration i trains on the i-th batch of the share, counted over all
 * epochs.
 *
 * The loader's thread prepares batches during computation. Under ASP, and SSP with a staleness of
 * at least 1, the parameters of the next batch are prefetched meanwhile. Under BSP and SSP(0) the
 * worker waits for them.
 *
 * The push of batch i, its tick and the next pull form one step: with the batched protocol one
 * message a shard. Under SSP with prefetch the pull is for iteration i + 2. Its staleness check
 * needs a later clock than the tick's, so it is sent as a separate step.
 *
 * A worker without more data finishes its clock with its last push, so that no worker waits for it.
 * A replacement, or a worker that joins a running job, begins at the client's first iteration and
 * skips the batches before. With the same files and number of workers, a worker reads the same data
 * in every run and, under BSP, pushes bitwise the same gradients. */
#ifndef SL_PROGRAMS_TRAIN_TRAINER_H
#define SL_PROGRAMS_TRAIN_TRAINER_H

#include <signal.h>
#include <stdbool.h>

#include "core/clock.h"
#include "programs/models/model.h"
#include "programs/train/reader.h"
#include "programs/train/train_metrics.h"
#include "programs/train/train_report.h"

/* Keeps the model: the tables, opened with specs. *rows: of all sparse tables. Errors, logged. */
typedef int (*sl_trainer_save_fn)(void *ctx, struct sl_table *const *tables,
                                  const struct sl_table_spec *specs, uint32_t table_count,
                                  uint64_t *rows);

struct sl_trainer_tables {
    struct sl_update_spec update;    /* of all tables of the model */
    struct sl_policy_spec policy;    /* of its sparse tables */
    enum sl_precision values, slots; /* likewise */
    enum sl_precision encoding;      /* of messages, both ways; INT8: see set_encoding */
};

struct sl_trainer_options {
    struct sl_client *client;
    uint32_t worker_index, worker_count; /* a worker that joined later may have a larger index */
    const struct sl_model *model;
    struct sl_model_shape shape;
    struct sl_optimizer_spec optimizer; /* of all tables of the model */
    struct sl_trainer_tables tables;    /* what these have besides */
    bool is_lr_given; /* by the user: not only the default, so it holds for restored tables too */
    struct sl_consistency_spec consistency; /* as requested; the trainer sets worker_count */
    uint32_t epochs, batch_rows;
    const struct sl_reader_options *test; /* to score after training; NULL: none */
    double test_every; /* epochs of worker 0 between two evaluations while it trains; 0: none */
    uint32_t patience; /* evaluations without a better AUC that end the training; 0: no limit */
    sl_trainer_save_fn save; /* after training; with test_every, at each better AUC; at *stop, if
                                none is saved; NULL: none */
    void *save_ctx;
    uint32_t step_timeout_ms;
    uint32_t start_timeout_ms;         /* longest wait for other workers to start */
    uint32_t barrier_timeout_ms;       /* and to finish */
    const volatile sig_atomic_t *stop; /* not 0: finish the step and leave */
    volatile sig_atomic_t *waiting;    /* set to 1 while waiting for other workers, with nothing to
                                          save at *stop */
    bool quiet;                        /* no progress output */
    const struct sl_clock *clock;
    struct sl_train_cells *cells; /* of the worker's metrics; NULL: none */
};

/* Trains on `train`; then the active worker with the lowest index scores the test data and saves
 * the model. Owns the reader from now on. Fills *report except `job`, also on failure; `complete`:
 * the training finished. Errors, logged with the reason: those of the client and the readers;
 * CANCELLED after *stop. */
int sl_trainer_run(const struct sl_trainer_options *options, struct sl_reader *train,
                   struct sl_train_report *report);

#endif
