/* What a trainer asks of its client, step by step and barrier by barrier. */
#include <math.h>
#include <string.h>

#include "core/log.h"
#include "files.h"
#include "programs/train/job_progress.h"
#include "programs/train/trainer.h"
#include "stand_in.h"
#include "tests/support/unit.h"

static struct sl_reader *open_text(struct train_files *files, const char *text)
{
    train_files_begin(files);
    train_files_add(files, text, strlen(text));
    const struct sl_reader_options options = {
        .format = &sl_reader_libsvm, .paths = files->list, .path_count = 1, .share_count = 1};
    struct sl_reader *reader;
    assert_int_equal(sl_reader_open(&options, &reader, NULL), 0);
    return reader;
}

static int save(void *ctx, struct sl_table *const *tables, const struct sl_table_spec *specs,
                uint32_t table_count, uint64_t *rows)
{
    assert_ptr_equal(ctx, &fake);
    assert_int_equal(table_count, 2); /* of lr */
    assert_string_equal(specs[0].name, "lr/weights");
    fake.save_count++;
    *rows = 12;
    return fake.save_result;
}

/* Trains lr on the text, two rows a batch, as one of three workers; the stand-in's faults are set
 * before. */
static int train_as(uint32_t worker_index, const char *text, const char *test,
                    enum sl_consistency_mode mode, uint32_t staleness,
                    struct sl_train_report *report)
{
    struct train_files files;
    struct train_files test_files;
    struct sl_client client = {0};
    struct sl_reader *train = open_text(&files, text);
    struct sl_reader_options test_options = {
        .format = &sl_reader_libsvm, .path_count = 1, .share_count = 1};
    if (test != NULL) {
        train_files_begin(&test_files);
        train_files_add(&test_files, test, strlen(test));
        test_options.paths = test_files.list;
    }
    const struct sl_trainer_options options = {
        .client = &client,
        .worker_index = worker_index,
        .worker_count = 3,
        .test = test == NULL ? NULL : &test_options,
        .test_every = fake.test_every,
        .patience = fake.patience,
        .save = fake.saves ? save : NULL,
        .save_ctx = &fake,
        .model = &sl_model_lr,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
        .tables = {.values = fake.values, .slots = fake.slots, .encoding = fake.encoding},
        .is_lr_given = fake.is_lr_given,
        .consistency = {.mode = mode, .staleness = staleness},
        .epochs = 1,
        .batch_rows = 2,
        .step_timeout_ms = 1234,
        .start_timeout_ms = 1,
        .barrier_timeout_ms = 1,
        .stop = &stop,
        .waiting = &waiting,
        .quiet = true,
        .clock = sl_clock_system(),
    };
    sl_train_report_init(report);
    report->job.save = fake.save_path;
    int err = sl_trainer_run(&options, train, report);
    assert_int_equal(fake.outstanding, 0);
    for (uint32_t i = 0; i < fake.step_count; i++) {
        assert_true(fake.steps[i].waited);
    }
    train_files_end(&files);
    if (test != NULL) {
        train_files_end(&test_files);
    }
    return err;
}

static int train_text(const char *text, const char *test, enum sl_consistency_mode mode,
                      uint32_t staleness, struct sl_train_report *report)
{
    return train_as(0, text, test, mode, staleness, report);
}

static void reset(struct sl_train_report *report)
{
    train_stand_in_reset();
    sl_log_setup(SL_LOG_OFF, "test");
}

static void check_step(uint32_t index, uint32_t clock, const char *does)
{
    const struct seen_step *seen = &fake.steps[index];
    char text[32];
    (void)snprintf(text, sizeof text, "%s%s%s%s", seen->pushes ? "push " : "",
                   seen->ticks ? "tick " : "", seen->finishes ? "finish " : "",
                   seen->pulls ? "pull " : "");
    assert_string_equal(text, does);
    assert_int_equal(seen->clock, clock);
}

