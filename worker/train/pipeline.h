/* Batches on their way through a worker: loaded, pulled for, computed on, pushed. A lane holds one
 * batch with its parameters and gradients; a step may push one lane and pull for another, so that
 * one trip to each shard does both. Steps complete in the order of their submission as far as the
 * pipeline looks. Owned by one thread. */
#ifndef SL_WORKER_TRAIN_PIPELINE_H
#define SL_WORKER_TRAIN_PIPELINE_H

#include <stdbool.h>

#include "core/clock.h"
#include "worker/train/loader.h"
#include "worker/train/model.h"
#include "worker/train/train_report.h"

/* One being computed on, two that wait for rows or for their push's answer, one being loaded. */
#define SL_PIPELINE_LANES 4
#define SL_PIPELINE_STEPS 8

struct sl_pipeline_lane {
    struct sl_batch *batch;
    float *params[SL_MODEL_TABLES];
    float *grads[SL_MODEL_TABLES]; /* NULL where nothing is ever pushed */
    size_t room[SL_MODEL_TABLES];  /* floats that each of both has */
    bool pulled;                   /* params are here */
};

struct sl_pipeline_step {
    struct sl_step *step;
    struct sl_pipeline_lane *pushes; /* or NULL; its batch is given back when the step is done */
    struct sl_pipeline_lane *pulls;  /* or NULL */
    uint64_t submitted_ns;
};

struct sl_pipeline_options {
    struct sl_client *client;
    struct sl_table *const *tables; /* [table_count], opened with specs */
    const struct sl_table_spec *specs;
    uint32_t table_count;
    uint32_t step_timeout_ms;
    bool pushing;             /* lanes have gradients */
    uint32_t staleness_added; /* to what a step reports: its clock is that many before the use */
    const struct sl_clock *clock;
    struct sl_train_report *report; /* gets latencies, staleness, waiting and reading seconds */
};

struct sl_pipeline {
    struct sl_pipeline_options options;
    struct sl_loader *loader;
    struct sl_pipeline_lane lanes[SL_PIPELINE_LANES];
    uint32_t loaded_count; /* lanes used so far: the next is loaded_count modulo lanes */
    struct sl_pipeline_step steps[SL_PIPELINE_STEPS];
    uint32_t submitted_count, finished_count;
    char reason[768];
};

enum sl_pipeline_tick { SL_PIPELINE_NO_TICK, SL_PIPELINE_TICK, SL_PIPELINE_FINISH };

/* The loader stays the caller's. */
void sl_pipeline_init(struct sl_pipeline *pipeline, const struct sl_pipeline_options *options,
                      struct sl_loader *loader);

/* Waits for what is outstanding, so that no memory is in use any more. */
void sl_pipeline_fini(struct sl_pipeline *pipeline);

/* The next batch, in a lane: 1, 0 when there is none, or an error with the reason. */
int sl_pipeline_load(struct sl_pipeline *pipeline, struct sl_pipeline_lane **lane);

/* Sends one step of iteration `clock`: pushes one lane's gradients, ticks, pulls for another lane
 * (behind a tick: as of clock + 1); either may be NULL. Errors with the reason. */
int sl_pipeline_submit(struct sl_pipeline *pipeline, uint32_t clock,
                       struct sl_pipeline_lane *pushes, enum sl_pipeline_tick tick,
                       struct sl_pipeline_lane *pulls);

/* Waits until the lane's parameters are there. Errors with the reason. */
int sl_pipeline_wait(struct sl_pipeline *pipeline, const struct sl_pipeline_lane *lane);

/* Waits for every step. Errors with the reason. */
int sl_pipeline_drain(struct sl_pipeline *pipeline);

/* Gives back a lane that no step uses: one that was pulled but will not be pushed. */
void sl_pipeline_release(struct sl_pipeline *pipeline, struct sl_pipeline_lane *lane);

#endif
