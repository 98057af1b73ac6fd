/* Every operation of the client against real servers, over both protocols, one and several shards,
 * one and several reactors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

static const struct shape shapes[] = {
    {1, 1, 1, SL_PROTOCOL_PER_TABLE},
    {1, 3, 2, SL_PROTOCOL_BATCHED},
    {2, 2, 1, SL_PROTOCOL_PER_TABLE},
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

static void on_every_shape(void (*check)(struct sl_client *client))
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        check(fixtures[i].client);
    }
}

static struct sl_table *sparse_table(struct sl_client *client, const char *name, uint32_t dim)
{
    const struct sl_table_spec spec = fixture_sparse(name, dim);
    return fixture_table(client, &spec);
}

static void check_push(struct sl_client *client)
{
    struct sl_table *table = sparse_table(client, "push", 4);
    uint64_t keys[100];
    float gradients[400], rows[400];
    for (uint32_t i = 0; i < 100; i++) {
        keys[i] = sl_hash_key(i / 2); /* each key twice */
        for (uint32_t column = 0; column < 4; column++) {
            gradients[i * 4 + column] = (float)(i + column);
        }
    }
    assert_int_equal(sl_client_push(client, table, keys, 100, gradients, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(client, table, keys, 100, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < 100; i++) {
        for (uint32_t column = 0; column < 4; column++) {
            assert_true(rows[i * 4 + column] == (float)(2 * (i / 2 * 2 + column) + 1));
        }
    }
    assert_int_equal(sl_client_push_pull(client, table, keys, 100, gradients, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < 100; i++) {
        assert_true(rows[i * 4] == (float)(2 * (2 * (i / 2 * 2) + 1)));
    }
}

SL_CASE(client_push__is_seen_by_the_next_pull)
{
    on_every_shape(check_push);
}

/* Erased rows have their first values again, also in the same step; a missing key is no error. */
static void check_erase(struct sl_client *client)
{
    enum { KEYS = 2000, ERASED = 1200, DIM = 2 };
    static uint64_t keys[KEYS];
    static float first[KEYS * DIM], pushed[KEYS * DIM], rows[KEYS * DIM], gradients[KEYS * DIM];
    struct sl_table *table = sparse_table(client, "erased", DIM);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i);
        gradients[i * DIM] = gradients[i * DIM + 1] = (float)(1 + i);
    }
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, first, TIMEOUT_MS), 0);
    assert_int_equal(
        sl_client_push_pull(client, table, keys, KEYS - 100, gradients, pushed, TIMEOUT_MS), 0);
    for (uint32_t round = 0; round < 2; round++) {
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(sl_step_erase(step, table, keys, ERASED), 0);
        assert_int_equal(sl_step_erase(step, table, keys + KEYS - 50, 50), 0);
        assert_int_equal(sl_step_erase(step, table, NULL, 0), 0);
        assert_int_equal(sl_step_pull(step, table, keys, KEYS, rows), 0);
        fixture_run(step);
        assert_memory_equal(rows, first, ERASED * DIM * sizeof(float));
        assert_memory_equal(rows + ERASED * DIM, pushed + ERASED * DIM,
                            (KEYS - 100 - ERASED) * DIM * sizeof(float));
    }
    assert_int_equal(sl_client_push_pull(client, table, keys, KEYS, gradients, rows, TIMEOUT_MS),
                     0);
    assert_memory_equal(rows, pushed, ERASED * DIM * sizeof(float));
}

SL_CASE(step_erase__removes_rows)
{
    on_every_shape(check_erase);
}

