/* What a client says and does when a ps is late, gone, or was never there. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

#define KEYS 200
static uint64_t keys[KEYS];
static float rows[KEYS];

static struct sl_table *table_of_ones(const char *name)
{
    const struct sl_table_spec spec = fixture_sparse(name, 1);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        rows[i] = 1;
    }
    assert_int_equal(sl_client_push(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    return table;
}

static struct sl_step *submit_pull(struct sl_table *table, uint32_t timeout_ms)
{
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_pull(step, table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(step, timeout_ms), 0);
    return step;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

/* Pulls, which all end at their deadline, until so many name ps/1 and this: beside load ps/0 may be
 * late too, and named instead. */
static void pull_until_named(struct sl_table *table, uint32_t timeout_ms, const char *why,
                             int count)
{
    const char *ps =
        fixture_shm ? "ps/1 shard 1 (shm://127.0.0.1:" : "ps/1 shard 1 (tcp://127.0.0.1:";
    char deadline[64];
    (void)snprintf(deadline, sizeof deadline, "): deadline of %u ms passed", timeout_ms);
    for (int tries = 0; count > 0; tries++) {
        assert_true(tries < 100);
        struct sl_step *step = submit_pull(table, timeout_ms);
        assert_int_equal(sl_step_wait(step), SL_ERR_DEADLINE);
        const char *error = sl_step_error(step);
        assert_contains(error, deadline);
        count -= strstr(error, ps) != NULL && strstr(error, why) != NULL ? 1 : 0;
        sl_step_destroy(&step);
    }
}

CLIENT_CASE(step_wait__ends_at_the_deadline_and_names_the_shard)
{
    struct sl_table *table = table_of_ones("deadline");
    sl_cluster_pause(fixture.cluster, 1);
    pull_until_named(table, 100, "", 1);
    /* The late reply is dropped, and the link goes on. */
    memset(rows, 0, sizeof rows);
    sl_cluster_resume(fixture.cluster, 1);
    assert_int_equal(sl_client_pull(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == 1);
    }
}

CLIENT_CASE(step_wait_for__returns_while_the_step_continues)
{
    struct sl_table *table = table_of_ones("wait_for");
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_wait_for(step, 10), SL_ERR_INVALID); /* never submitted */
    sl_step_destroy(&step);
    sl_cluster_pause(fixture.cluster, 1);
    memset(rows, 0, sizeof rows);
    step = submit_pull(table, TIMEOUT_MS);
    assert_int_equal(sl_step_wait_for(step, 0), SL_ERR_AGAIN);
    assert_int_equal(sl_step_wait_for(step, 20), SL_ERR_AGAIN);
    assert_contains(sl_last_error(), "the step is not complete yet");
    sl_cluster_resume(fixture.cluster, 1);
    int err;
    while ((err = sl_step_wait_for(step, 1)) == SL_ERR_AGAIN) {
    }
    assert_int_equal(err, 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == 1);
    }
    assert_int_equal(sl_step_wait_for(step, 0), 0);
    sl_step_destroy(&step);
}

/* More requests than there are credits: some wait in the client when the deadline comes. */
CLIENT_CASE(step_wait__ends_at_the_deadline_without_credit_too)
{
    enum { STEPS = 250 };
    struct sl_table *table = table_of_ones("credit");
    sl_cluster_pause(fixture.cluster, 1);
    struct sl_step *steps[2][STEPS];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            steps[round][i] = submit_pull(table, 100);
        }
        for (uint32_t i = 0; i < STEPS; i++) {
            assert_int_equal(sl_step_wait(steps[round][i]), SL_ERR_DEADLINE);
            sl_step_destroy(&steps[round][i]);
        }
    }
    sl_cluster_resume(fixture.cluster, 1);
    assert_int_equal(sl_client_pull(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
}

/* The gradients are being sent from the caller's memory when the deadline passes: they are the
 * caller's again when wait returns, at the price of the connection. */
CLIENT_CASE(step_wait__gives_memory_back_in_the_middle_of_a_push)
{
    const uint64_t length = 16U << 20; /* more for each ps than two sockets take */
    const struct sl_table_spec spec = fixture_dense("huge", length);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    float *gradients = calloc(length, sizeof *gradients);
    sl_cluster_pause(fixture.cluster, 1);
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_dense_push(step, table, 0, length, gradients), 0);
    assert_int_equal(sl_step_submit(step, 200), 0);
    assert_int_equal(sl_step_wait(step), SL_ERR_DEADLINE);
    assert_contains(sl_step_error(step), "): deadline of 200 ms passed");
    sl_step_destroy(&step);
    free(gradients);
    sl_cluster_resume(fixture.cluster, 1);
}

