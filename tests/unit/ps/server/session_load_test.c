/* Sessions in a snapshot: a ps that is restarted from it knows its clients. */

#include <string.h>

#include "ps/server/request.h"
#include "ps/server/restore.h"
#include "ps/server/session_load.h"
#include "ps/server/session_snapshot.h"
#include "ps/server/state.h"
#include "ps/shard/state.h"
#include "ps/snapshot/block.h"
#include "stepped.h"
#include "tests/support/shard_stream.h"
#include "tests/support/unit.h"

static struct sl_reason reason;

struct saved {
    struct shard_stream snapshot;
    struct sl_snapshot_builder blocks;
    struct sl_snapshot_block *sessions;
};

/* Walks to the end and takes the blocks. */
static void walk(struct stepped_two *world, struct saved *out)
{
    uint32_t spent = 0;
    struct sl_snapshot_block *block;
    while (!sl_server_session_snapshot_run(world->stepped.server, spent + 16, &spent)) {
    }
    while ((block = sl_snapshot_builder_take(&out->blocks)) != NULL) {
        block->next = out->sessions;
        out->sessions = block;
    }
}

static void begin(struct stepped_two *world, struct saved *out)
{
    shard_stream_make(world->stepped.server->shard, NULL, 1 << 16, &out->snapshot);
    out->blocks = (struct sl_snapshot_builder){0};
    sl_snapshot_builder_begin(&out->blocks, (size_t)64 << 20, 64U << 10);
    out->blocks.heads_done = true;
    sl_server_session_snapshot_begin(world->stepped.server, &out->blocks, false);
    out->sessions = NULL;
}

static void save(struct stepped_two *world, struct saved *out)
{
    begin(world, out);
    walk(world, out);
}

static void forget(struct saved *saved)
{
    shard_stream_fini(&saved->snapshot);
    while (saved->sessions != NULL) {
        struct sl_snapshot_block *block = saved->sessions;
        saved->sessions = block->next;
        sl_snapshot_block_destroy(&block);
    }
}

static void forget_link(struct stepped_peer *peer)
{
    peer->link = NULL; /* the world has freed it */
    peer->connected = false;
}

/* Another process in the place of the first. */
static void begin_again(struct stepped_two *world)
{
    stepped_stop(&world->stepped);
    memset(&world->stepped, 0, sizeof world->stepped);
    stepped_start(&world->stepped, 2);
    forget_link(&world->first);
    forget_link(&world->second);
}

/* In slices of about two sessions. */
static int load_block(struct sl_server *server, const struct sl_snapshot_block *block)
{
    struct sl_server_session_load load = {.is_exact = false};
    int result;
    do {
        result = sl_server_session_load(server, block, &load, 16, &reason);
    } while (result == SL_SHARD_AGAIN);
    return result;
}

static void load(struct stepped_two *world, const struct saved *saved)
{
    struct sl_server *server = world->stepped.server;
    assert_int_equal(shard_stream_load(&saved->snapshot, server->shard, 8192, &reason), 0);
    for (const struct sl_snapshot_block *block = saved->sessions; block != NULL;
         block = block->next) {
        assert_int_equal(load_block(server, block), 0);
    }
}

/* The ps ends here and now, and begins again. */
static void restart(struct stepped_two *world)
{
    struct saved saved;
    save(world, &saved);
    begin_again(world);
    load(world, &saved);
    sl_server_sessions_await(world->stepped.server, 1);
    forget(&saved);
}

static void resume(struct stepped_peer *peer)
{
    const struct sl_message *answer = stepped_again(peer);
    assert_int_equal(answer->kind, SL_MESSAGE_WELCOME);
    assert_true(answer->welcome.resumed);
}

static float first_value_of(struct stepped_two *world, uint16_t table)
{
    return stepped_values(&world->stepped, table, 1);
}

/* The snapshot lacks the first client's second push, which the client sends again to the new
 * server. */
static void push_is_carried_out_again(struct stepped_two *world, struct saved *saved)
{
    struct stepped_peer *peer = &world->first;
    begin_again(world);
    load(world, saved);
    forget(saved);
    resume(peer);
    stepped_push_done(peer, 2, 0, 10);
    assert_true(first_value_of(world, 0) == 2.0F);
}

TWO_CASE(server_session_snapshot__what_has_failed_fails_again)
{
    struct stepped_peer *peer = &world->first;
    stepped_join(peer, &world->stepped, 0, 7);
    stepped_open_table(peer, 0, SL_CONSISTENCY_BSP);
    stepped_tick(peer, 1, 5);
    assert_int_equal(stepped_reply(peer, 1)->status, SL_ERR_PROTOCOL);
    stepped_tick_done(peer, 2, 0);
    restart(world);
    resume(peer);
    stepped_tick(peer, 1, 5);
    const struct stepped_reply *reply = stepped_reply(peer, 1);
    assert_int_equal(reply->status, SL_ERR_PROTOCOL);
    assert_non_null(strstr(reply->text, "it failed before the connection broke"));
    stepped_tick_done(peer, 2, 0);
    stepped_tick_done(peer, 3, 1);
}

