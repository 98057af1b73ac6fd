#include "programs/train/trainer.h"

#include <starling_training.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/limits.h"
#include "core/log.h"
#include "core/reason.h"
#include "programs/train/cpu_time.h"
#include "programs/train/evaluate.h"
#include "programs/train/job_progress.h"
#include "programs/train/pipeline.h"
#include "programs/train/progress.h"
#include "worker/client/table_lookup.h"

#define LEAD_MAX         1
#define VALUES_CHECK_NS  SL_CLOCK_NS_PER_S

#define START_BARRIER    "starling-worker/start"
#define END_BARRIER      "starling-worker/end"

/* sl_client_clock of a worker that had already finished. */
#define NOTHING_TO_TRAIN UINT32_MAX

/* Under ASP, a step that pushes iteration i pulls for iteration i + 2. */

/* Evaluations while it trains. */
struct tests {
    uint64_t due;          /* that were due so far */
    uint32_t without_gain; /* since the best one */
    bool is_enough;        /* the training ends: they bring no better AUC */
    bool is_continued;     /* the best one of an earlier worker is known, if there is one */
};

struct trainer {
    const struct sl_trainer_options *options;
    struct sl_train_report *report;
    struct sl_table_spec specs[SL_MODEL_TABLES];
    struct sl_table *tables[SL_MODEL_TABLES];
    uint32_t table_count;
    struct sl_milestones milestones;
    float *scratch;

    struct sl_loader *loader;
    struct sl_pipeline pipeline;
    struct sl_progress progress;
    uint32_t lead;
    float rate;                                   /* of pushes; 0: that of the tables */
    bool fused;                                   /* push, tick and pull are one step */
    uint32_t begin;                               /* the first iteration, or NOTHING_TO_TRAIN */
    uint32_t clock;                               /* the current iteration */
    bool stopped;                                 /* by options->stop, before the last batch */
    uint64_t check_ns;                            /* next check for lost parameters */
    struct sl_pipeline_lane *ahead[LEAD_MAX + 1]; /* prefetched, in order; NULL: none */

    uint64_t done_bytes; /* of all epochs: progress of the last batch */
    struct tests tests;

    uint32_t epoch; /* of the loss below */
    double loss_sum, recent_loss;
    uint64_t loss_rows;
};

/* Batches prefetched during computation: 0 or 1. */
static uint32_t lead_of(const struct sl_consistency_spec *consistency)
{
    bool ahead = consistency->mode == SL_CONSISTENCY_ASP ||
                 (consistency->mode == SL_CONSISTENCY_SSP && consistency->staleness >= 1);
    return ahead ? LEAD_MAX : 0;
}

/* Start */

/* The tables of a restored job keep their learning rate: if the user asks for another one, pushes
 * are scaled. */
static int open_table(struct trainer *trainer, struct sl_table_spec *spec, struct sl_table **out)
{
    const struct sl_trainer_options *options = trainer->options;
    struct sl_table_spec found;
    const bool is_restored = sl_table_lookup_restored(options->client, spec->name,
                                                      options->step_timeout_ms, &found) == 0;
    const float asked = options->optimizer.lr;
    const float rate = options->is_lr_given && is_restored ? asked / found.optimizer.lr : 1;
    const bool is_other = is_restored && found.optimizer.kind == spec->optimizer.kind &&
                          found.optimizer.lr != asked &&
                          (trainer->rate == 0 || trainer->rate == rate);
    if (!is_other) {
        return sl_client_table_open(options->client, spec, options->step_timeout_ms, out);
    }
    spec->optimizer.lr = found.optimizer.lr;
    const int err = sl_client_table_open(options->client, spec, options->step_timeout_ms, out);
    if (err == 0 && !options->is_lr_given) {
        sl_log_info("%s is restored: it keeps its learning rate of %g; --lr scales it", spec->name,
                    (double)found.optimizer.lr);
    } else if (err == 0 && trainer->rate == 0) {
        sl_log_warn("--lr %g: the tables of the restored job have %g, so pushes are scaled by %g",
                    (double)asked, (double)found.optimizer.lr, (double)rate);
        trainer->rate = rate;
    }
    return err;
}

