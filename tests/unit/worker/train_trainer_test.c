/* What a trainer asks of its client, step by step. The client here is the test's own: linked before
 * the library's, it stands in for it, keeps the parameters in two arrays, records every step, and
 * fails one when it is told to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/assert.h"
#include "core/log.h"
#include "train_files.h"
#include "worker/train/trainer.h"

enum { STEPS_MAX = 64, OPERATIONS_MAX = 8 };

struct seen_step {
    uint32_t clock;
    bool pushes, pulls, ticks, finishes, waited;
};

/* The stand-in's state; one test at a time. */
static struct {
    struct seen_step steps[STEPS_MAX];
    uint32_t step_count;
    uint32_t fail_at; /* the step whose wait fails; STEPS_MAX: none */
    uint32_t stop_at; /* the step whose submission raises *stop; STEPS_MAX: none */
    uint32_t outstanding, outstanding_most;
    uint32_t barriers;
    struct sl_table_spec specs[SL_MODEL_TABLES];
    uint32_t table_count;
} fake;

static volatile sig_atomic_t stop;
static volatile sig_atomic_t waiting;

struct sl_client {
    int unused;
};
struct sl_table {
    int unused;
};
struct sl_step {
    uint32_t index;
    struct seen_step seen;
    float *reads[OPERATIONS_MAX];
    uint64_t read_floats[OPERATIONS_MAX];
    uint32_t read_count;
};

int sl_client_table_open(struct sl_client *client, const struct sl_table_spec *spec,
                         uint32_t timeout_ms, struct sl_table **out)
{
    (void)client;
    (void)timeout_ms;
    static struct sl_table tables[SL_MODEL_TABLES];
    fake.specs[fake.table_count] = *spec;
    *out = &tables[fake.table_count++];
    return 0;
}

int sl_client_barrier(struct sl_client *client, const char *name, uint32_t count,
                      uint32_t timeout_ms)
{
    (void)client;
    (void)name;
    (void)timeout_ms;
    assert_int_equal(count, 1);
    assert_int_equal(waiting, 1);
    fake.barriers++;
    return 0;
}

void sl_client_stats(const struct sl_client *client, struct sl_client_stats *out)
{
    (void)client;
    *out = (struct sl_client_stats){.requests = 1};
}

int sl_step_begin(struct sl_client *client, uint32_t clock, struct sl_step **out)
{
    (void)client;
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->seen.clock = clock;
    return 0;
}

static void will_read(struct sl_step *step, float *to, uint64_t floats)
{
    step->seen.pulls = true;
    /* Behind the tick, or it would be of the iteration that is pushed. */
    assert_true(step->seen.ticks || !step->seen.pushes);
    step->reads[step->read_count] = to;
    step->read_floats[step->read_count++] = floats;
}

int sl_step_pull(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, float *rows)
{
    (void)table;
    (void)keys;
    will_read(step, rows, key_count);
    return 0;
}

int sl_step_dense_pull(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       float *values)
{
    (void)table;
    assert_true(start == 0);
    will_read(step, values, count);
    return 0;
}

int sl_step_push(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, const float *gradients)
{
    (void)table;
    (void)keys;
    (void)key_count;
    (void)gradients;
    step->seen.pushes = true;
    return 0;
}

int sl_step_dense_push(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       const float *gradients)
{
    (void)table;
    (void)start;
    (void)count;
    (void)gradients;
    step->seen.pushes = true;
    return 0;
}

int sl_step_tick(struct sl_step *step)
{
    step->seen.ticks = true;
    return 0;
}

int sl_step_finish(struct sl_step *step)
{
    step->seen.finishes = true;
    return 0;
}

int sl_step_submit(struct sl_step *step, uint32_t timeout_ms)
{
    assert_int_equal(timeout_ms, 1234);
    sl_assert(fake.step_count < STEPS_MAX);
    step->index = fake.step_count++;
    fake.steps[step->index] = step->seen;
    fake.outstanding++;
    if (fake.outstanding > fake.outstanding_most) {
        fake.outstanding_most = fake.outstanding;
    }
    if (step->index == fake.stop_at) {
        stop = SIGTERM;
    }
    return 0;
}

