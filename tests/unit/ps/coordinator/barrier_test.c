/* The coordinator's barriers. */

#include <stdio.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

CASE(coordinator_barrier__is_done_when_all_have_come_and_can_be_used_again)
{
    workers_join(f);
    for (uint64_t id = 1; id < 4; id++) {
        say(f, 1, barrier_message("b", 3, id));
        say(f, 2, barrier_message("b", 3, id));
        say(f, 3, barrier_message("other", 1, 100 + id));
        char text[32];
        (void)snprintf(text, sizeof text, "3#%u done", 100 + (unsigned)id);
        expect(f, text);
        expect_nothing(f);
        say(f, 3, barrier_message("b", 3, id));
        for (uint32_t peer = 1; peer < 4; peer++) {
            (void)snprintf(text, sizeof text, "%u#%u done", peer, (unsigned)id);
            expect(f, text);
        }
        expect_nothing(f);
    }
}

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

CASE(coordinator_barrier__who_left_does_not_count)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 2, 1));
    goodbye(f, 1);
    say(f, 2, barrier_message("b", 2, 1));
    expect_nothing(f);
    say(f, 2, barrier_message("b", 2, 2)); /* it gave up and came again: still one */
    expect_nothing(f);
    say(f, 3, barrier_message("b", 2, 1));
    expect(f, "2#2 done");
    expect(f, "3#1 done");
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
    expect(f, "1#1 waiting for 1 of the 2 at the barrier");
}

CASE(coordinator_barrier__who_is_away_counts_until_it_is_lost)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 2, 1));
    say(f, 2, barrier_message("c", 2, 1));
    disconnect(f, 1);
    disconnect(f, 2);
    f->now_ns = SECOND;
    heartbeat(f, 3);
    say(f, 3, barrier_message("b", 2, 1));
    expect(f, "3#1 done");
    expect_nothing(f);
    pass(f, 9 * SECOND, (sl_coordinator_peer[]){3, 0});
    f->sent_count = 0; /* the losses */
    say(f, 3, barrier_message("c", 2, 2));
    expect_nothing(f);
    assert_int_equal(hello(f, 5, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    say(f, 5, barrier_message("c", 2, 1));
    expect(f, "3#2 done");
    expect(f, "5#1 done");
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

CASE(coordinator_barrier__goes_on_over_a_broken_connection)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 2, 4));
    disconnect(f, 1);
    assert_int_equal(hello_as(f, 7, SL_MESSAGE_ROLE_WORKER, 0, 1), 0);
    say(f, 7, barrier_message("b", 2, 4)); /* sent again: still one */
    expect_nothing(f);
    say(f, 2, barrier_message("b", 2, 1));
    expect(f, "7#4 done");
    expect(f, "2#1 done");
    /* Another process in its place has not come to the barrier. */
    say(f, 7, barrier_message("b", 2, 5));
    disconnect(f, 7);
    assert_int_equal(hello_as(f, 8, SL_MESSAGE_ROLE_WORKER, 0, 8), 0);
    f->sent_count = 0;
    say(f, 2, barrier_message("b", 2, 2));
}

CASE(coordinator_barrier__of_all_waits_for_the_workers_that_are_left)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 0, 1));
    say(f, 2, barrier_message("b", 0, 1));
    expect_nothing(f);
    disconnect(f, 3); /* away: it may come yet */
    pass(f, 19 * SECOND / 2, (sl_coordinator_peer[]){1, 2, 0});
    for (uint32_t i = 0; i < 6; i++) {
        expect_part(f, "waiting for worker/2");
    }
    expect_nothing(f);
    pass(f, SECOND / 2, (sl_coordinator_peer[]){1, 2, 0});
    expect(f, "1#0 lost worker/2 of 3: no heartbeat for 10 s");
    expect(f, "2#0 lost worker/2 of 3: no heartbeat for 10 s");
    expect(f, "1#1 done");
    expect(f, "2#1 done");
    expect_nothing(f);
    /* From then on two are all. */
    say(f, 2, barrier_message("b", 0, 2));
    say(f, 1, barrier_message("b", 0, 2));
    expect(f, "2#2 done");
    expect(f, "1#2 done");
    /* One that leaves while the other waits. */
    say(f, 1, barrier_message("b", 0, 3));
    goodbye(f, 2);
    expect(f, "1#3 done");
    /* One that comes back counts again. */
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 1, barrier_message("b", 0, 4));
    expect_nothing(f);
    say(f, 4, barrier_message("b", 0, 1));
    expect(f, "1#4 done");
    expect(f, "4#1 done");
}

CASE(coordinator_barrier__of_all_counts_who_was_not_heard_of_yet)
{
    assert_int_equal(hello(f, 1, SL_MESSAGE_ROLE_WORKER, 0), 0);
    say(f, 1, barrier_message("b", 0, 1));
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_WORKER, 1), 0);
    say(f, 2, barrier_message("b", 0, 1));
    expect_nothing(f);
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_WORKER, 2), 0);
    say(f, 3, barrier_message("b", 0, 1));
    expect_count(f, 3);
}

CASE(coordinator_barrier__of_all_counts_who_joined)
{
    workers_join(f);
    struct sl_message_hello joiner = {
        .role = SL_MESSAGE_ROLE_WORKER,
        .task_index = 7,
        .client_id = 4,
    };
    assert_int_equal(
        sl_coordinator_hello(f->coordinator, 4, &joiner, 0, f->reason, sizeof f->reason),
        SL_ERR_INVALID);
    joiner.join_running = true;
    assert_int_equal(
        sl_coordinator_hello(f->coordinator, 4, &joiner, 0, f->reason, sizeof f->reason), 0);
    for (uint32_t peer = 1; peer < 4; peer++) {
        say(f, peer, barrier_message("b", 0, 1));
    }
    tick_at(f, 3 * SECOND);
    expect(f, "1#1 waiting for worker/7");
    f->sent_count = 0;
    say(f, 4, barrier_message("b", 0, 1));
    expect_count(f, 4);
    goodbye(f, 4);
    for (uint32_t peer = 1; peer < 4; peer++) {
        say(f, peer, barrier_message("b", 0, 2));
    }
    expect_count(f, 3);
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
