/* Values in every precision, from a client to real servers and back, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "net/session/message_spec.h"
#include "tests/unit/worker/client/client_fixture.h"
#include "worker/client/operation.h"

static const struct shape shapes[] = {
    {1, 1, 1, SL_PROTOCOL_PER_TABLE},
    {1, 3, 2, SL_PROTOCOL_BATCHED},
};
#define SHAPE_COUNT (sizeof shapes / sizeof *shapes)

/* One fixture a shape, used by all tests: each has tables of its own. */
static struct fixture fixtures[SHAPE_COUNT];

static int start_all(void **state)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        fixtures[i] = fixture_start(&shapes[i]);
    }
    return 0;
}

static int stop_all(void **state)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        fixture_stop(&fixtures[i]);
    }
    return 0;
}

static struct sl_table *kv_table(struct sl_client *client, const char *name, uint32_t width,
                                 enum sl_precision values)
{
    struct sl_table_spec spec = {.struct_size = sizeof spec,
                                 .kind = SL_TABLE_KV,
                                 .dim = width,
                                 .values = values,
                                 .optimizer = {.kind = SL_OPTIMIZER_SUM}};
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    return fixture_table(client, &spec);
}

static struct sl_table *table_of(struct sl_client *client, struct sl_table_spec spec)
{
    return fixture_table(client, &spec);
}

/* What is refused */

static void expect_refused(int err, int expected, const char *text)
{
    assert_int_equal(err, expected);
    if (strstr(sl_last_error(), text) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", sl_last_error(), text);
    }
}

static int set(struct sl_table *table, enum sl_precision pull, enum sl_precision push,
               uint64_t feedback)
{
    const struct sl_encoding_options options = {.struct_size = sizeof options,
                                                .pull = pull,
                                                .push = push,
                                                .error_feedback_bytes = feedback};
    return sl_table_set_encoding(table, &options);
}

SL_CASE(table_set_encoding__names_what_it_refuses)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *sparse = table_of(client, fixture_sparse("refused", 4));
    struct sl_table *dense = table_of(client, fixture_dense("refused-dense", 100));
    struct sl_table *kv = kv_table(client, "refused-kv", 4, SL_PRECISION_F32);
    struct sl_table *bytes = kv_table(client, "refused-bytes", 1, SL_PRECISION_F32);
    struct sl_encoding_options none = {0};
    expect_refused(sl_table_set_encoding(sparse, &none), SL_ERR_INVALID,
                   "SL_ENCODING_OPTIONS_INIT");
    expect_refused(set(sparse, 4, 0, 0), SL_ERR_INVALID,
                   "table refused: pull is 4: accepts 0 (f32), 1 (f16), 2 (bf16), 3 (int8)");
    expect_refused(set(sparse, 0, (enum sl_precision) - 1, 0), SL_ERR_INVALID,
                   "table refused: push is -1: accepts 0");
    expect_refused(set(dense, SL_PRECISION_INT8, 0, 0), SL_ERR_INVALID,
                   "table refused-dense: pull is int8: a dense table accepts f32, f16, bf16");
    expect_refused(set(kv, SL_PRECISION_INT8, 0, 0), SL_ERR_INVALID,
                   "table refused-kv: pull is int8: a KV table accepts f32, f16, bf16");
    expect_refused(set(bytes, 0, SL_PRECISION_F16, 0), SL_ERR_INVALID,
                   "table refused-bytes: pull is f32 and push is f16: a KV table with values of 1 "
                   "bytes accepts f32 alone");
    expect_refused(set(kv, 0, SL_PRECISION_INT8, 8000), SL_ERR_INVALID,
                   "table refused-kv: error_feedback_bytes is 8000: a KV table accepts 0");
    expect_refused(set(dense, 0, SL_PRECISION_INT8, 399), SL_ERR_INVALID,
                   "table refused-dense: error_feedback_bytes is 399: accepts 0, and 400 or more");
    expect_refused(set(sparse, 0, SL_PRECISION_INT8, 1), SL_ERR_INVALID,
                   "error_feedback_bytes is 1: accepts 0, and 104 or more");
    assert_int_equal(set(dense, SL_PRECISION_BF16, SL_PRECISION_INT8, 400), 0);
    assert_int_equal(set(sparse, SL_PRECISION_INT8, SL_PRECISION_INT8, 104), 0);
    assert_int_equal(set(sparse, SL_PRECISION_F32, SL_PRECISION_F32, 0), 0);
    sparse->knows = SL_MESSAGE_SPEC_KNOWS_PRECISION - 1;
    expect_refused(set(sparse, SL_PRECISION_F16, 0, 0), SL_ERR_VERSION,
                   "table refused: another precision than f32 needs servers that know version 6 of "
                   "tables, and one knows version 5");
    assert_int_equal(set(sparse, SL_PRECISION_F32, SL_PRECISION_F32, 0), 0);
    sparse->knows = SL_MESSAGE_SPEC_KNOWS;
}

