/* Blocking calls that the client's option `interrupted` ends. */
#include <pthread.h>
#include <string.h>

#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

/* Ends every wait of its thread while is_on. */
struct interrupt {
    pthread_t thread;
    bool is_on;
    struct sl_client *user; /* that it calls before it ends a wait; or NULL */
};

static bool is_interrupted(void *ctx)
{
    struct interrupt *interrupt = ctx;
    if (!pthread_equal(interrupt->thread, pthread_self()) || !interrupt->is_on) {
        return false;
    }
    if (interrupt->user != NULL) {
        interrupt->is_on = false; /* for this call */
        assert_int_equal(sl_client_barrier(interrupt->user, "used", 1, TIMEOUT_MS), 0);
        interrupt->is_on = true;
    }
    return true;
}

static struct interrupt interrupt;
static struct sl_client *client; /* whose calls are interrupted */

static int create(const char *coordinator)
{
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = coordinator,
                                              .task_index = -1,
                                              .manual_progress = fixture_caller_driven,
                                              .start_timeout_ms = TIMEOUT_MS,
                                              .interrupted = is_interrupted,
                                              .interrupted_ctx = &interrupt};
    return sl_client_create(&options, &client);
}

static void setup(void)
{
    interrupt = (struct interrupt){.thread = pthread_self()};
    client = NULL;
    fixture_setup();
    assert_int_equal(create(sl_cluster_coordinator(fixture.cluster)), 0);
}

static void teardown(void)
{
    sl_client_leave(&client);
    fixture_stop(&fixture);
}

#define INTERRUPT_CASE(name) SL_CASE_WITH(name, setup(), teardown())

static void check_cancelled(int err, const char *text)
{
    assert_int_equal(err, SL_ERR_CANCELLED);
    assert_string_equal(sl_last_error(), text);
}

static struct sl_table *new_table(const char *name)
{
    const struct sl_table_spec spec = fixture_sparse(name, 1);
    return fixture_table(client, &spec);
}

#define KEYS 100
static uint64_t keys[KEYS];
static float rows[KEYS];

INTERRUPT_CASE(step_wait__leaves_the_step_outstanding)
{
    struct sl_table *table = new_table("step");
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        rows[i] = 1;
    }
    assert_int_equal(sl_client_push(client, table, keys, KEYS, rows, TIMEOUT_MS), 0);
    memset(rows, 0, sizeof rows);
    sl_cluster_pause(fixture.cluster, 1);
    struct sl_step *step = fixture_step(client, 0);
    assert_int_equal(sl_step_pull(step, table, keys, KEYS, rows), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    interrupt.is_on = true;
    interrupt.user = client;
    check_cancelled(sl_step_wait(step), "wait: interrupted: the step continues");
    check_cancelled(sl_step_wait_for(step, TIMEOUT_MS), "wait: interrupted: the step continues");
    assert_false(sl_step_done(step));
    /* Its array could not be used again. */
    float other[KEYS];
    assert_int_equal(sl_client_pull(client, table, keys, KEYS, other, 250), SL_ERR_DEADLINE);
    interrupt.is_on = false;
    sl_cluster_resume(fixture.cluster, 1);
    assert_int_equal(sl_step_wait(step), 0);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_true(rows[i] == 1);
    }
    sl_step_destroy(&step);
}

INTERRUPT_CASE(client_barrier__is_left)
{
    interrupt.is_on = true;
    check_cancelled(sl_client_barrier(client, "left", 2, TIMEOUT_MS), "barrier left: interrupted");
    interrupt.is_on = false;
    /* Nobody waits there: else another count would be refused. */
    assert_int_equal(sl_client_barrier(client, "left", 1, TIMEOUT_MS), 0);
}

static void *meet(void *result)
{
    *(int *)result = sl_client_barrier(client, "both", 2, TIMEOUT_MS);
    return NULL;
}

INTERRUPT_CASE(client_barrier__of_another_thread_is_not_interrupted)
{
    pthread_t thread;
    int met = -1;
    if (fixture_caller_driven) {
        return; /* there is no other thread */
    }
    assert_int_equal(pthread_create(&thread, NULL, meet, &met), 0);
    interrupt.is_on = true;
    check_cancelled(sl_client_barrier(client, "mine", 2, TIMEOUT_MS), "barrier mine: interrupted");
    assert_int_equal(sl_client_barrier(fixture.client, "both", 2, TIMEOUT_MS), 0);
    pthread_join(thread, NULL);
    assert_int_equal(met, 0);
    interrupt.is_on = false;
}

INTERRUPT_CASE(client_checkpoint__is_interrupted)
{
    uint64_t number;
    sl_cluster_pause(fixture.cluster, 0);
    interrupt.is_on = true;
    check_cancelled(sl_client_checkpoint(client, TIMEOUT_MS, &number),
                    "no checkpoint: interrupted");
    interrupt.is_on = false;
    sl_cluster_resume(fixture.cluster, 0);
    assert_int_equal(sl_client_checkpoint(client, TIMEOUT_MS, &number), SL_ERR_UNSUPPORTED);
}

INTERRUPT_CASE(client_table_open__can_be_repeated)
{
    const struct sl_table_spec spec = fixture_sparse("again", 1);
    struct sl_table *table = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) { /* the coordinator, then only shards */
        sl_cluster_pause(fixture.cluster, ps);
        interrupt.is_on = true;
        check_cancelled(sl_client_table_open(client, &spec, TIMEOUT_MS, &table),
                        "table again: interrupted");
        interrupt.is_on = false;
        sl_cluster_resume(fixture.cluster, ps);
        assert_null(table);
    }
    table = new_table("again");
    assert_int_equal(sl_client_push(client, table, keys, 1, rows, TIMEOUT_MS), 0);
}

INTERRUPT_CASE(client_table_stats__can_be_repeated)
{
    struct sl_table *table = new_table("stats");
    struct sl_table_stats stats = {.rows = 7};
    assert_int_equal(sl_client_push(client, table, keys, 1, rows, TIMEOUT_MS), 0);
    sl_cluster_pause(fixture.cluster, 1);
    interrupt.is_on = true;
    check_cancelled(sl_client_table_stats(client, table, TIMEOUT_MS, &stats),
                    "statistics of table stats: interrupted");
    assert_int_equal(stats.rows, 7);
    interrupt.is_on = false;
    sl_cluster_resume(fixture.cluster, 1);
    assert_int_equal(sl_client_table_stats(client, table, TIMEOUT_MS, &stats), 0);
    assert_int_equal(stats.rows, 1);
}

/* In each stage: nobody listens, the coordinator is silent, a shard is silent. */
INTERRUPT_CASE(client_create__frees_everything)
{
    const char *coordinator = sl_cluster_coordinator(fixture.cluster);
    sl_client_leave(&client);
    interrupt.is_on = true;
    check_cancelled(create("127.0.0.1:1"), "client: interrupted");
    for (uint32_t ps = 0; ps < 2; ps++) {
        sl_cluster_pause(fixture.cluster, ps);
        check_cancelled(create(coordinator), "client: interrupted");
        assert_null(client);
        sl_cluster_resume(fixture.cluster, ps);
    }
    interrupt.is_on = false;
    assert_int_equal(create(coordinator), 0);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){2, 1, 2, SL_PROTOCOL_PER_TABLE};
}

SL_UNIT_WAYS(fixture_way);
