#include "stand_in.h"

#include <starling_rows.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "tests/support/unit.h"
#include "worker/client/table_lookup.h"

struct train_stand_in fake;
volatile sig_atomic_t stop;
volatile sig_atomic_t waiting;

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
    static struct sl_table tables[SL_MODEL_TABLES + 1];
    if (fake.lr != 0 && spec->optimizer.lr != fake.lr &&
        strncmp(spec->name, "starling-worker/", 16) != 0) {
        return SL_ERR_EXISTS;
    }
    fake.specs[fake.table_count] = *spec;
    *out = &tables[fake.table_count++];
    return 0;
}

int sl_table_lookup_restored(struct sl_client *client, const char *name, uint32_t timeout_ms,
                             struct sl_table_spec *out)
{
    *out = (struct sl_table_spec){.optimizer = {.kind = SL_OPTIMIZER_ADAGRAD, .lr = fake.lr}};
    return fake.is_restored ? 0 : SL_ERR_NOT_FOUND;
}

/* Set before the next table is opened. */
int sl_table_set_encoding(struct sl_table *table, const struct sl_encoding_options *options)
{
    fake.encodings[fake.table_count - 1] = *options;
    return 0;
}

int sl_step_set_encoding(struct sl_step *step, enum sl_precision pull, enum sl_precision push)
{
    return 0;
}

int sl_step_set_rate(struct sl_step *step, float factor)
{
    step->seen.rate = factor;
    return 0;
}

int sl_client_barrier(struct sl_client *client, const char *name, uint32_t count,
                      uint32_t timeout_ms)
{
    assert_int_equal(count, 0); /* all workers of the job */
    sl_assert(fake.barrier_count < BARRIERS_MAX);
    uint32_t index = fake.barrier_count++;
    if (index == fake.signal_at) {
        assert_int_equal(waiting, 0); /* or the signal would end the process */
        stop = SIGTERM;
    } else if (!fake.saves) {
        assert_int_equal(waiting, 1);
    }
    fake.barriers[index] = name;
    for (uint32_t m = 0; m < 4; m++) {
        fake.milestones[m] += fake.barrier_count == fake.reached_at[m] ? 1.0F : 0.0F;
    }
    return index == fake.late_at ? SL_ERR_DEADLINE : 0;
}

int32_t sl_client_values_lost(const struct sl_client *client)
{
    return fake.values_lost;
}

uint32_t sl_client_clock(const struct sl_client *client)
{
    return fake.begin;
}

/* Only the milestones are asked for in this way. */
int sl_client_pull(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, float *rows, uint32_t timeout_ms)
{
    assert_int_equal(timeout_ms, 1234);
    for (uint32_t i = 0; i < key_count; i++) {
        rows[i] = fake.milestones[keys[i]];
    }
    return 0;
}

int sl_client_push(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, const float *gradients, uint32_t timeout_ms)
{
    assert_int_equal(timeout_ms, 1234);
    assert_int_equal(key_count, 1);
    fake.milestones[keys[0]] += gradients[0];
    return 0;
}

void sl_client_stats(const struct sl_client *client, struct sl_client_stats *out)
{
    *out = (struct sl_client_stats){.requests = 1};
}

int sl_step_begin(struct sl_client *client, uint32_t clock, struct sl_step **out)
{
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
    will_read(step, rows, key_count);
    return 0;
}

int sl_step_dense_pull(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       float *values)
{
    assert_true(start == 0);
    will_read(step, values, count);
    return 0;
}

int sl_step_push(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                 uint32_t key_count, const float *gradients)
{
    step->seen.pushes = true;
    return 0;
}

/* Only milestones are assigned. */
int sl_step_assign(struct sl_step *step, struct sl_table *table, const uint64_t *keys,
                   uint32_t key_count, const float *rows)
{
    for (uint32_t i = 0; i < key_count; i++) {
        fake.milestones[keys[i]] = rows[i];
    }
    return 0;
}

int sl_step_dense_push(struct sl_step *step, struct sl_table *table, uint64_t start, uint64_t count,
                       const float *gradients)
{
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
        for (uint64_t k = 0; k < step->read_floats[i]; k++) {
            step->reads[i][k] = fake.pulled;
        }
    }
    return 0;
}

const char *sl_step_error(const struct sl_step *step)
{
    return step->index == fake.fail_at ? "ps/0 shard 3 did not answer" : "";
}

uint32_t sl_step_staleness(const struct sl_step *step)
{
    return 1;
}

void sl_step_destroy(struct sl_step **step)
{
    free(*step);
    *step = NULL;
}

void train_stand_in_reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.fail_at = STEPS_MAX;
    fake.values_lost = -1;
    fake.stop_at = STEPS_MAX;
    fake.late_at = BARRIERS_MAX;
    fake.signal_at = BARRIERS_MAX;
    stop = 0;
}

struct sl_scan {
    uint32_t next;
    bool fails;
};

int sl_scan_open(struct sl_client *client, struct sl_table *table,
                 const struct sl_scan_options *options, struct sl_scan **out)
{
    assert_int_equal(options->timeout_ms, 1234);
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->fails = fake.scan_count++ < fake.scans_that_fail;
    return 0;
}

int sl_scan_next(struct sl_scan *scan, struct sl_scan_batch *out)
{
    static const uint64_t keys[] = {5, UINT64_C(1) << 63};
    static const float values[] = {0.5F, -2};
    if (scan->fails && scan->next == 1) {
        return SL_ERR_CLOSED;
    }
    *out = (struct sl_scan_batch){.row_count = scan->next < 2 ? 1 : 0,
                                  .width = 1,
                                  .keys = keys + scan->next,
                                  .values = values + scan->next};
    scan->next++;
    return 0;
}

void sl_scan_close(struct sl_scan **scan)
{
    free(*scan);
    *scan = NULL;
}

const char *sl_last_error(void)
{
    return "the stand-in's";
}