SL_CASE(step_set_encoding__names_what_it_refuses)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *sparse = table_of(client, fixture_sparse("step-refused", 4));
    struct sl_table *dense = table_of(client, fixture_dense("step-refused-dense", 100));
    const uint64_t key = 1;
    float row[4] = {0};
    struct sl_step *step = fixture_step(client, 0);
    expect_refused(sl_step_set_encoding(step, 0, 9), SL_ERR_INVALID,
                   "encoding: push is 9: accepts 0 (f32)");
    expect_refused(sl_step_submit(step, TIMEOUT_MS), SL_ERR_INVALID, "an operation was refused");
    sl_step_destroy(&step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_set_encoding(step, SL_PRECISION_INT8, SL_PRECISION_INT8), 0);
    assert_int_equal(sl_step_dense_push(step, dense, 0, 4, row), 0);
    expect_refused(sl_step_dense_pull(step, dense, 0, 4, row), SL_ERR_INVALID,
                   "table step-refused-dense: pull is int8: a dense table accepts");
    expect_refused(sl_step_submit(step, TIMEOUT_MS), SL_ERR_INVALID, "an operation was refused");
    sl_step_destroy(&step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_set_encoding(step, SL_PRECISION_F32, SL_PRECISION_F16), 0);
    sparse->knows = SL_MESSAGE_SPEC_KNOWS_PRECISION - 1;
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, row), 0);
    assert_int_equal(sl_step_assign(step, sparse, &key, 1, row), 0);
    expect_refused(sl_step_push(step, sparse, &key, 1, row), SL_ERR_VERSION,
                   "needs servers that know version 6 of tables, and one knows version 5");
    sparse->knows = SL_MESSAGE_SPEC_KNOWS;
    sl_step_destroy(&step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, row), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    expect_refused(sl_step_set_encoding(step, 0, 0), SL_ERR_INVALID, "submitted already");
    assert_int_equal(sl_step_wait(step), 0);
    sl_step_destroy(&step);
}

/* Nothing of the step is sent. */
SL_CASE(step_submit__refuses_int8_gradients_that_are_not_finite)
{
    struct sl_client *client = fixtures[1].client;
    struct sl_table *sparse = table_of(client, fixture_sparse("infinite", 3));
    struct sl_table *dense = table_of(client, fixture_dense("infinite-dense", 5000));
    struct sl_table *kv = kv_table(client, "infinite-kv", 4, SL_PRECISION_F32);
    const uint64_t keys[] = {10, 11, 12};
    const uint32_t lens[] = {2, 6, 1};
    float values[9] = {0};
    static const char *const texts[] = {"table infinite, key 11: a gradient is inf: int8 accepts",
                                        "table infinite-dense, element 4005: a gradient is nan",
                                        "table infinite-kv, key 11: a gradient is -inf"};
    const float wrong[] = {INFINITY, NAN, -INFINITY};
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_step *step = fixture_step(client, 0);
        const struct sl_kv_batch batch = {
            .keys = keys, .lens = lens, .key_count = 3, .value_count = 9, .push = values};
        assert_int_equal(sl_step_push(step, sparse, keys, 3, values), 0);
        assert_int_equal(sl_step_set_encoding(step, SL_PRECISION_F32, SL_PRECISION_INT8), 0);
        assert_int_equal(i == 0   ? sl_step_push(step, sparse, keys, 3, values)
                         : i == 1 ? sl_step_dense_push(step, dense, 4000, 9, values)
                                  : sl_step_kv(step, kv, &batch),
                         0);
        values[5] = wrong[i];
        expect_refused(sl_step_submit(step, TIMEOUT_MS), SL_ERR_INVALID, texts[i]);
        struct sl_table_stats stats;
        assert_int_equal(sl_client_table_stats(client, sparse, TIMEOUT_MS, &stats), 0);
        assert_int_equal(stats.pushed_rows, 0);
        sl_step_destroy(&step);
        values[5] = 0;
    }
}

