/* The coordinator: who is told what when members register; tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/event.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

CASE(coordinator_register__tells_the_cluster_when_all_ps_are_there)
{
    join_worker(f, 9, 0, 9, 1);
    join_ps(f, 7, 1, 7, 5, 4);
    expect_nothing(f);
    join_ps(f, 3, 0, 3, 6, 2);
    expect(f, "9#1 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect(f, "7#5 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect(f, "3#6 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
    expect_nothing(f);
    /* Who comes later is told at once. */
    assert_int_equal(hello(f, 10, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 10, 1);
    expect(f, "10#1 cluster of 3 workers: ps/0 tcp://host3:1 x2 ps/1 tcp://host7:1 x4");
}

CASE(coordinator_tick__names_who_is_missing_every_interval)
{
    join_worker(f, 9, 0, 9, 1);
    tick_at(f, 2 * SECOND);
    expect_nothing(f);
    tick_at(f, 3 * SECOND);
    expect(f, "9#1 waiting for ps/0 ps/1");
    join_ps(f, 3, 0, 3, 6, 2);
    tick_at(f, 5 * SECOND);
    expect_nothing(f);
    tick_at(f, 6 * SECOND);
    expect(f, "9#1 waiting for ps/1");
    expect(f, "3#6 waiting for ps/1");
}

CASE(coordinator_tick__a_long_list_says_how_many_more)
{
    fixture_remake(f, 20, 0);
    join_worker(f, 9, 0, 9, 1);
    tick_at(f, 3 * SECOND);
    expect(f, "9#1 waiting for ps/0 ps/1 ps/2 ps/3 ps/4 ps/5 ps/6 ps/7 ps/8 ps/9 ps/10 ps/11 "
              "ps/12 ps/13 ps/14 5 more");
}

CASE(coordinator_hello__refuses_duplicates_and_strangers)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_PS, 1), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_PS, 1), SL_ERR_AGAIN);
    f->now_ns = SECOND;
    heartbeat(f, 1);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_PS, 1), SL_ERR_EXISTS);
    assert_non_null(strstr(f->reason.text, "ps/1"));
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_AGAIN);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_PS, 2), SL_ERR_INVALID);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_WORKER, 3), SL_ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "worker/3"));
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 1), 0);
    assert_int_equal(hello(f, 5, SL_MESSAGE_ROLE_CLIENT, 1), 0);
    disconnect(f, 3); /* refused: not a member */
    goodbye(f, 2);
    assert_int_equal(hello(f, 6, SL_MESSAGE_ROLE_WORKER, 1), 0);
}

CASE(coordinator_register__names_both_sides_of_a_disagreement)
{
    fixture_remake(f, 2, 0);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 4), 0);
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = 1, .reg = {.ps_count = 3}};
    say(f, 1, message);
    expect(f, "1#1 error invalid: worker/4 expects 3 servers, the coordinator 2");
    message.reg = (struct sl_message_register){.worker_count = 8};
    say(f, 1, message);
    expect_nothing(f);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 5), 0);
    message.reg.worker_count = 9;
    say(f, 2, message);
    expect(f, "2#1 error invalid: worker/5 expects 9 workers, worker/4 8");
    f->worker_count_source = "--worker-hosts";
    fixture_remake(f, 2, 3);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 1, message);
    expect(f, "1#1 error invalid: worker/1 expects 9 workers, the coordinator (--worker-hosts) 3");
}

CASE(coordinator_register__waits_for_a_ps_that_is_lost)
{
    cluster_start(f);
    disconnect(f, 12);
    /* Away, it may be back at any moment: where it is, is told. */
    assert_int_equal(hello(f, 8, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 8, 1);
    expect(f, "8#1 cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host12:1 x2");
    pass(f, 10 * SECOND, (sl_coordinator_peer[]){8, 11, 0});
    expect(f, "11#0 lost ps/1 of 12: no heartbeat for 10 s");
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 9, 1);
    expect_nothing(f);
    join_ps(f, 13, 1, 13, 1, 3);
    expect(f, "13#1 error invalid: ps/1 with 3 shards: it restarted with another number of shards");
    expect_nothing(f);
    register_ps(f, 13, 2, 2);
    const char *cluster = "cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host13:1 x2";
    expect_part(f, cluster); /* 8, which was told another before */
    expect_part(f, cluster);
    expect_part(f, cluster);
}

