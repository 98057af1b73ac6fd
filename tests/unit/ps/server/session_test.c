/* Sessions: what the server remembers of a client whose connection broke, and for how long. */

#include <string.h>

#include "ps/server/request.h"
#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

TWO_CASE(server_session__of_another_process_is_refused_while_the_first_is_there)
{
    stepped_join(&world->first, &world->stepped, 3, 7);
    struct stepped_peer *other = &world->second;
    other->world = &world->stepped;
    other->hello = world->first.hello;
    other->hello.client_id = 8;
    const struct sl_message *answer = stepped_again(other);
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_AGAIN);
    assert_non_null(strstr(answer->error.text, "worker/3"));
    stepped_break(other);
    stepped_break(&world->first);
    assert_int_equal(stepped_again(other)->kind, SL_MESSAGE_WELCOME); /* it is away */
    assert_false(other->answer.welcome.resumed);
    answer = stepped_again(&world->first);
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_AGAIN);
}

TWO_CASE(server_session__keeps_who_the_client_was)
{
    stepped_join(&world->first, &world->stepped, 3, 7);
    stepped_break(&world->first);
    world->first.hello.task_index = 4;
    const struct sl_message *answer = stepped_again(&world->first);
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_INVALID);
}

/* worker/0 waits in iteration 1 for worker/1. */
static void wait_for_second(struct stepped_two *world)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
    shard_request_begin(&world->stepped.request, 1);
    shard_request_pull(&world->stepped.request, 0, world->stepped.keys, 1);
    stepped_send(&world->first, 2, STEPPED_BUDGET);
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->first.reply_count, 1);
}

TWO_CASE(server_session__ends_with_its_lease)
{
    wait_for_second(world);
    stepped_break(&world->second);
    stepped_pass(&world->stepped, STEPPED_LEASE - SL_CLOCK_NS_PER_S);
    assert_int_equal(world->first.reply_count, 1);
    stepped_pass(&world->stepped, 2 * SL_CLOCK_NS_PER_S);
    assert_int_equal(stepped_reply(&world->first, 2)->status, 0);
    const struct sl_message_welcome *welcome = &stepped_again(&world->second)->welcome;
    assert_false(welcome->resumed);
    assert_false(welcome->counts);
    assert_int_equal(welcome->clock, 1);
    struct sl_message join = {.kind = SL_MESSAGE_JOIN, .id = 9, .clock = 0};
    const struct sl_message *answer = stepped_ask(&world->second, &join);
    assert_int_equal(answer->kind, SL_MESSAGE_JOINED);
    assert_int_equal(answer->id, 9);
    assert_int_equal(answer->clock, 1);
    join.clock = 1;
    assert_int_equal(stepped_ask(&world->second, &join)->clock, 1);
    stepped_break(&world->second);
    welcome = &stepped_again(&world->second)->welcome;
    assert_true(welcome->resumed);
    assert_true(welcome->counts);
    assert_int_equal(welcome->clock, 1);
}

/* From now on the shard knows that the peer has seen a welcome of its session, although it does not
 * take this message. */
static void speak(struct stepped_peer *peer)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_BARRIER, .id = 9, .barrier = {.name = "b", .count = 1}};
    assert_int_equal(stepped_ask(peer, &message)->kind, SL_MESSAGE_ERROR);
}

/* Its welcome may have been lost: then the client believes that it still has the session before. */
TWO_CASE(server_session__is_not_resumed_by_one_that_was_never_heard)
{
    struct stepped_peer *peer = &world->first;
    stepped_join(peer, &world->stepped, NOBODY, 7);
    stepped_break(peer);
    assert_false(stepped_again(peer)->welcome.resumed);
    speak(peer);
    stepped_break(peer);
    assert_true(stepped_again(peer)->welcome.resumed);
}

TWO_CASE(server_session__holds_the_others_while_it_is_back_in_time)
{
    wait_for_second(world);
    speak(&world->second);
    for (int round = 0; round < 3; round++) {
        stepped_break(&world->second);
        stepped_pass(&world->stepped, STEPPED_LEASE - SL_CLOCK_NS_PER_S);
        const struct sl_message_welcome *welcome = &stepped_again(&world->second)->welcome;
        assert_true(welcome->resumed);
        assert_true(welcome->counts);
        assert_int_equal(welcome->clock, 0);
    }
    assert_int_equal(world->first.reply_count, 1);
}