CLIENT_CASE(step_wait__says_why_a_ps_that_is_gone_is_not_connected)
{
    struct sl_table *table = table_of_ones("gone");
    sl_cluster_kill(fixture.cluster, 1);
    /* The first may end before the client has heard of it. */
    pull_until_named(table, 200, ": not connected: ", 3);
    struct sl_table *other;
    const struct sl_table_spec spec = fixture_sparse("never", 1);
    assert_int_equal(sl_client_table_open(fixture.client, &spec, 200, &other), SL_ERR_DEADLINE);
    /* What the lost shard is not needed for goes on. */
    uint32_t served = 0;
    for (uint64_t key = 0; key < 8 || served == 0; key++) {
        assert_true(key < KEYS); /* each took longer than 200 ms */
        served += sl_client_pull(fixture.client, table, &key, 1, rows, 200) == 0;
    }
    assert_in_range(served, 1, 7);
}

/* What is logged, read back. Begun and ended while nobody else runs who may log. */
struct capture {
    FILE *file;
    int stderr_kept;
};

static struct capture capture_begin(void)
{
    struct capture capture = {.file = tmpfile(), .stderr_kept = dup(STDERR_FILENO)};
    assert_non_null(capture.file);
    dup2(fileno(capture.file), STDERR_FILENO);
    sl_log_set(SL_LOG_INFO, NULL, NULL);
    return capture;
}

static void capture_end(const struct capture *capture, const char *expected)
{
    static char text[20000];
    sl_log_set(SL_LOG_OFF, NULL, NULL);
    dup2(capture->stderr_kept, STDERR_FILENO);
    close(capture->stderr_kept);
    rewind(capture->file);
    size_t bytes = fread(text, 1, sizeof text - 1, capture->file);
    text[bytes] = '\0';
    fclose(capture->file);
    assert_contains(text, expected);
}

/* On a busy machine a reactor may stand still, and says so: that is nobody's error. */
static void count_line(void *ctx, enum sl_log_level level, const char *line)
{
    (void)level;
    *(uint32_t *)ctx += strstr(line, ": a turn took ") == NULL;
}

static void check_create(const struct sl_client_options *options, int err, const char *expected)
{
    uint32_t errors = 0;
    struct sl_client *client = NULL;
    sl_log_set(SL_LOG_WARN, count_line, &errors);
    assert_int_equal(sl_client_create(options, &client), err);
    sl_log_set(SL_LOG_OFF, NULL, NULL);
    assert_int_equal(errors, 0);
    assert_contains(sl_last_error(), expected);
    assert_null(client);
}