/* The rounding of INT8 is coarse: it is made good. Dense tables are not pulled as INT8. */
static int set_encoding(enum sl_precision encoding, const struct sl_table_spec *spec,
                        struct sl_table *table)
{
    const bool is_int8 = encoding == SL_PRECISION_INT8, is_dense = spec->kind == SL_TABLE_DENSE;
    const uint64_t remainders = is_dense ? spec->length * sizeof(float) : 64ULL << 20;
    struct sl_encoding_options options = SL_ENCODING_OPTIONS_INIT;
    options.push = encoding;
    options.pull = is_int8 && is_dense ? SL_PRECISION_BF16 : encoding;
    options.error_feedback_bytes = is_int8 ? remainders : 0;
    return encoding == SL_PRECISION_F32 ? 0 : sl_table_set_encoding(table, &options);
}

static int open_tables(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    trainer->table_count = options->model->tables(&options->shape, trainer->specs);
    for (uint32_t t = 0; t < trainer->table_count; t++) {
        struct sl_table_spec *spec = &trainer->specs[t];
        spec->optimizer = options->optimizer;
        if (spec->kind == SL_TABLE_SPARSE) {
            spec->policy = options->tables.policy;
            spec->values = options->tables.values;
            spec->slots = options->tables.slots;
        }
        spec->update = options->tables.update;
        spec->consistency = options->consistency;
        spec->consistency.worker_count =
            spec->consistency.mode == SL_CONSISTENCY_ASP ? 0 : options->worker_count;
        int err = open_table(trainer, spec, &trainer->tables[t]);
        err = err != 0 ? err : set_encoding(options->tables.encoding, spec, trainer->tables[t]);
        if (err != 0) {
            sl_log_error("%s", sl_last_error());
            return err;
        }
    }
    return sl_job_progress_open(&trainer->milestones, options->client, options->step_timeout_ms);
}

static struct sl_pipeline_options pipeline_options(struct trainer *trainer, bool pushing)
{
    return (struct sl_pipeline_options){
        .client = trainer->options->client,
        .tables = trainer->tables,
        .specs = trainer->specs,
        .table_count = trainer->table_count,
        .step_timeout_ms = trainer->options->step_timeout_ms,
        .pushing = pushing,
        .rate = trainer->rate,
        .staleness_added = trainer->fused ? trainer->lead : 0,
        .clock = trainer->options->clock,
        .report = trainer->report,
    };
}

static int init(struct trainer *trainer, struct sl_reader *train)
{
    const struct sl_trainer_options *options = trainer->options;
    if (trainer->begin == NOTHING_TO_TRAIN) {
        sl_reader_close(&train);
        return open_tables(trainer);
    }
    int err = sl_loader_create(train, options->batch_rows, options->epochs, trainer->begin,
                               &trainer->loader);
    if (err != 0) {
        sl_log_error("training: no thread to load data: " SL_LOADER_NO_THREAD);
        return err;
    }
    err = open_tables(trainer);
    if (err != 0) {
        return err;
    }
    size_t floats = options->model->scratch_floats(&options->shape) + 1;
    trainer->scratch = malloc(floats * sizeof *trainer->scratch);
    if (trainer->scratch == NULL) {
        sl_log_error("training: no memory for the model's scratch space");
        return SL_ERR_NO_MEMORY;
    }
    struct sl_pipeline_options pipeline = pipeline_options(trainer, true);
    sl_pipeline_init(&trainer->pipeline, &pipeline, trainer->loader);
    return 0;
}

static void fini(struct trainer *trainer)
{
    sl_pipeline_fini(&trainer->pipeline);
    sl_loader_destroy(&trainer->loader);
    free(trainer->scratch);
}

