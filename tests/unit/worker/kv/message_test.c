/* Barriers of groups, and messages between the processes of a job: workers, and clients beside its
 * servers and its scheduler, against real servers in this process. */
#include "tests/unit/worker/kv/kv_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/session/message.h"
#include "worker/kv/kv.h"

/* A kv with what it was sent. */
struct node {
    struct sl_kv *kv;
    sem_t came; /* once for each message */
    atomic_int requests;
    atomic_int answers;        /* to its messages */
    atomic_int heads;          /* their sum */
    struct sl_kv_message kept; /* with keeps: the last message, for a later answer */
    bool keeps;
    int err;
    const char *barrier;
    uint32_t groups;
    pthread_t thread;
};

static void on_request(void *ctx, const struct sl_kv_message *message)
{
    struct node *node = ctx;
    atomic_fetch_add(&node->requests, 1);
    if (node->keeps) {
        node->kept = *message;
        node->kept.body = NULL;
    } else {
        node->err = sl_kv_message_answer(node->kv, message, message->head + 1, message->body,
                                         message->bytes);
    }
    sem_post(&node->came);
}

static void on_answer(void *ctx, const struct sl_kv_message *message)
{
    struct node *node = ctx;
    atomic_fetch_add(&node->answers, 1);
    atomic_fetch_add(&node->heads, message->head);
    if (message->bytes > 0 && strcmp(message->body, "body") != 0) {
        node->err = SL_ERR_CORRUPT;
    }
}

static void node_init(struct node *node, struct sl_kv *kv)
{
    *node = (struct node){.kv = kv};
    sem_init(&node->came, 0, 0);
    sl_kv_messages(kv, on_request, on_answer, node);
}

static void node_wait(struct node *node)
{
    while (sem_wait(&node->came) != 0) {
    }
}

static void node_fini(struct node *node)
{
    sl_kv_destroy(&node->kv);
    sem_destroy(&node->came);
}

/* A client beside a server of the fixture's cluster. */
static struct sl_kv *join_beside(uint32_t beside)
{
    const struct sl_kv_options options = {.timeout_ms = TIMEOUT_MS};
    struct sl_kv *kv;
    assert_int_equal(sl_kv_join(&options, NULL, beside, &kv), 0);
    return kv;
}

static int send_and_wait(struct node *node, uint32_t groups, const struct sl_kv_node *to)
{
    uint64_t timestamp;
    int err = sl_kv_message_send(node->kv, groups, to, 4, "body", sizeof "body", &timestamp);
    return err == 0 ? sl_kv_wait(node->kv, timestamp) : err;
}

KV_CASE(message__is_answered_by_every_receiver)
{
    struct node worker, servers[PS_COUNT], scheduler;
    node_init(&worker, fixture->kv);
    for (uint32_t i = 0; i < PS_COUNT; i++) {
        node_init(&servers[i], join_beside(SL_MESSAGE_BESIDE_PS + i));
        assert_int_equal(sl_kv_rank(servers[i].kv), i);
    }
    node_init(&scheduler, join_beside(SL_MESSAGE_BESIDE_SCHEDULER));
    assert_int_equal(send_and_wait(&worker, SL_KV_SERVER_GROUP, NULL), 0);
    assert_int_equal(worker.answers, PS_COUNT);
    assert_int_equal(worker.heads, 5 * PS_COUNT);
    assert_int_equal(send_and_wait(&scheduler, SL_KV_SCHEDULER_GROUP | SL_KV_SERVER_GROUP, NULL),
                     0);
    assert_int_equal(scheduler.answers, PS_COUNT + 1);
    assert_int_equal(scheduler.requests, 1); /* its own */
    const struct sl_kv_node to = {.role = SL_KV_WORKER, .rank = 0};
    assert_int_equal(send_and_wait(&servers[1], 0, &to), 0);
    assert_int_equal(worker.requests, 1);
    assert_int_equal(worker.err + servers[0].err + servers[1].err + scheduler.err, 0);
    for (uint32_t i = 0; i < PS_COUNT; i++) {
        assert_int_equal(servers[i].requests, 2);
        node_fini(&servers[i]);
    }
    node_fini(&scheduler);
    sl_kv_messages(fixture->kv, NULL, NULL, NULL);
    sem_destroy(&worker.came);
}

