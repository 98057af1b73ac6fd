/* A ps as a member, against a coordinator that the case plays, over the loop transport. */

#include "tests/support/unit.h"
#include "tests/unit/ps/agent/fixture.h"

#define CASE(name) SL_CASE_USING(name, struct fixture, f, fixture_setup, fixture_teardown)

CASE(member_open__registers_what_it_has_and_learns_its_shards)
{
    join(f);
    assert_int_equal(f->hello.purpose, SL_MESSAGE_PURPOSE_CONTROL);
    assert_int_equal(f->hello.role, SL_MESSAGE_ROLE_PS);
    assert_int_equal(f->hello.task_index, 1);
    assert_int_equal(f->hello.client_id, INCARNATION);
    assert_false(f->hello.has_nonce);
    assert_string_equal(f->reg.data_endpoint, "tcp://127.0.0.1:5555");
    assert_string_equal(f->reg.bypass_endpoint, "");
    assert_string_equal(f->reg.host, "boot-4711/net-1");
    assert_int_equal(f->reg.shard_count, 2);
    assert_int_equal(f->reg.ps_count, 3);
    assert_int_equal(f->reg.worker_count, 5);
    assert_int_equal(f->first_shard, 3);
    assert_int_equal(f->shard_count, 9);
    assert_int_equal(f->lease_ns, LEASE_MS * SL_CLOCK_NS_PER_MS);
    assert_int_equal(f->failed_count, 0);
}

CASE(member_open__registers_its_bypass_endpoint)
{
    sl_agent_close(&f->member);
    f->has_bypass = true;
    open_member(f);
    join(f);
    assert_string_equal(f->reg.data_endpoint, "tcp://127.0.0.1:5555");
    assert_string_equal(f->reg.bypass_endpoint, "rdma://127.0.0.1:5556");
}

CASE(member_open__fails_when_nobody_listens)
{
    until(f, &f->failed_count, 1);
    assert_int_not_equal(f->failed_err, 0);
    assert_int_equal(f->joined_count, 0);
    listen_now(f); /* too late */
    pass(f, 3000);
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->accepted_count, 0);
}

CASE(member_open__fails_when_the_others_do_not_come)
{
    pass(f, START_TIMEOUT_NS / 2 / SL_CLOCK_NS_PER_MS);
    listen_now(f);
    greet(f);
    pass(f, START_TIMEOUT_NS * 2 / 3 / SL_CLOCK_NS_PER_MS); /* it began before the coordinator */
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_DEADLINE);
}

CASE(member_open__fails_when_refused_or_not_in_the_cluster)
{
    listen_now(f);
    greet(f);
    send_error(f, f->register_id, SL_ERR_INVALID);
    until(f, &f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_INVALID);
    pass(f, 2 * LEASE_MS);
    assert_int_equal(f->failed_count, 1);

    sl_agent_close(&f->member);
    open_member(f);
    greet(f);
    struct sl_message_ps ps = {.task_index = 1, .shard_count = 3, .data_endpoint = "tcp://b:1"};
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER, .id = f->register_id};
    const struct sl_message_placement here = {.epoch = 1, .primary = 1};
    struct sl_message_placement placements[] = {here, here, here};
    message.cluster = (struct sl_message_cluster){
        .ps = &ps, .ps_count = 1, .placements = placements, .shard_count = 3};
    send_message(f, &message);
    until(f, &f->failed_count, 2);
    assert_int_equal(f->failed_err, SL_ERR_PROTOCOL);
    assert_int_equal(f->joined_count, 0);
}

CASE(member_heartbeat__comes_four_times_a_lease)
{
    join(f);
    uint32_t before = f->heartbeat_count;
    pass(f, 10 * LEASE_MS);
    assert_in_range(f->heartbeat_count - before, 38, 42);
    assert_int_equal(f->register_count, 1);
}

CASE(member_heartbeat__does_not_wait_for_the_cluster)
{
    listen_now(f);
    greet(f);
    pass(f, LEASE_MS);
    assert_in_range(f->heartbeat_count, 3, 5);
    assert_int_equal(f->register_count, 1);
}