/* On an orderly stop, worker 0 saves what the servers have, if no evaluation has saved a model. */
static bool saves_at_stop(const struct trainer *trainer)
{
    return trainer->options->save != NULL && trainer->options->worker_index == 0 &&
           !trainer->report->is_saved;
}

/* Waits at a barrier for all workers that have neither left nor expired. A signal during the wait
 * ends the process (main.c), unless the model is to be saved first; an earlier signal skips the
 * wait. */
static int meet(const struct trainer *trainer, const char *barrier, uint32_t timeout_ms)
{
    const struct sl_trainer_options *options = trainer->options;
    *options->waiting = strcmp(barrier, END_BARRIER) != 0 || !saves_at_stop(trainer);
    int err = SL_ERR_CANCELLED;
    if (*options->stop == 0) {
        err = sl_client_barrier(options->client, barrier, 0, timeout_ms);
        if (err != 0) {
            sl_log_error("%s", sl_last_error());
        }
    }
    *options->waiting = 0;
    return err;
}

static int log_meeting(int err, const char *where, uint32_t timeout_ms)
{
    if (err == SL_ERR_DEADLINE) {
        sl_log_error("%s: %s: not all workers of the job came within %u s", where, sl_err_name(err),
                     timeout_ms / 1000);
    } else if (err != 0 && err != SL_ERR_CANCELLED) {
        sl_log_error("%s: %s", where, sl_err_name(err));
    }
    return err;
}

/* The workers start together. A late worker must not wait: the others have passed the barrier,
 * perhaps while it waited, so it checks again after a timeout. */
static int meet_at_start(const struct trainer *trainer)
{
    const uint32_t timeout_ms = trainer->options->start_timeout_ms;
    bool started = false;
    int err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_STARTED, &started);
    if (err != 0 || started) {
        return err;
    }
    int met = meet(trainer, START_BARRIER, timeout_ms);
    if (met == SL_ERR_DEADLINE) {
        err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_STARTED, &started);
        if (err == 0 && started) {
            return 0;
        }
    }
    if (met != 0) {
        return log_meeting(met, START_BARRIER, timeout_ms);
    }
    return sl_job_progress_reach(&trainer->milestones, SL_JOB_PROGRESS_STARTED);
}

/* One batch */

/* The SUM optimizer only adds, like ps-lite's servers: the worker applies the learning rate. */
static void turn_into_step(const struct trainer *trainer, const struct sl_pipeline_lane *lane)
{
    float scale = -trainer->options->optimizer.lr;
    for (uint32_t t = 0; t < trainer->table_count; t++) {
        size_t floats = sl_model_floats(&trainer->specs[t], lane->batch);
        for (size_t i = 0; i < floats; i++) {
            lane->grads[t][i] *= scale;
        }
    }
}

static double seconds_of(uint64_t ns)
{
    return (double)ns / (double)SL_CLOCK_NS_PER_S;
}

static double epochs_done(const struct trainer *trainer)
{
    const uint64_t bytes = trainer->loader == NULL ? 0 : sl_loader_bytes(trainer->loader);
    return bytes == 0 ? trainer->options->epochs
                      : (double)trainer->done_bytes * trainer->options->epochs / (double)bytes;
}

/* For the page of the job. */
static void report_training(const struct trainer *trainer)
{
    const struct sl_train_report *report = trainer->report;
    struct sl_training training = {
        .struct_size = sizeof training,
        .epoch = (float)epochs_done(trainer),
        .epochs = (float)trainer->options->epochs,
        .samples = report->rows,
        .loss = (float)trainer->recent_loss,
        .learning_rate = trainer->specs[0].optimizer.lr * (trainer->rate == 0 ? 1 : trainer->rate),
    };
    if (report->evaluated) {
        training.metric = (float)report->test_auc;
        (void)snprintf(training.metric_name, sizeof training.metric_name, "test AUC");
    }
    (void)sl_client_set_training(trainer->options->client, &training);
}