SL_CASE(client_create__says_what_is_wrong)
{
    if (fixture_caller_driven || fixture_shm) {
        return; /* it is the same */
    }
    const struct sl_client_options nobody = {.struct_size = sizeof nobody,
                                             .coordinator = "127.0.0.1:1",
                                             .task_index = -1,
                                             .start_timeout_ms = 200};
    check_create(&nobody, SL_ERR_DEADLINE, "could not reach coordinator at tcp://127.0.0.1:1");
    const struct sl_client_options bad = {
        .struct_size = sizeof bad, .coordinator = "nonsense", .task_index = -1};
    check_create(&bad, SL_ERR_INVALID, "coordinator: ");
    const struct sl_client_options none = {
        .struct_size = sizeof none, .coordinator = NULL, .task_index = -1};
    check_create(&none, SL_ERR_INVALID, "coordinator: not given");
    const struct sl_client_options low = {
        .struct_size = sizeof low, .coordinator = "127.0.0.1:1", .task_index = -4};
    check_create(&low, SL_ERR_INVALID, "task_index -4 is not in -3 to ");
    const struct sl_client_options secret = {.struct_size = sizeof secret,
                                             .coordinator = "127.0.0.1:1",
                                             .task_index = -1,
                                             .secret = "short",
                                             .secret_bytes = 5};
    check_create(&secret, SL_ERR_INVALID, "a secret of 5 bytes: accepts 16 to 1024");
    const struct sl_client_options tls = {.struct_size = sizeof tls,
                                          .coordinator = "127.0.0.1:1",
                                          .task_index = -1,
                                          .tls_key = "key.pem"};
    check_create(&tls, SL_ERR_INVALID, "all three or none");
    const struct sl_client_options many = {.struct_size = sizeof many,
                                           .coordinator = "127.0.0.1:1",
                                           .task_index = -1,
                                           .reactor_count = 1000};
    check_create(&many, SL_ERR_INVALID, "reactor_count 1000");
    const struct sl_client_options zeros = {.coordinator = "127.0.0.1:1"};
    check_create(&zeros, SL_ERR_INVALID,
                 "struct_size is 0: initialize the struct with SL_CLIENT_OPTIONS_INIT");
}

/* The coordinator says every second or so whom it waits for. */
SL_CASE(client_create__logs_for_which_ps_it_waits)
{
    if (fixture_caller_driven || fixture_shm) {
        return; /* it is the same */
    }
    const struct sl_cluster_options options = {.ps_count = 1, .shards_of_ps = 1, .ps_expected = 2};
    struct capture capture = capture_begin();
    struct sl_cluster *cluster = sl_cluster_start(&options);
    const struct sl_client_options client_options = {.struct_size = sizeof client_options,
                                                     .coordinator = sl_cluster_coordinator(cluster),
                                                     .task_index = -1,
                                                     .start_timeout_ms = 4000};
    struct sl_client *client = NULL;
    int err = sl_client_create(&client_options, &client);
    sl_cluster_stop(&cluster);
    capture_end(&capture, "waiting for ps/1 (says coordinator)");
    assert_int_equal(err, SL_ERR_DEADLINE);
    assert_null(client);
}

CLIENT_CASE(client_barrier__ends_at_its_deadline)
{
    assert_int_equal(sl_client_barrier(fixture.client, "alone", 1, TIMEOUT_MS), 0);
    assert_int_equal(sl_client_barrier(fixture.client, "two", 2, 200), SL_ERR_DEADLINE);
    assert_int_equal(sl_client_barrier(fixture.client, "", 1, 200), SL_ERR_INVALID);
}

/* Nothing is made, and nothing waits: the ps say that they have no place for it. */
CLIENT_CASE(client_checkpoint__fails_where_ps_have_no_folder)
{
    uint64_t number = 5;
    assert_int_equal(sl_client_checkpoint(fixture.client, TIMEOUT_MS, &number), SL_ERR_UNSUPPORTED);
    assert_contains(sl_last_error(), "it was started without a directory for checkpoints");
    assert_int_equal(number, 5);
}

static void *last_error_of_new_thread(void *ctx)
{
    return strcmp(sl_last_error(), "") == 0 ? ctx : NULL;
}

/* The call failed with INVALID and this reason, which another thread does not see. */
static void check_refused(int err, const char *expected)
{
    pthread_t thread;
    void *is_empty;
    assert_int_equal(err, SL_ERR_INVALID);
    assert_contains(sl_last_error(), expected);
    assert_int_equal(pthread_create(&thread, NULL, last_error_of_new_thread, &err), 0);
    assert_int_equal(pthread_join(thread, &is_empty), 0);
    assert_non_null(is_empty);
}