CASE(coordinator_register__tells_those_who_know_the_cluster_of_a_ps_that_came_back)
{
    cluster_start(f);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0); /* has not registered */
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    assert_int_equal(hello(f, 5, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 1, 1);
    register_worker(f, 4, 1);
    register_worker(f, 5, 1);
    f->sent_count = 0;
    disconnect(f, 5); /* away when it happens */
    disconnect(f, 12);
    assert_int_equal(hello(f, 13, SL_MESSAGE_ROLE_PS, 1), 0);
    expect(f, "11#0 lost ps/1 of 12: another process has its task now");
    expect(f, "1#0 lost ps/1 of 12: another process has its task now");
    expect(f, "2#0 lost ps/1 of 12: another process has its task now");
    register_ps(f, 13, 1, 2);
    /* In no order. */
    bool told[3] = {false};
    assert_int_equal(f->sent_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const char *text = f->sent[i];
        const char *at = strchr(text, ' ');
        assert_non_null(at);
        assert_string_equal(at + 1,
                            "cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host13:1 x2");
        told[0] |= strncmp(text, "1#0 ", 4) == 0;
        told[1] |= strncmp(text, "4#0 ", 4) == 0;
        told[2] |= strncmp(text, "13#1 ", 5) == 0;
    }
    assert_true(told[0] && told[1] && told[2]);
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 6, SL_MESSAGE_ROLE_CLIENT, 0, 5), 0);
    expect_nothing(f); /* before its welcome */
    tick_at(f, f->now_ns);
    expect(f, "6#0 cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host13:1 x2");
    tick_at(f, f->now_ns);
}

CASE(coordinator_register__a_ps_that_reconnects_has_not_come_back)
{
    cluster_start(f);
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 4, 1);
    f->sent_count = 0;
    disconnect(f, 12);
    join_ps(f, 12, 1, 12, 2, 2);
    expect(f, "12#2 cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host12:1 x2");
    expect_nothing(f);
    /* Nor has one that was lost meanwhile, but goes on where it was. */
    disconnect(f, 12);
    pass(f, 10 * SECOND, (sl_coordinator_peer[]){4, 11, 0});
    expect_part(f, "11#0 lost ps/1");
    join_ps(f, 12, 1, 12, 3, 2);
    expect(f, "12#3 cluster of 3 workers: ps/0 tcp://host11:1 x2 ps/1 tcp://host12:1 x2");
    expect_nothing(f);
    /* But one that moved has. */
    disconnect(f, 12);
    join_ps(f, 14, 1, 12, 4, 2);
    expect_count(f, 2);
}

/* Who may reach a ps through shared memory is told so, also when that changes. */
CASE(coordinator_register__tells_the_host_of_a_ps)
{
    cluster_start(f);
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 4, 1);
    f->sent_count = 0;
    static const char *const hosts[] = {"boot-4711/net-1", "boot-4712/net-1", ""};
    for (uint32_t i = 0; i < 3; i++) {
        disconnect(f, 12);
        assert_int_equal(hello_as(f, 12, SL_MESSAGE_ROLE_PS, 1, 12), 0);
        struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                     .id = 2 + i,
                                     .reg = {.data_endpoint = "tcp://host12:1", .shard_count = 2}};
        (void)snprintf(message.reg.host, sizeof message.reg.host, "%s", hosts[i]);
        say(f, 12, message);
        expect_part(f, hosts[i][0] == '\0' ? "tcp://host12:1 x2" : hosts[i]);
        expect_part(f, hosts[i][0] == '\0' ? "tcp://host12:1 x2" : hosts[i]);
        expect_nothing(f);
    }
}

/* Who may reach a ps by RDMA is told so, also when that changes, and only then. */
CASE(coordinator_register__tells_the_bypass_endpoint_of_a_ps)
{
    cluster_start(f);
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 4, 1);
    f->sent_count = 0;
    static const struct {
        const char *bypass, *told;
        bool is_news;
    } cases[] = {
        {"rdma://host12:2", "ps/1 tcp://host12:1 x2 and rdma://host12:2", true},
        {"rdma://host12:2", "ps/1 tcp://host12:1 x2 and rdma://host12:2", false},
        {"rdma://host12:3", "ps/1 tcp://host12:1 x2 and rdma://host12:3", true},
        {"", "ps/1 tcp://host12:1 x2", true},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        disconnect(f, 12);
        assert_int_equal(hello_as(f, 12, SL_MESSAGE_ROLE_PS, 1, 12), 0);
        struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                     .id = 2 + i,
                                     .reg = {.data_endpoint = "tcp://host12:1", .shard_count = 2}};
        (void)snprintf(message.reg.bypass_endpoint, sizeof message.reg.bypass_endpoint, "%s",
                       cases[i].bypass);
        say(f, 12, message);
        expect_part(f, cases[i].told);
        assert_int_equal(f->sent_count, cases[i].is_news ? 1 : 0);
        if (cases[i].is_news) {
            expect_part(f, cases[i].told);
        }
        expect_nothing(f);
    }
}

CASE(coordinator_register__asked_again_after_a_break_is_answered_once)
{
    join_worker(f, 1, 0, 1, 7);
    disconnect(f, 1);
    assert_int_equal(hello_as(f, 2, SL_MESSAGE_ROLE_WORKER, 0, 1), 0);
    for (uint32_t ps = 0; ps < 2; ps++) {
        join_ps(f, 11 + ps, ps, 11 + ps, 1, 2);
    }
    f->sent_count = 0;
    register_worker(f, 2, 7);
    expect_part(f, "2#7 cluster");
}