static void check_empty(struct sl_client *client)
{
    struct sl_table *table = sparse_table(client, "empty", 2);
    uint64_t key = 1;
    float row[2];
    assert_int_equal(sl_client_push(client, table, NULL, 0, NULL, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(client, table, &key, 0, row, TIMEOUT_MS), 0);
    struct sl_step *step = fixture_step(client, 0);
    const uint32_t ends[3] = {0, 0, 0};
    float pooled[6] = {1, 1, 1, 1, 1, 1};
    assert_int_equal(sl_step_pull_pooled(step, table, NULL, 0, ends, 3, SL_POOLING_MEAN, pooled),
                     0);
    fixture_run(step);
    const float zeros[6] = {0};
    assert_memory_equal(pooled, zeros, sizeof zeros);
}

SL_CASE(client_push__of_nothing_succeeds)
{
    on_every_shape(check_empty);
}

/* More than one message holds, in both directions. */
static void check_many_keys(struct sl_client *client)
{
    const uint32_t count = 400000, dim = 10;
    struct sl_table *table = sparse_table(client, "many", dim);
    uint64_t *keys = malloc(count * sizeof *keys);
    float *values = malloc((size_t)count * dim * sizeof *values);
    float *rows = malloc((size_t)count * dim * sizeof *rows);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = i % 80000 * 7919; /* each key five times */
        for (uint32_t column = 0; column < dim; column++) {
            values[(size_t)i * dim + column] = (float)(keys[i] % 4096 + column);
        }
    }
    assert_int_equal(sl_client_push(client, table, keys, count, values, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_pull(client, table, keys, count, rows, TIMEOUT_MS), 0);
    for (size_t i = 0; i < (size_t)count * dim; i++) {
        assert_true(rows[i] == 5 * values[i]);
    }
    memset(rows, 0, (size_t)count * dim * sizeof *rows);
    assert_int_equal(sl_client_push_pull(client, table, keys, count, values, rows, TIMEOUT_MS), 0);
    for (size_t i = 0; i < (size_t)count * dim; i++) {
        assert_true(rows[i] == 10 * values[i]);
    }
    free(keys);
    free(values);
    free(rows);
}

SL_CASE(client_pull__of_many_keys_is_cut)
{
    on_every_shape(check_many_keys);
}

static void check_pooled(struct sl_client *client)
{
    struct sl_table *table = sparse_table(client, "pooled", 2);
    uint64_t keys[64];
    float values[128], sums[8], means[8];
    for (uint32_t i = 0; i < 64; i++) {
        keys[i] = i;
        values[i * 2] = (float)i;
        values[i * 2 + 1] = 1;
    }
    assert_int_equal(sl_client_push(client, table, keys, 64, values, TIMEOUT_MS), 0);
    const uint32_t ends[4] = {1, 1, 33, 64}; /* one key, none, many, many */
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull_pooled(step, table, keys, 64, ends, 4, SL_POOLING_SUM, sums), 0);
    assert_int_equal(sl_step_pull_pooled(step, table, keys, 64, ends, 4, SL_POOLING_MEAN, means),
                     0);
    fixture_run(step);
    const float expected_sums[8] = {0, 1, 0, 0, 528, 32, 1488, 31};
    const float expected_means[8] = {0, 1, 0, 0, 16.5F, 1, 48, 1};
    assert_memory_equal(sums, expected_sums, sizeof sums);
    assert_memory_equal(means, expected_means, sizeof means);
}

SL_CASE(step_pull_pooled__adds_up_the_shards_sums)
{
    on_every_shape(check_pooled);
}

static void check_dense_range(struct sl_client *client, struct sl_table *table, uint64_t start,
                              uint64_t count, float *base)
{
    float *gradients = malloc(count * sizeof *gradients);
    float *values = malloc((count + 1) * sizeof *values);
    float *after = malloc((count + 1) * sizeof *after);
    for (uint64_t i = 0; i < count; i++) {
        gradients[i] = (float)((start + i) % 1000);
    }
    values[count] = after[count] = -1; /* must not be written */
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_dense_push(step, table, start, count, gradients), 0);
    fixture_run(step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_dense_pull(step, table, start, count, values), 0);
    fixture_run(step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_dense_push_pull(step, table, start, count, gradients, after), 0);
    fixture_run(step);
    for (uint64_t i = 0; i < count; i++) {
        assert_true(values[i] == base[start + i] + gradients[i]);
        assert_true(after[i] == base[start + i] + 2 * gradients[i]);
        base[start + i] = after[i];
    }
    assert_true(values[count] == -1 && after[count] == -1);
    free(gradients);
    free(values);
    free(after);
}

static void check_dense(struct sl_client *client)
{
    const uint64_t length = 3000001;
    const struct sl_table_spec spec = fixture_dense("dense", length);
    struct sl_table *table = fixture_table(client, &spec);
    float *base = calloc(length, sizeof *base);
    check_dense_range(client, table, 0, length, base);
    check_dense_range(client, table, 0, 1, base);
    check_dense_range(client, table, length - 1, 1, base);
    check_dense_range(client, table, 1023, 2, base);
    check_dense_range(client, table, 1, 16385, base);
    check_dense_range(client, table, 999999, 1100000, base);
    check_dense_range(client, table, length, 0, base);
    free(base);
}

