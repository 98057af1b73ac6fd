/* The server, where requests to a KV table go to a handler of the program's own. */

#include <string.h>

#include <starling_kv.h>

#include "ps/server/state.h"
#include "ps/server/table_drop.h"
#include "ps/server/token.h"
#include "ps/shard/state.h"
#include "stepped.h"
#include "tests/support/unit.h"

#define TABLE  3
#define VALUES 100000 /* of the one key; two values less is odd */

struct world {
    struct stepped stepped;
    struct stepped_peer path, bypass, far;
    struct sl_kv_handler handler;
    _Alignas(64) float reply_buffer[VALUES];
    float kept[VALUES];
    bool fills;     /* else it says where they are */
    uint32_t again; /* so many calls more are told to come again */
    uint32_t pushes, calls;
    int error;
    bool keeps; /* every request */
    struct sl_kv_token *tokens[8];
    uint32_t token_count, sent_count;
};

static int handle(void *ctx, const struct sl_kv_request *request)
{
    struct world *world = ctx;
    world->calls++;
    if (world->error != 0) {
        return world->error;
    }
    if (request->pull != NULL && world->again > 0) {
        world->again--;
        return SL_ERR_AGAIN;
    }
    if (request->push != NULL) {
        world->pushes++;
        memcpy(world->kept, request->push, request->value_count * sizeof(float));
    }
    if (world->keeps) {
        assert_non_null(request->token);
        world->tokens[world->token_count++] = request->token;
        return SL_KV_LATER;
    }
    if (request->pull != NULL && world->fills) {
        memcpy(request->pull, world->kept, request->value_count * sizeof(float));
    } else if (request->pull != NULL) {
        *request->reply = world->kept;
    }
    return 0;
}

static void setup(struct world *world)
{
    world->handler = (struct sl_kv_handler){.handle = handle, .ctx = world};
    world->stepped.options.transports.shm = &sl_loop_shared_ops;
    world->stepped.options.transports.bypass = &sl_loop_device_ops;
    world->stepped.options.shard.kv_handler = &world->handler;
    stepped_start(&world->stepped, 5);
    assert_int_equal(sl_transport_memory_register(world->stepped.path, world->reply_buffer,
                                                  sizeof world->reply_buffer),
                     0);
    world->path.path = true;
    stepped_join(&world->path, &world->stepped, UINT32_MAX, 41);
    stepped_join(&world->far, &world->stepped, UINT32_MAX, 42);
    world->bypass.bypass = true;
    stepped_join(&world->bypass, &world->stepped, UINT32_MAX, 43);
    stepped_open_spec(
        &world->far, TABLE,
        (struct sl_table_spec){.name = "kv", .kind = SL_TABLE_KV, .dim = sizeof(float)});
    for (uint32_t i = 0; i < VALUES; i++) {
        world->stepped.gradients[i % (STEPPED_KEYS * STEPPED_DIM)] = 1;
        world->kept[i] = (float)(i + 1);
    }
}

static void teardown(struct world *world)
{
    stepped_stop(&world->stepped);
}

static void ask(struct world *world, struct stepped_peer *peer, uint64_t id, uint8_t op,
                uint32_t count)
{
    const uint64_t key = 1;
    const struct sl_request_section section = {.op = op, .table_id = TABLE, .count = count};
    shard_request_begin(&world->stepped.request, 0);
    shard_request_kv(&world->stepped.request, section, &key, 1, NULL,
                     op == SL_REQUEST_KV_PULL ? NULL : world->stepped.gradients, sizeof(float));
    stepped_send(peer, id, STEPPED_BUDGET);
}

static void expect(struct stepped_peer *peer, uint64_t id, float first, float last)
{
    const struct stepped_reply *reply = stepped_reply(peer, id);
    assert_string_equal(reply->status == 0 ? "" : reply->text, "");
    assert_true(reply->value == first);
    assert_true(reply->last == last);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, setup, teardown)