/* The barriers in their order, by the last word of their names. */
static void check_barriers(const char *names)
{
    char text[BARRIERS_MAX * 8] = "";
    for (uint32_t i = 0; i < fake.barrier_count; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s", i == 0 ? "" : " ",
                       strrchr(fake.barriers[i], '/') + 1);
    }
    assert_string_equal(text, names);
}

#define CASE(name)   SL_CASE_USING(name, struct sl_train_report, report, reset, sl_unit_nothing)

#define TWO_LABELS   "0 1:1\n1 2:1\n"
#define FOUR_BATCHES "0 1:1\n1 2:1\n0 1:1\n1 2:1\n0 1:1\n1 2:1\n0 1:1\n"

/* Each push is one message with the pull for two batches later. */
CASE(trainer_run__in_asp_fuses_push_tick_and_pull)
{
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_int_equal(fake.step_count, 6);
    check_step(0, 0, "pull ");
    check_step(1, 1, "pull ");
    check_step(2, 0, "push tick pull ");
    check_step(3, 1, "push tick pull ");
    check_step(4, 2, "push tick ");
    check_step(5, 3, "push finish ");
    assert_int_equal(fake.specs[0].consistency.worker_count, 0);
    assert_true(report->complete);
    assert_true(report->rows == 7 && report->batches == 4);
    assert_true(report->pull_ns.count == 4 && report->push_ns.count == 4);
    assert_true(report->staleness.min == 2); /* the step's, and one further ahead */
    const struct sl_train_report_processor *spent = &report->processor;
    assert_true(spent->reading > 0 && spent->computing > 0 && spent->calling > 0);
    double sum = spent->reading + spent->computing + spent->calling + spent->client;
    assert_true(fabs(sum - spent->all) < 1e-9);
    assert_float_equal(report->train_loss, 0.693147, 1e-5);
    check_barriers("start end");
    assert_true(fake.milestones[SL_JOB_PROGRESS_STARTED] > 0);
}

/* The pull for the next iteration is behind the tick, in the same step. */
CASE(trainer_run__in_bsp_fuses_push_tick_and_pull)
{
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.step_count, 5);
    check_step(0, 0, "pull ");
    check_step(1, 0, "push tick pull ");
    check_step(2, 1, "push tick pull ");
    check_step(3, 2, "push tick pull ");
    check_step(4, 3, "push finish ");
    assert_int_equal(fake.outstanding_most, 1);
    assert_int_equal(fake.specs[0].consistency.worker_count, 3);
    assert_true(report->staleness.max == 1);
}

/* One iteration further ahead than the tick: a step of its own. */
CASE(trainer_run__in_ssp_pulls_one_iteration_ahead)
{
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_SSP, 2, report), 0);
    assert_int_equal(fake.step_count, 8);
    check_step(0, 0, "pull ");
    check_step(1, 1, "pull ");
    check_step(2, 0, "push tick ");
    check_step(3, 2, "pull ");
    check_step(4, 1, "push tick ");
    check_step(5, 3, "pull ");
    check_step(6, 2, "push tick ");
    check_step(7, 3, "push finish ");
    assert_int_equal(fake.specs[0].consistency.staleness, 2);
}

CASE(trainer_run__without_rows_only_finishes)
{
    assert_int_equal(train_text("\n", NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.step_count, 1);
    check_step(0, 0, "finish ");
    check_barriers("start end");
}

/* Whichever step it is: the error comes back, and nothing is left outstanding. */
CASE(trainer_run__ends_with_the_step_that_failed)
{
    const enum sl_consistency_mode modes[] = {SL_CONSISTENCY_ASP, SL_CONSISTENCY_BSP};
    const uint32_t step_counts[] = {6, 5};
    for (uint32_t m = 0; m < 2; m++) {
        for (uint32_t at = 0; at < step_counts[m]; at++) {
            reset(report);
            fake.fail_at = at;
            assert_int_equal(train_text(FOUR_BATCHES, NULL, modes[m], 0, report), SL_ERR_DEADLINE);
            assert_false(report->complete);
            check_barriers("start");
        }
    }
}

/* Gradients that are no numbers would spread to every parameter: they are not pushed. */
CASE(trainer_run__fails_without_a_push_when_the_model_has_diverged)
{
    fake.pulled = NAN;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report), SL_ERR_CORRUPT);
    assert_int_equal(fake.step_count, 1);
    check_step(0, 0, "pull ");
    assert_false(report->complete);
}

