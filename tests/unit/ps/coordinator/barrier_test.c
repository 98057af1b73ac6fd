/* The coordinator's barriers. */

#include <stdio.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

CASE(coordinator_barrier__counts_must_agree)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 3, 1));
    say(f, 2, barrier_message("b", 2, 1));
    expect(f, "2#1 error invalid: barrier b: worker/1 asks for a count of 2, worker/0 for 3");
    say(f, 2, barrier_message("b", 0, 2));
    expect(f, "2#2 error invalid: barrier b: worker/1 asks for a count of all workers, worker/0 "
              "for 3");
}

CASE(coordinator_barrier__names_the_workers_that_are_missing)
{
    workers_join(f);
    say(f, 2, barrier_message("all", 3, 1));
    f->now_ns = SECOND;
    say(f, 1, barrier_message("two", 2, 1));
    tick_at(f, 3 * SECOND);
    expect(f, "2#1 waiting for worker/0 worker/2");
    expect_nothing(f);
    tick_at(f, 4 * SECOND);
    expect(f, "1#1 waiting for 1 more (1 of 2 came)");
}

CASE(coordinator_barrier__is_answered_again_to_who_lost_the_answer)
{
    workers_join(f);
    for (uint64_t id = 1; id <= 17; id++) {
        say(f, 1, barrier_message("b", 2, id));
        disconnect(f, 1);
        say(f, 2, barrier_message("b", 2, id));
        expect_part(f, "2#");
        expect_nothing(f);
        assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    }
    /* The last 16; the first is forgotten, and begins a barrier of its own. */
    for (unsigned id = 17; id > 1; id--) {
        char text[32];
        say(f, 1, barrier_message("b", 2, id));
        (void)snprintf(text, sizeof text, "1#%u done", id);
        expect(f, text);
    }
    say(f, 1, barrier_message("b", 2, 1));
}

CASE(coordinator_barrier__of_all_needs_to_know_how_many_there_are)
{
    fixture_remake(f, 1, 0);
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    say(f, 1, barrier_message("b", 0, 1));
    expect_part(f, "1#1 error invalid: barrier b: the number of workers");
}

static struct sl_message patient(const char *name, uint32_t count, uint64_t id, uint32_t timeout_ms)
{
    struct sl_message message = barrier_message(name, count, id);
    message.barrier.timeout_ms = timeout_ms;
    return message;
}

CASE(coordinator_barrier__is_left)
{
    workers_join(f);
    struct sl_message leave = barrier_message("b", 0, 0);
    leave.barrier.leaves = true;
    say(f, 1, leave); /* it is not there */
    say(f, 1, barrier_message("b", 2, 1));
    say(f, 1, barrier_message("c", 2, 2));
    say(f, 1, leave);
    say(f, 2, barrier_message("b", 3, 1)); /* the barrier is forgotten: another count */
    expect_nothing(f);
    say(f, 2, barrier_message("c", 2, 2));
    expect_count(f, 2);
}

CASE(coordinator_barrier__names_the_missing_to_who_gives_up)
{
    workers_join(f);
    say(f, 1, patient("b", 0, 1, 2400));
    say(f, 2, patient("b", 0, 1, 60000));
    sl_coordinator_tick(f->coordinator, 2 * SECOND);
    expect_nothing(f);
    tick_at(f, 2200 * SL_CLOCK_NS_PER_MS);
    expect(f, "1#1 error deadline: barrier b: still waiting after 2400 ms for worker/2");
    expect_nothing(f);
    tick_at(f, f->now_ns);
    expect_nothing(f);
    /* It does not count any more. */
    say(f, 3, barrier_message("b", 0, 1));
    expect_nothing(f);
    say(f, 1, barrier_message("b", 0, 2));
    expect_count(f, 3);
    /* With the last that gives up the barrier is forgotten: another count may be asked for. */
    say(f, 1, patient("b", 3, 3, 1000));
    tick_at(f, f->now_ns + SECOND);
    expect(f, "1#3 error deadline: barrier b: still waiting after 1000 ms for worker/1, worker/2");
    say(f, 1, barrier_message("b", 1, 4));
    expect(f, "1#4 done");
}

/* Groups */

static struct sl_message of_groups(uint32_t groups, uint64_t id)
{
    struct sl_message message = barrier_message(groups == 4 ? "w" : "g", 0, id);
    message.barrier.groups = groups;
    return message;
}

/* The client beside the scheduler or a server. */
static int hello_beside(struct fixture *f, sl_coordinator_peer peer, uint32_t beside)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = peer,
                                           .beside = beside};
    return sl_coordinator_hello(f->coordinator, peer, &hello, f->now_ns, &f->reason);
}

