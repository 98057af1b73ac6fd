/* The coordinator, with members that the test scripts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/log.h"
#include "ps/coordinator.h"

#define SENT_MAX 64
#define SECOND   SL_CLOCK_NS_PER_S

/* What was sent, as "peer#id what": "7#3 opened 0". */
struct fixture {
    struct sl_coordinator *coordinator;
    char sent[SENT_MAX][1024];
    uint32_t sent_count;
    char reason[512];
};

static int describe(const struct sl_message *message, char *text, size_t bytes)
{
    switch (message->kind) {
    case SL_MESSAGE_ERROR:
        return snprintf(text, bytes, "error %s: %s", sl_err_name(message->error.err),
                        message->error.text);
    case SL_MESSAGE_CLUSTER: {
        int at = snprintf(text, bytes, "cluster of %u workers:", message->cluster.worker_count);
        for (uint32_t i = 0; i < message->cluster.ps_count; i++) {
            const struct sl_message_ps *ps = &message->cluster.ps[i];
            at += snprintf(text + at, bytes - (size_t)at, " ps/%u %s x%u", ps->task_index,
                           ps->data_endpoint, ps->shard_count);
        }
        return at;
    }
    case SL_MESSAGE_WAITING: {
        int at = snprintf(text, bytes, "waiting for");
        for (uint32_t i = 0; i < message->waiting.missing_count; i++) {
            at += snprintf(text + at, bytes - (size_t)at, " %s", message->waiting.missing[i]);
        }
        return at;
    }
    case SL_MESSAGE_TABLE_OPENED:
        return snprintf(text, bytes, "opened %u", message->table_id);
    case SL_MESSAGE_BARRIER_DONE:
        return snprintf(text, bytes, "done");
    case SL_MESSAGE_STATS:
        return snprintf(text, bytes, "stats of %u tables", message->stats.table_count);
    default:
        return snprintf(text, bytes, "kind %d", (int)message->kind);
    }
}

static void on_send(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct fixture *f = ctx;
    assert_true(f->sent_count < SENT_MAX);
    char *text = f->sent[f->sent_count++];
    int at = snprintf(text, sizeof f->sent[0], "%u#%u ", (unsigned)peer, (unsigned)message->id);
    (void)describe(message, text + at, sizeof f->sent[0] - (size_t)at);
}

static void make(struct fixture *f, uint32_t ps_count, uint32_t worker_count)
{
    struct sl_coordinator_options options = {
        .ps_count = ps_count,
        .worker_count = worker_count,
        .waiting_interval_ns = 3 * SECOND,
        .send = on_send,
        .ctx = f,
    };
    assert_int_equal(sl_coordinator_create(&options, &f->coordinator), 0);
}

static int setup(void **state)
{
    sl_log_setup(SL_LOG_OFF, "test");
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    make(f, 2, 3);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    sl_coordinator_destroy(&f->coordinator);
    free(f);
    return 0;
}

/* The next message sent is `text`. */
static void expect(struct fixture *f, const char *text)
{
    assert_true(f->sent_count > 0);
    assert_string_equal(f->sent[0], text);
    f->sent_count--;
    memmove(f->sent[0], f->sent[1], f->sent_count * sizeof f->sent[0]);
}

static void expect_nothing(struct fixture *f)
{
    assert_int_equal(f->sent_count, 0);
}

static int hello(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role,
                 uint32_t task)
{
    struct sl_message_hello message = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = role,
        .task_index = task,
        .client_id = peer,
    };
    return sl_coordinator_hello(f->coordinator, peer, &message, 0, f->reason, sizeof f->reason);
}

static void say(struct fixture *f, sl_coordinator_peer peer, struct sl_message message,
                uint64_t now_ns)
{
    sl_coordinator_message(f->coordinator, peer, &message, now_ns);
}

static void register_ps(struct fixture *f, sl_coordinator_peer peer, uint64_t id, uint32_t shards)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                 .id = id,
                                 .reg = {.shard_count = shards, .ps_count = 2, .worker_count = 3}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message, 0);
}

static void register_worker(struct fixture *f, sl_coordinator_peer peer, uint64_t id)
{
    say(f, peer, (struct sl_message){.kind = SL_MESSAGE_REGISTER, .id = id}, 0);
}