/* Its server refuses the value, which travels as f32, and counts it. */
SL_CASE(step_submit__sends_what_a_table_with_reject_nonfinite_refuses)
{
    struct sl_client *client = fixtures[1].client;
    struct sl_table_spec specs[] = {fixture_sparse("finite", 2), fixture_dense("finite-dense", 20)};
    static const char *const texts[] = {"column 1 of key 11 is NaN", "element 13 is NaN"};
    const uint64_t keys[] = {10, 11};
    const float values[] = {0, 0, 0, NAN};
    float rows[4];
    for (uint32_t i = 0; i < 2; i++) {
        specs[i].reject_nonfinite = true;
        struct sl_table *table = fixture_table(client, &specs[i]);
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(set(table, SL_PRECISION_BF16, SL_PRECISION_INT8, 1000), 0);
        assert_int_equal(i == 0 ? sl_step_push_pull(step, table, keys, 2, values, rows)
                                : sl_step_dense_push_pull(step, table, 10, 4, values, rows),
                         0);
        assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
        expect_refused(sl_step_wait(step), SL_ERR_INVALID, texts[i]);
        sl_step_destroy(&step);
    }
}

/* A bag longer than a server sums at once: its parts are exact in 8 bits. */
SL_CASE(step_pull_pooled__narrows_the_sum_of_a_long_bag)
{
    enum { KEYS = 10000 };
    static uint64_t keys[KEYS];
    const uint32_t ends[] = {1, KEYS};
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = 5;
    }
    struct sl_table_spec spec = fixture_sparse("long-bag", 1);
    spec.initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_CONSTANT, .value = 1.0F};
    for (size_t shape = 0; shape < SHAPE_COUNT; shape++) {
        struct sl_table *table = table_of(fixtures[shape].client, spec);
        struct sl_step *step = fixture_step(fixtures[shape].client, 0);
        float pooled[2];
        assert_int_equal(sl_step_set_encoding(step, SL_PRECISION_BF16, SL_PRECISION_F32), 0);
        assert_int_equal(
            sl_step_pull_pooled(step, table, keys, KEYS, ends, 2, SL_POOLING_SUM, pooled), 0);
        assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
        assert_int_equal(sl_step_wait(step), 0);
        sl_step_destroy(&step);
        /* 9999 is 4095, 4096 and 1808: 4095 is rounded to 4096 */
        assert_true(pooled[0] == 1.0F && pooled[1] == 10000.0F);
    }
}

/* Round trips: integers up to 127, which every precision has */

enum { KEYS = 3000, ROWS = 2 * KEYS, DIM = 6, LENGTH = 1500000, LEN = 1700, VALUES = 9 * LEN };

struct trip {
    struct sl_client *client;
    struct sl_table *sparse, *dense, *kv;
    uint64_t keys[ROWS]; /* each twice */
    uint32_t bag_ends[ROWS / 2];
    float gradients[ROWS * DIM], rows[ROWS * DIM], pooled[ROWS / 2 * DIM], expected[KEYS * DIM];
    float dense_gradients[LENGTH], elements[LENGTH], expected_elements[LENGTH];
    uint64_t kv_keys[9];
    float kv_gradients[VALUES], values[VALUES], expected_values[VALUES];
};