/* Short and long ones, with and without padding, from where the handler has them or made by it. */
CASE(server_handler__answers_arrive_whole)
{
    static const uint32_t counts[] = {2, 7, 1000, 1001, 5000, VALUES};
    uint64_t id = 0;
    for (uint32_t i = 0; i < 2 * sizeof counts / sizeof counts[0]; i++) {
        const uint32_t count = counts[i / 2];
        const float last = count % 2 == 0 ? (float)count : 0; /* a padding */
        world->fills = i % 2 == 0;
        id++;
        ask(world, &world->far, id, SL_REQUEST_KV_PULL, count);
        expect(&world->far, id, 1, last);
        ask(world, &world->path, id, SL_REQUEST_KV_PULL, count);
        expect(&world->path, id, 1, last);
        ask(world, &world->bypass, id, SL_REQUEST_KV_PULL, count);
        expect(&world->bypass, id, 1, last);
    }
}

/* Of who shares memory, nothing waits in the server, and so nothing is kept of it. */
CASE(server_handler__is_shown_at_once_what_came_through_shared_memory)
{
    ask(world, &world->path, 1, SL_REQUEST_KV_PUSH_PULL, STEPPED_KEYS * STEPPED_DIM);
    expect(&world->path, 1, 1, 1);
    assert_int_equal(world->pushes, 1);
    assert_int_equal(world->calls, 1);
}

/* Both that come at once, and one of which it is heard again only after another was done. */
CASE(server_handler__that_says_again_is_asked_again)
{
    world->again = 100;
    ask(world, &world->path, 1, SL_REQUEST_KV_PULL, 10);
    ask(world, &world->far, 1, SL_REQUEST_KV_PULL, 10);
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->path.reply_count + world->far.reply_count, 0);
    const uint32_t calls = world->calls;
    stepped_turns(&world->stepped, 50);
    assert_int_equal(world->calls, calls); /* nothing has been done meanwhile */
    world->again = 0;
    ask(world, &world->far, 2, SL_REQUEST_KV_PUSH, 10);
    expect(&world->path, 1, 1, 1);
    expect(&world->far, 1, 1, 1);
    assert_int_equal(world->pushes, 1);
}

CASE(server_handler__that_says_again_for_ever_meets_the_deadline)
{
    world->again = UINT32_MAX;
    ask(world, &world->path, 1, SL_REQUEST_KV_PULL, 10);
    stepped_turns(&world->stepped, 5);
    stepped_pass(&world->stepped, STEPPED_BUDGET * SL_CLOCK_NS_PER_US + SL_CLOCK_NS_PER_S);
    const struct stepped_reply *reply = stepped_reply(&world->path, 1);
    assert_int_equal(reply->status, SL_ERR_DEADLINE);
    assert_non_null(strstr(reply->text, "handler"));
}

CASE(server_handler__errors_reach_the_sender)
{
    world->error = SL_ERR_TOO_LARGE;
    ask(world, &world->path, 1, SL_REQUEST_KV_PUSH_PULL, 10);
    assert_int_equal(stepped_reply(&world->path, 1)->status, SL_ERR_TOO_LARGE);
    ask(world, &world->far, 1, SL_REQUEST_KV_PULL, 10);
    assert_int_equal(stepped_reply(&world->far, 1)->status, SL_ERR_TOO_LARGE);
    world->error = 0;
    ask(world, &world->path, 2, SL_REQUEST_KV_PULL, 10);
    expect(&world->path, 2, 1, 10);
}

/* Answers that come later */

static void was_sent(void *ctx)
{
    ((struct world *)ctx)->sent_count++;
}

static void answer(struct world *world, uint32_t token, int err, uint64_t count)
{
    const struct sl_kv_answer answer = {
        .err = err, .values = world->kept, .value_count = count, .sent = was_sent, .ctx = world};
    sl_server_token_reply(world->tokens[token], &answer);
}

static void await_sent(struct world *world, uint32_t count)
{
    for (int i = 0; i < 1000 && world->sent_count < count; i++) {
        stepped_turns(&world->stepped, 1);
    }
    assert_int_equal(world->sent_count, count);
}

static void await_tokens(struct world *world, uint32_t count)
{
    for (int i = 0; i < 1000 && world->token_count < count; i++) {
        stepped_turns(&world->stepped, 1);
    }
    assert_int_equal(world->token_count, count);
}

