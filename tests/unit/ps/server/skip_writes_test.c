/* Requests that come again, since the connection broke before their answers. */

#include "core/hash.h"
#include "ps/server/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

static float value_of(struct stepped_two *world, uint16_t table)
{
    return stepped_values(&world->stepped, table, STEPPED_KEYS);
}

static float first_value_of(struct stepped_two *world, uint16_t table)
{
    return stepped_values(&world->stepped, table, 1);
}

static struct sl_server_session *session_of(const struct stepped_peer *peer)
{
    return sl_server_session_find(peer->world->server, peer->hello.client_id);
}

/* Connects again; the server remembers. */
static void resume(struct stepped_peer *peer)
{
    const struct sl_message *answer = stepped_again(peer);
    assert_int_equal(answer->kind, SL_MESSAGE_WELCOME);
    assert_true(answer->welcome.resumed);
}

static void join_two(struct stepped_two *world)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
}

/* Sends a long push, and returns when it has begun. */
static void begin_push(struct stepped_peer *peer, uint64_t id)
{
    struct sl_server *server = peer->world->server;
    uint64_t begun = sl_server_metrics_requests(server);
    stepped_push(peer, id, 0, STEPPED_KEYS);
    for (int turn = 0; turn < 100 && sl_server_metrics_requests(server) == begun; turn++) {
        stepped_turns(peer->world, 1);
    }
    assert_int_equal(sl_server_metrics_requests(server), begun + 1);
}

/* Its client has given the request up, and does not send it again; what comes behind it waits. */
TWO_CASE(server_replay__is_not_needed_for_an_orphan_to_end)
{
    struct stepped_peer *peer = &world->first;
    stepped_join_client(peer, &world->stepped);
    begin_push(peer, 1);
    assert_true(stepped_again(peer)->welcome.resumed);
    stepped_push_done(peer, 2, 0, STEPPED_KEYS);
    assert_true(value_of(world, 0) == 2.0F);
}

/* A push to table 1, a pull from table 0 that waits for worker/1, and a push to table 1. */
static void send_parked(struct stepped_peer *peer, uint64_t id, uint32_t budget_us)
{
    struct stepped *world = peer->world;
    shard_request_begin(&world->request, 1);
    shard_request_push(&world->request, SL_REQUEST_PUSH, 1, world->keys, STEPPED_KEYS / 4,
                       world->gradients, STEPPED_DIM);
    shard_request_pull(&world->request, 0, world->keys, 1);
    shard_request_push(&world->request, SL_REQUEST_PUSH, 1, world->keys, STEPPED_KEYS / 4,
                       world->gradients, STEPPED_DIM);
    stepped_send(peer, id, budget_us);
}

TWO_CASE(server_replay__of_a_parked_request_goes_on_in_its_middle)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    send_parked(peer, 2, STEPPED_BUDGET);
    stepped_turns(&world->stepped, 100);
    assert_true(first_value_of(world, 1) == 1.0F);
    for (int round = 0; round < 2; round++) {
        stepped_break(peer);
        assert_non_null(session_of(peer)->orphan);
        assert_true(world->stepped.server->scheduler.orphan_bytes > 0);
        resume(peer);
        send_parked(peer, 2, STEPPED_BUDGET);
        stepped_turns(&world->stepped, 100);
        assert_int_equal(world->stepped.server->scheduler.orphan_bytes, 0);
    }
    stepped_tick(&world->second, 1, 0);
    const struct stepped_reply *reply = stepped_reply(peer, 2);
    assert_int_equal(reply->status, 0);
    assert_int_equal(reply->bytes, STEPPED_DIM * sizeof(float));
    assert_true(first_value_of(world, 1) == 2.0F);
}

TWO_CASE(server_replay__of_a_parked_request_that_went_on_degraded)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    send_parked(peer, 2, STEPPED_BUDGET);
    stepped_turns(&world->stepped, 100);
    stepped_break(peer);
    stepped_tick_done(&world->second, 1, 0);
    stepped_turns(&world->stepped, 100);
    assert_null(session_of(peer)->orphan);
    assert_true(first_value_of(world, 1) == 2.0F);
    resume(peer);
    send_parked(peer, 2, STEPPED_BUDGET);
    assert_int_equal(stepped_reply(peer, 2)->status, 0);
    assert_true(first_value_of(world, 1) == 2.0F);
}

TWO_CASE(server_replay__of_a_parked_request_whose_deadline_passed_fails)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    send_parked(peer, 2, 2000000);
    stepped_turns(&world->stepped, 100);
    stepped_break(peer);
    stepped_pass(&world->stepped, 3 * SL_CLOCK_NS_PER_S);
    assert_null(session_of(peer)->orphan);
    assert_int_equal(world->stepped.server->scheduler.orphan_bytes, 0);
    resume(peer);
    send_parked(peer, 2, STEPPED_BUDGET);
    assert_int_equal(stepped_reply(peer, 2)->status, SL_ERR_DEADLINE);
    assert_true(first_value_of(world, 1) == 1.0F);
}

