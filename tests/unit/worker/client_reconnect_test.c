/* A client of a real cluster whose connections are cut and whose ps processes start anew: nothing
 * hangs, and nothing is carried out twice. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/hash.h"
#include "core/log.h"
#include "tests/unit/worker/client_fixture.h"

#define KEYS 300
static uint64_t keys[KEYS];
static float ones[KEYS], rows[KEYS];

static struct sl_table *open_sparse(struct sl_client *client, const char *name)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i);
        ones[i] = 1;
    }
    const struct sl_table_spec spec = fixture_sparse(name, 1);
    return fixture_table(client, &spec);
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

static void pause_ms(long ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000};
    nanosleep(&time, NULL);
}

/* A thread that cuts the connections to one ps after the other. */
struct cutter {
    pthread_t thread;
    uint32_t cuts;
};

static void *cut(void *ctx)
{
    struct cutter *cutter = ctx;
    for (uint32_t i = 0; i < cutter->cuts; i++) {
        pause_ms(40);
        sl_cluster_cut(fixture.cluster, i % fixture_shape.ps_count);
    }
    return NULL;
}

static void finish(struct sl_step **step)
{
    int err = sl_step_wait(*step);
    assert_string_equal(sl_step_error(*step), "");
    assert_int_equal(err, 0);
    sl_step_destroy(step);
}

/* A window of steps stays outstanding for as long as connections break: more or fewer of them are
 * in flight, in the caller's memory or in the client's queue each time. */
static void push_while_cut(struct sl_step *(*push)(struct sl_table *table), struct sl_table *table,
                           uint32_t *pushed)
{
    enum { WINDOW = 16 };
    struct sl_step *steps[WINDOW] = {NULL};
    struct cutter cutter = {.cuts = 12};
    assert_int_equal(pthread_create(&cutter.thread, NULL, cut, &cutter), 0);
    bool cutting = true;
    for (uint32_t i = 0; cutting || i % WINDOW != 0; i++) {
        struct sl_step **step = &steps[i % WINDOW];
        if (*step != NULL) {
            finish(step);
        }
        *step = push(table);
        (*pushed)++;
        cutting = cutting && pthread_tryjoin_np(cutter.thread, NULL) != 0;
    }
    for (uint32_t i = 0; i < WINDOW; i++) {
        finish(&steps[i]);
    }
}

static struct sl_step *push_sparse(struct sl_table *table)
{
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_push(step, table, keys, KEYS, ones), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    return step;
}

CLIENT_CASE(push__is_carried_out_once_whatever_breaks)
{
    uint32_t pushed = 0;
    struct sl_table *table = open_sparse(fixture.client, "sparse");
    push_while_cut(push_sparse, table, &pushed);
    assert_int_equal(sl_client_pull(fixture.client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == (float)pushed);
    }
}

#define LENGTH 300000U
static float gradients[LENGTH], values[LENGTH];

static struct sl_step *push_dense(struct sl_table *table)
{
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_dense_push(step, table, 0, LENGTH, gradients), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    return step;
}

/* The same from the caller's memory, and back into it. */
CLIENT_CASE(dense_push__is_carried_out_once_whatever_breaks)
{
    const struct sl_table_spec spec = fixture_dense("dense", LENGTH);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    uint32_t pushed = 0;
    for (uint32_t i = 0; i < LENGTH; i++) {
        gradients[i] = (float)(i % 8);
    }
    push_while_cut(push_dense, table, &pushed);
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_dense_pull(step, table, 0, LENGTH, values), 0);
    fixture_run(step);
    for (uint32_t i = 0; i < LENGTH; i++) {
        assert_true(values[i] == (float)pushed * gradients[i]);
    }
}