/* Errors: CORRUPT, with the pipeline's reason, if the loss is not finite; then do not push the
 * gradients. */
static int compute(struct trainer *trainer, const struct sl_pipeline_lane *lane)
{
    struct sl_model_pass pass = {.shape = &trainer->options->shape, .scratch = trainer->scratch};
    for (uint32_t t = 0; t < trainer->table_count; t++) {
        pass.params[t] = lane->params[t];
        pass.grads[t] = lane->grads[t];
    }
    const struct sl_batch *batch = lane->batch;
    uint64_t begin_ns = sl_clock_now_ns(trainer->options->clock);
    uint64_t spent_before_ns = sl_cpu_time_ns(CLOCK_THREAD_CPUTIME_ID);
    double loss = sl_model_train(trainer->options->model, &pass, batch);
    if (trainer->options->optimizer.kind == SL_OPTIMIZER_SUM) {
        turn_into_step(trainer, lane);
    }
    uint64_t spent_ns = sl_cpu_time_ns(CLOCK_THREAD_CPUTIME_ID) - spent_before_ns;
    uint64_t end_ns = sl_clock_now_ns(trainer->options->clock);

    struct sl_train_report *report = trainer->report;
    report->computing_seconds += seconds_of(end_ns - begin_ns);
    report->processor.computing += seconds_of(spent_ns);
    report->rows += batch->row_count;
    report->batches++;
    if (batch->epoch != trainer->epoch) {
        trainer->epoch = batch->epoch;
        trainer->loss_sum = 0;
        trainer->loss_rows = 0;
    }
    trainer->done_bytes = batch->done_bytes;
    trainer->loss_sum += loss;
    trainer->loss_rows += batch->row_count;
    report->train_loss = trainer->loss_sum / (double)trainer->loss_rows;

    double mean = loss / batch->row_count;
    trainer->recent_loss = report->batches == 1 ? mean : 0.95 * trainer->recent_loss + 0.05 * mean;
    struct sl_progress_state state = {
        .epoch = batch->epoch,
        .share = (double)batch->done_bytes / (double)sl_loader_bytes(trainer->loader),
        .rows = report->rows,
        .loss = trainer->recent_loss,
    };
    sl_progress_update(&trainer->progress, &state, end_ns);
    if (trainer->options->cells != NULL) {
        sl_train_metrics_update(trainer->options->cells, report, trainer->recent_loss);
    }
    report_training(trainer);
    if (!isfinite(loss)) {
        (void)snprintf(trainer->pipeline.reason, sizeof trainer->pipeline.reason,
                       "the model has diverged: the loss is not a finite number; choose a smaller "
                       "--lr, and restore a checkpoint from before");
        return SL_ERR_CORRUPT;
    }
    return 0;
}

/* Pulls the parameters of iteration `clock` in a separate step. */
static int send_for(struct trainer *trainer, uint32_t clock, struct sl_pipeline_lane *lane)
{
    return sl_pipeline_submit(&trainer->pipeline, clock, NULL, SL_PIPELINE_NO_TICK, lane);
}

