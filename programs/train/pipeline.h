/* The pipeline moves batches through a worker: load, pull, compute, push. A lane holds one batch
 * with its parameters and gradients. One step may push one lane and pull another, in one round trip
 * to each shard. The pipeline waits for steps in order of submission. Owned by one thread. */
#ifndef SL_PROGRAMS_TRAIN_PIPELINE_H
#define SL_PROGRAMS_TRAIN_PIPELINE_H

#include <stdbool.h>

#include "core/clock.h"
#include "programs/models/model.h"
#include "programs/train/loader.h"
#include "programs/train/train_report.h"

/* One in computation, two that wait for parameters or their push, one loading. */
#define SL_PIPELINE_LANES 4
#define SL_PIPELINE_STEPS 8

struct sl_pipeline_lane {
    struct sl_batch *batch;
    float *params[SL_MODEL_TABLES];
    float *grads[SL_MODEL_TABLES]; /* NULL if nothing is pushed */
    size_t room[SL_MODEL_TABLES];  /* floats allocated in params and in grads */
    bool pulled;                   /* params are valid */
};

struct sl_pipeline_step {
    struct sl_step *step;
    struct sl_pipeline_lane *pushes; /* or NULL; its batch is returned when the step is done */
    struct sl_pipeline_lane *pulls;  /* or NULL */
    uint64_t submitted_ns;
};

struct sl_pipeline_options {
    struct sl_client *client;
    struct sl_table *const *tables; /* [table_count], opened with specs */
    const struct sl_table_spec *specs;
    uint32_t table_count;
    uint32_t step_timeout_ms;
    bool pushing; /* lanes have gradients */
    float rate;   /* factor of the tables' learning rate; 0: none */
    uint32_t
        staleness_added; /* added to a step's staleness: iterations between its clock and the use */
    const struct sl_clock *clock;
    struct sl_train_report *report; /* receives latencies, staleness, waiting and reading seconds */
};

struct sl_pipeline {
    struct sl_pipeline_options options;
    struct sl_loader *loader;
    struct sl_pipeline_lane lanes[SL_PIPELINE_LANES];
    uint32_t loaded_count; /* lanes used so far; the next index is this modulo SL_PIPELINE_LANES */
    struct sl_pipeline_step steps[SL_PIPELINE_STEPS];
    uint32_t submitted_count, finished_count;
    char reason[768];
};

enum sl_pipeline_tick { SL_PIPELINE_NO_TICK, SL_PIPELINE_TICK, SL_PIPELINE_FINISH };

/* The caller keeps the loader. */
void sl_pipeline_init(struct sl_pipeline *pipeline, const struct sl_pipeline_options *options,
                      struct sl_loader *loader);

/* Waits for outstanding steps before freeing. */
void sl_pipeline_fini(struct sl_pipeline *pipeline);

/* Loads the next batch into a lane. Returns 1, 0 at the end, or an error with the reason. */
int sl_pipeline_load(struct sl_pipeline *pipeline, struct sl_pipeline_lane **lane);

/* Sends one step of iteration `clock`: pushes one lane's gradients, ticks, and pulls for another
 * lane (after a tick: as of clock + 1). Either lane may be NULL. Errors with the reason. */
int sl_pipeline_submit(struct sl_pipeline *pipeline, uint32_t clock,
                       struct sl_pipeline_lane *pushes, enum sl_pipeline_tick tick,
                       struct sl_pipeline_lane *pulls);

/* Waits for the lane's parameters. Errors with the reason. */
int sl_pipeline_wait(struct sl_pipeline *pipeline, const struct sl_pipeline_lane *lane);

/* Waits for every step. Errors with the reason. */
int sl_pipeline_drain(struct sl_pipeline *pipeline);

/* Frees a lane that no step uses, such as one pulled but never pushed. */
void sl_pipeline_release(struct sl_pipeline *pipeline, struct sl_pipeline_lane *lane);

#endif
