#include "stepped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#define TURNS_MAX 5000

void stepped_start(struct stepped *world, uint64_t seed)
{
    sl_log_setup(SL_LOG_OFF, "test");
    sl_loop_network_init(&world->network, seed);
    world->network.registers_nothing = world->registers_nothing;
    sl_stepped_pair_init(&world->pair, &sl_loop_transport_ops, &world->network, &world->network);
    assert_int_equal(sl_outbox_init(&world->outbox, (size_t)64 << 20, false), 0);
    for (uint32_t i = 0; i < STEPPED_KEYS; i++) {
        world->keys[i] = i;
    }
    for (uint32_t i = 0; i < STEPPED_KEYS * STEPPED_DIM; i++) {
        world->gradients[i] = 1.0F;
    }
    sl_stepped_pair_turn(&world->pair, SL_CLOCK_NS_PER_MS); /* the reactors are this thread's */
    struct sl_server_options options = world->options;
    options.reactor = world->pair.a.reactor;
    options.transports.first = &sl_loop_transport_ops;
    options.transports.options.medium = &world->network;
    options.servers = world->servers;
    options.server_count = 1;
    assert_int_equal(sl_server_create(&options, &world->server), 0);
    world->servers[0] = world->server;
    struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    assert_int_equal(sl_server_listen(world->server, &any, &world->endpoint), 0);
    if (options.transports.shm != NULL) {
        any.scheme = SL_ENDPOINT_SHM;
        assert_int_equal(sl_server_listen(world->server, &any, &world->path_endpoint), 0);
        assert_int_equal(sl_transport_open(options.transports.shm, world->pair.b.reactor,
                                           &options.transports.options, &world->path),
                         0);
    }
    if (options.transports.bypass != NULL) {
        any.scheme = SL_ENDPOINT_RDMA;
        assert_int_equal(sl_server_listen(world->server, &any, &world->bypass_endpoint), 0);
        assert_int_equal(sl_transport_open(options.transports.bypass, world->pair.b.reactor,
                                           &options.transports.options, &world->bypass),
                         0);
    }
    sl_server_set_lease(world->server, STEPPED_LEASE);
    assert_int_equal(sl_server_set_shard(world->server, 0, 1), 0);
}

void stepped_stop(struct stepped *world)
{
    sl_server_destroy(&world->server);
    sl_transport_close(&world->path);
    sl_transport_close(&world->bypass);
    sl_stepped_pair_fini(&world->pair);
    sl_outbox_fini(&world->outbox);
    sl_loop_network_fini(&world->network);
}

void stepped_two_setup(struct stepped_two *two, uint32_t connections_max)
{
    two->stepped.options.transports.options.connections_max = connections_max;
    stepped_start(&two->stepped, 1);
}

void stepped_two_teardown(struct stepped_two *two)
{
    stepped_stop(&two->stepped);
}

void stepped_turns(struct stepped *world, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_stepped_pair_turn(&world->pair, SL_CLOCK_NS_PER_MS);
    }
}

void stepped_pass(struct stepped *world, uint64_t ns)
{
    const uint64_t step_ns = SL_CLOCK_NS_PER_S / 10;
    for (uint64_t passed_ns = 0; passed_ns < ns; passed_ns += step_ns) {
        sl_stepped_pair_turn(&world->pair, step_ns);
    }
}

static void until(struct stepped_peer *peer, bool (*done)(void *ctx))
{
    assert_true(sl_stepped_pair_until(&peer->world->pair, TURNS_MAX, done, peer));
}

static struct stepped_peer *peer_of(const struct sl_conn *conn)
{
    return ((const struct stepped_link *)conn->user)->peer;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    peer_of(conn)->connected = true;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct stepped_peer *peer = peer_of(conn);
    return peer == NULL ? NULL : peer->reply_buffer != NULL ? peer->reply_buffer : peer->sink;
}