int sl_step_wait(struct sl_step *step)
{
    fake.steps[step->index].waited = true;
    fake.outstanding--;
    if (step->index == fake.fail_at) {
        return SL_ERR_DEADLINE;
    }
    for (uint32_t i = 0; i < step->read_count; i++) {
        memset(step->reads[i], 0, step->read_floats[i] * sizeof(float));
    }
    return 0;
}

const char *sl_step_error(const struct sl_step *step)
{
    return step->index == fake.fail_at ? "ps/0 shard 3 did not answer" : "";
}

uint32_t sl_step_staleness(const struct sl_step *step)
{
    (void)step;
    return 1;
}

void sl_step_end(struct sl_step **step)
{
    free(*step);
    *step = NULL;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static struct sl_reader *open_text(struct train_files *files, const char *text)
{
    train_files_begin(files);
    train_files_add(files, text, strlen(text));
    const struct sl_reader_options options = {
        .format = &sl_reader_libsvm, .paths = files->list, .path_count = 1, .share_count = 1};
    struct sl_reader *reader;
    char reason[256];
    assert_int_equal(sl_reader_open(&options, &reader, reason, sizeof reason), 0);
    return reader;
}

/* Trains lr on the text, two rows a batch; the stand-in's faults are set before. */
static int train_text(const char *text, const char *test, enum sl_consistency_mode mode,
                      uint32_t staleness, struct sl_report *report)
{
    struct train_files files;
    struct train_files test_files;
    struct sl_client client = {0};
    struct sl_reader *train = open_text(&files, text);
    struct sl_reader *test_reader = test == NULL ? NULL : open_text(&test_files, test);
    const struct sl_trainer_options options = {
        .client = &client,
        .worker_count = 1,
        .model = &sl_model_lr,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
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
    sl_report_init(report);
    int err = sl_trainer_run(&options, train, test_reader, report);
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

static int reset(void **state)
{
    memset(&fake, 0, sizeof fake);
    fake.fail_at = STEPS_MAX;
    fake.stop_at = STEPS_MAX;
    stop = 0;
    sl_log_setup(SL_LOG_OFF, "test");
    *state = malloc(sizeof(struct sl_report));
    return *state == NULL ? -1 : 0;
}

static int release(void **state)
{
    free(*state);
    return 0;
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

#define FOUR_BATCHES "0 1:1\n1 2:1\n0 1:1\n1 2:1\n0 1:1\n1 2:1\n0 1:1\n"

/* Each push is one message with the pull for two batches later. */
static void trainer_run__in_asp_fuses_push_tick_and_pull(void **state)
{
    struct sl_report *report = *state;
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
    assert_float_equal(report->train_loss, 0.693147, 1e-5);
    assert_int_equal(fake.barriers, 3);
}

/* The pull for the next iteration is behind the tick, in the same step. */
static void trainer_run__in_bsp_fuses_push_tick_and_pull(void **state)
{
    struct sl_report *report = *state;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.step_count, 5);
    check_step(0, 0, "pull ");
    check_step(1, 0, "push tick pull ");
    check_step(2, 1, "push tick pull ");
    check_step(3, 2, "push tick pull ");
    check_step(4, 3, "push finish ");
    assert_int_equal(fake.outstanding_most, 1);
    assert_int_equal(fake.specs[0].consistency.worker_count, 1);
    assert_true(report->staleness.max == 1);
}

/* One iteration further ahead than the tick: a step of its own. */
static void trainer_run__in_ssp_pulls_one_iteration_ahead(void **state)
{
    struct sl_report *report = *state;
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

static void trainer_run__in_ssp_0_waits_as_in_bsp(void **state)
{
    struct sl_report *report = *state;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_SSP, 0, report), 0);
    check_step(1, 0, "push tick pull ");
    check_step(2, 1, "push tick pull ");
}

static void trainer_run__without_rows_only_finishes(void **state)
{
    struct sl_report *report = *state;
    assert_int_equal(train_text("\n", NULL, SL_CONSISTENCY_BSP, 0, report), 0);
    assert_int_equal(fake.step_count, 1);
    check_step(0, 0, "finish ");
    assert_int_equal(fake.barriers, 3);
}

/* Whichever step it is: the error comes back, and nothing is left outstanding. */
static void trainer_run__ends_with_the_step_that_failed(void **state)
{
    struct sl_report *report = *state;
    const enum sl_consistency_mode modes[] = {SL_CONSISTENCY_ASP, SL_CONSISTENCY_BSP};
    const uint32_t step_counts[] = {6, 5};
    for (uint32_t m = 0; m < 2; m++) {
        for (uint32_t at = 0; at < step_counts[m]; at++) {
            (void)release(state);
            assert_int_equal(reset(state), 0);
            report = *state;
            fake.fail_at = at;
            assert_int_equal(train_text(FOUR_BATCHES, NULL, modes[m], 0, report), SL_ERR_DEADLINE);
            assert_false(report->complete);
            assert_int_equal(fake.barriers, 1);
        }
    }
}

static void trainer_run__ends_at_a_bad_line(void **state)
{
    struct sl_report *report = *state;
    int err = train_text("0 1:1\n1 2:1\n0 1:1\nbad\n", NULL, SL_CONSISTENCY_ASP, 0, report);
    assert_int_equal(err, SL_ERR_INVALID);
    assert_false(report->complete);
}

/* The batch in hand is pushed, the clock is finished, and nothing is pulled any more. */
static void trainer_run__stops_after_the_step_in_hand(void **state)
{
    struct sl_report *report = *state;
    fake.stop_at = 1;
    assert_int_equal(train_text(FOUR_BATCHES, NULL, SL_CONSISTENCY_ASP, 0, report),
                     SL_ERR_CANCELLED);
    assert_int_equal(fake.step_count, 3);
    check_step(2, 0, "push finish ");
    assert_int_equal(fake.barriers, 1);
}

static void trainer_run__evaluates_after_training(void **state)
{
    struct sl_report *report = *state;
    assert_int_equal(
        train_text(FOUR_BATCHES, "0 1:1\n1 2:1\n1 3:1\n", SL_CONSISTENCY_BSP, 0, report), 0);
    check_step(fake.step_count - 1, 0, "pull ");
    assert_true(report->evaluated);
    assert_true(report->test_rows == 3);
    assert_float_equal(report->test_auc, 0.5, 0); /* the stand-in's weights are zeros: all ties */
    assert_float_equal(report->test_loss, 0.693147, 1e-5);
    assert_true(report->pull_ns.count == 4); /* of training only */
}

static void trainer_run__refuses_test_data_of_one_label(void **state)
{
    struct sl_report *report = *state;
    int err = train_text(FOUR_BATCHES, "1 1:1\n1 2:1\n", SL_CONSISTENCY_BSP, 0, report);
    assert_int_equal(err, SL_ERR_INVALID);
    assert_true(report->complete);
    assert_false(report->evaluated);
    assert_int_equal(fake.barriers, 3); /* nobody is left waiting */
}

#define trainer_test(name) cmocka_unit_test_setup_teardown(name, reset, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        trainer_test(trainer_run__in_asp_fuses_push_tick_and_pull),
        trainer_test(trainer_run__in_bsp_fuses_push_tick_and_pull),
        trainer_test(trainer_run__in_ssp_pulls_one_iteration_ahead),
        trainer_test(trainer_run__in_ssp_0_waits_as_in_bsp),
        trainer_test(trainer_run__without_rows_only_finishes),
        trainer_test(trainer_run__ends_with_the_step_that_failed),
        trainer_test(trainer_run__ends_at_a_bad_line),
        trainer_test(trainer_run__stops_after_the_step_in_hand),
        trainer_test(trainer_run__evaluates_after_training),
        trainer_test(trainer_run__refuses_test_data_of_one_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