CLIENT_CASE(last_error__names_a_rate_whose_product_with_lr_is_zero)
{
    struct sl_table_spec spec = fixture_dense("slow", 4);
    spec.optimizer = (struct sl_optimizer_spec){.kind = SL_OPTIMIZER_SGD, .lr = 1e-8F};
    struct sl_table *table = fixture_table(fixture.client, &spec);
    const float gradient = 1;
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_set_rate(step, 1e-38F), 0);
    check_refused(sl_step_dense_push(step, table, 0, 1, &gradient),
                  "table slow, lr 1e-08, rate 1e-38");
    sl_step_destroy(&step);
}

CLIENT_CASE(last_error__names_what_a_step_refuses)
{
    struct sl_client *client = fixture.client;
    const struct sl_table_spec sparse_spec = fixture_sparse("errors", 1);
    const struct sl_table_spec dense_spec = {
        .struct_size = sizeof dense_spec, .name = "line", .kind = SL_TABLE_DENSE, .length = 4};
    struct sl_table_spec other_spec = fixture_sparse("errors", 2);
    struct sl_table *sparse, *dense, *other;
    struct sl_step *step;
    const uint64_t two_keys[2] = {2, 1};
    const uint32_t ends[1] = {1};
    float two_rows[2] = {0};
    uint32_t lines = 0;
    assert_int_equal(sl_client_table_open(client, &sparse_spec, TIMEOUT_MS, &sparse), 0);
    assert_int_equal(sl_client_table_open(client, &dense_spec, TIMEOUT_MS, &dense), 0);
    sl_log_set(SL_LOG_ERROR, count_line, &lines);
    assert_int_equal(sl_client_table_open(client, &other_spec, TIMEOUT_MS, &other), SL_ERR_EXISTS);
    assert_contains(sl_last_error(), "table errors");
    other_spec.dim = 0;
    check_refused(sl_client_table_open(client, &other_spec, TIMEOUT_MS, &other), "table errors");
    check_refused(sl_client_barrier(client, "", 1, 200), "barrier : accepts names of 1 to");
    check_refused(sl_client_pull(client, dense, two_keys, 2, two_rows, 200), "table line is dense");
    check_refused(sl_client_push(client, sparse, two_keys, 2, NULL, 200),
                  "an array of rows is NULL");
    check_refused(sl_client_push_pull(client, sparse, NULL, 2, two_rows, two_rows, 200),
                  "array of keys");

    assert_int_equal(sl_step_begin(client, 0, &step), 0);
    check_refused(sl_step_submit(step, 200), "the step has no operation");
    check_refused(sl_step_wait(step), "never submitted");
    check_refused(sl_step_pull(step, sparse, two_keys, 2, NULL), "table errors: 2 keys");
    check_refused(sl_step_push(step, dense, two_keys, 2, two_rows), "accepts sparse tables");
    check_refused(sl_step_push_pull(step, sparse, two_keys, 2, two_rows, NULL), "rows is NULL");
    check_refused(sl_step_assign(step, dense, two_keys, 2, two_rows), "accepts sparse tables");
    check_refused(sl_step_erase(step, dense, two_keys, 2), "accepts sparse tables");
    check_refused(sl_step_pull_pooled(step, sparse, two_keys, 2, ends, 1, SL_POOLING_SUM, two_rows),
                  "end with key_count");
    check_refused(
        sl_step_pull_pooled(step, sparse, two_keys, 2, ends, 1, SL_POOLING_NONE, two_rows),
        "neither sum nor mean");
    check_refused(sl_step_dense_pull(step, dense, 3, 2, two_rows), "table line, 2 elements from 3");
    check_refused(sl_step_dense_push(step, dense, 5, 0, two_rows), "beyond its length");
    check_refused(sl_step_dense_push_pull(step, dense, 0, 2, two_rows, NULL), "values is NULL");
    check_refused(sl_step_dense_assign(step, sparse, 0, 1, two_rows), "accepts dense tables");
    check_refused(sl_step_kv(step, sparse, &(struct sl_kv_batch){0}), "KV batch of 0 keys");
    check_refused(sl_step_kv_lengths(step, sparse, two_keys, 2, (uint32_t *)ends), "accepts KV");
    check_refused(sl_step_set_rate(step, -1), "rate -1: accepts finite factors above 0");
    check_refused(sl_step_tick(step), "no clock");
    check_refused(sl_step_finish(step), "no clock");
    check_refused(sl_step_submit(step, 200), "an operation was refused");
    sl_step_destroy(&step);

    assert_int_equal(sl_step_begin(client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, sparse, two_keys, 2, two_rows), 0);
    check_refused(sl_step_submit(step, 0), "timeout_ms 0: accepts 1 to 4294967");
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    check_refused(sl_step_set_priority(step, 1), "priority 1: the step is submitted");
    assert_int_equal(sl_step_wait(step), 0);
    assert_contains(sl_last_error(), "priority 1");
    sl_step_destroy(&step);

    assert_int_equal(sl_client_buffer_register(client, two_rows, sizeof two_rows), 0);
    assert_int_equal(sl_client_buffer_register(client, two_rows, sizeof two_rows), SL_ERR_EXISTS);
    assert_contains(sl_last_error(), "overlap a buffer");
    sl_client_buffer_unregister(client, two_rows);
    sl_log_set(SL_LOG_OFF, NULL, NULL);
    assert_int_equal(lines, 0);
}