static void take_reply(struct stepped_peer *peer, const struct sl_transport_message *message)
{
    struct stepped_reply *reply = &peer->replies[peer->reply_count++ % STEPPED_REPLIES];
    uint32_t bytes = message->header.payload_bytes;
    *reply = (struct stepped_reply){
        .id = message->header.request_id,
        .status = -(int)message->header.status,
        .bytes = bytes,
    };
    if (reply->status != 0) {
        assert_true(bytes < sizeof reply->text);
        memcpy(reply->text, message->payload, bytes);
    } else if (bytes >= sizeof reply->value) {
        memcpy(&reply->value, message->payload, sizeof reply->value);
        memcpy(&reply->last, message->payload + bytes - sizeof reply->last, sizeof reply->last);
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct stepped_peer *peer = peer_of(conn);
    if (peer != NULL && message->header.type == SL_FRAME_REPLY) {
        take_reply(peer, message);
    } else if (peer != NULL) {
        sl_message_fini(&peer->answer);
        assert_int_equal(
            sl_message_decode(message->payload, message->header.payload_bytes, &peer->answer), 0);
        peer->answer_count++;
    }
    sl_transport_release(conn, message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct stepped *world = ctx;
    sl_outbox_sent(&world->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct stepped *world = ctx;
    struct stepped_link *link = conn->user;
    sl_outbox_writable(&world->outbox, conn, &link->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct stepped *world = ctx;
    struct stepped_link *link = conn->user;
    sl_outbox_closed(&world->outbox, conn, &link->queue);
    if (link->peer != NULL) {
        link->peer->link = NULL;
    }
    free(link);
}

static const struct sl_transport_events events = {
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static bool is_connected(void *ctx)
{
    return ((struct stepped_peer *)ctx)->connected;
}

static bool has_ended(void *ctx)
{
    return ((struct stepped_peer *)ctx)->link == NULL;
}

static bool has_answer(void *ctx)
{
    return ((struct stepped_peer *)ctx)->answer_count > 0;
}

static bool asks_behind(const struct stepped_peer *peer)
{
    return peer->hello.shard == 1 && peer->world->behind.port != 0;
}

void stepped_connect(struct stepped_peer *peer)
{
    struct stepped *world = peer->world;
    assert_null(peer->link);
    struct stepped_link *link = calloc(1, sizeof *link);
    assert_non_null(link);
    link->peer = peer;
    peer->link = link;
    peer->connected = false;
    struct sl_transport *transport = peer->path     ? world->path
                                     : peer->bypass ? world->bypass
                                                    : world->pair.b.transport;
    const struct sl_endpoint *endpoint = peer->path          ? &world->path_endpoint
                                         : peer->bypass      ? &world->bypass_endpoint
                                         : asks_behind(peer) ? &world->behind
                                                             : &world->endpoint;
    assert_int_equal(
        sl_transport_connect(transport, endpoint, 0, &events, world, link, &link->conn), 0);
    until(peer, is_connected);
}

void stepped_tell(struct stepped_peer *peer, const struct sl_message *message)
{
    uint32_t bytes = (uint32_t)sl_message_encoded_bytes(message);
    uint8_t *frame = sl_outbox_reserve(&peer->world->outbox, bytes);
    assert_non_null(frame);
    sl_message_encode(message, frame + SL_FRAME_HEADER_BYTES);
    sl_outbox_commit(&peer->world->outbox, peer->link->conn, &peer->link->queue,
                     &(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = bytes}, NULL, 0,
                     NULL, NULL);
}

const struct sl_message *stepped_ask(struct stepped_peer *peer, const struct sl_message *message)
{
    peer->answer_count = 0;
    stepped_tell(peer, message);
    until(peer, has_answer);
    return &peer->answer;
}

const struct sl_message *stepped_attach(struct stepped_peer *peer)
{
    const struct sl_message attach = {.kind = SL_MESSAGE_ATTACH, .id = sl_frame_id(peer->shard, 2)};
    return stepped_ask(peer, &attach);
}

static const struct sl_message *say_hello(struct stepped_peer *peer)
{
    stepped_connect(peer);
    struct sl_message hello = {.kind = SL_MESSAGE_HELLO, .id = 1, .hello = peer->hello};
    hello.hello.shard = asks_behind(peer) ? 0 : peer->hello.shard;
    const struct sl_message *answer = stepped_ask(peer, &hello);
    if (peer->hello.purpose != SL_MESSAGE_PURPOSE_DATA || answer->kind != SL_MESSAGE_WELCOME) {
        return answer;
    }
    return stepped_attach(peer);
}

void stepped_join(struct stepped_peer *peer, struct stepped *world, uint32_t worker,
                  uint64_t client_id)
{
    peer->world = world;
    peer->hello = (struct sl_message_hello){
        .protocol_version = SL_FRAME_PROTOCOL_VERSION,
        .purpose = SL_MESSAGE_PURPOSE_DATA,
        .role = worker == UINT32_MAX ? SL_MESSAGE_ROLE_CLIENT : SL_MESSAGE_ROLE_WORKER,
        .task_index = worker == UINT32_MAX ? 0 : worker,
        .client_id = client_id,
    };
    assert_int_equal(say_hello(peer)->kind, SL_MESSAGE_WELCOME);
}

const struct sl_message *stepped_again(struct stepped_peer *peer)
{
    if (peer->link != NULL) {
        peer->link->peer = NULL;
        peer->link = NULL;
    }
    peer->reply_count = 0;
    memset(peer->replies, 0, sizeof peer->replies);
    return say_hello(peer);
}

void stepped_break(struct stepped_peer *peer)
{
    sl_transport_disconnect(peer->link->conn);
    until(peer, has_ended);
    stepped_turns(peer->world, 20);
}

void stepped_open_spec(struct stepped_peer *peer, uint32_t id, struct sl_table_spec spec)
{
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    const struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN, .id = 5, .table_open = {.spec = spec, .table_id = id}};
    assert_int_equal(stepped_ask(peer, &message)->kind, SL_MESSAGE_TABLE_OPENED);
}

void stepped_open_table(struct stepped_peer *peer, uint32_t id, enum sl_consistency_mode mode)
{
    struct sl_table_spec spec = {
        .kind = SL_TABLE_SPARSE,
        .dim = STEPPED_DIM,
        .consistency = {.mode = mode, .worker_count = mode == SL_CONSISTENCY_ASP ? 0 : 2}};
    (void)snprintf(spec.name, sizeof spec.name, "t%u", id);
    stepped_open_spec(peer, id, spec);
}

void stepped_send(struct stepped_peer *peer, uint64_t id, uint32_t budget_us)
{
    const struct shard_request *request = &peer->world->request;
    uint8_t *frame = sl_outbox_reserve(&peer->world->outbox, (uint32_t)request->bytes);
    assert_non_null(frame);
    memcpy(frame + SL_FRAME_HEADER_BYTES, request->payload, request->bytes);
    const struct sl_frame header = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = (uint32_t)request->bytes,
        .request_id = id,
        .budget_us = budget_us,
    };
    sl_outbox_commit(&peer->world->outbox, peer->link->conn, &peer->link->queue, &header, NULL, 0,
                     NULL, NULL);
}

void stepped_push(struct stepped_peer *peer, uint64_t id, uint16_t table, uint32_t key_count)
{
    struct stepped *world = peer->world;
    shard_request_begin(&world->request, 0);
    shard_request_push(&world->request, SL_REQUEST_PUSH, table, world->keys, key_count,
                       world->gradients, STEPPED_DIM);
    stepped_send(peer, id, STEPPED_BUDGET);
}

void stepped_pull(struct stepped_peer *peer, uint64_t id, uint32_t clock, uint16_t table)
{
    shard_request_begin(&peer->world->request, clock);
    shard_request_pull(&peer->world->request, table, peer->world->keys, STEPPED_KEYS);
    stepped_send(peer, id, STEPPED_BUDGET);
}

void stepped_tick(struct stepped_peer *peer, uint64_t id, uint32_t clock)
{
    shard_request_begin(&peer->world->request, clock);
    shard_request_tick(&peer->world->request);
    stepped_send(peer, id, STEPPED_BUDGET);
}

const struct stepped_reply *stepped_reply(struct stepped_peer *peer, uint64_t id)
{
    for (uint32_t turn = 0; turn < TURNS_MAX; turn++) {
        for (uint32_t i = 0; i < STEPPED_REPLIES; i++) {
            if (peer->replies[i].id == id) {
                return &peer->replies[i];
            }
        }
        assert_non_null(peer->link);
        stepped_turns(peer->world, 1);
    }
    fail_msg("no reply to request %llu", (unsigned long long)id);
    return NULL;
}

void stepped_expect_ok(struct stepped_peer *peer, uint64_t id)
{
    const struct stepped_reply *reply = stepped_reply(peer, id);
    assert_string_equal(reply->status == 0 ? "" : reply->text, "");
}

struct sl_transport_stats stepped_stats(const struct sl_transport *transport)
{
    struct sl_transport_stats stats;
    sl_transport_get_stats(transport, &stats);
    return stats;
}

void stepped_expect_end(struct stepped_peer *peer)
{
    until(peer, has_ended);
}

float stepped_values(struct stepped *world, uint16_t table, uint32_t key_count)
{
    static uint64_t client_id = 1000;
    static struct stepped_peer reader;
    memset(&reader, 0, sizeof reader);
    stepped_join(&reader, world, UINT32_MAX, ++client_id);
    const uint64_t keys[] = {world->keys[0], world->keys[key_count - 1]};
    shard_request_begin(&world->request, 0);
    shard_request_pull(&world->request, table, keys, 2);
    stepped_send(&reader, 1, STEPPED_BUDGET);
    const struct stepped_reply *reply = stepped_reply(&reader, 1);
    assert_int_equal(reply->status, 0);
    assert_true(reply->value == reply->last); /* a push is never left by half */
    float value = reply->value;
    stepped_break(&reader);
    return value;
}

void stepped_join_two(struct stepped_peer *first, struct stepped_peer *second,
                      struct stepped *world)
{
    stepped_join(first, world, 0, 7);
    stepped_join(second, world, 1, 8);
    stepped_open_table(first, 0, SL_CONSISTENCY_BSP);
    stepped_open_table(first, 1, SL_CONSISTENCY_ASP);
    stepped_tick(first, 1, 0);
    assert_int_equal(stepped_reply(first, 1)->status, 0);
}

void stepped_push_done(struct stepped_peer *peer, uint64_t id, uint16_t table, uint32_t key_count)
{
    stepped_push(peer, id, table, key_count);
    assert_int_equal(stepped_reply(peer, id)->status, 0);
}

void stepped_tick_done(struct stepped_peer *peer, uint64_t id, uint32_t clock)
{
    stepped_tick(peer, id, clock);
    assert_int_equal(stepped_reply(peer, id)->status, 0);
}

void stepped_join_client(struct stepped_peer *peer, struct stepped *world)
{
    stepped_join(peer, world, UINT32_MAX, 7);
    stepped_open_table(peer, 0, SL_CONSISTENCY_ASP);
}
