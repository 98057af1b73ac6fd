#include "tests/fuzz/ps_world.h"

#include <stdio.h>

#include "core/assert.h"

#define ATTACH_TURNS 4
#define STEP_NS      SL_CLOCK_NS_PER_MS

static uint64_t clock_now(void *ctx)
{
    return ((const struct fuzz_world *)ctx)->now_ns;
}

/* The last place is everybody's for whom there is none. */
static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct fuzz_world *world = ctx;
    uint32_t at = world->first_accepted;
    while (at < FUZZ_PEERS - 1 && world->peers[at].conn != NULL) {
        at++;
    }
    struct fuzz_peer *peer = &world->peers[at];
    conn->user = peer;
    if (peer->conn != NULL) {
        sl_transport_disconnect(conn);
        return;
    }
    peer->conn = conn;
    peer->is_backup = true;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    return ((struct fuzz_world *)ctx)->sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    const struct fuzz_peer *peer = conn->user;
    if (message->header.type == SL_FRAME_REPLY) {
        sl_assert(peer->raw || sl_frame_number(message->header.request_id) < peer->next_id);
        sl_assert(peer->is_primary || message->header.credit_requests <= 1);
    } else {
        sl_assert(message->header.type == SL_FRAME_CONTROL ||
                  (peer->is_backup && message->header.type == SL_FRAME_REQUEST));
    }
    sl_transport_release(conn, message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    ((struct fuzz_peer *)conn->user)->sending = false;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct fuzz_peer *peer = conn->user;
    if (peer->conn == conn) {
        peer->conn = NULL;
        peer->sending = false;
    }
}

static const struct sl_transport_events peer_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

void fuzz_world_turn(struct fuzz_world *world)
{
    world->now_ns += STEP_NS;
    for (uint32_t i = 0; i < world->reactor_count; i++) {
        (void)sl_reactor_turn(world->ps_reactors[i], world->now_ns);
    }
    (void)sl_reactor_turn(world->peer_reactor, world->now_ns);
}

void fuzz_world_pass(struct fuzz_world *world, struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    world->now_ns += (how & 1) != 0 ? (uint64_t)how * 100 * SL_CLOCK_NS_PER_MS : 0;
    for (uint32_t i = 0; i <= how / 8U; i++) {
        fuzz_world_turn(world);
    }
}

static struct sl_reactor *make_reactor(struct fuzz_world *world, const char *name, uint32_t index)
{
    struct sl_reactor_options options = {
        .index = index, .core = -1, .stepped = true, .clock = &world->clock, .seed = 7 + index};
    (void)snprintf(options.name, sizeof options.name, "%s", name);
    struct sl_reactor *reactor;
    sl_assert(sl_reactor_create(&options, &reactor) == 0);
    return reactor;
}

void fuzz_world_begin(struct fuzz_world *world, uint32_t reactor_count)
{
    world->now_ns = SL_CLOCK_NS_PER_S;
    world->clock = (struct sl_clock){.now_ns = clock_now, .ctx = world};
    world->reactor_count = reactor_count;
    sl_loop_network_init(&world->network, 1);
    for (uint32_t i = 0; i < reactor_count; i++) {
        world->ps_reactors[i] = make_reactor(world, "ps", i);
    }
    sl_assert(sl_reactor_connect(world->ps_reactors, reactor_count) == 0);
    for (uint32_t i = 0; i < reactor_count; i++) {
        (void)sl_reactor_turn(world->ps_reactors[i], world->now_ns);
    }
}

struct sl_server_options fuzz_world_options(struct fuzz_world *world, uint32_t reactor)
{
    return (struct sl_server_options){
        .reactor = world->ps_reactors[reactor],
        .transports = {.first = &sl_loop_transport_ops, .options.medium = &world->network},
        .local_index = reactor,
        .servers = world->servers,
        .server_count = world->reactor_count,
        .buffer_bytes_max = 1,
        .waiting_max = 512,
    };
}

void fuzz_world_listen(struct fuzz_world *world)
{
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    sl_assert(sl_server_listen(world->servers[0], &any, &world->endpoint) == 0);
    world->peer_reactor = make_reactor(world, "peers", 0);
    (void)sl_reactor_turn(world->peer_reactor, world->now_ns);
    const struct sl_transport_options options = {.medium = &world->network};
    sl_assert(sl_transport_open(&sl_loop_transport_ops, world->peer_reactor, &options,
                                &world->transport) == 0);
}