static int send_for_first(struct trainer *trainer)
{
    for (uint32_t i = 0; i <= trainer->lead; i++) {
        int got = sl_pipeline_load(&trainer->pipeline, &trainer->ahead[i]);
        if (got <= 0) {
            trainer->ahead[i] = NULL;
            return got;
        }
        int err = send_for(trainer, trainer->begin + i, trainer->ahead[i]);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

/* Call after the first load. */
static void log_begin(const struct trainer *trainer)
{
    const struct sl_pipeline_lane *first = trainer->ahead[0];
    if (first == NULL && trainer->begin == 0) {
        sl_log_warn("this worker's share of the data has no rows");
    } else if (first == NULL) {
        sl_log_warn(
            "trains nothing: the job is at iteration %u, beyond the end of this worker's share "
            "of the data. If it should train, start a new job: restart the servers",
            trainer->begin);
    } else if (trainer->begin > 0) {
        sl_log_info("continues with iteration %u, where the job is: epoch %u, batch %u",
                    trainer->begin, first->batch->epoch + 1, first->batch->index + 1);
    }
}

/* Pushes the lane's gradients, ticks, and pulls `next` (NULL: nothing). */
static int push_and_pull(struct trainer *trainer, struct sl_pipeline_lane *lane,
                         struct sl_pipeline_lane *next)
{
    uint32_t clock = trainer->clock++;
    bool last = trainer->ahead[0] == NULL && !trainer->stopped;
    int err = sl_pipeline_submit(&trainer->pipeline, clock, lane,
                                 last ? SL_PIPELINE_FINISH : SL_PIPELINE_TICK,
                                 trainer->fused ? next : NULL);
    if (err != 0 || trainer->fused || next == NULL) {
        return err;
    }
    return send_for(trainer, clock + 1 + trainer->lead, next);
}

/* Errors: CORRUPT, with the pipeline's reason, if a server lost its parameters. */
static int check_values(struct trainer *trainer)
{
    const int32_t ps = sl_client_values_lost(trainer->options->client);
    if (ps < 0) {
        return 0;
    }
    (void)snprintf(trainer->pipeline.reason, sizeof trainer->pipeline.reason,
                   "ps/%d restarted without its parameters: restart the job", ps);
    return SL_ERR_CORRUPT;
}

static int check_values_if_due(struct trainer *trainer)
{
    const uint64_t now_ns = sl_clock_now_ns(trainer->options->clock);
    if (now_ns < trainer->check_ns) {
        return 0;
    }
    trainer->check_ns = now_ns + VALUES_CHECK_NS;
    if (trainer->options->patience > 0 && !trainer->tests.is_enough) {
        int err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_ENOUGH,
                                             &trainer->tests.is_enough);
        if (err != 0) {
            (void)snprintf(trainer->pipeline.reason, sizeof trainer->pipeline.reason,
                           "the progress of the job is unknown");
            return err;
        }
    }
    return check_values(trainer);
}

/* Computes on the next batch, pushes, and prefetches a later batch. */
static int train_one(struct trainer *trainer)
{
    struct sl_pipeline_lane *lane = trainer->ahead[0];
    int err = sl_pipeline_wait(&trainer->pipeline, lane);
    if (err != 0) {
        return err;
    }
    err = compute(trainer, lane);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < trainer->lead; i++) {
        trainer->ahead[i] = trainer->ahead[i + 1];
    }
    struct sl_pipeline_lane *next = NULL;
    if (*trainer->options->stop != 0) {
        trainer->stopped = true;
        trainer->ahead[0] = NULL;
    } else if (trainer->tests.is_enough) {
        trainer->ahead[0] = NULL;
    } else {
        int got = sl_pipeline_load(&trainer->pipeline, &next);
        if (got < 0) {
            return got;
        }
        trainer->ahead[trainer->lead] = next;
    }
    return push_and_pull(trainer, lane, next);
}

/* CPU time before the training: waiting for other workers, and the loader's first batches. */
struct spent {
    uint64_t process_ns, thread_ns, loader_ns;
};

static struct spent spent_so_far(const struct trainer *trainer)
{
    return (struct spent){
        .process_ns = sl_cpu_time_ns(CLOCK_PROCESS_CPUTIME_ID),
        .thread_ns = sl_cpu_time_ns(CLOCK_THREAD_CPUTIME_ID),
        .loader_ns = sl_loader_processor_ns(trainer->loader),
    };
}

static void account_processor(struct trainer *trainer, const struct spent *before)
{
    const struct spent after = spent_so_far(trainer);
    struct sl_train_report_processor *spent = &trainer->report->processor;
    const double others = seconds_of(after.process_ns - before->process_ns) -
                          seconds_of(after.thread_ns - before->thread_ns);
    spent->reading = seconds_of(after.loader_ns - before->loader_ns);
    spent->calling = seconds_of(after.thread_ns - before->thread_ns) - spent->computing;
    /* Reading includes the loader's earlier work, which the process time since then excludes. */
    spent->client = others > spent->reading ? others - spent->reading : 0;
    spent->all = spent->reading + spent->computing + spent->calling + spent->client;
}