/* Two BSP workers, whose pulls wait for each other while their connections break. */
CLIENT_CASE(bsp__goes_on_when_connections_break)
{
    if (fixture_caller_driven || fixture_shm) {
        return; /* while one waits, the other of its thread would not connect again */
    }
    enum { WORKERS = 2, ITERATIONS = 30 };
    struct sl_table_spec spec = fixture_sparse("bsp", 1);
    spec.consistency = (struct sl_consistency_spec){SL_CONSISTENCY_BSP, 0, WORKERS};
    struct sl_client *workers[WORKERS];
    struct sl_table *tables[WORKERS];
    static float pulled[WORKERS][KEYS];
    open_sparse(fixture.client, "keys");
    for (int32_t w = 0; w < WORKERS; w++) {
        workers[w] = fixture_client(fixture.cluster, &fixture_shape, w);
        tables[w] = fixture_table(workers[w], &spec);
        assert_int_equal(sl_client_clock(workers[w]), 0);
    }
    struct cutter cutter = {.cuts = 6};
    assert_int_equal(pthread_create(&cutter.thread, NULL, cut, &cutter), 0);
    bool cutting = true;
    uint32_t clock = 0;
    for (; cutting || clock < ITERATIONS; clock++) {
        struct sl_step *steps[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) {
            steps[w] = fixture_step(workers[w], clock);
            assert_int_equal(sl_step_push(steps[w], tables[w], keys, KEYS, ones), 0);
            assert_int_equal(sl_step_tick(steps[w]), 0);
            assert_int_equal(sl_step_pull(steps[w], tables[w], keys, KEYS, pulled[w]), 0);
            assert_int_equal(sl_step_submit(steps[w], TIMEOUT_MS), 0);
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            int err = sl_step_wait(steps[w]);
            assert_string_equal(sl_step_error(steps[w]), "");
            assert_int_equal(err, 0);
            sl_step_destroy(&steps[w]);
            for (uint32_t i = 0; i < KEYS; i++) {
                assert_true(pulled[w][i] == (float)(WORKERS * (clock + 1)));
            }
        }
        cutting = cutting && pthread_tryjoin_np(cutter.thread, NULL) != 0;
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        sl_client_destroy(&workers[w]);
    }
}

/* A ps that starts anew has the client's tables again, empty. */
CLIENT_CASE(client__goes_on_with_a_ps_that_was_restarted)
{
    struct sl_client *client = fixture.client;
    struct sl_table *table = open_sparse(client, "restarted");
    assert_int_equal(sl_client_push(client, table, keys, KEYS, ones, TIMEOUT_MS), 0);
    sl_cluster_pause(fixture.cluster, 1);
    struct sl_step *lost = push_sparse(table);
    pause_ms(20);
    sl_cluster_resume(fixture.cluster, 1);
    sl_cluster_restart(fixture.cluster, 1);
    int err = sl_step_wait(lost); /* it may have been answered before */
    if (err != 0) {
        assert_int_equal(err, SL_ERR_CLOSED);
        assert_contains(sl_step_error(lost), "ps/1 shard ");
        assert_contains(sl_step_error(lost), "the ps was restarted: its tables began anew");
    }
    sl_step_destroy(&lost);
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    uint32_t zeros = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        zeros += rows[i] == 0;
        assert_true(rows[i] == 0 || rows[i] == 1 || rows[i] == 2);
    }
    assert_in_range(zeros, 1, KEYS - 1);
    assert_int_equal(sl_client_push(client, table, keys, KEYS, ones, TIMEOUT_MS), 0);
    struct sl_table *other = open_sparse(client, "other");
    assert_int_equal(sl_client_push_pull(client, other, keys, KEYS, ones, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == 1);
    }
    fixture_expect_ways(client, fixture_shm);
}

/* The coordinator is restarted with its ps: the ids of tables that are in use stay what they are.
 */
SL_CASE(client__keeps_its_tables_when_the_coordinator_was_restarted)
{
    const struct shape one_ps = {1, 2, 2, SL_PROTOCOL_PER_TABLE};
    struct fixture alone = fixture_start(&one_ps);
    struct sl_client *client = alone.client;
    struct sl_table *first = open_sparse(client, "first"), *second = open_sparse(client, "second");
    sl_cluster_restart(alone.cluster, 0);
    assert_int_equal(sl_client_push_pull(client, second, keys, KEYS, ones, rows, TIMEOUT_MS), 0);
    struct sl_table *third = open_sparse(client, "third");
    assert_ptr_not_equal(third, first);
    assert_ptr_not_equal(third, second);
    assert_ptr_equal(open_sparse(client, "second"), second);
    assert_int_equal(sl_client_push_pull(client, third, keys, KEYS, ones, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == 1);
    }
    assert_int_equal(sl_client_barrier(client, "alone", 1, TIMEOUT_MS), 0);
    fixture_stop(&alone);
}