CASE(server_handler__may_answer_later)
{
    static const uint32_t counts[] = {2, 7, 5000, 1001, VALUES};
    struct stepped_peer *const peers[] = {&world->far, &world->path, &world->bypass};
    world->keeps = true;
    for (uint64_t i = 0; i < 15; i++) {
        struct stepped_peer *peer = peers[i % 3];
        const uint32_t count = counts[i / 3];
        world->token_count = world->sent_count = 0;
        ask(world, peer, i + 1, SL_REQUEST_KV_PULL, count);
        await_tokens(world, 1);
        answer(world, 0, 0, count);
        expect(peer, i + 1, 1, count % 2 == 0 ? (float)count : 0);
        await_sent(world, 1);
    }
    assert_int_equal(world->calls, 15);
}

/* What one client has sent does not wait for its earlier requests, and answers need no order. */
CASE(server_handler__kept_requests_hold_up_no_other)
{
    struct stepped_peer *peer = &world->far;
    world->keeps = true;
    ask(world, peer, 1, SL_REQUEST_KV_PUSH, 10);
    ask(world, peer, 2, SL_REQUEST_KV_PULL, 10);
    ask(world, peer, 3, SL_REQUEST_KV_PUSH, 10);
    ask(world, peer, 4, SL_REQUEST_KV_PUSH_PULL, STEPPED_KEYS * STEPPED_DIM);
    ask(world, peer, 5, SL_REQUEST_KV_PUSH, STEPPED_KEYS * STEPPED_DIM);
    await_tokens(world, 5);
    world->keeps = false;
    ask(world, peer, 6, SL_REQUEST_KV_PUSH, 10);
    stepped_expect_ok(peer, 6);
    assert_int_equal(peer->reply_count, 1);
    for (uint32_t i = 5; i-- > 0;) {
        answer(world, i, 0, i == 3 ? STEPPED_KEYS * STEPPED_DIM : 10);
        assert_int_equal(stepped_reply(peer, i + 1)->status, 0);
    }
    assert_int_equal(world->pushes, 5);
    await_sent(world, 5);
}

CASE(server_handler__errors_that_come_later_reach_the_sender)
{
    world->keeps = true;
    ask(world, &world->path, 1, SL_REQUEST_KV_PULL, 10);
    ask(world, &world->path, 2, SL_REQUEST_KV_PULL, 10);
    ask(world, &world->path, 3, SL_REQUEST_KV_PUSH, 10);
    stepped_turns(&world->stepped, 5);
    answer(world, 0, SL_ERR_TOO_LARGE, 10);
    answer(world, 1, 0, 9);
    answer(world, 2, -1000, 0);
    assert_int_equal(stepped_reply(&world->path, 1)->status, SL_ERR_TOO_LARGE);
    const struct stepped_reply *reply = stepped_reply(&world->path, 2);
    assert_int_equal(reply->status, SL_ERR_INVALID);
    assert_non_null(strstr(reply->text, "its handler answered 9 values, asked for are 10"));
    assert_int_equal(stepped_reply(&world->path, 3)->status, SL_ERR_INVALID);
    assert_int_equal(world->sent_count, 3);
}

/* The connection breaks while tokens are out: what was kept is not passed again. */
CASE(server_handler__kept_requests_outlive_their_connection)
{
    struct stepped_peer *peer = &world->far;
    world->keeps = true;
    ask(world, peer, 1, SL_REQUEST_KV_PUSH, 10);
    ask(world, peer, 2, SL_REQUEST_KV_PULL, 10);
    ask(world, peer, 3, SL_REQUEST_KV_PUSH, 10);
    ask(world, peer, 4, SL_REQUEST_KV_PUSH, 10);
    stepped_turns(&world->stepped, 5);
    stepped_break(peer);
    answer(world, 0, 0, 0);                /* while the client is away */
    answer(world, 1, 0, 10);               /* likewise */
    answer(world, 2, SL_ERR_TOO_LARGE, 0); /* likewise */
    stepped_turns(&world->stepped, 5);
    assert_int_equal(world->sent_count, 0);
    stepped_again(peer);
    for (uint64_t id = 1; id <= 4; id++) {
        ask(world, peer, id, id == 2 ? SL_REQUEST_KV_PULL : SL_REQUEST_KV_PUSH, 10);
    }
    stepped_expect_ok(peer, 1);
    expect(peer, 2, 1, 1);
    assert_int_equal(stepped_reply(peer, 3)->status, SL_ERR_TOO_LARGE);
    answer(world, 3, 0, 0);
    stepped_expect_ok(peer, 4);
    assert_int_equal(world->calls, 4);
    assert_int_equal(world->pushes, 3);
    await_sent(world, 4);
    /* All were answered; the replies are lost. */
    stepped_break(peer);
    stepped_again(peer);
    world->keeps = false;
    for (uint64_t id = 1; id <= 4; id++) {
        ask(world, peer, id, id == 2 ? SL_REQUEST_KV_PULL : SL_REQUEST_KV_PUSH, 10);
    }
    assert_int_equal(stepped_reply(peer, 3)->status, SL_ERR_TOO_LARGE);
    stepped_expect_ok(peer, 4);
    assert_int_equal(world->calls, 5); /* the pull */
    assert_int_equal(world->pushes, 3);
}