static struct trip *begin_trip(struct sl_client *client)
{
    struct trip *trip = calloc(1, sizeof *trip);
    trip->client = client;
    trip->sparse = table_of(client, fixture_sparse("trip", DIM));
    trip->dense = table_of(client, fixture_dense("trip-dense", LENGTH));
    trip->kv = kv_table(client, "trip-kv", 4, SL_PRECISION_F32);
    for (uint32_t i = 0; i < ROWS; i++) {
        trip->keys[i] = sl_hash_key(i % KEYS);
        trip->bag_ends[i / 2] = i / 2 % 5 == 0 ? i / 2 * 2 : i + 1; /* every fifth is empty */
    }
    trip->bag_ends[ROWS / 2 - 1] = ROWS;
    for (uint32_t i = 0; i < ROWS * DIM; i++) {
        trip->gradients[i] = (float)(i / 5 % 2);
    }
    for (uint32_t i = 0; i < LENGTH; i++) {
        trip->dense_gradients[i] = (float)(i % 5) - 2;
    }
    for (uint32_t i = 0; i < VALUES; i++) {
        trip->kv_keys[i / LEN] = UINT64_MAX / 9 * (i / LEN) + 5;
        trip->kv_gradients[i] = (float)(i % 7);
    }
    return trip;
}

static void expect_pushes(struct trip *trip, float count)
{
    for (uint32_t i = 0; i < ROWS * DIM; i++) {
        trip->expected[i % (KEYS * DIM)] += count * trip->gradients[i];
    }
    for (uint32_t i = 0; i < LENGTH; i++) {
        trip->expected_elements[i] += count * trip->dense_gradients[i];
    }
    for (uint32_t i = 0; i < VALUES; i++) {
        trip->expected_values[i] += count * trip->kv_gradients[i];
    }
}

static void expect_values(const float *values, const float *expected, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] != expected[i]) {
            fail_msg("value %zu is %g, not %g", i, (double)values[i], (double)expected[i]);
        }
    }
}

static void expect_trip(struct trip *trip)
{
    expect_values(trip->rows, trip->expected, (size_t)KEYS * DIM);
    expect_values(trip->rows + (size_t)KEYS * DIM, trip->expected, (size_t)KEYS * DIM);
    expect_values(trip->elements, trip->expected_elements, LENGTH);
    expect_values(trip->values, trip->expected_values, VALUES);
    memset(trip->rows, 0, sizeof trip->rows);
    memset(trip->elements, 0, sizeof trip->elements);
    memset(trip->values, 0, sizeof trip->values);
}

static void expect_pooled(const struct trip *trip)
{
    for (uint32_t bag = 0; bag < ROWS / 2; bag++) {
        float sums[DIM] = {0};
        for (uint32_t i = bag == 0 ? 0 : trip->bag_ends[bag - 1]; i < trip->bag_ends[bag]; i++) {
            for (uint32_t column = 0; column < DIM; column++) {
                sums[column] += trip->expected[i % KEYS * DIM + column];
            }
        }
        expect_values(trip->pooled + (size_t)bag * DIM, sums, DIM);
    }
}

/* Sets the encodings of the tables, or that of the step. Dense and KV tables return no INT8. */
static void encode(struct trip *trip, struct sl_step *step, enum sl_precision pull,
                   enum sl_precision push)
{
    const enum sl_precision dense = pull == SL_PRECISION_INT8 ? SL_PRECISION_F16 : pull;
    assert_int_equal(set(trip->sparse, pull, push, 0), 0);
    assert_int_equal(set(trip->dense, dense, push, 0), 0);
    assert_int_equal(set(trip->kv, dense, push, 0), 0);
    if (pull == dense) {
        assert_int_equal(sl_step_set_encoding(step, pull, push), 0);
    }
}

