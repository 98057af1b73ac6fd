/* Small pulls are answered together, and nobody may notice. */

#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "ps/server/request.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define PEERS    3
#define REQUESTS 40 /* of one peer in a round: fewer than STEPPED_REPLIES */
#define TABLES   2

static struct stepped_peer *join(struct stepped *world, uint64_t client_id)
{
    struct stepped_peer *peer = calloc(1, sizeof *peer);
    assert_non_null(peer);
    stepped_join(peer, world, UINT32_MAX, client_id);
    return peer;
}

static void send_pull(struct stepped_peer *peer, uint64_t id, uint16_t table, uint64_t key,
                      uint32_t key_count)
{
    struct stepped *world = peer->world;
    shard_request_begin(&world->request, 0);
    shard_request_pull(&world->request, table, world->keys + key, key_count);
    stepped_send(peer, id, STEPPED_BUDGET);
}

static void send_push(struct stepped_peer *peer, uint64_t id, uint16_t table, uint64_t key,
                      uint32_t key_count)
{
    struct stepped *world = peer->world;
    shard_request_begin(&world->request, 0);
    shard_request_push(&world->request, SL_REQUEST_PUSH, table, world->keys + key, key_count,
                       world->gradients, STEPPED_DIM);
    stepped_send(peer, id, STEPPED_BUDGET);
}

/* What a peer has pushed to its rows, which nobody else touches, and what its pulls must see. */
struct script {
    struct stepped_peer *peer;
    uint64_t key, next_id;
    float pushed[TABLES];
    float expected[REQUESTS]; /* of a push: -1 */
};

/* Pulls of few rows and of many, and pushes to the same rows between them. */
static void send_one(struct script *script, uint32_t at, uint64_t *seed)
{
    static const uint32_t counts[] = {1, 1, 2, 63, 64, 65, 200};
    uint64_t random = sl_hash_random(seed);
    uint16_t table = (uint16_t)(random % TABLES);
    uint64_t id = script->next_id++;
    script->expected[at] = script->pushed[table];
    if (random / TABLES % 4 != 0) {
        send_pull(script->peer, id, table, script->key, counts[random / 16 % 7]);
        return;
    }
    send_push(script->peer, id, table, script->key, 200);
    script->pushed[table] += 1.0F;
    script->expected[at] = -1.0F;
}

static void check(const struct script *script, uint32_t at)
{
    const struct stepped_reply *reply =
        stepped_reply(script->peer, script->next_id - REQUESTS + at);
    assert_int_equal(reply->status, 0);
    if (script->expected[at] < 0) {
        assert_int_equal(reply->bytes, 0);
    } else {
        assert_true(reply->value == script->expected[at]);
        assert_true(reply->last == script->expected[at]);
    }
}

#define CASE(name) SL_CASE_USING(name, struct stepped, world, sl_unit_nothing, sl_unit_nothing)

CASE(pulls__see_what_their_client_pushed_before_and_nothing_later)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        memset(world, 0, sizeof *world);
        stepped_start(world, seed);
        struct script scripts[PEERS];
        for (uint32_t i = 0; i < PEERS; i++) {
            scripts[i] = (struct script){
                .peer = join(world, 10 + i), .key = 1000 * (uint64_t)i, .next_id = 1};
        }
        stepped_open_table(scripts[0].peer, 0, SL_CONSISTENCY_ASP);
        stepped_open_table(scripts[0].peer, 1, SL_CONSISTENCY_ASP);
        uint64_t random = seed;
        for (uint32_t round = 0; round < 5; round++) {
            for (uint32_t i = 0; i < PEERS * REQUESTS; i++) {
                send_one(&scripts[i % PEERS], i / PEERS, &random);
            }
            for (uint32_t i = 0; i < PEERS * REQUESTS; i++) {
                check(&scripts[i % PEERS], i / PEERS);
            }
        }
        stepped_stop(world);
        for (uint32_t i = 0; i < PEERS; i++) {
            free(scripts[i].peer);
        }
    }
}

/* The world anew, with two clients and an ASP table 0. */
static void start_with_two(struct stepped *world, uint64_t seed, struct stepped_peer **peer,
                           struct stepped_peer **other)
{
    memset(world, 0, sizeof *world);
    stepped_start(world, seed);
    *peer = join(world, 7);
    *other = join(world, 8);
    stepped_open_table(*peer, 0, SL_CONSISTENCY_ASP);
}