/* Evaluation while it trains, and behind it */

static int keep(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    if (options->save == NULL) {
        return 0;
    }
    int err = check_values(trainer);
    if (err != 0) { /* an older file is better */
        sl_log_error("the model is not saved: %s", trainer->pipeline.reason);
        return err;
    }
    err = options->save(options->save_ctx, trainer->tables, trainer->specs, trainer->table_count,
                        &trainer->report->saved_rows);
    trainer->report->is_saved = err == 0;
    return err;
}

/* Continues the evaluations of a worker that was lost: its best AUC counts if its file is here. */
static int continue_tests(struct trainer *trainer)
{
    struct sl_train_report *report = trainer->report;
    struct sl_job_progress_best best;
    const char *path = report->job.save;
    if (trainer->options->test_every <= 0 || trainer->tests.is_continued) {
        return 0;
    }
    int err = sl_job_progress_get_best(&trainer->milestones, &best);
    if (err != 0) {
        return err;
    }
    trainer->tests.is_continued = true;
    if (best.evaluations == 0) {
        return 0;
    }
    if (path != NULL && access(path, F_OK) != 0) {
        sl_log_warn("the model of the best test AUC so far, %.6f of epoch %.4g, is not here: %s; "
                    "the next evaluation counts as the best",
                    best.auc, best.epoch, path);
        return 0;
    }
    sl_log_info("the best test AUC so far is %.6f of epoch %.4g", best.auc, best.epoch);
    report->best_auc = best.auc;
    report->best_epoch = best.epoch;
    report->is_saved = trainer->options->save != NULL;
    report->saved_rows = best.saved_rows;
    trainer->tests.without_gain = best.evaluations - 1;
    return 0;
}

/* Behind the saving: an AUC whose model is not saved counts for nobody. */
static int record_best(const struct trainer *trainer)
{
    const struct sl_train_report *report = trainer->report;
    const struct sl_job_progress_best best = {.evaluations = trainer->tests.without_gain + 1,
                                              .auc = report->best_auc,
                                              .epoch = report->best_epoch,
                                              .saved_rows = report->saved_rows};
    return trainer->options->test_every <= 0
               ? 0
               : sl_job_progress_set_best(&trainer->milestones, &best);
}

/* Scores the test data; keeps the model if it is the best so far. */
static int evaluate(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    struct sl_train_report *report = trainer->report;
    struct sl_pipeline_options pipeline = pipeline_options(trainer, false);
    struct sl_reader *reader;
    struct sl_reason reason;
    int err = continue_tests(trainer);
    if (err != 0) {
        return err;
    }
    err = sl_reader_open(options->test, &reader, &reason);
    if (err != 0) {
        sl_log_error("evaluation: %s", reason.text);
        return err;
    }
    err = sl_evaluate_run(options->model, &options->shape, &pipeline, reader, options->batch_rows,
                          report);
    if (err != 0) {
        return err;
    }
    report_training(trainer);
    const bool is_best = !(report->test_auc <= report->best_auc); /* the first: NaN */
    trainer->tests.without_gain = is_best ? 0 : trainer->tests.without_gain + 1;
    if (options->test_every > 0) {
        sl_log_info("epoch %.4g: test loss %.5f, test AUC %.6f%s", epochs_done(trainer),
                    report->test_loss, report->test_auc, is_best ? ", the best so far" : "");
    }
    if (is_best) {
        report->best_auc = report->test_auc;
        report->best_epoch = epochs_done(trainer);
        err = keep(trainer);
    }
    return err != 0 ? err : record_best(trainer);
}