SL_CASE(step_dense_push__covers_odd_ranges)
{
    on_every_shape(check_dense);
}

static void check_outstanding(struct sl_client *client)
{
    enum { STEPS = 100, KEYS = 37 };
    struct sl_table *table = sparse_table(client, "outstanding", 1);
    struct sl_step *steps[STEPS];
    static uint64_t keys[STEPS][KEYS];
    static float ones[KEYS], rows[STEPS][KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        ones[i] = 1;
    }
    for (uint32_t s = 0; s < STEPS; s++) {
        for (uint32_t i = 0; i < KEYS; i++) {
            keys[s][i] = sl_hash_key(i);
        }
        steps[s] = fixture_step(client, 0);
        assert_int_equal(sl_step_push_pull(steps[s], table, keys[s], KEYS, ones, rows[s]), 0);
        assert_int_equal(sl_step_submit(steps[s], TIMEOUT_MS), 0);
    }
    /* A thread's steps take effect in the order of submission; they are waited for in any. */
    for (uint32_t s = STEPS; s > 0; s--) {
        assert_int_equal(sl_step_wait(steps[s - 1]), 0);
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_true(rows[s - 1][i] == (float)s);
        }
        sl_step_destroy(&steps[s - 1]);
    }
}

SL_CASE(step_submit__allows_many_steps_outstanding)
{
    on_every_shape(check_outstanding);
}

static void pull_in_many_steps(struct sl_client *client)
{
    enum { STEPS = 32 };
    struct sl_table *table = sparse_table(client, "more", 1);
    struct sl_step *steps[STEPS];
    uint64_t keys[STEPS];
    float ones[STEPS], rows[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        keys[i] = i;
        ones[i] = 1;
        rows[i] = 0;
    }
    assert_int_equal(sl_client_push(client, table, keys, STEPS, ones, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = fixture_step(client, 0);
        assert_int_equal(sl_step_pull(steps[i], table, &keys[i], 1, &rows[i]), 0);
        assert_int_equal(sl_step_submit_deferred(steps[i], TIMEOUT_MS), 0);
    }
    for (uint32_t i = STEPS; i > 0; i--) {
        assert_int_equal(sl_step_wait(steps[i - 1]), 0);
        assert_true(rows[i - 1] == 1);
        sl_step_destroy(&steps[i - 1]);
    }
}

SL_CASE(step_submit_more__leaves_with_the_wait)
{
    on_every_shape(pull_in_many_steps);
}

SL_CASE(step_submit__says_again_when_too_many_are_outstanding)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *table = sparse_table(client, "again", 1);
    static struct sl_step *steps[300];
    uint64_t key = 5;
    static float rows[300];
    sl_cluster_pause(fixtures[0].cluster, 0);
    uint32_t count = 0;
    int err = 0;
    while (err == 0) {
        assert_in_range(count, 0, 299);
        steps[count] = fixture_step(client, 0);
        assert_int_equal(sl_step_pull(steps[count], table, &key, 1, &rows[count]), 0);
        err = sl_step_submit(steps[count], TIMEOUT_MS);
        count++;
    }
    assert_int_equal(err, SL_ERR_AGAIN);
    assert_in_range(count, 65, 300);
    sl_cluster_resume(fixtures[0].cluster, 0);
    for (uint32_t i = 0; i < count - 1; i++) {
        assert_int_equal(sl_step_wait(steps[i]), 0);
        sl_step_destroy(&steps[i]);
    }
    fixture_run(steps[count - 1]); /* what was refused can be submitted again */
}