CASE(member_heartbeat__is_not_sent_where_there_are_no_leases)
{
    listen_now(f);
    greet_with(f, 0);
    send_cluster(f, f->register_id, 3);
    until(f, &f->joined_count, 1);
    assert_int_equal(f->lease_ns, 0);
    pass(f, 4000);
    assert_int_equal(f->heartbeat_count, 0);
}

CASE(member_session__is_taken_up_again_after_every_break)
{
    join(f);
    for (uint32_t i = 2; i < 6; i++) {
        disconnect(f);
        greet(f);
        assert_int_equal(f->hello.client_id, INCARNATION);
        assert_int_equal(f->reg.shard_count, 2);
        assert_int_equal(f->register_count, i);
        send_cluster(f, f->register_id, 3);
        pass(f, LEASE_MS);
    }
    assert_int_equal(f->joined_count, 1);
    assert_int_equal(f->failed_count, 0);
    uint32_t before = f->heartbeat_count;
    pass(f, LEASE_MS);
    assert_in_range(f->heartbeat_count - before, 3, 5);
}

CASE(member_session__a_register_that_was_lost_goes_again_once)
{
    listen_now(f);
    greet(f);
    uint64_t id = f->register_id;
    disconnect(f);
    greet(f);
    pass(f, 500);
    assert_int_equal(f->register_count, 2);
    assert_int_equal(f->register_id, id);
    send_cluster(f, id, 3);
    until(f, &f->joined_count, 1);
}

static void report(struct fixture *f, uint64_t epoch)
{
    const struct sl_message_replica_report pair = {
        .shard = 1, .epoch = epoch, .role = SL_MESSAGE_REPLICA_PRIMARY};
    sl_agent_report(f->member, &pair, 1, true);
}

/* A coordinator that has begun anew learns from the Register who has the shards now, not who had
 * them when the Register was first sent. */
CASE(member_session__a_register_that_goes_again_says_what_is_so_now)
{
    join(f);
    report(f, 5);
    until(f, &f->register_count, 2);
    assert_int_equal(f->reg.replica_report_count, 1);
    assert_int_equal(f->reported.epoch, 5);
    const uint64_t id = f->register_id;
    disconnect(f);
    report(f, 6);
    greet(f);
    assert_int_equal(f->register_id, id);
    assert_int_equal(f->reported.epoch, 6);
    send_cluster(f, id, 3);
    pass(f, 500);
    assert_int_equal(f->register_count, 3); /* nothing is news any more */
}

CASE(member_session__waits_for_the_others_without_end_once_it_has_joined)
{
    join(f);
    disconnect(f);
    greet(f);
    uint64_t id = f->register_id;
    /* Another ps is gone: nobody is told the cluster for longer than a start may take. */
    until(f, &f->register_count, 3);
    assert_int_not_equal(f->register_id, id);
    until(f, &f->register_count, 4);
    send_cluster(f, f->register_id, 3);
    pass(f, 3 * LEASE_MS);
    assert_int_equal(f->register_count, 4);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->joined_count, 1);
}

CASE(member_session__survives_a_long_absence_of_the_coordinator)
{
    join(f);
    disconnect(f);
    /* Connections are accepted, but no hello is answered: it goes on trying, and says so. */
    pass(f, START_TIMEOUT_NS / SL_CLOCK_NS_PER_MS - 500);
    assert_int_equal(f->absent_count, 0);
    pass(f, 1000);
    assert_int_equal(f->absent_count, 1);
    pass(f, 11 * START_TIMEOUT_NS / SL_CLOCK_NS_PER_MS);
    assert_in_range(f->absent_count, 50, 60);
    assert_int_equal(f->failed_count, 0);
    if (f->conn != NULL) {
        disconnect(f);
    }
    greet(f);
    send_cluster(f, f->register_id, 3);
    uint32_t absent_count = f->absent_count;
    pass(f, 2000);
    assert_int_equal(f->absent_count, absent_count);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->joined_count, 1);
}

