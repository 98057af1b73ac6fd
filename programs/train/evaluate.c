#include "programs/train/evaluate.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/log.h"
#include "programs/models/loss.h"
#include "programs/train/auc.h"

/* Smaller batches cost more round trips, and nothing is learnt from them. */
#define BATCH_ROWS_LEAST 1024

int sl_evaluate_check(const struct sl_reader_options *test, struct sl_reason *reason)
{
    const struct sl_reader_row *row;
    struct sl_reader *reader;
    uint64_t counts[2] = {0};
    int got = sl_reader_open(test, &reader, reason);
    if (got != 0) {
        return got;
    }
    while ((got = sl_reader_next(reader, &row)) > 0) {
        counts[row->label > 0]++;
    }
    if (got < 0) {
        sl_reason_set(reason, "%s", sl_reader_reason(reader));
    } else if (counts[0] == 0 || counts[1] == 0) {
        got = sl_reason_fail(reason, SL_ERR_INVALID,
                             "--test %s%s: %" PRIu64 " rows of label 0 and %" PRIu64
                             " of label 1: the test data must have rows of both",
                             test->paths[0], test->path_count > 1 ? " and the other files" : "",
                             counts[0], counts[1]);
    }
    sl_reader_close(&reader);
    return got;
}

struct evaluation {
    const struct sl_model *model;
    struct sl_pipeline pipeline;
    struct sl_model_pass pass;
    struct sl_auc auc;
    float *logits;
    double loss_sum;
};

/* Loads a batch and pulls its parameters. Returns 1, 0 at the end, or an error. */
static int send_for_next(struct evaluation *run, struct sl_pipeline_lane **lane)
{
    int got = sl_pipeline_load(&run->pipeline, lane);
    if (got <= 0) {
        *lane = NULL;
        return got;
    }
    int err = sl_pipeline_submit(&run->pipeline, 0, NULL, SL_PIPELINE_NO_TICK, *lane);
    return err != 0 ? err : 1;
}

static int score(struct evaluation *run, const struct sl_pipeline_lane *lane)
{
    const struct sl_batch *batch = lane->batch;
    for (uint32_t t = 0; t < run->pipeline.options.table_count; t++) {
        run->pass.params[t] = lane->params[t];
    }
    sl_model_score(run->model, &run->pass, batch, run->logits);
    for (uint32_t row = 0; row < batch->row_count; row++) {
        run->loss_sum += sl_loss_logistic(run->logits[row], batch->labels[row]);
        int err = sl_auc_add(&run->auc, run->logits[row], batch->labels[row]);
        if (err != 0) {
            sl_log_error("evaluation: %s", err == SL_ERR_INVALID
                                               ? "the model has diverged: a score is not a number;"
                                                 " choose a smaller --lr"
                                               : "no memory for the scores");
            return err;
        }
    }
    return 0;
}

/* Scores one batch while the next batch's parameters are in flight. */
static int score_all(struct evaluation *run)
{
    struct sl_pipeline_lane *lane;
    int got = send_for_next(run, &lane);
    while (got > 0) {
        struct sl_pipeline_lane *next;
        got = send_for_next(run, &next);
        int err = got < 0 ? got : sl_pipeline_wait(&run->pipeline, lane);
        if (err != 0) {
            sl_log_error("evaluation: %s", run->pipeline.reason);
            return err;
        }
        err = score(run, lane);
        if (err != 0) {
            return err;
        }
        sl_pipeline_release(&run->pipeline, lane);
        lane = next;
    }
    if (got < 0) {
        sl_log_error("evaluation: %s", run->pipeline.reason);
    }
    return got;
}

static int summarize(struct evaluation *run, struct sl_train_report *report)
{
    report->test_rows = run->auc.count;
    int err = sl_auc_compute(&run->auc, &report->test_auc);
    if (err != 0) {
        sl_log_error("evaluation: the test data must have rows of both labels");
        return err;
    }
    report->test_loss = run->loss_sum / (double)run->auc.count;
    report->evaluated = true;
    return 0;
}

int sl_evaluate_run(const struct sl_model *model, const struct sl_model_shape *shape,
                    const struct sl_pipeline_options *pipeline_options, struct sl_reader *test,
                    uint32_t batch_rows, struct sl_train_report *report)
{
    batch_rows = batch_rows < BATCH_ROWS_LEAST ? BATCH_ROWS_LEAST : batch_rows;
    struct sl_loader *loader = NULL;
    struct sl_train_report unused; /* the pipeline's measurements are for training only */
    sl_train_report_init(&unused);
    struct sl_pipeline_options options = *pipeline_options;
    options.report = &unused;
    struct evaluation run = {.model = model, .pass = {.shape = shape}};
    uint64_t begin_ns = sl_clock_now_ns(options.clock);
    int err = sl_loader_create(test, batch_rows, 1, 0, &loader);
    if (err != 0) {
        sl_log_error("evaluation: no thread to load data: " SL_LOADER_NO_THREAD);
        return err;
    }
    sl_auc_init(&run.auc);
    sl_pipeline_init(&run.pipeline, &options, loader);
    run.logits = malloc(batch_rows * sizeof *run.logits);
    run.pass.scratch = malloc((model->scratch_floats(shape) + 1) * sizeof *run.pass.scratch);
    if (run.logits == NULL || run.pass.scratch == NULL) {
        err = SL_ERR_NO_MEMORY;
        sl_log_error("evaluation: no memory for the model's scratch space");
    }
    err = err != 0 ? err : score_all(&run);
    err = err != 0 ? err : summarize(&run, report);
    sl_pipeline_fini(&run.pipeline);
    sl_loader_destroy(&loader);
    sl_auc_fini(&run.auc);
    free(run.logits);
    free(run.pass.scratch);
    uint64_t spent_ns = sl_clock_now_ns(options.clock) - begin_ns;
    report->evaluate_seconds += (double)spent_ns / (double)SL_CLOCK_NS_PER_S;
    return err;
}