CASE(trainer_run__ends_at_a_bad_line)
{
    int err = train_text("0 1:1\n1 2:1\n0 1:1\nbad\n", NULL, SL_CONSISTENCY_ASP, 0, report);
    assert_int_equal(err, SL_ERR_INVALID);
    assert_false(report->complete);
}

CASE(trainer_run__evaluates_after_training)
{
    assert_int_equal(
        train_text(FOUR_BATCHES, "0 1:1\n1 2:1\n1 3:1\n", SL_CONSISTENCY_BSP, 0, report), 0);
    check_step(fake.step_count - 1, 0, "pull ");
    assert_true(report->evaluated);
    assert_true(report->test_rows == 3);
    assert_float_equal(report->test_auc, 0.5, 0); /* the stand-in's weights are zeros: all ties */
    assert_float_equal(report->test_loss, 0.693147, 1e-5);
    assert_true(report->pull_ns.count == 4); /* of training only */
    check_barriers("start end end");
}

CASE(trainer_run__refuses_test_data_of_one_label)
{
    int err = train_text(FOUR_BATCHES, "1 1:1\n1 2:1\n", SL_CONSISTENCY_BSP, 0, report);
    assert_int_equal(err, SL_ERR_INVALID);
    assert_true(report->complete);
    assert_false(report->evaluated);
    check_barriers("start end end");                             /* nobody is left waiting, */
    assert_true(fake.milestones[SL_JOB_PROGRESS_EVALUATED] > 0); /* and nobody tries again */
}

CASE(trainer_run__saves_without_test_data)
{
    fake.saves = true;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_true(fake.save_count == 1 && report->is_saved && report->saved_rows == 12);
    assert_false(report->evaluated);
    check_barriers("start end end");
}

CASE(trainer_run__fails_when_the_model_cannot_be_saved)
{
    fake.saves = true;
    fake.save_result = SL_ERR_IO;
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_IO);
    assert_false(report->is_saved);
    assert_true(fake.milestones[SL_JOB_PROGRESS_FAILED] > 0);
    check_barriers("start end end");
}

/* The stand-in's model never changes: the first evaluation is the best. The one behind the second
 * batch gains nothing, the third batch has been pulled, and the fourth is not trained. */
CASE(trainer_run__ends_when_evaluations_gain_nothing)
{
    fake.saves = true;
    fake.test_every = 0.25;
    fake.patience = 1;
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_true(report->complete && report->batches == 3);
    assert_true(fake.milestones[SL_JOB_PROGRESS_ENOUGH] > 0);
    assert_int_equal(fake.save_count, 1);
    check_step(fake.step_count - 3, 2, "push finish ");
    check_step(fake.step_count - 2, 0, "pull "); /* the last evaluation */
    check_step(fake.step_count - 1, 0, "");      /* the best one, recorded */
    check_barriers("start end end");
}

CASE(trainer_run__goes_on_while_there_is_patience)
{
    fake.test_every = 0.25;
    fake.patience = 3;
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(report->batches == 4);
    assert_true(fake.milestones[SL_JOB_PROGRESS_ENOUGH] == 0);
}

CASE(trainer_run__saves_when_it_is_stopped)
{
    fake.saves = true;
    fake.stop_at = 1;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_CANCELLED);
    assert_true(fake.save_count == 1 && report->is_saved && !report->complete);
    check_barriers("start");
}

