/* Tables of a checkpoint that clients open with other policies, and tables that are dropped. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

#define OPERATOR 5 /* peer */

static const sl_coordinator_peer nobody[] = {0};

static struct sl_message with_policy(uint32_t ttl_steps, uint64_t id)
{
    struct sl_message message = table_message("a", 8, id);
    message.table_open.spec.policy.ttl_steps = ttl_steps;
    return message;
}

/* A server has restored the table with ttl_steps 20. */
static void restore(struct fixture *f, sl_coordinator_peer peer, uint32_t ttl_steps, uint64_t id)
{
    struct sl_message message = with_policy(ttl_steps, id);
    message.table_open.keep_id = message.table_open.is_restored = true;
    message.table_open.table_id = 4;
    say(f, peer, message);
}

static void remake(struct fixture *f, enum sl_coordinator_restore_policy policy)
{
    f->restore_policy = policy;
    fixture_remake(f, 2, 3);
    cluster_start(f);
    workers_join(f);
    restore(f, 11, 20, 20);
    expect(f, "11#20 opened 4");
    restore(f, 12, 20, 20);
    expect(f, "12#20 opened 4");
}

/* The servers register with the next coordinator. */
static void cluster_returns(struct fixture *f)
{
    join_ps(f, 11, 0, 11, 1, 2);
    join_ps(f, 12, 1, 12, 1, 2);
    f->sent_count = 0;
}

CASE(coordinator_table_open__of_a_restored_table_wants_its_policy)
{
    remake(f, SL_COORDINATOR_RESTORE_POLICY_REFUSE);
    say(f, 1, with_policy(20, 1));
    expect(f, "1#1 opened 4");
    say(f, 1, with_policy(30, 2));
    expect(f, "1#2 error exists: without --restore-policy keep|new at the servers, the policy of a "
              "restored table is required: table a exists with policy.ttl_steps 20, not 30");
    struct sl_message other = with_policy(30, 3);
    other.table_open.spec.dim = 9;
    say(f, 1, other);
    expect(f, "1#3 error exists: table a exists with dim 8, not 9; policy.ttl_steps 20, not 30");
    say(f, 1, table_message("b", 8, 4));
    expect(f, "1#4 opened 5");
    other = table_message("b", 8, 5);
    other.table_open.spec.policy.ttl_steps = 30;
    say(f, 1, other); /* it is not restored */
    expect(f, "1#5 error exists: table b exists with policy.ttl_steps 0, not 30");
}

CASE(coordinator_table_open__keeps_the_policy_of_the_checkpoint)
{
    remake(f, SL_COORDINATOR_RESTORE_POLICY_KEEP);
    for (uint32_t i = 1; i < 4; i++) {
        say(f, i, with_policy(30 * i, 1));
        char text[64];
        (void)snprintf(text, sizeof text, "%u#1 opened 4 with ttl_steps 20", i);
        expect(f, text);
    }
    say(f, 1, with_policy(20, 2));
    expect(f, "1#2 opened 4");
    struct sl_message other = with_policy(30, 3);
    other.table_open.spec.dim = 9;
    say(f, 1, other);
    expect_part(f, "1#3 error exists: table a exists with dim 8, not 9");
}

CASE(coordinator_table_open__replaces_the_policy_of_the_checkpoint_once)
{
    remake(f, SL_COORDINATOR_RESTORE_POLICY_NEW);
    say(f, 1, with_policy(20, 1)); /* not another one */
    expect(f, "1#1 opened 4");
    say(f, 2, with_policy(30, 1));
    expect(f, "2#1 opened 4");
    say(f, 3, with_policy(30, 1));
    expect(f, "3#1 opened 4");
    say(f, 1, with_policy(40, 2));
    expect(f, "1#2 error exists: table a exists with policy.ttl_steps 30, not 40");
    say(f, 1, with_policy(20, 3));
    expect(f, "1#3 error exists: table a exists with policy.ttl_steps 30, not 20");
    restore(f, 12, 20, 21); /* after another restart */
    expect(f, "12#21 opened 4 with ttl_steps 30");
    say(f, 1, with_policy(40, 4));
    expect(f, "1#4 error exists: table a exists with policy.ttl_steps 30, not 40");
}

