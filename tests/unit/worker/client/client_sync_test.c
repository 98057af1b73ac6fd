/* Several clients and several threads: clocks, barriers, ports. */
#include <poll.h>
#include <pthread.h>

#include "core/hash.h"
#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

#define WORKERS 2

static const struct shape lite_shape = {1, 2, 2, SL_PROTOCOL_BATCHED};
static struct sl_table_spec clocked(const char *name, enum sl_consistency_mode mode,
                                    uint32_t staleness)
{
    struct sl_table_spec spec = fixture_sparse(name, 1);
    spec.consistency = (struct sl_consistency_spec){mode, staleness, WORKERS};
    return spec;
}

enum { KEYS = 50 };
static uint64_t keys[KEYS];
static float ones[KEYS];

static void fill(void)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i);
        ones[i] = 1;
    }
}

static void wait_for_rows(struct sl_step **step, const float *rows, float expected)
{
    assert_int_equal(sl_step_wait(*step), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == expected);
    }
    sl_step_destroy(step);
}

/* One step pushes, ticks, and pulls for the next iteration; by "lite" in one message a shard. */
CLIENT_CASE(bsp_pull__behind_the_tick_is_of_the_next_iteration)
{
    fill();
    struct sl_client *workers[WORKERS] = {fixture_client(fixture.cluster, &fixture_shape, 0),
                                          fixture_client(fixture.cluster, &lite_shape, 1)};
    struct sl_table_spec spec = clocked("bsp_fused", SL_CONSISTENCY_BSP, 0);
    struct sl_table *tables[WORKERS] = {fixture_table(workers[0], &spec),
                                        fixture_table(workers[1], &spec)};
    float rows[WORKERS][KEYS];
    for (uint32_t clock = 0; clock < 5; clock++) {
        struct sl_step *steps[WORKERS];
        for (uint32_t i = 0; i < WORKERS; i++) {
            uint32_t who = (clock + i) % WORKERS;
            steps[who] = fixture_step(workers[who], clock);
            assert_int_equal(sl_step_push(steps[who], tables[who], keys, KEYS, ones), 0);
            assert_int_equal(sl_step_tick(steps[who]), 0);
            assert_int_equal(sl_step_pull(steps[who], tables[who], keys, KEYS, rows[who]), 0);
            assert_int_equal(sl_step_submit(steps[who], TIMEOUT_MS), 0);
        }
        for (uint32_t i = 0; i < WORKERS; i++) {
            assert_int_equal(sl_step_wait(steps[i]), 0);
            assert_int_equal(sl_step_staleness(steps[i]), 0);
            wait_for_rows(&steps[i], rows[i], (float)((clock + 1) * WORKERS));
        }
    }
    struct sl_step *twice = fixture_step(workers[0], 5);
    assert_int_equal(sl_step_tick(twice), 0);
    assert_int_equal(sl_step_tick(twice), SL_ERR_INVALID);
    sl_step_destroy(&twice);
    for (uint32_t i = 0; i < WORKERS; i++) {
        sl_client_destroy(&workers[i]);
    }
}

static void *come_to_barrier(void *ctx)
{
    struct sl_client *client = ctx;
    return (void *)(intptr_t)sl_client_barrier(client, "meet", 3, TIMEOUT_MS);
}