SL_CASE(step_submit__refuses_bad_steps)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *sparse = sparse_table(client, "bad", 1);
    const struct sl_table_spec spec = fixture_dense("bad_dense", 100);
    struct sl_table *dense = fixture_table(client, &spec);
    const struct sl_table_spec kv_spec = {
        .struct_size = sizeof kv_spec, .name = "bad_kv", .kind = SL_TABLE_KV, .dim = 4};
    struct sl_table *kv = fixture_table(client, &kv_spec);
    uint64_t key = 0;
    float value = 0;
    const uint32_t ends[2] = {1, 0};
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_submit(step, 1000), SL_ERR_INVALID); /* empty */
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, &value), 0);
    assert_int_equal(sl_step_submit(step, 0), SL_ERR_INVALID);
    assert_int_equal(sl_step_submit(step, 4294968), SL_ERR_INVALID);
    assert_int_equal(sl_step_wait(step), SL_ERR_INVALID); /* never submitted */
    sl_step_destroy(&step);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull(step, dense, &key, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_erase(step, dense, &key, 1), SL_ERR_INVALID);
    assert_int_equal(sl_step_erase(step, sparse, NULL, 1), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_pull(step, sparse, 0, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_pull(step, dense, 100, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_push(step, dense, 1, UINT64_MAX, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_assign(step, dense, &key, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_assign(step, kv, &key, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_assign(step, sparse, &key, 1, NULL), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_assign(step, sparse, 0, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_assign(step, kv, 0, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_dense_assign(step, dense, 99, 2, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_pull(step, sparse, NULL, 1, &value), SL_ERR_INVALID);
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, NULL), SL_ERR_INVALID);
    assert_int_equal(sl_step_pull_pooled(step, sparse, &key, 1, ends, 2, SL_POOLING_SUM, &value),
                     SL_ERR_INVALID);
    assert_int_equal(sl_step_pull_pooled(step, sparse, &key, 1, ends, 1, SL_POOLING_NONE, &value),
                     SL_ERR_INVALID);
    assert_int_equal(sl_step_tick(step), SL_ERR_INVALID); /* a client without a clock */
    assert_int_equal(sl_step_pull(step, sparse, &key, 1, &value), 0);
    assert_int_equal(sl_step_submit(step, 1000), SL_ERR_INVALID); /* for what came before */
    sl_step_destroy(&step);
    static const float rates[] = {0, -0.0F, -1, INFINITY, -INFINITY, NAN};
    for (uint32_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        step = fixture_step(client, 0);
        assert_int_equal(sl_step_push(step, sparse, &key, 1, &value), 0);
        assert_int_equal(sl_step_set_rate(step, rates[i]), SL_ERR_INVALID);
        assert_int_equal(sl_step_submit(step, 1000), SL_ERR_INVALID);
        sl_step_destroy(&step);
    }
}

/* It holds for the pushes behind it, of its step only, and neither for assigns nor for pulls. */
SL_CASE(step_set_rate__scales_the_learning_rate)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table_spec specs[2] = {fixture_sparse("rated", 1), fixture_dense("rated_dense", 10)};
    struct sl_table *tables[2];
    for (uint32_t i = 0; i < 2; i++) {
        specs[i].optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SGD);
        specs[i].optimizer.lr = 1;
        tables[i] = fixture_table(client, &specs[i]);
    }
    const uint64_t key = 7;
    const float one = 1, start = 100;
    float row = 0, rows[2], elements[2];
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_push(step, tables[0], &key, 1, &one), 0);
    assert_int_equal(sl_step_set_rate(step, 0.5F), 0);
    assert_int_equal(sl_step_assign(step, tables[0], &key, 1, &start), 0);
    assert_int_equal(sl_step_push_pull(step, tables[0], &key, 1, &one, &rows[0]), 0);
    assert_int_equal(sl_step_dense_push_pull(step, tables[1], 3, 1, &one, &elements[0]), 0);
    assert_int_equal(sl_step_set_rate(step, 2), 0);
    assert_int_equal(sl_step_push_pull(step, tables[0], &key, 1, &one, &rows[1]), 0);
    assert_int_equal(sl_step_set_rate(step, 1), 0);
    assert_int_equal(sl_step_dense_push_pull(step, tables[1], 3, 1, &one, &elements[1]), 0);
    fixture_run(step);
    assert_true(rows[0] == 99.5F && rows[1] == 97.5F);
    assert_true(elements[0] == -0.5F && elements[1] == -1.5F);
    step = fixture_step(client, 0);
    assert_int_equal(sl_step_push_pull(step, tables[0], &key, 1, &one, &row), 0);
    fixture_run(step);
    assert_true(row == 96.5F);
}

/* Through sockets and frames, in one step: assigned values are there for the pull behind them, also
 * where a step is longer than a message, and the last of a key that repeats. */
SL_CASE(step_assign__replaces_rows_and_elements)
{
    enum { ROWS = 100000, LENGTH = 300000 };
    struct sl_client *client = fixtures[0].client;
    struct sl_table *sparse = sparse_table(client, "assigned", 2);
    const struct sl_table_spec spec = fixture_dense("assigned_dense", LENGTH);
    struct sl_table *dense = fixture_table(client, &spec);
    uint64_t *keys = malloc(ROWS * sizeof *keys);
    float *rows = malloc(2 * ROWS * sizeof *rows), *pulled = malloc(2 * ROWS * sizeof *pulled);
    float *values = malloc(LENGTH * sizeof *values), *after = malloc(LENGTH * sizeof *after);
    for (uint32_t i = 0; i < ROWS; i++) {
        keys[i] = i % (ROWS / 2);
        rows[2 * (size_t)i] = rows[2 * (size_t)i + 1] = (float)i;
    }
    for (uint32_t i = 0; i < LENGTH; i++) {
        values[i] = (float)i;
    }
    for (uint32_t round = 0; round < 2; round++) {
        struct sl_step *step = fixture_step(client, 0);
        assert_int_equal(sl_step_push(step, sparse, keys, ROWS, rows), 0);
        assert_int_equal(sl_step_assign(step, sparse, keys, ROWS, rows), 0);
        assert_int_equal(sl_step_dense_push(step, dense, 0, LENGTH, values), 0);
        assert_int_equal(sl_step_dense_assign(step, dense, 1, LENGTH - 2, values + 1), 0);
        assert_int_equal(sl_step_pull(step, sparse, keys, ROWS, pulled), 0);
        assert_int_equal(sl_step_dense_pull(step, dense, 1, LENGTH - 2, after + 1), 0);
        fixture_run(step);
        assert_memory_equal(pulled, rows + ROWS, ROWS * sizeof *rows);
        assert_memory_equal(after + 1, values + 1, (LENGTH - 2) * sizeof *after);
    }
    free(keys);
    free(rows);
    free(pulled);
    free(values);
    free(after);
}

/* Several operations on several tables in one step, by both protocols, with each optimizer: the
 * values must be the same bit for bit. */
static void train(struct sl_client *client, float *rows, float *values)
{
    enum { KEYS = 3000, LENGTH = 5001 };
    static uint64_t keys[KEYS];
    static float gradients[KEYS * 8], dense_gradients[LENGTH];
    uint64_t seed = 5;
    for (int kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        char name[16];
        snprintf(name, sizeof name, "sparse%d", kind);
        struct sl_table_spec spec = fixture_sparse(name, 8);
        spec.optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
        spec.initializer =
            (struct sl_initializer_spec){.kind = SL_INITIALIZER_NORMAL, .stddev = 1, .seed = 9};
        struct sl_table *sparse = fixture_table(client, &spec);
        snprintf(name, sizeof name, "dense%d", kind);
        spec = fixture_dense(name, LENGTH);
        spec.optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)kind);
        struct sl_table *dense = fixture_table(client, &spec);
        for (int step_number = 0; step_number < 3; step_number++) {
            for (uint32_t i = 0; i < KEYS * 8; i++) {
                gradients[i] = (float)(sl_hash_random(&seed) % 2001) / 1000 - 1;
                keys[i / 8] = sl_hash_random(&seed) % 2000;
                dense_gradients[i % LENGTH] = gradients[i];
            }
            struct sl_step *step = fixture_step(client, 0);
            assert_int_equal(sl_step_push(step, sparse, keys, KEYS, gradients), 0);
            assert_int_equal(sl_step_dense_push(step, dense, 0, LENGTH, dense_gradients), 0);
            assert_int_equal(sl_step_pull(step, sparse, keys, KEYS, rows), 0);
            assert_int_equal(sl_step_dense_pull(step, dense, 0, LENGTH, values), 0);
            fixture_run(step);
        }
        rows += KEYS * 8;
        values += LENGTH;
    }
}