/* The last evaluation is not due here, but when all workers have finished. */
static int evaluate_if_due(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    if (options->test_every <= 0 || options->worker_index != 0 || trainer->ahead[0] == NULL) {
        return 0;
    }
    const uint64_t due = (uint64_t)(epochs_done(trainer) / options->test_every + 1e-9);
    const bool is_due = due > trainer->tests.due;
    trainer->tests.due = due;
    int err = 0;
    if (is_due) {
        sl_progress_end(&trainer->progress);
        err = evaluate(trainer);
    }
    if (err == 0 && is_due && options->patience > 0 &&
        trainer->tests.without_gain >= options->patience) {
        sl_log_info(
            "%u evaluations without a better test AUC than %.6f of epoch %.4g: the training "
            "ends (--patience)",
            trainer->tests.without_gain, trainer->report->best_auc, trainer->report->best_epoch);
        trainer->tests.is_enough = true;
        err = sl_job_progress_reach(&trainer->milestones, SL_JOB_PROGRESS_ENOUGH);
    }
    if (err != 0) {
        (void)snprintf(trainer->pipeline.reason, sizeof trainer->pipeline.reason,
                       "the evaluation failed");
    }
    return err;
}

static int train(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    const struct spent spent_before = spent_so_far(trainer);
    uint64_t begin_ns = sl_clock_now_ns(options->clock);
    /* One worker prints for the job; on a terminal of its own each does. */
    const bool is_quiet =
        options->quiet ||
        (options->worker_index != 0 && isatty(STDERR_FILENO) == 0 && !sl_log_enabled(SL_LOG_DEBUG));
    sl_progress_begin(&trainer->progress, stderr, is_quiet, options->epochs, begin_ns);
    int err = send_for_first(trainer);
    if (err == 0) {
        log_begin(trainer);
    }
    if (err == 0 && trainer->ahead[0] == NULL) {
        err =
            sl_pipeline_submit(&trainer->pipeline, trainer->clock, NULL, SL_PIPELINE_FINISH, NULL);
    }
    while (err == 0 && trainer->ahead[0] != NULL) {
        err = check_values_if_due(trainer);
        err = err != 0 ? err : train_one(trainer);
        err = err != 0 ? err : evaluate_if_due(trainer);
    }
    int drained = err == 0 ? sl_pipeline_drain(&trainer->pipeline) : 0;
    err = err != 0 ? err : drained;
    uint64_t spent_ns = sl_clock_now_ns(options->clock) - begin_ns;
    trainer->report->train_seconds = seconds_of(spent_ns) - trainer->report->evaluate_seconds;
    account_processor(trainer, &spent_before);
    sl_progress_end(&trainer->progress);
    if (err != 0) {
        sl_log_error("training failed in iteration %u: %s", trainer->clock,
                     trainer->pipeline.reason);
    }
    return err;
}

/* End */

/* Evaluates and saves. */
static int conclude(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    int err = options->test == NULL ? keep(trainer) : evaluate(trainer);
    /* Recorded after a failure too: another worker would fail alike. */
    int recorded =
        err != 0 ? sl_job_progress_reach(&trainer->milestones, SL_JOB_PROGRESS_FAILED) : 0;
    recorded = recorded != 0
                   ? recorded
                   : sl_job_progress_reach(&trainer->milestones, SL_JOB_PROGRESS_EVALUATED);
    return err != 0 ? err : recorded;
}

/* Writes whether the evaluation is over. A failed one, by any worker, is an error. */
static int check_evaluation(const struct trainer *trainer, bool *over)
{
    bool failed = false;
    int err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_EVALUATED, over);
    if (err == 0 && *over) {
        err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_FAILED, &failed);
    }
    if (err == 0 && failed) {
        sl_log_error(
            "the evaluation of this job, or the saving of its model, failed; the reason is in the "
            "log of the worker that did it");
        err = SL_ERR_INVALID;
    }
    return err;
}

