#include "programs/train/pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

void sl_pipeline_init(struct sl_pipeline *pipeline, const struct sl_pipeline_options *options,
                      struct sl_loader *loader)
{
    sl_assert(options->table_count <= SL_MODEL_TABLES);
    *pipeline = (struct sl_pipeline){.options = *options, .loader = loader};
}

void sl_pipeline_fini(struct sl_pipeline *pipeline)
{
    (void)sl_pipeline_drain(pipeline);
    for (uint32_t i = 0; i < SL_PIPELINE_LANES; i++) {
        for (uint32_t t = 0; t < SL_MODEL_TABLES; t++) {
            free(pipeline->lanes[i].params[t]);
            free(pipeline->lanes[i].grads[t]);
        }
    }
}

static double seconds_since(const struct sl_pipeline *pipeline, uint64_t begin_ns)
{
    uint64_t now_ns = sl_clock_now_ns(pipeline->options.clock);
    return (double)(now_ns - begin_ns) / (double)SL_CLOCK_NS_PER_S;
}

static int pipeline_fail(struct sl_pipeline *pipeline, int err, const char *doing, const char *why)
{
    (void)snprintf(pipeline->reason, sizeof pipeline->reason, "%s: %s%s%s", doing, sl_err_name(err),
                   why[0] == '\0' ? "" : ": ", why);
    return err;
}

/* Lanes */

static int resize(float **array, size_t floats)
{
    free(*array);
    *array = malloc(floats * sizeof **array);
    return *array == NULL ? SL_ERR_NO_MEMORY : 0;
}

/* Sizes the lane for its batch and zeroes its gradients. */
static int prepare_lane(const struct sl_pipeline_options *options, struct sl_pipeline_lane *lane)
{
    for (uint32_t t = 0; t < options->table_count; t++) {
        size_t floats = sl_model_floats(&options->specs[t], lane->batch);
        int err = 0;
        if (floats > lane->room[t]) {
            size_t room = floats + floats / 4;
            lane->room[t] = 0;
            err = resize(&lane->params[t], room);
            if (err == 0 && options->pushing) {
                err = resize(&lane->grads[t], room);
            }
            if (err != 0) {
                return err;
            }
            lane->room[t] = room;
        }
        if (options->pushing && floats > 0) {
            memset(lane->grads[t], 0, floats * sizeof *lane->grads[t]);
        }
    }
    return 0;
}

int sl_pipeline_load(struct sl_pipeline *pipeline, struct sl_pipeline_lane **out)
{
    struct sl_pipeline_lane *lane = &pipeline->lanes[pipeline->loaded_count % SL_PIPELINE_LANES];
    sl_assert(lane->batch == NULL);
    uint64_t begin_ns = sl_clock_now_ns(pipeline->options.clock);
    int got = sl_loader_take(pipeline->loader, &lane->batch);
    pipeline->options.report->reading_seconds += seconds_since(pipeline, begin_ns);
    if (got == 0) {
        return 0;
    }
    if (got < 0) {
        (void)snprintf(pipeline->reason, sizeof pipeline->reason, "%s",
                       sl_loader_reason(pipeline->loader));
        return got;
    }
    lane->pulled = false;
    pipeline->loaded_count++;
    int err = prepare_lane(&pipeline->options, lane);
    if (err != 0) {
        return pipeline_fail(pipeline, err, "parameters of a batch",
                             "choose a smaller --batch-size");
    }
    *out = lane;
    return 1;
}

void sl_pipeline_release(struct sl_pipeline *pipeline, struct sl_pipeline_lane *lane)
{
    sl_loader_give(pipeline->loader, lane->batch);
    lane->batch = NULL;
}

/* Steps */

static int add_push(const struct sl_pipeline_options *options, struct sl_step *step,
                    const struct sl_pipeline_lane *lane)
{
    int err = options->rate == 0 ? 0 : sl_step_set_rate(step, options->rate);
    for (uint32_t t = 0; err == 0 && t < options->table_count; t++) {
        const struct sl_table_spec *spec = &options->specs[t];
        err = spec->kind == SL_TABLE_SPARSE
                  ? sl_step_push(step, options->tables[t], lane->batch->keys,
                                 lane->batch->key_count, lane->grads[t])
                  : sl_step_dense_push(step, options->tables[t], 0, spec->length, lane->grads[t]);
    }
    return err;
}