static void coordinator_register__tells_the_cluster_when_all_ps_are_there(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 0), 0);
    register_worker(f, 9, 1);
    assert_int_equal(hello(f, 7, SL_MESSAGE_ROLE_PS, 1), 0);
    register_ps(f, 7, 5, 4);
    expect_nothing(f);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_PS, 0), 0);
    register_ps(f, 3, 6, 2);
    expect(f, "9#1 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect(f, "7#5 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect(f, "3#6 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect_nothing(f);
    /* Who comes later is told at once. */
    assert_int_equal(hello(f, 10, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 10, 1);
    expect(f, "10#1 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
}

static void coordinator_tick__names_who_is_missing_every_interval(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 0), 0);
    register_worker(f, 9, 1);
    sl_coordinator_tick(f->coordinator, 2 * SECOND);
    expect_nothing(f);
    sl_coordinator_tick(f->coordinator, 3 * SECOND);
    expect(f, "9#1 waiting for ps/0 ps/1");
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_PS, 0), 0);
    register_ps(f, 3, 6, 2);
    sl_coordinator_tick(f->coordinator, 5 * SECOND);
    expect(f, "3#6 waiting for ps/1");
    expect_nothing(f);
    sl_coordinator_tick(f->coordinator, 6 * SECOND);
    expect(f, "9#1 waiting for ps/1");
    expect_nothing(f);
}

static void coordinator_tick__a_long_list_says_how_many_more(void **state)
{
    struct fixture *f = *state;
    sl_coordinator_destroy(&f->coordinator);
    make(f, 20, 0);
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 0), 0);
    register_worker(f, 9, 1);
    sl_coordinator_tick(f->coordinator, 3 * SECOND);
    expect(f, "9#1 waiting for ps/0 ps/1 ps/2 ps/3 ps/4 ps/5 ps/6 ps/7 ps/8 ps/9 ps/10 ps/11 "
              "ps/12 ps/13 ps/14 5 more");
}

static void coordinator_hello__refuses_duplicates_and_strangers(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_PS, 1), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_PS, 1), SL_ERR_EXISTS);
    assert_non_null(strstr(f->reason, "ps/1"));
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_EXISTS);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_PS, 2), SL_ERR_INVALID);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_WORKER, 3), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason, "worker/3"));
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 1), 0);
    assert_int_equal(hello(f, 5, SL_MESSAGE_ROLE_CLIENT, 1), 0);
    sl_coordinator_gone(f->coordinator, 3, false, 0); /* refused: not a member */
    sl_coordinator_gone(f->coordinator, 2, false, 0);
    assert_int_equal(hello(f, 6, SL_MESSAGE_ROLE_WORKER, 1), 0);
}

static void coordinator_register__names_both_sides_of_a_disagreement(void **state)
{
    struct fixture *f = *state;
    sl_coordinator_destroy(&f->coordinator);
    make(f, 2, 0);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 4), 0);
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = 1, .reg = {.ps_count = 3}};
    say(f, 1, message, 0);
    expect(f, "1#1 error invalid: worker/4 expects 3 ps, the coordinator 2");
    message.reg = (struct sl_message_register){.worker_count = 8};
    say(f, 1, message, 0);
    expect_nothing(f);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 5), 0);
    message.reg.worker_count = 9;
    say(f, 2, message, 0);
    expect(f, "2#1 error invalid: worker/5 expects 9 workers, worker/4 8");
}

static void coordinator_register__a_ps_comes_back_with_as_many_shards(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_PS, 0), 0);
    register_ps(f, 1, 1, 2);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_PS, 1), 0);
    register_ps(f, 2, 1, 2);
    f->sent_count = 0;
    sl_coordinator_gone(f->coordinator, 2, false, 0);
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 0), 0);
    register_worker(f, 9, 1);
    expect_nothing(f);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_PS, 1), 0);
    register_ps(f, 3, 1, 3);
    expect(f, "3#1 error invalid: ps/1 with 3 shards: it came back with another number of shards");
    register_ps(f, 3, 2, 2);
    expect(f, "9#1 cluster of 3 workers: ps/0 tcp://host1:1 x2 ps/1 tcp://host3:1 x2");
    expect(f, "3#2 cluster of 3 workers: ps/0 tcp://host1:1 x2 ps/1 tcp://host3:1 x2");
}

static struct sl_message table_message(const char *name, uint32_t dim, uint64_t id)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = id,
        .table_open.spec = {.kind = SL_TABLE_SPARSE,
                            .dim = dim,
                            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SGD)},
    };
    (void)snprintf(message.table_open.spec.name, sizeof message.table_open.spec.name, "%s", name);
    return message;
}

static void coordinator_table_open__gives_ids_and_names_conflicts(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 1, table_message("a", 8, 1), 0);
    expect(f, "1#1 opened 0");
    say(f, 2, table_message("b", 8, 1), 0);
    expect(f, "2#1 opened 1");
    say(f, 2, table_message("a", 8, 2), 0);
    expect(f, "2#2 opened 0");
    say(f, 2, table_message("a", 16, 3), 0);
    assert_non_null(strstr(f->sent[0], "2#3 error exists"));
    assert_non_null(strstr(f->sent[0], "dim"));
    f->sent_count = 0;
    say(f, 2, table_message("c", 0, 4), 0);
    assert_non_null(strstr(f->sent[0], "2#4 error invalid"));
    f->sent_count = 0;
    say(f, 2, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 5}, 0);
    expect(f, "2#5 stats of 2 tables");
}