static uint64_t requests_carried_out(const struct stepped *world)
{
    struct sl_message answer = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_server_stats(world->server, &answer.stats), 0);
    uint64_t requests = answer.stats.requests;
    sl_message_fini(&answer);
    return requests;
}

CASE(pulls__before_a_bad_request_are_carried_out)
{
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct stepped_peer *peer, *other;
        start_with_two(world, seed, &peer, &other);
        for (uint64_t id = 1; id <= 5; id++) {
            send_pull(peer, id, 0, 0, 3);
            send_pull(other, id, 0, 0, 3);
        }
        send_pull(peer, 6, 77, 0, 3); /* there is no such table */
        stepped_expect_end(peer);
        for (uint64_t id = 1; id <= 5; id++) {
            assert_int_equal(stepped_reply(other, id)->status, 0);
        }
        assert_int_equal(requests_carried_out(world), 10);
        stepped_stop(world);
        free(peer);
        free(other);
    }
}

/* A connection that ends while pulls of it are collected: what they were received in is given back,
 * and the others are answered. The network asserts the former. */
CASE(pulls__of_a_connection_that_ends_are_forgotten)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct stepped_peer *peer, *other;
        start_with_two(world, seed, &peer, &other);
        for (uint64_t id = 1; id <= 20; id++) {
            send_pull(peer, id, 0, 0, 1);
            send_pull(other, id, 0, 0, 1);
        }
        stepped_turns(world, (uint32_t)(seed % 8));
        stepped_break(peer);
        for (uint64_t id = 1; id <= 20; id++) {
            assert_int_equal(stepped_reply(other, id)->status, 0);
        }
        stepped_stop(world);
        free(peer);
        free(other);
    }
}

/* More than the outbox has room for, of a peer that does not read: they are queued, in order. */
CASE(pulls__wait_in_order_when_there_is_no_room)
{
    world->options.buffer_bytes_max = 1; /* the least there is */
    stepped_start(world, 3);
    struct stepped_peer *peer = join(world, 7);
    stepped_open_spec(
        peer, 0,
        (struct sl_table_spec){.name = "wide", .kind = SL_TABLE_SPARSE, .dim = SL_LIMIT_DIM});
    for (uint64_t id = 1; id <= 60; id++) {
        send_pull(peer, id, 0, 0, id % 2 == 0 ? 1 : 15);
    }
    for (uint64_t id = 1; id <= 60; id++) {
        assert_int_equal(stepped_reply(peer, id)->status, 0);
        assert_true(peer->reply_count >= id);
        assert_int_equal(peer->replies[id - 1].id, id);
    }
    stepped_stop(world);
    free(peer);
}

/* A request as if it had come in a sink, in the middle of a turn. */
static void arrive(struct stepped *world, struct sl_server_channel *channel, uint64_t id)
{
    struct sl_server_conn *conn = channel->conn;
    struct sl_server_buffers *buffers = &world->server->host->memory.buffers;
    shard_request_begin(&world->request, 0);
    shard_request_pull(&world->request, 0, world->keys, 100);
    conn->sink.buffer = sl_server_buffers_get(buffers, world->request.bytes, buffers->bytes);
    assert_non_null(conn->sink.buffer);
    memcpy(conn->sink.buffer, world->request.payload, world->request.bytes);
    const struct sl_transport_message message = {
        .header = {.type = SL_FRAME_REQUEST,
                   .request_id = id,
                   .budget_us = STEPPED_BUDGET,
                   .payload_bytes = (uint32_t)world->request.bytes},
        .payload = conn->sink.buffer,
    };
    sl_server_request_arrive(channel, &message);
}