/* One that takes the place of a worker that had finished holds nobody up, and is told so. */
CLIENT_CASE(client_clock__says_that_a_worker_had_finished)
{
    struct sl_client *worker = fixture_client(fixture.cluster, &fixture_shape, 0);
    assert_int_equal(sl_client_clock(worker), 0);
    struct sl_step *step = fixture_step(worker, 0);
    assert_int_equal(sl_step_finish(step), 0);
    fixture_run(step);
    sl_client_destroy(&worker);
    worker = fixture_client(fixture.cluster, &fixture_shape, 0);
    assert_true(sl_client_clock(worker) == UINT32_MAX);
    struct sl_table *table = open_sparse(worker, "after");
    assert_int_equal(sl_client_push(worker, table, keys, KEYS, ones, TIMEOUT_MS), 0);
    sl_client_destroy(&worker);
}

static void tick_and_pull(struct sl_client *client, struct sl_table *table, uint32_t clock)
{
    struct sl_step *step = fixture_step(client, clock);
    assert_int_equal(sl_step_push(step, table, keys, KEYS, ones), 0);
    assert_int_equal(sl_step_tick(step), 0);
    fixture_run(step);
}

/* A worker that comes to a running job begins where the others are; they wait for it from there. */
CLIENT_CASE(client_clock__of_one_that_joins_is_that_of_the_others)
{
    struct sl_table_spec spec = fixture_sparse("joined", 1);
    spec.consistency = (struct sl_consistency_spec){SL_CONSISTENCY_BSP, 0, 1};
    struct sl_client *first = fixture_client(fixture.cluster, &fixture_shape, 0), *second = NULL;
    open_sparse(fixture.client, "keys");
    struct sl_table *table = fixture_table(first, &spec);
    for (uint32_t clock = 0; clock < 5; clock++) {
        tick_and_pull(first, table, clock);
    }
    const struct sl_client_options options = {
        .coordinator = sl_cluster_coordinator(fixture.cluster),
        .task_index = 1,
        .join_running = true,
        .manual_progress = fixture_caller_driven,
        .start_timeout_ms = TIMEOUT_MS,
    };
    assert_int_equal(sl_client_create(&options, &second), 0);
    assert_int_equal(sl_client_clock(second), 5);
    tick_and_pull(second, fixture_table(second, &spec), 5);
    tick_and_pull(first, table, 5);
    sl_client_destroy(&second);
    sl_client_destroy(&first);
}

static int create_with(const struct sl_cluster *cluster, const void *secret, size_t secret_bytes,
                       uint32_t timeout_ms)
{
    const struct sl_client_options options = {
        .coordinator = sl_cluster_coordinator(cluster),
        .task_index = -1,
        .manual_progress = fixture_caller_driven,
        .start_timeout_ms = timeout_ms,
        .secret = secret,
        .secret_bytes = secret_bytes,
    };
    struct sl_client *client = NULL;
    int err = sl_client_create(&options, &client);
    sl_client_destroy(&client);
    return err;
}

SL_CASE(client_create__proves_that_it_has_the_secret)
{
    const struct sl_secret secret = {.byte_count = 16, .bytes = "0123456789abcdef"};
    const struct sl_cluster_options options = {
        .ps_count = 1, .shards_of_ps = 2, .secret = &secret, .shm = fixture_shm};
    struct sl_cluster *cluster = sl_cluster_start(&options);
    assert_int_equal(create_with(cluster, "0123456789abcdef", 16, TIMEOUT_MS), 0);
    /* It is tried until the start timeout: the peer that refuses has proved nothing. On a machine
     * where nobody has answered until then, it is tried for longer. */
    int err = SL_ERR_DEADLINE;
    for (uint32_t ms = 1000; ms <= TIMEOUT_MS && err == SL_ERR_DEADLINE; ms *= 5) {
        err = create_with(cluster, "0123456789abcdeF", 16, ms);
    }
    assert_int_equal(err, SL_ERR_REFUSED);
    assert_int_equal(create_with(cluster, NULL, 0, TIMEOUT_MS), SL_ERR_REFUSED);
    sl_cluster_stop(&cluster);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){2, 2, 2, SL_PROTOCOL_PER_TABLE};
}

SL_UNIT_WAYS(fixture_way);