CASE(coordinator_table_open__gives_ids_and_names_conflicts)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 1, table_message("a", 8, 1));
    expect(f, "1#1 opened 0");
    say(f, 2, table_message("b", 8, 1));
    expect(f, "2#1 opened 1");
    say(f, 2, table_message("a", 8, 2));
    expect(f, "2#2 opened 0");
    say(f, 2, table_message("a", 16, 3));
    assert_non_null(strstr(f->sent[0], "dim"));
    expect_part(f, "2#3 error exists");
    say(f, 2, table_message("c", 0, 4));
    expect_part(f, "2#4 error invalid");
    say(f, 2, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 5});
    expect(f, "2#5 stats of 2 tables");
}

CASE(coordinator_table_open__tells_what_a_table_is)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 1, table_message("a", 8, 1));
    expect(f, "1#1 opened 0");
    say(f, 1, table_message("b", 16, 2));
    expect(f, "1#2 opened 1");
    struct sl_message question = {.kind = SL_MESSAGE_TABLE_OPEN, .id = 3, .table_open.asks = true};
    (void)snprintf(question.table_open.spec.name, sizeof question.table_open.spec.name, "b");
    say(f, 2, question);
    expect(f, "2#3 table b of dim 16, lr 0.01, is 1");
    /* What has another name, or none, is nothing; and nothing is made. */
    question.table_open.spec.name[0] = 'c';
    say(f, 2, question);
    expect(f, "2#3 error not found: no client has opened a table of the name \"c\"");
    question.table_open.spec.name[0] = '\0';
    say(f, 2, question);
    expect_part(f, "2#3 error not found");
    say(f, 2, table_message("c", 8, 4));
    expect(f, "2#4 opened 2");
}

CASE(coordinator_table_list__has_pages)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    struct sl_message question = {.kind = SL_MESSAGE_TABLES_GET, .id = 3};
    say(f, 1, question);
    expect(f, "1#3 0 tables, next 0");
    for (uint32_t i = 0; i < 2 * SL_MESSAGE_TABLES_MAX + 1; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        say(f, 1, table_message(name, 8, 1));
    }
    f->sent_count = 0;
    say(f, 1, question);
    expect(f, "1#3 16 tables, next 16, from t0");
    question.table_id = 16;
    say(f, 1, question);
    expect(f, "1#3 16 tables, next 32, from t16");
    question.table_id = 32;
    say(f, 1, question);
    expect(f, "1#3 1 tables, next 0, from t32");
}

CASE(coordinator_message__an_operation_needs_the_operators_secret)
{
    struct sl_message operation = {.kind = SL_MESSAGE_OPERATION, .id = 3, .why = "drops a"};
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    say(f, 1, operation);
    expect(f, "1#3 error refused: this needs the operator's secret: --operator-secret-file");
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = 0xa2,
                                           .secret = SL_MESSAGE_SECRET_OPERATOR};
    assert_int_equal(sl_coordinator_hello(f->coordinator, 2, &hello, f->now_ns, &f->reason), 0);
    say(f, 2, operation);
    expect(f, "2#3 allowed");
    size_t bytes;
    char *events = sl_event_list(&bytes);
    assert_non_null(strstr(events, "\"by\":\"client 00000000000000a2\",\"what\":\"drops a\""));
    free(events);
}

CASE(coordinator_table_open__stops_at_the_limit)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "t%u", i);
        say(f, 1, table_message(name, 8, 1));
        f->sent_count = 0;
    }
    say(f, 1, table_message("one_more", 8, 2));
    expect_part(f, "1#2 error too large");
}

static void keep(struct fixture *f, const char *name, uint32_t id, uint64_t request)
{
    struct sl_message message = table_message(name, 8, request);
    message.table_open.keep_id = true;
    message.table_open.table_id = id;
    say(f, 1, message);
}

CASE(coordinator_table_open__learns_the_ids_that_a_running_job_has)
{
    workers_join(f);
    keep(f, "c", 2, 1);
    expect(f, "1#1 opened 2");
    keep(f, "c", 2, 2);
    expect(f, "1#2 opened 2");
    keep(f, "c", 1, 3);
    expect(f, "1#3 error exists: table c cannot keep its id 1: it has id 2 now");
    keep(f, "d", 2, 4);
    expect(f, "1#4 error exists: table d cannot keep its id 2: table c has it");
    /* A new one does not take an id that may be another's. */
    say(f, 2, table_message("new", 8, 1));
    expect(f, "2#1 opened 3");
    keep(f, "a", 0, 5);
    expect(f, "1#5 opened 0");
    say(f, 2, table_message("a", 8, 2));
    expect(f, "2#2 opened 0");
    keep(f, "z", SL_LIMIT_TABLES, 6);
    expect_part(f, "1#6 error too large");
    say(f, 2, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 3});
    expect(f, "2#3 stats of 3 tables");
    /* Where nothing is left above, what is free below is taken. */
    keep(f, "last", SL_LIMIT_TABLES - 1, 7);
    expect(f, "1#7 opened 1023");
    say(f, 2, table_message("more", 8, 4));
    expect(f, "2#4 opened 1");
}

CASE(coordinator_message__refuses_what_it_does_not_know)
{
    workers_join(f);
    say(f, 1, (struct sl_message){.kind = SL_MESSAGE_BARRIER_DONE, .id = 4});
    expect_part(f, "1#4 error protocol");
}