/* Or connections that are looked at first in every turn would use all of it up. */
CASE(requests__that_wait_for_their_turn_are_not_overtaken)
{
    stepped_start(world, 5);
    struct stepped_peer *peer = join(world, 7);
    struct sl_server_channel *channel = sl_server_session_find(world->server, 7)->channel;
    struct stepped_peer *other = join(world, 8);
    struct sl_server_channel *other_channel = sl_server_session_find(world->server, 8)->channel;
    stepped_open_table(peer, 0, SL_CONSISTENCY_ASP);
    world->server->host->budget_left = 50; /* other requests have used the rest */
    arrive(world, channel, 1);
    arrive(world, channel, 2);
    assert_false(sl_server_channel_is_free(channel));
    world->server->host->budget_left = SL_LIMIT_TURN_COST;
    arrive(world, other_channel, 1);
    assert_false(sl_server_channel_is_free(other_channel));
    assert_int_equal(stepped_reply(peer, 1)->status, 0);
    assert_int_equal(stepped_reply(peer, 2)->status, 0);
    assert_int_equal(stepped_reply(other, 1)->status, 0);
    assert_int_equal(world->server->scheduler.crowded_count, 0);
    arrive(world, other_channel, 2);
    assert_true(sl_server_channel_is_free(other_channel)); /* it was answered at once */
    assert_int_equal(stepped_reply(other, 2)->status, 0);
    stepped_stop(world);
    free(peer);
    free(other);
}

/* A long push rests in a turn that answers small pulls, so that the answers go out at once, but
 * never in two turns in a row, however many pulls come. */
CASE(pushes__rest_while_small_pulls_are_answered_but_not_for_long)
{
    stepped_start(world, 5);
    struct stepped_peer *peer = join(world, 7);
    const struct sl_list *queue = &sl_server_session_find(world->server, 7)->channel->queue;
    struct stepped_peer *other = join(world, 8);
    stepped_open_table(peer, 0, SL_CONSISTENCY_ASP);
    stepped_push(peer, 1, 0, STEPPED_KEYS);
    while (sl_list_empty(queue) || !sl_server_request_started(sl_server_request_first(queue))) {
        stepped_turns(world, 1);
    }
    uint32_t rests = 0;
    bool rested = false;
    for (uint64_t id = 1; !sl_list_empty(queue); id++) {
        send_pull(other, id, 0, 0, 3);
        const struct sl_shard_request before = sl_server_request_first(queue)->work;
        const uint64_t answered = sl_server_metrics_requests(world->server);
        stepped_turns(world, 1);
        const bool answers = sl_server_metrics_requests(world->server) != answered;
        const struct sl_server_request *push = sl_server_request_first(queue);
        const bool moved =
            push == NULL || push->work.phase != before.phase || push->work.done != before.done;
        assert_int_equal(moved, rested || !answers);
        rested = !moved;
        rests += rested;
    }
    assert_true(rests > 1);
    assert_int_equal(stepped_reply(peer, 1)->status, 0);
    stepped_stop(world);
    free(peer);
    free(other);
}

/* The server's own turn does not come while it is held. */
static void hold_turns(struct stepped *world)
{
    sl_reactor_remove_source(world->pair.a.reactor, &world->server->scheduler.source);
}

static void release_turns(struct stepped *world)
{
    sl_reactor_add_source(world->pair.a.reactor, &world->server->scheduler.source);
}

/* A client whose session ends, or goes on with another connection, in the turn in which pulls of it
 * came. These cannot be answered at once, since an iteration has just become complete; and who
 * waited for that with them would be asked when the connection is long gone. */
CASE(pulls__of_a_session_that_ends_are_not_left_behind)
{
    stepped_start(world, 5);
    struct stepped_peer *first = calloc(1, sizeof *first);
    struct stepped_peer *second = calloc(1, sizeof *second);
    assert_non_null(first);
    assert_non_null(second);
    stepped_join_two(first, second, world);
    stepped_push_done(second, 1, 0, STEPPED_KEYS);
    hold_turns(world);
    send_pull(first, 2, 1, 0, 3);
    for (uint32_t turn = 0; turn < 100 && world->server->pulls.count == 0; turn++) {
        stepped_turns(world, 1);
    }
    assert_int_equal(world->server->pulls.count, 1);
    stepped_tick_done(second, 2, 0);
    const struct sl_message_expired lost = {.role = SL_MESSAGE_ROLE_WORKER,
                                            .task_index = first->hello.task_index,
                                            .client_id = first->hello.client_id,
                                            .why = "its lease has ended"};
    sl_server_on_expired(world->server, &lost);
    assert_int_equal(world->server->pulls.count, 0);
    stepped_expect_end(first);
    stepped_turns(world, 50);
    release_turns(world);
    stepped_turns(world, 200);
    assert_true(sl_server_is_idle(world->server));
    assert_int_equal(world->server->scheduler.runnable_count, 0);
    stepped_stop(world);
    free(first);
    free(second);
}