static void coordinator_table_open__stops_at_the_limit(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        say(f, 1, table_message(name, 8, 1), 0);
        f->sent_count = 0;
    }
    say(f, 1, table_message("one_more", 8, 2), 0);
    assert_non_null(strstr(f->sent[0], "1#2 error too large"));
}

static struct sl_message barrier_message(const char *name, uint32_t count, uint64_t id)
{
    struct sl_message message = {.kind = SL_MESSAGE_BARRIER, .id = id, .barrier.count = count};
    (void)snprintf(message.barrier.name, sizeof message.barrier.name, "%s", name);
    return message;
}

static void workers_join(struct fixture *f)
{
    for (uint32_t worker = 0; worker < 3; worker++) {
        assert_int_equal(hello(f, worker + 1, SL_MESSAGE_ROLE_WORKER, worker), 0);
    }
}

static void coordinator_barrier__is_done_when_all_have_come_and_can_be_used_again(void **state)
{
    struct fixture *f = *state;
    workers_join(f);
    for (uint64_t id = 1; id < 4; id++) {
        say(f, 1, barrier_message("b", 3, id), 0);
        say(f, 2, barrier_message("b", 3, id), 0);
        say(f, 3, barrier_message("other", 1, 100 + id), 0);
        char text[32];
        (void)snprintf(text, sizeof text, "3#%u done", 100 + (unsigned)id);
        expect(f, text);
        expect_nothing(f);
        say(f, 3, barrier_message("b", 3, id), 0);
        for (uint32_t peer = 1; peer < 4; peer++) {
            (void)snprintf(text, sizeof text, "%u#%u done", peer, (unsigned)id);
            expect(f, text);
        }
        expect_nothing(f);
    }
}

static void coordinator_barrier__counts_must_agree(void **state)
{
    struct fixture *f = *state;
    workers_join(f);
    say(f, 1, barrier_message("b", 3, 1), 0);
    say(f, 2, barrier_message("b", 2, 1), 0);
    expect(f, "2#1 error invalid: barrier b: worker/1 asks for a count of 2, worker/0 for 3");
    say(f, 2, barrier_message("c", 0, 2), 0);
    assert_non_null(strstr(f->sent[0], "2#2 error invalid"));
}

static void coordinator_barrier__who_vanishes_does_not_count(void **state)
{
    struct fixture *f = *state;
    workers_join(f);
    say(f, 1, barrier_message("b", 2, 1), 0);
    sl_coordinator_gone(f->coordinator, 1, false, 0);
    say(f, 2, barrier_message("b", 2, 1), 0);
    expect_nothing(f);
    say(f, 2, barrier_message("b", 2, 2), 0); /* it gave up and came again: still one */
    expect_nothing(f);
    say(f, 3, barrier_message("b", 2, 1), 0);
    expect(f, "2#2 done");
    expect(f, "3#1 done");
    expect_nothing(f);
}

static void coordinator_barrier__names_the_workers_that_are_missing(void **state)
{
    struct fixture *f = *state;
    workers_join(f);
    say(f, 2, barrier_message("all", 3, 1), 0);
    say(f, 1, barrier_message("two", 2, 1), SECOND);
    sl_coordinator_tick(f->coordinator, 3 * SECOND);
    expect(f, "2#1 waiting for worker/0 worker/2");
    expect_nothing(f);
    sl_coordinator_tick(f->coordinator, 4 * SECOND);
    expect(f, "1#1 waiting for 1 of the 2 at the barrier");
}

static void coordinator_message__refuses_what_it_does_not_know(void **state)
{
    struct fixture *f = *state;
    workers_join(f);
    say(f, 1, (struct sl_message){.kind = SL_MESSAGE_BARRIER_DONE, .id = 4}, 0);
    assert_non_null(strstr(f->sent[0], "1#4 error protocol"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(coordinator_register__tells_the_cluster_when_all_ps_are_there),
        CASE(coordinator_tick__names_who_is_missing_every_interval),
        CASE(coordinator_tick__a_long_list_says_how_many_more),
        CASE(coordinator_hello__refuses_duplicates_and_strangers),
        CASE(coordinator_register__names_both_sides_of_a_disagreement),
        CASE(coordinator_register__a_ps_comes_back_with_as_many_shards),
        CASE(coordinator_table_open__gives_ids_and_names_conflicts),
        CASE(coordinator_table_open__stops_at_the_limit),
        CASE(coordinator_barrier__is_done_when_all_have_come_and_can_be_used_again),
        CASE(coordinator_barrier__counts_must_agree),
        CASE(coordinator_barrier__who_vanishes_does_not_count),
        CASE(coordinator_barrier__names_the_workers_that_are_missing),
        CASE(coordinator_message__refuses_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