static struct sl_message_expired lost_of(const struct stepped_peer *peer)
{
    return (struct sl_message_expired){
        .role = SL_MESSAGE_ROLE_WORKER,
        .task_index = peer->hello.task_index,
        .client_id = peer->hello.client_id,
        .why = "its lease has ended",
    };
}

TWO_CASE(server_lost__ends_a_session_with_its_connection)
{
    wait_for_second(world);
    struct sl_message_expired lost = lost_of(&world->second);
    lost.client_id++; /* an earlier process of that name */
    sl_server_on_expired(world->stepped.server, &lost);
    stepped_turns(&world->stepped, 50);
    assert_non_null(world->second.link);
    assert_int_equal(world->first.reply_count, 1);
    lost.client_id--;
    sl_server_on_expired(world->stepped.server, &lost);
    stepped_expect_end(&world->second);
    assert_int_equal(stepped_reply(&world->first, 2)->status, 0);
    assert_false(stepped_again(&world->second)->welcome.resumed);
}

TWO_CASE(server_lost__of_one_that_never_came_counts_no_more)
{
    stepped_join(&world->first, &world->stepped, 0, 7);
    stepped_open_table(&world->first, 0, SL_CONSISTENCY_BSP);
    stepped_tick(&world->first, 1, 0);
    stepped_pull(&world->first, 2, 1, 0);
    assert_int_equal(stepped_reply(&world->first, 1)->status, 0);
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->first.reply_count, 1);
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = 1, .client_id = 99};
    sl_server_on_expired(world->stepped.server, &lost);
    assert_int_equal(stepped_reply(&world->first, 2)->status, 0);
}

/* Two pushes in one request: the one in progress is finished, the other is not begun. */
TWO_CASE(server_lost__leaves_no_push_by_half)
{
    struct stepped_peer *peer = &world->first;
    for (uint32_t round = 0; round < 30; round++) {
        stepped_join(peer, &world->stepped, 0, 100 + round);
        stepped_open_table(peer, 1, SL_CONSISTENCY_ASP);
        float before = stepped_values(&world->stepped, 1, STEPPED_KEYS / 2);
        shard_request_begin(&world->stepped.request, 0);
        for (int push = 0; push < 2; push++) {
            shard_request_push(&world->stepped.request, SL_REQUEST_PUSH, 1, world->stepped.keys,
                               STEPPED_KEYS / 2, world->stepped.gradients, STEPPED_DIM);
        }
        stepped_send(peer, 1, STEPPED_BUDGET);
        stepped_turns(&world->stepped, round);
        const struct sl_message_expired lost = lost_of(peer);
        sl_server_on_expired(world->stepped.server, &lost);
        stepped_expect_end(peer);
        stepped_turns(&world->stepped, 100);
        float after = stepped_values(&world->stepped, 1, STEPPED_KEYS / 2);
        assert_true(after >= before && after <= before + 2.0F);
    }
}

TWO_CASE_OF(server_session__count_is_bounded, 4)
{
    struct stepped_peer *peer = &world->first;
    for (uint64_t id = 1; id <= 6; id++) {
        memset(peer, 0, sizeof *peer);
        stepped_join(peer, &world->stepped, NOBODY, id);
        speak(peer);
        stepped_break(peer);
    }
    assert_int_equal(world->stepped.server->sessions.away_count, 4);
    peer->hello.client_id = 2; /* the oldest were dropped */
    assert_false(stepped_again(peer)->welcome.resumed);
    peer->hello.client_id = 6;
    assert_true(stepped_again(peer)->welcome.resumed);
}

TWO_CASE(server_join__is_for_workers)
{
    stepped_join(&world->first, &world->stepped, NOBODY, 7);
    const struct sl_message join = {.kind = SL_MESSAGE_JOIN, .id = 9, .clock = 3};
    const struct sl_message *answer = stepped_ask(&world->first, &join);
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->id, 9);
    assert_int_equal(answer->error.err, SL_ERR_INVALID);
}