static int add_pull(const struct sl_pipeline_options *options, struct sl_step *step,
                    struct sl_pipeline_lane *lane)
{
    /* An evaluation is of the values that the servers have. */
    int err = options->pushing ? 0 : sl_step_set_encoding(step, SL_PRECISION_F32, SL_PRECISION_F32);
    for (uint32_t t = 0; err == 0 && t < options->table_count; t++) {
        const struct sl_table_spec *spec = &options->specs[t];
        err = spec->kind == SL_TABLE_SPARSE
                  ? sl_step_pull(step, options->tables[t], lane->batch->keys,
                                 lane->batch->key_count, lane->params[t])
                  : sl_step_dense_pull(step, options->tables[t], 0, spec->length, lane->params[t]);
    }
    return err;
}

static int build(const struct sl_pipeline_options *options, struct sl_step *step,
                 const struct sl_pipeline_lane *pushes, enum sl_pipeline_tick tick,
                 struct sl_pipeline_lane *pulls)
{
    int err = pushes == NULL ? 0 : add_push(options, step, pushes);
    if (err == 0 && tick == SL_PIPELINE_TICK) {
        err = sl_step_tick(step);
    }
    if (err == 0 && tick == SL_PIPELINE_FINISH) {
        err = sl_step_finish(step);
    }
    if (err == 0 && pulls != NULL) {
        err = add_pull(options, step, pulls);
    }
    return err;
}

int sl_pipeline_submit(struct sl_pipeline *pipeline, uint32_t clock,
                       struct sl_pipeline_lane *pushes, enum sl_pipeline_tick tick,
                       struct sl_pipeline_lane *pulls)
{
    sl_assert(pipeline->submitted_count - pipeline->finished_count < SL_PIPELINE_STEPS);
    struct sl_step *step;
    uint64_t begin_ns = sl_clock_now_ns(pipeline->options.clock);
    int err = sl_step_begin(pipeline->options.client, clock, &step);
    if (err != 0) {
        return pipeline_fail(pipeline, err, "begin of a step", "");
    }
    err = build(&pipeline->options, step, pushes, tick, pulls);
    uint64_t now_ns = sl_clock_now_ns(pipeline->options.clock);
    err = err != 0 ? err : sl_step_submit(step, pipeline->options.step_timeout_ms);
    pipeline->options.report->sending_seconds += seconds_since(pipeline, begin_ns);
    if (err != 0) {
        err = pipeline_fail(pipeline, err, "submission of a step", sl_step_error(step));
        sl_step_destroy(&step);
        return err;
    }
    pipeline->steps[pipeline->submitted_count++ % SL_PIPELINE_STEPS] = (struct sl_pipeline_step){
        .step = step, .pushes = pushes, .pulls = pulls, .submitted_ns = now_ns};
    return 0;
}

static void record(const struct sl_pipeline *pipeline, const struct sl_pipeline_step *done)
{
    struct sl_train_report *report = pipeline->options.report;
    uint64_t ns = sl_clock_now_ns(pipeline->options.clock) - done->submitted_ns;
    if (done->pulls != NULL) {
        sl_metric_record(&report->pull_ns, ns);
    }
    if (done->pushes != NULL) {
        sl_metric_record(&report->push_ns, ns);
    }
    if (done->pulls != NULL && pipeline->options.pushing) {
        sl_metric_record(&report->staleness, (uint64_t)sl_step_staleness(done->step) +
                                                 pipeline->options.staleness_added);
    }
}

/* Waits for the oldest step. */
static int finish_one(struct sl_pipeline *pipeline)
{
    struct sl_pipeline_step *oldest =
        &pipeline->steps[pipeline->finished_count++ % SL_PIPELINE_STEPS];
    uint64_t begin_ns = sl_clock_now_ns(pipeline->options.clock);
    int err = sl_step_wait(oldest->step);
    pipeline->options.report->waiting_seconds += seconds_since(pipeline, begin_ns);
    if (err != 0) {
        err = pipeline_fail(pipeline, err, "step", sl_step_error(oldest->step));
    } else {
        record(pipeline, oldest);
    }
    if (oldest->pulls != NULL) {
        oldest->pulls->pulled = err == 0;
    }
    if (oldest->pushes != NULL) {
        sl_pipeline_release(pipeline, oldest->pushes);
    }
    sl_step_destroy(&oldest->step);
    return err;
}

int sl_pipeline_wait(struct sl_pipeline *pipeline, const struct sl_pipeline_lane *lane)
{
    int err = 0;
    while (err == 0 && !lane->pulled) {
        sl_assert(pipeline->finished_count != pipeline->submitted_count);
        err = finish_one(pipeline);
    }
    return err;
}

int sl_pipeline_drain(struct sl_pipeline *pipeline)
{
    int err = 0;
    while (pipeline->finished_count != pipeline->submitted_count) {
        int one = finish_one(pipeline);
        err = err != 0 ? err : one;
    }
    return err;
}