KV_CASE(message__waits_for_its_receiver_and_for_a_later_answer)
{
    struct node worker, server = {.keeps = true};
    struct sl_kv *kv = join_beside(SL_MESSAGE_BESIDE_PS);
    node_init(&worker, fixture->kv);
    const struct sl_kv_node to = {.role = SL_KV_SERVER, .rank = 0};
    uint64_t timestamps[20];
    for (uint32_t i = 0; i < 20; i++) { /* it has no function for them yet */
        assert_int_equal(sl_kv_message_send(worker.kv, 0, &to, (int32_t)i, NULL, 0, &timestamps[i]),
                         0);
    }
    node_init(&server, kv);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(sl_kv_wait(worker.kv, timestamps[i]), 0);
    }
    assert_int_equal(worker.heads, 19 * 20 / 2 + 20);
    for (uint32_t i = 0; i < 20; i++) {
        node_wait(&server);
    }
    server.keeps = true;
    assert_int_equal(sl_kv_message_send(worker.kv, 0, &to, 1, "x", 1, &timestamps[0]), 0);
    node_wait(&server);
    assert_false(sl_kv_done(worker.kv, timestamps[0]));
    assert_int_equal(server.kept.role, SL_KV_WORKER);
    assert_int_equal(sl_kv_message_answer(kv, &server.kept, 1, NULL, 0), 0);
    assert_int_equal(sl_kv_message_answer(kv, &server.kept, 1, NULL, 0), 0); /* is dropped */
    assert_int_equal(sl_kv_wait(worker.kv, timestamps[0]), 0);
    node_fini(&server);
    sl_kv_messages(fixture->kv, NULL, NULL, NULL);
    sem_destroy(&worker.came);
}

KV_CASE(message__fails_when_the_receiver_leaves)
{
    struct node worker, server;
    node_init(&worker, fixture->kv);
    node_init(&server, join_beside(SL_MESSAGE_BESIDE_PS + 1));
    server.keeps = true;
    const struct sl_kv_node to = {.role = SL_KV_SERVER, .rank = 1};
    uint64_t timestamp;
    assert_int_equal(sl_kv_message_send(worker.kv, 0, &to, 1, NULL, 0, &timestamp), 0);
    node_wait(&server);
    node_fini(&server);
    assert_int_equal(sl_kv_wait(worker.kv, timestamp), SL_ERR_CLOSED);
    assert_non_null(strstr(sl_last_error(), "to ps/1: "));
    sl_kv_messages(fixture->kv, NULL, NULL, NULL);
    sem_destroy(&worker.came);
}

KV_CASE(message__is_refused)
{
    static char body[SL_KV_MESSAGE_BYTES + 1];
    const struct sl_kv_node nobody = {.role = SL_KV_SERVER, .rank = PS_COUNT};
    const struct sl_kv_node other = {.role = SL_KV_WORKER, .rank = 1};
    struct node worker;
    uint64_t timestamp;
    node_init(&worker, fixture->kv);
    assert_int_equal(sl_kv_message_send(worker.kv, 8, NULL, 1, NULL, 0, &timestamp),
                     SL_ERR_INVALID);
    assert_int_equal(sl_kv_message_send(worker.kv, 0, NULL, 1, NULL, 0, &timestamp),
                     SL_ERR_INVALID);
    assert_int_equal(sl_kv_message_send(worker.kv, 1, NULL, 1, body, sizeof body, &timestamp),
                     SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "65537 bytes"));
    assert_int_equal(send_and_wait(&worker, 0, &nobody), SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "the job has no ps/2"));
    /* A worker of the client library alone takes none. */
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    options.coordinator = sl_cluster_coordinator(fixture->cluster);
    options.task_index = 1;
    options.worker_count = 2;
    struct sl_client *client;
    assert_int_equal(sl_client_create(&options, &client), 0);
    assert_int_equal(send_and_wait(&worker, 0, &other), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sl_last_error(), "to worker/1: "));
    sl_client_leave(&client);
    sl_kv_messages(fixture->kv, NULL, NULL, NULL);
    sem_destroy(&worker.came);
}