CLIENT_CASE(client_barrier__opens_when_all_have_come)
{
    if (fixture_caller_driven || fixture_shm) {
        return;
    }
    struct sl_client *workers[WORKERS] = {fixture_client(fixture.cluster, &fixture_shape, 0),
                                          fixture_client(fixture.cluster, &fixture_shape, 1)};
    pthread_t threads[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_create(&threads[i], NULL, come_to_barrier, workers[i]);
    }
    assert_int_equal(sl_client_barrier(fixture.client, "meet", 3, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_int_equal((intptr_t)result, 0);
        sl_client_destroy(&workers[i]);
    }
}

#define THREADS 4
#define ROUNDS  60

struct pusher {
    struct sl_client *client;
    int err;
};

/* Asserts nothing, since CMocka's assertions belong to the test's own thread. */
static void *push_and_pull(void *ctx)
{
    struct pusher *pusher = ctx;
    const struct sl_table_spec spec = fixture_sparse("threads", 1);
    struct sl_table *table = NULL;
    float rows[KEYS];
    int err = sl_client_table_open(pusher->client, &spec, TIMEOUT_MS, &table);
    for (int round = 0; err == 0 && round < ROUNDS; round++) {
        err = sl_client_push(pusher->client, table, keys, KEYS, ones, TIMEOUT_MS);
        if (err == 0) {
            err = sl_client_pull(pusher->client, table, keys, KEYS, rows, TIMEOUT_MS);
        }
        for (uint32_t i = 0; err == 0 && i < KEYS; i++) {
            err = rows[i] >= (float)(round + 1) ? 0 : -1000;
        }
    }
    pusher->err = err;
    return NULL;
}

CLIENT_CASE(step_submit__may_be_called_by_many_threads)
{
    if (fixture_caller_driven || fixture_shm) {
        return;
    }
    fill();
    struct sl_client *client = fixture_client(fixture.cluster, &lite_shape, -1);
    /* Twice: the second threads take over what the first ones have left. */
    for (int generation = 1; generation <= 2; generation++) {
        pthread_t threads[THREADS];
        struct pusher pushers[THREADS];
        for (uint32_t i = 0; i < THREADS; i++) {
            pushers[i] = (struct pusher){.client = client};
            pthread_create(&threads[i], NULL, push_and_pull, &pushers[i]);
        }
        for (uint32_t i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(pushers[i].err, 0);
        }
        const struct sl_table_spec spec = fixture_sparse("threads", 1);
        struct sl_table *table = fixture_table(client, &spec);
        float rows[KEYS];
        assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
        for (uint32_t i = 0; i < KEYS; i++) {
            assert_true(rows[i] == (float)(generation * THREADS * ROUNDS));
        }
    }
    sl_client_destroy(&client);
}

static void *try_a_step(void *ctx)
{
    struct sl_step *step = NULL;
    int err = sl_step_begin(ctx, 0, &step);
    return err == SL_ERR_INVALID && sl_client_barrier(ctx, "no", 1, TIMEOUT_MS) == SL_ERR_INVALID
               ? ctx
               : NULL;
}

/* A client that its caller drives belongs to the thread that created it. */
CLIENT_CASE(client__of_another_thread_is_refused)
{
    if (!fixture_caller_driven || !fixture_shm) {
        return;
    }
    struct sl_client *client = fixture.client;
    pthread_t thread;
    void *refused;
    assert_int_equal(pthread_create(&thread, NULL, try_a_step, client), 0);
    pthread_join(thread, &refused);
    assert_ptr_equal(refused, client);
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator =
                                                  sl_cluster_coordinator(fixture.cluster),
                                              .reactor_count = 2,
                                              .manual_progress = true};
    assert_int_equal(sl_client_create(&options, &client), SL_ERR_INVALID);
}

static int wait_late(struct sl_client *client, struct sl_table *table, float *rows, uint32_t ms)
{
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull(step, table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(step, ms), 0);
    poll(NULL, 0, (int)(ms + ms / 2));
    const int err = sl_step_wait(step);
    sl_step_destroy(&step);
    return err;
}

/* The answer has come in time; only the caller comes late. On a machine where it has not come in
 * time, there is more time for another. */
CLIENT_CASE(step_wait__takes_what_came_while_the_caller_was_away)
{
    struct sl_client *client = fixture_client(fixture.cluster, &fixture_shape, -1);
    struct sl_table_spec spec = fixture_sparse("away", 1);
    struct sl_table *table = fixture_table(client, &spec);
    float rows[KEYS] = {0};
    assert_int_equal(sl_client_push(client, table, keys, KEYS, ones, TIMEOUT_MS), 0);
    int err = SL_ERR_DEADLINE;
    for (uint32_t ms = 1000; ms <= TIMEOUT_MS && err == SL_ERR_DEADLINE; ms *= 5) {
        err = wait_late(client, table, rows, ms);
    }
    assert_int_equal(err, 0);
    assert_true(rows[0] == 1 && rows[KEYS - 1] == 1);
    sl_client_destroy(&client);
}

/* Its deadline counts from the call, whether it has left or not; another may leave afterwards. */
CLIENT_CASE(step_submit_more__ends_by_its_deadline_unsent)
{
    enum { SHORT_MS = 10, AWAY_MS = 50 };
    struct sl_client *client = fixture.client;
    struct sl_table_spec spec = fixture_sparse("unsent", 1);
    struct sl_table *table = fixture_table(client, &spec);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_push(step, table, keys, KEYS, ones), 0);
    assert_int_equal(sl_step_submit_deferred(step, SHORT_MS), 0);
    poll(NULL, 0, AWAY_MS);
    int err = sl_step_wait(step);
    assert_true(err == SL_ERR_DEADLINE || err == 0);
    sl_step_destroy(&step);
    float rows[KEYS];
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(err == 0 ? rows[i] == 1 : rows[i] == 0 || rows[i] == 1);
    }
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){1, 2, 1, SL_PROTOCOL_PER_TABLE};
}

SL_UNIT_WAYS(fixture_way);