SL_CASE(step_submit__gives_the_same_bits_by_both_protocols)
{
    const size_t row_floats = (size_t)SL_OPTIMIZER_KIND_COUNT * 3000 * 8;
    const size_t value_floats = (size_t)SL_OPTIMIZER_KIND_COUNT * 5001;
    float *rows[2], *values[2];
    for (int i = 0; i < 2; i++) {
        const struct shape shape = {1, 3, 2, i == 0 ? SL_PROTOCOL_PER_TABLE : SL_PROTOCOL_BATCHED};
        struct fixture own = fixture_start(&shape);
        rows[i] = calloc(row_floats, sizeof(float));
        values[i] = calloc(value_floats, sizeof(float));
        train(own.client, rows[i], values[i]);
        fixture_stop(&own);
    }
    assert_memory_equal(rows[0], rows[1], row_floats * sizeof(float));
    assert_memory_equal(values[0], values[1], value_floats * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(rows[i]);
        free(values[i]);
    }
}

/* Options of zeros choose the protocol with the fewest messages. */
SL_CASE(client_create__sends_a_step_in_one_message)
{
    struct sl_cluster *cluster = fixtures[0].cluster;
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = sl_cluster_coordinator(cluster),
                                              .task_index = -1,
                                              .start_timeout_ms = TIMEOUT_MS};
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), 0);
    struct sl_table *table = sparse_table(client, "zeros", 4);
    struct sl_client_stats before, after;
    const uint64_t keys[2] = {1, 2};
    const float gradients[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float rows[8];
    sl_client_stats(client, &before);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_push(step, table, keys, 2, gradients), 0);
    assert_int_equal(sl_step_pull(step, table, keys, 2, rows), 0);
    fixture_run(step);
    sl_client_stats(client, &after);
    assert_int_equal(after.requests - before.requests, 1);
    assert_memory_equal(rows, gradients, sizeof rows);
    sl_client_destroy(&client);
}