/* The others are slower; they leave when they are stopped too. */
CASE(trainer_run__saves_when_it_is_stopped_at_its_end)
{
    fake.saves = true;
    fake.signal_at = 1;
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_CANCELLED);
    assert_true(fake.save_count == 1 && report->is_saved && !report->evaluated);
    check_barriers("start end");
}

CASE(trainer_run__stopped_leaves_the_saving_to_worker_0)
{
    fake.saves = true;
    fake.stop_at = 1;
    assert_int_equal(train_as(1, FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_CANCELLED);
    assert_int_equal(fake.save_count, 0);
}

/* A model of a worse AUC does not replace the best one. */
CASE(trainer_run__stopped_keeps_the_best_model)
{
    fake.saves = true;
    fake.test_every = 0.25;
    fake.stop_at = 4; /* behind the first evaluation */
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_CANCELLED);
    assert_true(fake.save_count == 1 && report->evaluated);
}

/* Records what a worker reached before it was lost. */
static void be_replaced(void)
{
    const struct sl_job_progress_best best = {
        .evaluations = 3, .auc = 0.7123456789, .epoch = 0.5, .saved_rows = 16777217};
    const struct sl_milestones milestones = {.timeout_ms = 1234};
    fake.saves = true;
    fake.test_every = 0.25;
    fake.patience = 3;
    assert_int_equal(sl_job_progress_set_best(&milestones, &best), 0);
}

/* The stand-in's AUC is 0.5: worse than the best one, and the third without a gain. */
CASE(trainer_run__keeps_the_best_model_of_a_lost_worker)
{
    be_replaced();
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.save_count, 0);
    assert_true(report->is_saved && report->saved_rows == 16777217);
    assert_true(fabs(report->best_auc - 0.7123456789) < 1e-12);
    assert_true(report->best_epoch == 0.5);
    assert_true(fake.milestones[SL_JOB_PROGRESS_ENOUGH] > 0);
    assert_true(report->batches == 2);
}

CASE(trainer_run__saves_again_if_the_best_model_is_not_here)
{
    be_replaced();
    fake.save_path = "/none/m.safetensors";
    assert_int_equal(train_text(FOUR_BATCHES, TWO_LABELS, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.save_count, 1);
    assert_true(report->is_saved && report->saved_rows == 12 && report->best_auc == 0.5);
}

CASE(trainer_run__ends_when_worker_0_has_had_enough)
{
    fake.test_every = 0.25;
    fake.patience = 1;
    fake.milestones[SL_JOB_PROGRESS_ENOUGH] = 1;
    assert_int_equal(train_as(1, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(report->complete && report->batches == 1);
    check_step(fake.step_count - 1, 0, "push finish ");
}

/* All workers have finished and failed: those that come back only evaluate. */
CASE(trainer_run__repeats_an_evaluation_that_failed)
{
    fake.begin = UINT32_MAX;
    fake.milestones[SL_JOB_PROGRESS_EVALUATED] = 1;
    fake.milestones[SL_JOB_PROGRESS_FAILED] = 1;
    assert_int_equal(train_text(FOUR_BATCHES, "0 1:1\n1 2:1\n", SL_CONSISTENCY_BSP, 0, report), 0);
    assert_true(report->complete && report->evaluated && report->rows == 0);
    assert_true(fake.milestones[SL_JOB_PROGRESS_EVALUATED] > 0);
    assert_true(fake.milestones[SL_JOB_PROGRESS_FAILED] == 0);
}

/* The others are further than its share of the data goes: it holds nobody up. */
CASE(trainer_run__behind_its_data_only_finishes)
{
    fake.begin = 4;
    fake.milestones[SL_JOB_PROGRESS_STARTED] = 1;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.step_count, 1);
    check_step(0, 4, "finish ");
    assert_true(report->complete && report->rows == 0);
    check_barriers("end");
}

/* In the place of a worker that had finished it is there for the end of the job only. */
CASE(trainer_run__without_a_clock_trains_nothing)
{
    fake.begin = UINT32_MAX;
    assert_int_equal(train_text(FOUR_BATCHES, "0 1:1\n1 2:1\n", SL_CONSISTENCY_BSP, 0, report), 0);
    check_barriers("end end");
    assert_true(report->complete && report->evaluated && report->rows == 0);
    assert_false(fake.steps[0].pushes || fake.steps[0].ticks || fake.steps[0].finishes);
}

CASE(trainer_run__goes_on_when_the_others_began_while_it_came)
{
    fake.late_at = 0;
    fake.reached_at[SL_JOB_PROGRESS_STARTED] = 1;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    check_barriers("start end");
}

CASE(trainer_run__ends_when_not_all_come_to_the_start)
{
    fake.late_at = 0;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report),
                     SL_ERR_DEADLINE);
    assert_int_equal(fake.step_count, 0);
    assert_true(fake.milestones[SL_JOB_PROGRESS_STARTED] == 0);
}