/* The coordinator, which ps 0 hosts, goes: what needs it ends in time, and the client can leave. */
CLIENT_CASE(client_barrier__ends_when_the_coordinator_is_gone)
{
    struct sl_client *worker = fixture_client(fixture.cluster, &fixture_shape, 0);
    sl_cluster_kill(fixture.cluster, 0);
    assert_int_equal(sl_client_barrier(worker, "gone", 2, 200), SL_ERR_DEADLINE);
    uint64_t number;
    assert_int_equal(sl_client_checkpoint(worker, 200, &number), SL_ERR_DEADLINE);
    const struct sl_table_spec spec = fixture_sparse("gone", 1);
    struct sl_table *table;
    assert_int_equal(sl_client_table_open(worker, &spec, 200, &table), SL_ERR_DEADLINE);
    sl_client_destroy(&worker); /* one shard is not told that it has finished */
    assert_null(worker);
}

SL_CASE(step_wait__tells_what_the_shard_says)
{
    const struct sl_cluster_options options = {
        .ps_count = 1, .shards_of_ps = 1, .memory_bytes_max = 32U << 20, .shm = fixture_shm};
    struct sl_cluster *cluster = sl_cluster_start(&options);
    const struct shape shape = {1, 1, 1, SL_PROTOCOL_PER_TABLE};
    struct sl_client *client = fixture_client(cluster, &shape, -1);
    const struct sl_table_spec spec = fixture_sparse("full", 1024);
    struct sl_table *table = fixture_table(client, &spec);
    const uint32_t count = 9000; /* rows of 37 MB: more than the ps may have */
    uint64_t *many = malloc(count * sizeof *many);
    float *values = calloc((size_t)count * 1024, sizeof *values);
    for (uint32_t i = 0; i < count; i++) {
        many[i] = i;
    }
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_push(step, table, many, count, values), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    assert_int_equal(sl_step_wait(step), SL_ERR_NO_MEMORY);
    assert_contains(sl_step_error(step),
                    fixture_shm ? "ps/0 shard 0 (shm://" : "ps/0 shard 0 (tcp://");
    sl_step_destroy(&step);
    free(many);
    free(values);
    sl_client_destroy(&client);
    sl_cluster_stop(&cluster);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){2, 1, 2, SL_PROTOCOL_PER_TABLE};
}

SL_UNIT_WAYS(fixture_way);