/* A program that was built when the options ended behind start_timeout_ms. */
SL_CASE(client_create__takes_defaults_beyond_struct_size)
{
    struct sl_client_options options = {.coordinator = sl_cluster_coordinator(fixtures[0].cluster),
                                        .task_index = -1,
                                        .start_timeout_ms = TIMEOUT_MS};
    options.struct_size = offsetof(struct sl_client_options, congestion_control);
    memset(&options.congestion_control, 0xee, sizeof options - options.struct_size);
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), 0);
    sl_client_destroy(&client);
}

SL_CASE(client_table_open__checks_what_exists)
{
    struct sl_client *client = fixtures[1].client;
    struct sl_table_spec spec = fixture_sparse("checked", 3);
    struct sl_table *table = fixture_table(client, &spec);
    assert_ptr_equal(fixture_table(client, &spec), table);
    struct sl_table *other = NULL;
    spec.dim = 4;
    assert_int_equal(sl_client_table_open(client, &spec, TIMEOUT_MS, &other), SL_ERR_EXISTS);
    spec.dim = 0;
    assert_int_equal(sl_client_table_open(client, &spec, TIMEOUT_MS, &other), SL_ERR_INVALID);
    assert_null(other);
}

/* A program that was built when the specification ended behind `length`. */
SL_CASE(client_table_open__takes_defaults_beyond_struct_size)
{
    struct sl_client *client = fixtures[1].client;
    struct sl_table_spec spec = fixture_sparse("older", 3);
    struct sl_table *table;
    spec.struct_size = offsetof(struct sl_table_spec, optimizer);
    memset(&spec.optimizer, 0xee, sizeof spec - spec.struct_size);
    table = fixture_table(client, &spec);
    spec = fixture_sparse("older", 3);
    spec.optimizer = (struct sl_optimizer_spec){.kind = SL_OPTIMIZER_SUM};
    assert_ptr_equal(fixture_table(client, &spec), table); /* the same specification */
    spec.struct_size = 0;
    assert_int_equal(sl_client_table_open(client, &spec, TIMEOUT_MS, &table), SL_ERR_INVALID);
}

SL_CASE(client_stats__count_requests_and_bytes)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *table = sparse_table(client, "stats", 16);
    struct sl_client_stats before, after;
    uint64_t keys[50] = {0};
    static float rows[50 * 16];
    const uint64_t bytes = 32 + 8 + 32 + 50 * 8;
    uint32_t pulls = 0;
    do { /* a heartbeat may be sent during some pulls */
        sl_client_stats(client, &before);
        assert_int_equal(sl_client_pull(client, table, keys, 50, rows, TIMEOUT_MS), 0);
        sl_client_stats(client, &after);
        assert_int_equal(after.requests - before.requests, 1);
        assert_int_equal(after.replies - before.replies, 1);
        assert_int_equal(after.failures - before.failures, 0);
        assert_true(after.bytes_sent - before.bytes_sent >= bytes);
    } while (after.bytes_sent - before.bytes_sent > bytes && ++pulls < 100);
    assert_int_equal(after.bytes_sent - before.bytes_sent, bytes);
    assert_true(after.bytes_received - before.bytes_received >= 32 + 50 * 64);
}