/* A step in one request: it pushes, ticks, and waits to pull. */
static void send_step(struct stepped_two *world, uint64_t id)
{
    struct stepped *stepped = &world->stepped;
    shard_request_begin(&stepped->request, 1);
    shard_request_push(&stepped->request, SL_REQUEST_PUSH, 0, stepped->keys, 10, stepped->gradients,
                       STEPPED_DIM);
    shard_request_push(&stepped->request, SL_REQUEST_PUSH, 1, stepped->keys, 10, stepped->gradients,
                       STEPPED_DIM);
    shard_request_tick(&stepped->request);
    shard_request_pull(&stepped->request, 0, stepped->keys, 10);
    shard_request_push(&stepped->request, SL_REQUEST_PUSH, 1, stepped->keys, 10, stepped->gradients,
                       STEPPED_DIM);
    stepped_send(&world->first, id, STEPPED_BUDGET);
}

TWO_CASE(server_session_snapshot__leases_begin_when_clients_can_come)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
    struct saved saved;
    save(world, &saved);
    begin_again(world);
    load(world, &saved);
    forget(&saved);
    struct sl_server *server = world->stepped.server;
    stepped_pass(&world->stepped, 2 * STEPPED_LEASE);
    assert_int_equal(server->sessions.away_count, 2);
    sl_server_sessions_await(server, 1);
    stepped_pass(&world->stepped, STEPPED_LEASE - SL_CLOCK_NS_PER_S);
    resume(&world->first);
    stepped_pass(&world->stepped, 2 * SL_CLOCK_NS_PER_S);
    assert_int_equal(server->sessions.away_count, 0);
    assert_false(stepped_again(&world->second)->welcome.resumed);
    assert_false(world->second.answer.welcome.counts);
}

/* Somebody who is no client may have asked the shard. */
TWO_CASE(server_session_snapshot__of_clients_and_workers_only)
{
    stepped_join(&world->first, &world->stepped, NOBODY, 7);
    world->second.world = &world->stepped;
    world->second.hello = world->first.hello;
    world->second.hello.role = SL_MESSAGE_ROLE_PS;
    world->second.hello.client_id = 8;
    assert_int_equal(stepped_again(&world->second)->kind, SL_MESSAGE_WELCOME);
    restart(world);
    assert_int_equal(world->stepped.server->sessions.away_count, 1);
    assert_non_null(sl_server_session_find(world->stepped.server, 7));
}

/* A push during the walk of the sessions is not in the snapshot: it is applied once, when the
 * client sends it again. */
TWO_CASE(server_session_snapshot__what_is_done_meanwhile_is_not_in_it)
{
    struct stepped_peer *peer = &world->first;
    stepped_join_client(peer, &world->stepped);
    stepped_push_done(peer, 1, 0, 10);
    struct saved saved;
    begin(world, &saved);
    stepped_push_done(peer, 2, 0, 10);
    walk(world, &saved);
    push_is_carried_out_again(world, &saved);
}

/* worker/0's step has written its first sections when the snapshot begins, and is done before the
 * walk reaches its session. */
TWO_CASE(server_session_snapshot__what_goes_on_meanwhile_is_in_it_as_it_was)
{
    stepped_join_two(&world->first, &world->second, &world->stepped);
    send_step(world, 2);
    stepped_turns(&world->stepped, 50);
    struct saved saved;
    begin(world, &saved);
    for (uint32_t clock = 0; clock < 2; clock++) {
        stepped_tick_done(&world->second, 1 + clock, clock);
    }
    assert_int_equal(stepped_reply(&world->first, 2)->status, 0);
    assert_true(first_value_of(world, 1) == 2.0F);
    walk(world, &saved);
    begin_again(world);
    load(world, &saved);
    forget(&saved);
    sl_server_sessions_await(world->stepped.server, 1);
    assert_true(first_value_of(world, 1) == 1.0F);
    assert_true(stepped_again(&world->second)->welcome.counts);
    for (uint32_t clock = 0; clock < 2; clock++) {
        stepped_tick_done(&world->second, 1 + clock, clock);
    }
    resume(&world->first);
    send_step(world, 2);
    assert_int_equal(stepped_reply(&world->first, 2)->status, 0);
    assert_true(first_value_of(world, 0) == 1.0F);
    assert_true(first_value_of(world, 1) == 2.0F);
}