CASE(trainer_run__ends_when_the_evaluation_does_not_come)
{
    fake.late_at = 2;
    assert_int_equal(train_as(1, FOUR_BATCHES, "0 1:1\n1 2:1\n", SL_CONSISTENCY_BSP, 0, report),
                     SL_ERR_DEADLINE);
    assert_true(report->complete);
}

/* --lr of a restored job scales the rate that its tables have. */
CASE(trainer_run__keeps_the_rate_of_a_restored_job)
{
    fake.lr = 4;
    fake.is_restored = true;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(fake.step_count > 1);
    for (uint32_t i = 0; i < fake.step_count; i++) {
        assert_true(fake.steps[i].rate == 0 || fake.steps[i].rate == 1);
    }
}

CASE(trainer_run__scales_the_rate_of_a_restored_job)
{
    fake.lr = 4;
    fake.is_lr_given = true;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report),
                     SL_ERR_EXISTS); /* a running job of another rate */
    fake.is_restored = true;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(fake.step_count > 1);
    float asked = 0;
    for (uint32_t i = 0; i < fake.step_count; i++) {
        asked = fake.steps[i].pushes ? fake.steps[i].rate * fake.lr : asked;
        assert_true(!fake.steps[i].pushes || fake.steps[i].rate != 0);
    }
    assert_float_equal(asked, sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD).lr, 1e-6F);
}

/* Dense tables are stored as f32, and not pulled as INT8; INT8 gradients have error feedback. */
CASE(trainer_run__sets_precisions)
{
    const struct sl_encoding_options *weights = &fake.encodings[0], *bias = &fake.encodings[1];
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(weights->struct_size == 0 && bias->struct_size == 0);
    reset(report);
    fake.values = SL_PRECISION_INT8;
    fake.slots = SL_PRECISION_F16;
    fake.encoding = SL_PRECISION_BF16;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_int_equal(fake.specs[0].values, SL_PRECISION_INT8);
    assert_int_equal(fake.specs[0].slots, SL_PRECISION_F16);
    assert_int_equal(fake.specs[1].values, SL_PRECISION_F32);
    assert_int_equal(fake.specs[1].slots, SL_PRECISION_F32);
    assert_true(weights->pull == SL_PRECISION_BF16 && weights->push == SL_PRECISION_BF16);
    assert_true(weights->error_feedback_bytes == 0);
    reset(report);
    fake.encoding = SL_PRECISION_INT8;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report), 0);
    assert_true(weights->pull == SL_PRECISION_INT8 && weights->push == SL_PRECISION_INT8);
    assert_true(bias->pull == SL_PRECISION_BF16 && bias->push == SL_PRECISION_INT8);
    assert_true(weights->error_feedback_bytes > 1000000 && bias->error_feedback_bytes == 4);
}

CASE(trainer_run__fails_when_a_ps_has_lost_values)
{
    fake.values_lost = 1;
    assert_int_equal(train_as(2, FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report),
                     SL_ERR_CORRUPT);
    assert_false(report->complete);
    for (uint32_t i = 0; i < fake.step_count; i++) {
        assert_false(fake.steps[i].pushes);
    }
}