/* Of requests that had not begun nothing is left, and they are carried out once, in their order. */
TWO_CASE(server_replay__of_what_never_began_is_new)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    send_parked(peer, 2, STEPPED_BUDGET);
    stepped_push(peer, 3, 1, 10);
    stepped_tick(peer, 4, 1);
    stepped_turns(&world->stepped, 100);
    stepped_break(peer);
    stepped_turns(&world->stepped, 100);
    resume(peer);
    send_parked(peer, 2, STEPPED_BUDGET);
    stepped_push(peer, 3, 1, 10);
    stepped_tick(peer, 4, 1);
    stepped_push(peer, 5, 1, 10);
    stepped_turns(&world->stepped, 100);
    assert_true(first_value_of(world, 1) == 1.0F); /* all wait */
    stepped_tick(&world->second, 1, 0);
    for (uint64_t id = 2; id <= 5; id++) {
        assert_int_equal(stepped_reply(peer, id)->status, 0);
    }
    assert_true(first_value_of(world, 1) == 4.0F);
}

TWO_CASE(server_replay__remembers_the_last_256_failures)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    for (uint64_t id = 2; id < 402; id++) {
        stepped_tick(peer, id, 99);
        assert_int_equal(stepped_reply(peer, id)->status, SL_ERR_PROTOCOL);
    }
    stepped_push_done(peer, 402, 1, 10);
    stepped_break(peer);
    resume(peer);
    for (uint64_t id = 402 - 256; id < 402; id++) {
        stepped_tick(peer, id, 1);
        assert_int_equal(stepped_reply(peer, id)->status, SL_ERR_PROTOCOL);
    }
}

/* A client that gives other requests up, and loses the same answer each time. */
TWO_CASE(server_replay__keeps_a_failure_that_is_asked_for_again_and_again)
{
    struct stepped_peer *peer = &world->first;
    join_two(world);
    stepped_tick(peer, 2, 99);
    stepped_push_done(peer, 3, 1, 10);
    uint64_t id = 4;
    for (int round = 0; round < 3; round++) {
        stepped_break(peer);
        resume(peer);
        stepped_tick(peer, 2, 1);
        assert_int_equal(stepped_reply(peer, 2)->status, SL_ERR_PROTOCOL);
        for (int i = 0; i < SL_LIMIT_CREDIT_REQUESTS - 1; i++, id++) {
            stepped_tick(peer, id, 99);
            assert_int_equal(stepped_reply(peer, id)->status, SL_ERR_PROTOCOL);
        }
    }
}

TWO_CASE(server_replay__out_of_order_ends_the_connection)
{
    struct stepped_peer *peer = &world->first;
    stepped_join_client(peer, &world->stepped);
    stepped_push_done(peer, 5, 0, 10);
    stepped_break(peer);
    resume(peer);
    stepped_push(peer, 4, 0, 10);
    stepped_push(peer, 4, 0, 10);
    stepped_expect_end(peer);
}

#define WINDOW 4 /* as the credit is */
/* Sanitizers, whose builds have the slow assertions, take fewer. */
#ifdef SL_ASSERT_SLOW
#define WRITES 40
#else
#define WRITES 100
#endif

/* A client that keeps the rules: sends again what is unanswered, in order, then new ones. */
struct chance_client {
    struct stepped_peer *peer;
    uint64_t random;
    uint64_t next_id;
    uint32_t write_count;
    struct {
        uint64_t id; /* 0: none */
        uint32_t keys;
    } open[WINDOW]; /* by ascending id */
    uint32_t open_count;
};

static uint32_t draw(struct chance_client *client, uint32_t count)
{
    return (uint32_t)(sl_hash_random(&client->random) % count);
}

static void send_open(struct chance_client *client, uint32_t index)
{
    uint32_t key_count = client->open[index].keys;
    if (key_count == 0) {
        stepped_pull(client->peer, client->open[index].id, 0, 0);
    } else {
        stepped_push(client->peer, client->open[index].id, 0, key_count);
    }
}

static void take_answers(struct chance_client *client)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < client->open_count; i++) {
        bool answered = false;
        for (uint32_t r = 0; r < STEPPED_REPLIES; r++) {
            if (client->peer->replies[r].id == client->open[i].id) {
                assert_int_equal(client->peer->replies[r].status, 0);
                answered = true;
            }
        }
        if (!answered) {
            client->open[kept++] = client->open[i];
        }
    }
    client->open_count = kept;
}

static void begin_one(struct chance_client *client)
{
    bool writes = draw(client, 4) != 0;
    uint32_t key_count = !writes ? 0 : draw(client, 4) == 0 ? STEPPED_KEYS : 10;
    client->write_count += writes;
    client->open[client->open_count].id = client->next_id++;
    client->open[client->open_count].keys = key_count;
    send_open(client, client->open_count++);
}

static void break_and_resume(struct chance_client *client)
{
    if (draw(client, 2) == 0) {
        stepped_break(client->peer);
        take_answers(client);
        stepped_turns(client->peer->world, draw(client, 40));
    }
    assert_true(stepped_again(client->peer)->welcome.resumed);
    for (uint32_t i = 0; i < client->open_count; i++) {
        send_open(client, i);
    }
}

TWO_CASE(server_replay__carries_every_write_out_once)
{
    struct chance_client client = {.peer = &world->first, .random = 42, .next_id = 1};
    stepped_join_client(client.peer, &world->stepped);
    while (client.write_count < WRITES || client.open_count > 0) {
        if (client.write_count < WRITES && client.open_count < WINDOW && draw(&client, 3) != 0) {
            begin_one(&client);
        }
        stepped_turns(&world->stepped, draw(&client, 6));
        take_answers(&client);
        if (draw(&client, 12) == 0) {
            break_and_resume(&client);
        }
    }
    assert_true(first_value_of(world, 0) == (float)WRITES);
}