SL_CASE(client_table_stats__sums_rows_and_takes_the_least_steps)
{
    struct sl_client *client = fixtures[0].client;
    struct sl_table *table = sparse_table(client, "counted", 4);
    const uint32_t shard_count = sl_client_shard_count(client);
    struct sl_table_stats stats = {.rows = 9};
    uint64_t keys[200];
    static float rows[200 * 4];
    for (uint32_t i = 0; i < 200; i++) {
        keys[i] = i;
    }
    assert_int_equal(sl_client_pull(client, table, keys, 200, rows, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_table_stats(client, table, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.rows, 0); /* a pull creates none */
    assert_int_equal(stats.pulled_rows, 200);
    assert_int_equal(stats.pushed_rows, 0);
    assert_int_equal(stats.steps, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(sl_client_push(client, table, keys, 200, rows, TIMEOUT_MS), 0);
    }
    assert_int_equal(sl_client_push(client, table, keys, 1, rows, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_table_stats(client, table, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.rows, 200);
    assert_true(stats.bytes >= 200 * (16 + 4 * sizeof(float)));
    assert_int_equal(stats.pushed_rows, 601);
    assert_int_equal(stats.steps, shard_count > 1 ? 3 : 4);
}

/* A refused value anywhere in a step: nothing of the step takes effect, on any shard. */
static void check_nonfinite(struct sl_client *client)
{
    enum { KEYS = 300, DIM = 3 };
    struct sl_table_spec spec = fixture_sparse("finite", DIM);
    spec.reject_nonfinite = true;
    struct sl_table *table = fixture_table(client, &spec);
    struct sl_table *other = sparse_table(client, "not-checked", DIM);
    spec = fixture_dense("finite-elements", KEYS * DIM);
    spec.reject_nonfinite = true;
    struct sl_table *dense = fixture_table(client, &spec);
    uint64_t keys[KEYS];
    float values[KEYS * DIM], rows[KEYS * DIM];
    for (uint32_t i = 0; i < KEYS * DIM; i++) {
        keys[i / DIM] = sl_hash_key(i / DIM);
        values[i] = 1;
    }
    assert_int_equal(sl_client_push(client, table, keys, KEYS, values, TIMEOUT_MS), 0);
    for (uint32_t way = 0; way < 4; way++) {
        struct sl_step *step = fixture_step(client, 0);
        values[200 * DIM + 2] = 1;
        assert_int_equal(sl_step_push(step, other, keys, KEYS, values), 0);
        assert_int_equal(way == 0   ? sl_step_push(step, table, keys, KEYS, values)
                         : way == 1 ? sl_step_push_pull(step, table, keys, KEYS, values, rows)
                         : way == 2 ? sl_step_assign(step, table, keys, KEYS, values)
                                    : sl_step_dense_push(step, dense, 0, KEYS * DIM, values),
                         0);
        values[200 * DIM + 2] = way % 2 == 0 ? NAN : INFINITY; /* until submit it may change */
        assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
        assert_int_equal(sl_step_wait(step), SL_ERR_INVALID);
        char place[64];
        snprintf(place, sizeof place, way < 3 ? "column 2 of key %llu is" : "element 602 is",
                 (unsigned long long)keys[200]);
        assert_non_null(strstr(sl_step_error(step), place));
        sl_step_destroy(&step);
        assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
        for (uint32_t i = 0; i < KEYS * DIM; i++) {
            assert_true(rows[i] == 1);
        }
    }
    struct sl_table_stats stats;
    assert_int_equal(sl_client_table_stats(client, other, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.rows, 0);
    assert_int_equal(sl_client_table_stats(client, dense, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.pushed_rows, 0);
    values[200 * DIM + 2] = NAN;
    assert_int_equal(sl_client_push(client, other, keys, KEYS, values, TIMEOUT_MS), 0);
}

SL_CASE(step_submit__refuses_values_that_are_not_finite)
{
    on_every_shape(check_nonfinite);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}

SL_UNIT_WAYS(fixture_way);

SL_UNIT_GROUP(start_all, stop_all);