CASE(member_session__ends_when_the_place_is_taken)
{
    join(f);
    disconnect(f);
    /* For a lease, since without a secret anybody may say so once. */
    uint32_t hellos = f->hello_count;
    for (uint32_t ms = 0; f->failed_count == 0; ms += 100) {
        assert_true(ms < 2 * LEASE_MS);
        if (f->hello_count > hellos) {
            hellos = f->hello_count;
            send_error(f, 0, SL_ERR_EXISTS);
        }
        pass(f, 100);
    }
    assert_true(hellos > 2);
    assert_int_equal(f->failed_err, SL_ERR_EXISTS);
    pass(f, 3000);
    assert_int_equal(f->failed_count, 1);
    assert_int_equal(f->hello_count, hellos);
}

CASE(member_session__ends_when_shards_are_numbered_otherwise)
{
    join(f);
    disconnect(f);
    greet(f);
    send_cluster(f, f->register_id, 2);
    until(f, &f->failed_count, 1);
    assert_int_equal(f->failed_err, SL_ERR_PROTOCOL);
    assert_int_equal(f->joined_count, 1);
}

CASE(member_told__passes_lost_workers_on_and_nothing_else)
{
    join(f);
    send_cluster(f, 0, 2); /* where others are does not matter to it */
    send_lost(f, SL_MESSAGE_ROLE_PS);
    pass(f, 100);
    assert_int_equal(f->lost_count, 0);
    send_lost(f, SL_MESSAGE_ROLE_WORKER);
    until(f, &f->lost_count, 1);
    assert_int_equal(f->lost.role, SL_MESSAGE_ROLE_WORKER);
    assert_int_equal(f->lost.task_index, 3);
    assert_int_equal(f->lost.client_id, 1234);
    assert_string_equal(f->lost.why, "no heartbeat for 10 s");
    assert_int_equal(f->failed_count, 0);
}

CASE(member_leave__says_goodbye_and_nothing_more)
{
    join(f);
    uint32_t heartbeats = f->heartbeat_count;
    sl_agent_leave(f->member);
    until(f, &f->goodbye_count, 1);
    pass(f, 3 * LEASE_MS);
    assert_int_equal(f->heartbeat_count, heartbeats);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->hello_count, 1);
    sl_agent_leave(f->member);
}

CASE(member_leave__while_it_waits_for_the_cluster_is_no_failure)
{
    listen_now(f);
    greet(f);
    sl_agent_leave(f->member);
    pass(f, 100);
    assert_int_equal(f->failed_count, 0);
    assert_int_equal(f->goodbye_count, 1);
}

static void send_report(struct fixture *f, uint32_t bytes)
{
    static uint8_t content[4096];
    struct sl_message_report report = {.bytes = content, .byte_count = bytes};
    sl_agent_send_report(f->member, &report);
}

CASE(member_report__is_sent_if_the_coordinator_asks_for_it)
{
    send_report(f, 10); /* no connection */
    f->wants_reports = true;
    join(f);
    assert_string_equal(sl_agent_coordinator_http(f->member), "127.0.0.1:9480");
    send_report(f, 4000);
    until(f, &f->report_count, 1);
    assert_int_equal(f->report_bytes, 4000);
    disconnect(f);
    send_report(f, 20);
    f->wants_reports = false; /* an older coordinator takes over */
    greet(f);
    send_report(f, 30);
    pass(f, 100);
    assert_int_equal(f->report_count, 1);
}

CASE(member_report__is_not_queued_behind_an_unsent_one)
{
    f->wants_reports = true;
    join(f);
    for (uint32_t i = 0; i < 1000; i++) {
        send_report(f, 4000); /* the transport does not take so much in a turn */
    }
    pass(f, 1000);
    assert_in_range(f->report_count, 1, 100);
    const uint32_t before = f->report_count;
    send_report(f, 50);
    until(f, &f->report_count, before + 1);
    assert_int_equal(f->report_bytes, 50);
}