/* Workers as peers 1 to 3, servers as 11 and 12, the clients beside them as 21 and 22, that of the
 * scheduler as 30. */
static void all_join(struct fixture *f)
{
    cluster_start(f);
    workers_join(f);
    assert_int_equal(hello_beside(f, 21, SL_MESSAGE_BESIDE_PS), 0);
    assert_int_equal(hello_beside(f, 22, SL_MESSAGE_BESIDE_PS + 1), 0);
    assert_int_equal(hello_beside(f, 30, SL_MESSAGE_BESIDE_SCHEDULER), 0);
}

CASE(coordinator_barrier__of_groups_waits_for_each_of_their_processes)
{
    all_join(f);
    say(f, 30, of_groups(7, 1));
    say(f, 1, of_groups(7, 1));
    say(f, 21, of_groups(7, 1));
    say(f, 2, of_groups(7, 1));
    say(f, 3, of_groups(7, 1));
    say(f, 3, of_groups(7, 1));
    expect_nothing(f);
    tick_at(f, 3 * SECOND);
    expect_part(f, " waiting for ps/1");
    expect_count(f, 4);
    say(f, 22, of_groups(7, 1));
    expect_count(f, 6);
    say(f, 21, of_groups(SL_MESSAGE_GROUP_PS, 2));
    say(f, 22, of_groups(SL_MESSAGE_GROUP_PS, 2));
    expect(f, "21#2 done");
    expect(f, "22#2 done");
}

CASE(coordinator_barrier__of_groups_is_for_no_other_member)
{
    all_join(f);
    say(f, 1, of_groups(3, 1));
    expect(f, "1#1 error invalid: barrier g: it is for each scheduler and each ps, and worker/0 is "
              "none of them");
    say(f, 11, of_groups(3, 2)); /* a server speaks by the client beside it */
    expect_part(f, "11#2 error invalid: barrier g: it is for each scheduler");
    assert_int_equal(hello_beside(f, 41, 0), 0);
    say(f, 41, of_groups(7, 1));
    expect_part(f, "41#1 error invalid: barrier g: it is for each scheduler");
    say(f, 30, of_groups(3, 1));
    say(f, 21, of_groups(7, 1));
    expect(f, "21#1 error invalid: barrier g: the client of ps/0 asks for a count of each "
              "scheduler and each ps and each worker, the client of the scheduler for each "
              "scheduler and each ps");
}

CASE(coordinator_barrier__of_groups_fails_when_a_process_ends)
{
    static const sl_coordinator_peer without_worker[] = {1, 2, 11, 12, 21, 22, 30, 0};
    static const sl_coordinator_peer without_server[] = {1, 2, 11, 21, 22, 30, 0};
    all_join(f);
    say(f, 1, of_groups(4, 1));
    say(f, 30, of_groups(3, 1));
    goodbye(f, 22);
    expect(f, "30#1 error closed: barrier g: ps/1 has left");
    assert_int_equal(hello_beside(f, 22, SL_MESSAGE_BESIDE_PS + 1), 0);
    pass(f, 11 * SECOND, without_worker);
    expect_among(f, "1#1 error closed: barrier w: worker/2 expired: no heartbeat for 10 s");
    say(f, 2, of_groups(4, 2));
    expect(f, "2#2 error closed: barrier w: worker/2 expired: no heartbeat for 10 s");
    say(f, 30, of_groups(3, 2));
    pass(f, 11 * SECOND, without_server);
    expect_among(f, "30#2 error closed: barrier g: ps/1 expired: no heartbeat for 10 s");
    say(f, 30, of_groups(3, 3));
    expect(f, "30#3 error closed: barrier g: ps/1 expired: no heartbeat for 10 s");
}

CASE(coordinator_barrier__a_process_has_one_client_beside_it)
{
    all_join(f);
    assert_int_equal(hello_beside(f, 23, SL_MESSAGE_BESIDE_PS), SL_ERR_AGAIN);
    heartbeat(f, 21);
    f->now_ns++;
    heartbeat(f, 21);
    assert_int_equal(hello_beside(f, 23, SL_MESSAGE_BESIDE_PS), SL_ERR_EXISTS);
    disconnect(f, 21);
    assert_int_equal(hello_beside(f, 23, SL_MESSAGE_BESIDE_PS), 0);
    say(f, 23, of_groups(2, 1));
    say(f, 22, of_groups(2, 1));
    expect(f, "23#1 done");
    expect(f, "22#1 done");
}