/* Worker 0 evaluates while the others wait. If it expires before, worker 1 evaluates, and so on.
 * Each turn ends with a barrier of the active workers, so the turn of an expired worker ends by
 * itself. All turns use the same barrier name: a late worker meets the others in any turn. It then
 * takes its own turn and may evaluate in parallel with another worker, with the same result. */
static int conclude_in_turn(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    int failed = 0;
    for (uint32_t turn = 0; turn < SL_LIMIT_WORKERS; turn++) {
        bool over = false;
        int err = check_evaluation(trainer, &over);
        if (err != 0 || over) {
            return failed != 0 ? failed : err;
        }
        if (turn == options->worker_index) {
            if (turn > 0) {
                sl_log_info("evaluates the model, since the workers before it expired");
            }
            failed = conclude(trainer);
        }
        err = log_meeting(meet(trainer, END_BARRIER, options->barrier_timeout_ms), END_BARRIER,
                          options->barrier_timeout_ms);
        if (err != 0) {
            return failed != 0 ? failed : err;
        }
    }
    return failed;
}

/* A worker that had finished is started again. If its job failed in the evaluation, that is
 * repeated: all workers failed then, and each one that comes back withdraws the failure before they
 * meet. */
static int prepare_end(const struct trainer *trainer)
{
    bool failed;
    int err = sl_job_progress_is_reached(&trainer->milestones, SL_JOB_PROGRESS_FAILED, &failed);
    if (err != 0 || !failed) {
        sl_log_warn("nothing to train: the worker with this index already finished. Restart the "
                    "servers to start a new job");
        return err;
    }
    sl_log_info("nothing to train: this worker already finished, and the evaluation failed, which "
                "is repeated");
    err = sl_job_progress_withdraw(&trainer->milestones, SL_JOB_PROGRESS_EVALUATED);
    return err != 0 ? err : sl_job_progress_withdraw(&trainer->milestones, SL_JOB_PROGRESS_FAILED);
}

static int train_and_evaluate(struct trainer *trainer)
{
    const struct sl_trainer_options *options = trainer->options;
    int err = 0;
    if (trainer->begin == NOTHING_TO_TRAIN) {
        err = prepare_end(trainer);
    } else {
        err = meet_at_start(trainer);
        err = err != 0 ? err : train(trainer);
    }
    trainer->report->complete = err == 0 && !trainer->stopped;
    if (err != 0) {
        return err;
    }
    err = log_meeting(meet(trainer, END_BARRIER, options->barrier_timeout_ms), END_BARRIER,
                      options->barrier_timeout_ms);
    if ((err == 0 || err == SL_ERR_CANCELLED) && *options->stop != 0 && saves_at_stop(trainer)) {
        (void)keep(trainer); /* logged */
        return SL_ERR_CANCELLED;
    }
    if (err == 0 && (options->test != NULL || options->save != NULL)) {
        err = conclude_in_turn(trainer);
    }
    if (err == 0 && check_values(trainer) != 0) {
        sl_log_error("parameters of the model are lost: %s", trainer->pipeline.reason);
        trainer->report->complete = false;
        err = SL_ERR_CORRUPT;
    }
    return err;
}

int sl_trainer_run(const struct sl_trainer_options *options, struct sl_reader *train_reader,
                   struct sl_train_report *report)
{
    uint32_t lead = lead_of(&options->consistency);
    const uint32_t begin = sl_client_clock(options->client);
    struct trainer trainer = {
        .options = options,
        .report = report,
        .lead = lead,
        /* A pull after the tick is of the next iteration: too early a clock when SSP prefetches
         * further. */
        .fused = options->consistency.mode == SL_CONSISTENCY_ASP || lead == 0,
        .begin = begin,
        .clock = begin,
    };
    int err = init(&trainer, train_reader);
    err = err != 0 ? err : train_and_evaluate(&trainer);
    fini(&trainer);
    sl_client_stats(options->client, &report->traffic);
    return err;
}