struct sl_endpoint fuzz_world_accept(struct fuzz_world *world, uint32_t first)
{
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    world->first_accepted = first;
    sl_assert(sl_transport_listen(world->transport, &any, &peer_events, world, &bound) == 0);
    return bound;
}

static bool has_conns(const struct fuzz_world *world)
{
    for (uint32_t i = 0; i < FUZZ_SERVERS; i++) {
        if (world->servers[i]->host->conn_count > 0) {
            return true;
        }
    }
    return false;
}

void fuzz_world_end(struct fuzz_world *world)
{
    for (uint32_t i = 0; i < FUZZ_PEERS; i++) {
        if (world->peers[i].conn != NULL) {
            sl_transport_disconnect(world->peers[i].conn);
        }
    }
    for (uint32_t turns = 0; turns < FUZZ_TURNS_MAX && has_conns(world); turns++) {
        fuzz_world_turn(world);
    }
    sl_transport_close(&world->transport);
    for (uint32_t i = FUZZ_SERVERS; i-- > 0;) {
        sl_server_destroy(&world->servers[i]);
    }
    for (uint32_t i = 0; i < world->reactor_count; i++) {
        sl_reactor_destroy(&world->ps_reactors[i]);
    }
    sl_reactor_destroy(&world->peer_reactor);
    sl_loop_network_fini(&world->network);
}

bool fuzz_peer_connect(struct fuzz_world *world, struct fuzz_peer *peer)
{
    if (peer->conn != NULL) {
        sl_transport_disconnect(peer->conn);
        for (uint32_t turns = 0; turns < FUZZ_TURNS_MAX && peer->conn != NULL; turns++) {
            fuzz_world_turn(world);
        }
    }
    if (peer->conn != NULL || sl_transport_connect(world->transport, &world->endpoint, 0,
                                                   &peer_events, world, peer, &peer->conn) != 0) {
        return false;
    }
    for (uint32_t turns = 0;
         turns < FUZZ_TURNS_MAX && peer->conn != NULL && peer->conn->state == SL_CONN_CONNECTING;
         turns++) {
        fuzz_world_turn(world);
    }
    return fuzz_peer_may_send(peer);
}

void fuzz_peer_send_head(struct fuzz_world *world, struct fuzz_peer *peer, size_t payload_bytes)
{
    const struct sl_transport_frame frame = {
        .head = peer->head,
        .head_bytes = (uint32_t)(SL_FRAME_HEADER_BYTES + payload_bytes),
    };
    bool is_taken = false; /* the medium takes fewer than it is offered, now and then */
    for (uint32_t turns = 0; turns < FUZZ_TURNS_MAX && (peer->sending || !is_taken); turns++) {
        if (!is_taken && !fuzz_peer_may_send(peer)) {
            break;
        }
        if (!is_taken) {
            is_taken = sl_transport_send_burst(peer->conn, &frame, 1) == 1;
            peer->sending = is_taken;
        }
        fuzz_world_turn(world);
    }
}

void fuzz_peer_send(struct fuzz_world *world, struct fuzz_peer *peer, const struct sl_frame *frame)
{
    sl_frame_encode(frame, peer->head);
    fuzz_peer_send_head(world, peer, frame->payload_bytes);
}

void fuzz_peer_attach(struct fuzz_world *world, struct fuzz_peer *peer, uint32_t shard)
{
    const struct sl_message message = {.kind = SL_MESSAGE_ATTACH, .id = sl_frame_id(shard, 1)};
    for (uint32_t turns = 0; turns < ATTACH_TURNS; turns++) {
        fuzz_world_turn(world); /* for the welcome */
    }
    peer->shard = shard;
    if (fuzz_peer_may_send(peer)) {
        fuzz_peer_send_message(world, peer, &message);
    }
}

void fuzz_peer_send_message(struct fuzz_world *world, struct fuzz_peer *peer,
                            const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    sl_message_encode(message, peer->head + SL_FRAME_HEADER_BYTES);
    fuzz_peer_send(world, peer,
                   &(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes});
}