static void check_trip(struct trip *trip, enum sl_precision pull, enum sl_precision push)
{
    struct sl_kv_batch batch = {
        .keys = trip->kv_keys, .key_count = 9, .value_count = VALUES, .push = trip->kv_gradients};
    struct sl_client *client = trip->client;
    struct sl_step *step = fixture_step(client, 0);
    encode(trip, step, pull, push);
    assert_int_equal(sl_step_push(step, trip->sparse, trip->keys, ROWS, trip->gradients), 0);
    assert_int_equal(sl_step_dense_push(step, trip->dense, 0, LENGTH, trip->dense_gradients), 0);
    assert_int_equal(sl_step_kv(step, trip->kv, &batch), 0);
    fixture_run(step);
    expect_pushes(trip, 1);
    step = fixture_step(client, 0);
    encode(trip, step, pull, push);
    batch.push = NULL;
    batch.pull = trip->values;
    assert_int_equal(sl_step_pull(step, trip->sparse, trip->keys, ROWS, trip->rows), 0);
    assert_int_equal(sl_step_pull_pooled(step, trip->sparse, trip->keys, ROWS, trip->bag_ends,
                                         ROWS / 2, SL_POOLING_SUM, trip->pooled),
                     0);
    assert_int_equal(sl_step_dense_pull(step, trip->dense, 0, 3, trip->elements), 0);
    assert_int_equal(sl_step_dense_pull(step, trip->dense, 3, LENGTH - 3, trip->elements + 3), 0);
    assert_int_equal(sl_step_kv(step, trip->kv, &batch), 0);
    fixture_run(step);
    expect_trip(trip);
    expect_pooled(trip);
    step = fixture_step(client, 0);
    encode(trip, step, pull, push);
    batch.push = trip->kv_gradients;
    assert_int_equal(
        sl_step_push_pull(step, trip->sparse, trip->keys, ROWS, trip->gradients, trip->rows), 0);
    assert_int_equal(sl_step_dense_push_pull(step, trip->dense, 0, LENGTH, trip->dense_gradients,
                                             trip->elements),
                     0);
    assert_int_equal(sl_step_kv(step, trip->kv, &batch), 0);
    fixture_run(step);
    expect_pushes(trip, 1);
    expect_trip(trip);
}

SL_CASE(step__carries_values_in_every_precision)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        struct trip *trip = begin_trip(fixtures[i].client);
        for (uint32_t pair = (uint32_t)i % STRIDE; pair < 2 * SL_PRECISION_COUNT;
             pair += 1 + STRIDE / 3) {
            const uint32_t pull = pair / 2;
            check_trip(trip, pull,
                       pair % 2 == 0 ? SL_PRECISION_INT8 : (pull + 1) % SL_PRECISION_INT8);
        }
        free(trip);
    }
}

/* Gradients below half of the scale arrive when enough of them have come. */
SL_CASE(table_set_encoding__with_error_feedback_loses_no_gradient)
{
    enum { PUSHES = 300 };
    struct sl_client *client = fixtures[1].client;
    struct sl_table *sparse = table_of(client, fixture_sparse("feedback", 2));
    struct sl_table *dense = table_of(client, fixture_dense("feedback-dense", 5000));
    const uint64_t key = 3;
    const float gradients[2] = {1, 0.001F};
    float row[2], elements[2];
    assert_int_equal(set(sparse, 0, SL_PRECISION_INT8, 1U << 16), 0);
    assert_int_equal(set(dense, 0, SL_PRECISION_INT8, 1U << 16), 0);
    for (uint32_t push = 0; push < PUSHES; push++) {
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(sl_step_push(step, sparse, &key, 1, gradients), 0);
        assert_int_equal(sl_step_dense_push(step, dense, 4000, 2, gradients), 0);
        fixture_run(step);
    }
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, row), 0);
    assert_int_equal(sl_step_dense_pull(step, dense, 4000, 2, elements), 0);
    fixture_run(step);
    assert_true(row[0] == PUSHES && elements[0] == PUSHES);
    /* Without feedback each of them would be 0. The scale is 1/64. */
    assert_true(fabsf(row[1] - PUSHES * gradients[1]) <= 0x1p-7F);
    assert_true(elements[1] == row[1]);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}

SL_UNIT_WAYS(fixture_way);

SL_UNIT_GROUP(start_all, stop_all);
