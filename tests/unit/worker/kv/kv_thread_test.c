/* A worker with a thread of its own, used by several threads of the application. */
#include "tests/unit/worker/kv/kv_fixture.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#define THREADS 4U
#define CALLS   100U

struct user {
    struct sl_kv *kv;
    pthread_t thread;
    uint32_t index;
    uint64_t timestamps[CALLS];
    int err;
    sem_t *ready;
    float one;
};

static int push_one(struct user *user, uint32_t i)
{
    uint64_t key = i % 3 == 0 ? 0 : UINT64_MAX / 7 * (i % 7);
    struct sl_kv_call call = {
        .batch = {.keys = &key, .key_count = 1, .value_count = 1, .push = &user->one},
        .priority = (int32_t)(i % 5),
        .copy_inputs = true};
    return sl_kv_begin(user->kv, &call, &user->timestamps[i]);
}

static void *use(void *ctx)
{
    struct user *user = ctx;
    for (uint32_t i = 0; i < CALLS && user->err == 0; i++) {
        user->err = push_one(user, i);
        if (user->err == 0 && i % 4 == 0) {
            user->err = sl_kv_wait(user->kv, user->timestamps[i / 2]);
        }
    }
    sem_post(user->ready);
    return NULL;
}

KV_CASE(wait__from_several_threads)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    struct user users[THREADS];
    sem_t ready;
    sem_init(&ready, 0, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.kv = kv, .index = i, .ready = &ready, .one = 1};
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(users[i].thread, NULL);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(users[i].err, 0);
        for (uint32_t call = 0; call < CALLS; call++) { /* whose call it was does not matter */
            assert_int_equal(sl_kv_wait(kv, users[i].timestamps[call]), 0);
        }
    }
    float sum = 0, value;
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(sl_kv_pull(kv, &(uint64_t){UINT64_MAX / 7 * i}, 1, NULL, &value, 1), 0);
        sum += value;
    }
    assert_true(sum == THREADS * CALLS);
    sem_destroy(&ready);
    sl_kv_destroy(&kv);
}

static void *wait_for_one(void *ctx)
{
    struct user *user = ctx;
    sem_post(user->ready);
    user->err = sl_kv_wait(user->kv, user->timestamps[0]);
    return NULL;
}

KV_CASE(wait__for_the_same_call)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    struct user users[THREADS];
    struct user first = {.kv = kv, .one = 1};
    sem_t ready;
    sem_init(&ready, 0, 0);
    sl_cluster_pause(fixture->cluster, 0);
    assert_int_equal(push_one(&first, 0), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (struct user){.kv = kv, .ready = &ready, .timestamps = {first.timestamps[0]}};
        assert_int_equal(pthread_create(&users[i].thread, NULL, wait_for_one, &users[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        while (sem_wait(&ready) != 0) {
        }
    }
    assert_false(sl_kv_done(kv, first.timestamps[0]));
    sl_cluster_resume(fixture->cluster, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(users[i].thread, NULL);
        assert_int_equal(users[i].err, 0);
    }
    sem_destroy(&ready);
    sl_kv_destroy(&kv);
}

static void *come_to_barrier(void *ctx)
{
    struct user *user = ctx;
    sem_post(user->ready);
    user->err = sl_kv_barrier(user->kv, "together", TIMEOUT_MS);
    return NULL;
}

KV_CASE(barrier__calls_go_on_meanwhile)
{
    struct sl_kv_options options = fixture_options("shared");
    struct sl_kv *other = fixture_join(fixture->cluster, 1, &options);
    struct sl_kv *mine;
    assert_int_equal(sl_kv_rank(other), 1);
    assert_int_equal(sl_kv_open(fixture->kv, &options, &mine), 0);
    sem_t ready;
    sem_init(&ready, 0, 0);
    struct user user = {.kv = mine, .ready = &ready};
    assert_int_equal(pthread_create(&user.thread, NULL, come_to_barrier, &user), 0);
    while (sem_wait(&ready) != 0) {
    }
    float value = 3;
    for (uint32_t i = 0; i < 50; i++) {
        value = 3;
        assert_int_equal(sl_kv_push_pull(mine, &(uint64_t){1}, 1, NULL, &value, &value, 1), 0);
    }
    assert_true(value == 150);
    assert_int_equal(sl_kv_barrier(other, "together", TIMEOUT_MS), 0);
    pthread_join(user.thread, NULL);
    assert_int_equal(user.err, 0);
    assert_int_equal(sl_kv_pull(other, &(uint64_t){1}, 1, NULL, &value, 1), 0);
    assert_true(value == 150);
    assert_int_equal(sl_kv_barrier(other, "alone", 100), SL_ERR_DEADLINE);
    assert_int_equal(sl_kv_barrier(other, "", 100), SL_ERR_INVALID);
    sem_destroy(&ready);
    sl_kv_destroy(&mine);
    sl_kv_destroy(&other);
}

KV_CASE(push__once_whatever_breaks)
{
    struct sl_kv *kv = fixture_table(fixture->kv, 4);
    struct user user = {.kv = kv, .one = 1};
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < CALLS; i++) {
            assert_int_equal(push_one(&user, i), 0);
            if (i == CALLS / 2) {
                sl_cluster_cut(fixture->cluster, round % PS_COUNT);
            }
        }
        for (uint32_t i = 0; i < CALLS; i++) {
            assert_int_equal(sl_kv_wait(kv, user.timestamps[i]), 0);
        }
    }
    float sum = 0, value;
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(sl_kv_pull(kv, &(uint64_t){UINT64_MAX / 7 * i}, 1, NULL, &value, 1), 0);
        sum += value;
    }
    assert_true(sum == 5 * CALLS);
    sl_kv_destroy(&kv);
}

SL_CASE(create__needs_a_cluster)
{
    struct sl_kv_options options = fixture_options(NULL);
    struct sl_kv *kv;
    setenv("TF_CONFIG", "{\"cluster\": ", 1);
    assert_int_equal(sl_kv_create(&options, &kv), SL_ERR_INVALID);
    options.value_bytes = 3;
    assert_int_equal(sl_kv_create(&options, &kv), SL_ERR_INVALID);
}

SL_CASE(role__is_what_the_variable_says)
{
    static const char *const names[] = {"scheduler", "server", "worker", "joint"};
    static const enum sl_kv_role roles[] = {SL_KV_SCHEDULER, SL_KV_SERVER, SL_KV_WORKER,
                                            SL_KV_JOINT};
    enum sl_kv_role role;
    unsetenv("DMLC_ROLE");
    assert_int_equal(sl_kv_role(&role), SL_ERR_NOT_FOUND);
    for (uint32_t i = 0; i < 4; i++) {
        setenv("DMLC_ROLE", names[i], 1);
        assert_int_equal(sl_kv_role(&role), 0);
        assert_int_equal(role, roles[i]);
    }
    setenv("DMLC_ROLE", "Worker", 1);
    assert_int_equal(sl_kv_role(&role), SL_ERR_INVALID);
    unsetenv("DMLC_ROLE");
}

SL_UNIT_GROUP(fixture_setup, fixture_teardown);