/* More than the server takes: the first ones make room. */
TWO_CASE_OF(server_session_load__more_than_can_be_away, 4)
{
    struct sl_snapshot_block *block;
    assert_int_equal(sl_snapshot_block_create(16384, &block), 0);
    sl_snapshot_block_begin(block, SL_SNAPSHOT_SESSIONS, 0);
    for (uint64_t client = 1; client <= 10; client++) {
        const struct sl_snapshot_session session = {.client_id = client,
                                                    .role = SL_MESSAGE_ROLE_CLIENT};
        assert_true(sl_snapshot_put_session(block, &session));
    }
    struct sl_server *server = world->stepped.server;
    assert_int_equal(load_block(server, block), 0);
    assert_int_equal(server->sessions.away_count, 4);
    assert_non_null(sl_server_session_find(server, 7));
    sl_snapshot_block_destroy(&block);
}

static struct sl_snapshot_session session_of(uint64_t client_id, uint32_t worker)
{
    return (struct sl_snapshot_session){
        .client_id = client_id,
        .role = worker == NOBODY ? SL_MESSAGE_ROLE_CLIENT : SL_MESSAGE_ROLE_WORKER,
        .task_index = worker == NOBODY ? 0 : worker,
    };
}

static int load_two(struct stepped_two *world, const struct sl_snapshot_session *first,
                    const struct sl_snapshot_session *second)
{
    struct sl_snapshot_block *block;
    assert_int_equal(sl_snapshot_block_create(16384, &block), 0);
    sl_snapshot_block_begin(block, SL_SNAPSHOT_SESSIONS, 0);
    assert_true(sl_snapshot_put_session(block, first));
    assert_true(sl_snapshot_put_session(block, second));
    const int err = load_block(world->stepped.server, block);
    sl_snapshot_block_destroy(&block);
    return err;
}

TWO_CASE(server_session_load__two_of_a_client_or_a_worker)
{
    struct sl_snapshot_session first = session_of(5, NOBODY);
    struct sl_snapshot_session second = session_of(5, NOBODY);
    assert_int_equal(load_two(world, &first, &second), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "a client twice"));
    first = session_of(6, 1);
    second = session_of(7, 1);
    assert_int_equal(load_two(world, &first, &second), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "a client twice"));
}

TWO_CASE(server_session_load__what_is_no_session)
{
    struct sl_snapshot_session first = session_of(5, NOBODY);
    struct sl_snapshot_session second = session_of(6, NOBODY);
    second.role = SL_MESSAGE_ROLE_PS;
    assert_int_equal(load_two(world, &first, &second), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "client 1 of a block"));
    struct sl_snapshot_block *block;
    assert_int_equal(sl_snapshot_block_create(64, &block), 0);
    sl_snapshot_block_begin(block, SL_SNAPSHOT_CLOCKS, 0);
    assert_int_equal(load_block(world->stepped.server, block), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "a block of clocks"));
    sl_snapshot_block_destroy(&block);
}

/* A worker may be lost at any time while the shard is loaded: it is lost when that is done. */
TWO_CASE(server_session_load__a_worker_is_lost_meanwhile)
{
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER, .task_index = 0, .client_id = 7};
    stepped_join(&world->first, &world->stepped, 0, 7);
    stepped_join(&world->second, &world->stepped, 1, 8);
    stepped_open_table(&world->first, 0, SL_CONSISTENCY_BSP);
    stepped_push_done(&world->first, 1, 0, 10);
    struct saved saved;
    save(world, &saved);
    begin_again(world);
    struct sl_server *server = world->stepped.server;
    server->is_open = false;
    assert_int_equal(load_block(server, saved.sessions), 0);
    sl_server_on_expired(server, &lost);
    assert_int_equal(shard_stream_load(&saved.snapshot, server->shard, 8192, &reason), 0);
    forget(&saved);
    sl_server_start_serving(server);
    assert_true(sl_clocks_is_expired(&server->shard->clocks, 0));
    assert_false(sl_clocks_is_expired(&server->shard->clocks, 1));
    assert_null(server->sessions.workers[0]);
    assert_non_null(server->sessions.workers[1]);
}

/* There is place for one: the other's clock is loaded behind, and must not hold anybody up. */
TWO_CASE(server_session_load__a_worker_has_no_place)
{
    stepped_join(&world->first, &world->stepped, 0, 7);
    stepped_join(&world->second, &world->stepped, 1, 8);
    stepped_open_table(&world->first, 0, SL_CONSISTENCY_BSP);
    struct saved saved;
    save(world, &saved);
    begin_again(world);
    struct sl_server *server = world->stepped.server;
    server->options.transports.options.connections_max = 1;
    server->is_open = false;
    assert_int_equal(load_block(server, saved.sessions), 0);
    const uint32_t left = server->sessions.workers[0] == NULL ? 0 : 1;
    assert_null(server->sessions.workers[left]);
    assert_non_null(server->sessions.workers[1 - left]);
    assert_int_equal(shard_stream_load(&saved.snapshot, server->shard, 8192, &reason), 0);
    forget(&saved);
    sl_server_start_serving(server);
    assert_true(sl_clocks_is_expired(&server->shard->clocks, left));
    assert_false(sl_clocks_is_expired(&server->shard->clocks, 1 - left));
}
