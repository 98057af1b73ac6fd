/* A client in a forked child: its calls fail, and the parent does not notice. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

#define KEYS 100

static struct sl_table *table;
static uint64_t keys[KEYS];
static float rows[KEYS];

static void push_ones(void)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        rows[i] = 1;
    }
    assert_int_equal(sl_client_push(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
}

static void open_table(void)
{
    const struct sl_table_spec spec = fixture_sparse("forked", 1);
    table = fixture_table(fixture.client, &spec);
    push_ones();
}

static void expect_rows(float value)
{
    assert_int_equal(sl_client_pull(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == value);
    }
}

/* The framework's assertions must not run in a child. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "child: " #condition " at line %d: %s\n", __LINE__,              \
                          sl_last_error());                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void in_child(void (*run)(void *ctx), void *ctx)
{
    const pid_t child = fork();
    if (child == 0) {
        run(ctx);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void call_client(void *ctx)
{
    const struct sl_table_spec spec = fixture_sparse("of_a_child", 1);
    struct sl_table *opened;
    struct sl_table_stats stats;
    struct sl_client_stats counters;
    struct sl_step *step;
    uint64_t number;
    void **buffer = ctx, *made;
    struct sl_client *client = fixture.client;
    REQUIRE(sl_client_push(client, table, keys, KEYS, rows, 1000) == SL_ERR_FORKED);
    REQUIRE(strstr(sl_last_error(), "forked") != NULL);
    REQUIRE(sl_client_table_open(client, &spec, 1000, &opened) == SL_ERR_FORKED);
    REQUIRE(sl_client_barrier(client, "b", 2, 1000) == SL_ERR_FORKED);
    REQUIRE(sl_client_checkpoint(client, 1000, &number) == SL_ERR_FORKED);
    REQUIRE(sl_client_table_stats(client, table, 1000, &stats) == SL_ERR_FORKED);
    REQUIRE(sl_client_buffer_create(client, 1, &made) == SL_ERR_FORKED);
    REQUIRE(sl_client_buffer_register(client, rows, sizeof rows) == SL_ERR_FORKED);
    REQUIRE(sl_step_begin(client, 0, &step) == SL_ERR_FORKED);
    sl_client_stats(client, &counters);
    REQUIRE(sl_client_metrics(client, NULL, 0) == SL_ERR_FORKED);
    sl_client_buffer_free(client, buffer);
    REQUIRE(*buffer == NULL);
    REQUIRE(sl_client_shard_count(client) == 4 && sl_client_values_lost(client) == -1);
    sl_client_leave(&client);
    REQUIRE(client == NULL);
    sl_client_destroy(&fixture.client);
    REQUIRE(fixture.client == NULL);
}

CLIENT_CASE(forked_child__has_no_client)
{
    void *buffer;
    open_table();
    assert_int_equal(sl_client_buffer_create(fixture.client, 5000, &buffer), 0);
    in_child(call_client, &buffer);
    expect_rows(1);
    sl_client_buffer_free(fixture.client, &buffer);
}

struct steps {
    struct sl_step *building, *submitted;
};

static void call_steps(void *ctx)
{
    struct steps *steps = ctx;
    struct sl_step *step = steps->building;
    REQUIRE(sl_step_push(step, table, keys, KEYS, rows) == SL_ERR_FORKED);
    REQUIRE(sl_step_set_rate(step, 2) == SL_ERR_FORKED);
    REQUIRE(sl_step_set_priority(step, 1) == SL_ERR_FORKED);
    REQUIRE(sl_step_tick(step) == SL_ERR_FORKED);
    REQUIRE(sl_step_finish(step) == SL_ERR_FORKED);
    REQUIRE(sl_step_submit(step, 1000) == SL_ERR_FORKED);
    REQUIRE(sl_step_done(steps->submitted));
    REQUIRE(sl_step_wait_for(steps->submitted, 1000) == SL_ERR_FORKED);
    REQUIRE(sl_step_wait(steps->submitted) == SL_ERR_FORKED);
    sl_step_destroy(&steps->building);
    sl_step_destroy(&steps->submitted);
    REQUIRE(steps->building == NULL && steps->submitted == NULL);
}

CLIENT_CASE(forked_child__cannot_use_a_step)
{
    open_table();
    struct steps steps = {.building = fixture_step(fixture.client, 0),
                          .submitted = fixture_step(fixture.client, 0)};
    assert_int_equal(sl_step_push(steps.building, table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_push(steps.submitted, table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(steps.submitted, TIMEOUT_MS), 0);
    in_child(call_steps, &steps);
    assert_int_equal(sl_step_wait(steps.submitted), 0);
    sl_step_destroy(&steps.submitted);
    fixture_run(steps.building);
    expect_rows(3);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_HAS_NO_THREADS
#endif
#endif

#ifndef CHILD_HAS_NO_THREADS
static void use_own_client(void *ctx)
{
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = sl_cluster_coordinator(fixture.cluster),
        .task_index = -1,
        .start_timeout_ms = TIMEOUT_MS,
        .manual_progress = fixture_caller_driven,
        .disable_shm = !fixture_shm,
    };
    const struct sl_table_spec spec = fixture_sparse("forked", 1);
    struct sl_client *client;
    struct sl_table *own;
    sl_client_leave(&fixture.client);
    REQUIRE(sl_client_create(&options, &client) == 0);
    REQUIRE(sl_client_table_open(client, &spec, TIMEOUT_MS, &own) == 0);
    REQUIRE(sl_client_push(client, own, keys, KEYS, rows, TIMEOUT_MS) == 0);
    sl_client_destroy(&client);
}

CLIENT_CASE(forked_child__creates_a_client_of_its_own)
{
    open_table();
    in_child(use_own_client, NULL);
    expect_rows(2);
}
#endif

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){2, 2, 2, SL_PROTOCOL_BATCHED};
}

SL_UNIT_WAYS(fixture_way);