KV_CASE(beside__has_no_table_but_opens_one)
{
    struct sl_kv *kv = join_beside(SL_MESSAGE_BESIDE_PS);
    float value = 1;
    const uint64_t key = 77;
    assert_int_equal(sl_kv_push(kv, &key, 1, NULL, &value, 1), SL_ERR_INVALID);
    assert_non_null(strstr(sl_last_error(), "sl_kv_open"));
    assert_int_equal(sl_kv_set_encoding(kv, SL_PRECISION_F16, SL_PRECISION_F16), SL_ERR_INVALID);
    struct sl_kv *table = fixture_table(kv, 4);
    assert_int_equal(sl_kv_push_pull(table, &key, 1, NULL, &value, &value, 1), 0);
    assert_true(value == 1);
    sl_kv_destroy(&table);
    sl_kv_destroy(&kv);
}

/* Barriers */

static void *come(void *ctx)
{
    struct node *node = ctx;
    do { /* INVALID while another is there who asks for other groups */
        node->err = sl_kv_barrier_of(node->kv, node->barrier, node->groups, TIMEOUT_MS);
    } while (node->err == SL_ERR_INVALID);
    return NULL;
}

static void begin_to_come(struct node *node, const char *name, uint32_t groups)
{
    node->barrier = name;
    node->groups = groups;
    assert_int_equal(pthread_create(&node->thread, NULL, come, node), 0);
}

KV_CASE(barrier_of__waits_for_every_process)
{
    struct sl_kv_options options = fixture_options("shared");
    struct node nodes[5] = {{.kv = fixture->kv},
                            {.kv = fixture_join(fixture->cluster, 1, &options)},
                            {.kv = join_beside(SL_MESSAGE_BESIDE_PS)},
                            {.kv = join_beside(SL_MESSAGE_BESIDE_PS + 1)},
                            {.kv = join_beside(SL_MESSAGE_BESIDE_SCHEDULER)}};
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 4; i++) {
            begin_to_come(&nodes[i], "all", 7);
        }
        assert_int_equal(sl_kv_barrier_of(nodes[4].kv, "all", 7, TIMEOUT_MS), 0);
        for (uint32_t i = 0; i < 4; i++) {
            pthread_join(nodes[i].thread, NULL);
            assert_int_equal(nodes[i].err, 0);
        }
    }
    assert_int_equal(sl_kv_barrier_of(nodes[1].kv, "alone", SL_KV_SERVER_GROUP, TIMEOUT_MS),
                     SL_ERR_INVALID);
    assert_int_equal(sl_kv_barrier_of(nodes[1].kv, "alone", 0, TIMEOUT_MS), SL_ERR_INVALID);
    assert_int_equal(sl_kv_barrier_of(nodes[2].kv, "alone", 3, 200), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_last_error(), "scheduler/0"));
    begin_to_come(&nodes[2], "lost", SL_KV_SERVER_GROUP | SL_KV_SCHEDULER_GROUP);
    while (sl_kv_barrier_of(nodes[1].kv, "lost", SL_KV_WORKER_GROUP, 200) == SL_ERR_DEADLINE) {
    } /* INVALID once the other has come, who asks for other groups */
    sl_kv_destroy(&nodes[3].kv);
    pthread_join(nodes[2].thread, NULL);
    assert_int_equal(nodes[2].err, SL_ERR_CLOSED);
    for (uint32_t i = 1; i < 5; i++) {
        sl_kv_destroy(&nodes[i].kv);
    }
}

SL_UNIT_GROUP(fixture_setup, fixture_teardown);