CASE(coordinator_table_open__only_a_server_restores)
{
    workers_join(f);
    restore(f, 1, 20, 1);
    expect(f, "1#1 error protocol: only a server restores tables");
}

CASE_WITH_RECORDS(coordinator_record__has_restored_tables)
{
    cluster_start(f);
    restore(f, 11, 20, 20);
    expect(f, "11#20 opened 4");
    f->restore_policy = SL_COORDINATOR_RESTORE_POLICY_NEW;
    for (uint32_t round = 0; round < 2; round++) {
        fixture_take_over(f);
        cluster_returns(f);
        assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
        say(f, 1, with_policy(30 + round, 1));
        expect_part(f, round == 0 ? "1#1 opened 4" : "1#1 error exists: table a exists with");
    }
}

static struct sl_message drop_message(const char *name, uint64_t id)
{
    struct sl_message message = {.kind = SL_MESSAGE_TABLE_DROP, .id = id};
    (void)snprintf(message.table_name, sizeof message.table_name, "%s", name);
    return message;
}

static void operator_joins(struct fixture *f)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = 0xa2,
                                           .secret = SL_MESSAGE_SECRET_OPERATOR};
    assert_int_equal(sl_coordinator_hello(f->coordinator, OPERATOR, &hello, f->now_ns, &f->reason),
                     0);
}

CASE_WITH_RECORDS(coordinator_table_drop__forgets_the_name_but_not_the_id)
{
    cluster_start(f);
    workers_join(f);
    operator_joins(f);
    say(f, 1, table_message("a", 8, 1));
    expect(f, "1#1 opened 0");
    say(f, 1, drop_message("a", 2));
    expect_part(f, "1#2 error refused: this needs the operator's secret");
    say(f, OPERATOR, drop_message("b", 1));
    expect(f, "5#1 error not found: there is no table of the name \"b\"");
    say(f, OPERATOR, drop_message("a", 2));
    expect(f, "5#2 dropped 0");
    expect_part(f, "11#0 cluster of 3 workers without table 0:"); /* servers are notified at once */
    assert_non_null(strstr(f->sent[0], "12#0 cluster"));
    assert_non_null(strstr(f->sent[0], "without table 0:"));
    f->sent_count = 0;
    say(f, OPERATOR, drop_message("a", 3));
    expect(f, "5#3 error not found: there is no table of the name \"a\"");
    say(f, 1, table_message("a", 16, 3)); /* another table of the name */
    expect(f, "1#3 opened 1");
    struct sl_message older = table_message("a", 8, 4);
    older.table_open.keep_id = true;
    say(f, 1, older);
    expect_part(f, "1#4 error exists: table a cannot keep its id 0: it has id 1 now");
    say(f, OPERATOR, drop_message("a", 5));
    expect(f, "5#5 dropped 1");
    f->sent_count = 0;
    say(f, 1, older);
    expect(f, "1#4 error not found: table a was dropped");
}

/* The next coordinator knows it, from its records or from a server. */
CASE_WITH_RECORDS(coordinator_table_drop__outlives_the_coordinator)
{
    cluster_start(f);
    operator_joins(f);
    say(f, OPERATOR, table_message("a", 8, 1));
    say(f, OPERATOR, drop_message("a", 2));
    f->sent_count = 0;
    struct sl_message older = table_message("a", 8, 4);
    older.table_open.keep_id = true;
    fixture_take_over(f);
    cluster_returns(f);
    operator_joins(f);
    say(f, OPERATOR, older);
    expect(f, "5#4 error not found: table a was dropped");
    fixture_remake(f, 2, 3);
    assert_int_equal(hello(f, 11, SL_MESSAGE_ROLE_PS, 0), 0);
    struct sl_message reg = {.kind = SL_MESSAGE_REGISTER, .id = 1};
    (void)snprintf(reg.reg.data_endpoint, sizeof reg.reg.data_endpoint, "tcp://host11:1");
    reg.reg.shard_count = 2;
    sl_message_dropped_add(&reg.reg.dropped, 0);
    say(f, 11, reg);
    operator_joins(f);
    say(f, OPERATOR, older);
    expect(f, "5#4 error not found: table a was dropped");
    say(f, OPERATOR, table_message("a", 8, 5));
    expect(f, "5#5 opened 1");
    pass(f, SECOND, nobody);
    f->sent_count = 0;
}