/* A push-pull whose reply was lost is passed again, without its push. */
CASE(server_handler__a_kept_push_pull_pushes_once)
{
    struct stepped_peer *peer = &world->path;
    world->keeps = true;
    ask(world, peer, 1, SL_REQUEST_KV_PUSH_PULL, 10);
    stepped_turns(&world->stepped, 5);
    answer(world, 0, 0, 10);
    expect(peer, 1, 1, 1);
    stepped_break(peer);
    stepped_again(peer);
    ask(world, peer, 1, SL_REQUEST_KV_PUSH_PULL, 10);
    await_tokens(world, 2);
    answer(world, 1, 0, 10);
    expect(peer, 1, 1, 1);
    assert_int_equal(world->pushes, 1);
}

CASE(server_handler__kept_requests_meet_their_deadline)
{
    world->keeps = true;
    ask(world, &world->path, 1, SL_REQUEST_KV_PULL, 10);
    ask(world, &world->far, 1, SL_REQUEST_KV_PUSH, 10);
    stepped_turns(&world->stepped, 5);
    stepped_pass(&world->stepped, STEPPED_BUDGET * SL_CLOCK_NS_PER_US + SL_CLOCK_NS_PER_S);
    assert_int_equal(stepped_reply(&world->path, 1)->status, SL_ERR_DEADLINE);
    assert_int_equal(stepped_reply(&world->far, 1)->status, SL_ERR_DEADLINE);
    answer(world, 0, 0, 10);
    answer(world, 1, 0, 10);
    await_sent(world, 2);
    assert_int_equal(world->path.reply_count, 1);
}

/* A session that ends, by the lease of its client or because it leaves, waits for nothing. */
CASE(server_handler__kept_requests_end_with_their_client)
{
    world->keeps = true;
    ask(world, &world->path, 1, SL_REQUEST_KV_PUSH, 10);
    ask(world, &world->far, 1, SL_REQUEST_KV_PULL, 10);
    stepped_turns(&world->stepped, 5);
    stepped_break(&world->path);
    stepped_tell(&world->far, &(struct sl_message){.kind = SL_MESSAGE_GOODBYE});
    stepped_pass(&world->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S);
    answer(world, 0, 0, 10);
    answer(world, 1, 0, 10);
    await_sent(world, 2);
}

/* Answered before the server stops, by mail that it does not read any more, and afterwards. */
CASE(server_handler__tokens_outlive_the_server)
{
    world->keeps = true;
    for (uint64_t id = 1; id <= 3; id++) {
        ask(world, &world->far, id, SL_REQUEST_KV_PULL, 10);
    }
    stepped_turns(&world->stepped, 5);
    answer(world, 0, 0, 10);
    expect(&world->far, 1, 1, 10);
    answer(world, 1, 0, 10);
    stepped_stop(&world->stepped);
    assert_int_equal(world->sent_count, 2);
    answer(world, 2, 0, 10);
    assert_int_equal(world->sent_count, 3);
    stepped_start(&world->stepped, 5); /* for teardown */
}

CASE(server_handler__kept_requests_fail_with_their_table)
{
    world->keeps = true;
    ask(world, &world->far, 1, SL_REQUEST_KV_PULL, 10);
    stepped_turns(&world->stepped, 5);
    sl_server_table_drop(world->stepped.server, TABLE, 0);
    const struct stepped_reply *reply = stepped_reply(&world->far, 1);
    assert_int_equal(reply->status, SL_ERR_NOT_FOUND);
    answer(world, 0, 0, 10);
    await_sent(world, 1);
}

/* A chunk of 100 values, of three. */
static void ask_chunk(struct world *world, struct stepped_peer *peer, uint64_t id, uint8_t op,
                      uint32_t chunk)
{
    const uint64_t key = 1;
    const struct sl_request_section section = {
        .op = op, .table_id = TABLE, .count = 100, .start = 100 * chunk, .bag_count = 300};
    shard_request_begin(&world->stepped.request, 0);
    shard_request_kv(&world->stepped.request, section, &key, 1, NULL,
                     op == SL_REQUEST_KV_PULL ? NULL : world->stepped.gradients, sizeof(float));
    stepped_send(peer, id, STEPPED_BUDGET);
}

/* The chunks of a push-pull wait for the last one, also while their client is away. */
CASE(server_handler__gets_whole_arrays)
{
    struct stepped_peer *peer = &world->far;
    world->handler.whole_bytes = 300 * sizeof(float);
    world->keeps = true;
    ask_chunk(world, peer, 1, SL_REQUEST_KV_PUSH_PULL, 0);
    ask_chunk(world, peer, 2, SL_REQUEST_KV_PUSH_PULL, 1);
    stepped_turns(&world->stepped, 5);
    assert_int_equal(world->calls, 0);
    stepped_break(peer);
    stepped_again(peer);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        ask_chunk(world, peer, chunk + 1, SL_REQUEST_KV_PUSH_PULL, chunk);
    }
    await_tokens(world, 1);
    assert_true(world->kept[299] == 1); /* what was pushed */
    world->kept[0] = 5;
    world->kept[299] = 6;
    stepped_break(peer);
    answer(world, 0, 0, 300);
    stepped_again(peer);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        ask_chunk(world, peer, chunk + 1, SL_REQUEST_KV_PUSH_PULL, chunk);
    }
    expect(peer, 1, 5, 1);
    expect(peer, 2, 1, 1);
    expect(peer, 3, 1, 6);
    await_sent(world, 1);
    assert_int_equal(world->calls, 1);
    assert_int_equal(world->pushes, 1);
}

/* Half an array of a client that does not come back. */
CASE(server_handler__half_an_array_ends_with_its_client)
{
    world->handler.whole_bytes = 300 * sizeof(float);
    const size_t before = world->stepped.server->shard->memory_bytes;
    ask_chunk(world, &world->far, 1, SL_REQUEST_KV_PUSH, 0);
    ask_chunk(world, &world->path, 1, SL_REQUEST_KV_PUSH_PULL, 0);
    stepped_expect_ok(&world->far, 1);
    stepped_turns(&world->stepped, 5);
    assert_int_equal(world->stepped.server->shard->memory_bytes, before + 2 * 300 * sizeof(float));
    stepped_break(&world->far);
    stepped_break(&world->path);
    stepped_pass(&world->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S);
    assert_int_equal(world->stepped.server->shard->memory_bytes, before);
    assert_int_equal(world->calls, 0);
}

/* Those that wait for the handler do not hold up others when it has kept them, and go on without
 * their connection. */
CASE(server_handler__may_be_set_later_and_keep)
{
    struct stepped_peer *peer = &world->far;
    struct sl_server *server = world->stepped.server;
    world->handler.handle = NULL;
    for (uint64_t id = 1; id <= 3; id++) {
        ask(world, peer, id, SL_REQUEST_KV_PUSH, 10);
        ask(world, &world->path, id, SL_REQUEST_KV_PUSH, STEPPED_KEYS * STEPPED_DIM);
    }
    stepped_turns(&world->stepped, 20);
    stepped_break(&world->path);
    world->handler.handle = handle;
    world->keeps = true;
    sl_server_set_handler(server, &world->handler);
    await_tokens(world, 3);
    stepped_again(&world->path);
    for (uint64_t id = 1; id <= 3; id++) {
        ask(world, &world->path, id, SL_REQUEST_KV_PUSH, STEPPED_KEYS * STEPPED_DIM);
    }
    await_tokens(world, 6);
    for (uint32_t i = 0; i < 6; i++) {
        answer(world, i, 0, 0);
    }
    for (uint64_t id = 1; id <= 3; id++) {
        stepped_expect_ok(peer, id);
        stepped_expect_ok(&world->path, id);
    }
    assert_int_equal(world->pushes, 6);
    world->keeps = false;
    ask(world, peer, 4, SL_REQUEST_KV_PUSH, 10);
    stepped_expect_ok(peer, 4);
}
