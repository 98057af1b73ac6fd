/* Data-plane frames through whole turns of a ps process: two shards, tables of every consistency,
 * KV tables with and without a handler, and peers whose frames the input makes, well or badly:
 * hellos, raw frames, raw requests, requests whose sections fit, replays, ends, and the passing of
 * time. Nothing may crash or leak, no reply may be unasked for, and in the end everything is given
 * back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/partition.h"
#include "net/control/message.h"
#include "net/wire/request.h"
#include "ps/coordinator.h"
#include "ps/server_internal.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/request_kv.h"
#include "tests/support/loop_transport.h"

#define SHARDS         2
#define PEERS          4
#define TABLES         4
#define KV_FLOATS      TABLES /* table ids */
#define KV_BYTES       (TABLES + 1)
#define FRAMES_MAX     64 /* of one input */
#define PAYLOAD_BYTES  (64U << 10)
#define SAID_BYTES_MAX (16U << 20) /* by a raw frame's header: over every limit */
#define TURNS_MAX      20000
#define STEP_NS        SL_CLOCK_NS_PER_MS

struct peer {
    struct sl_conn *conn; /* NULL: none */
    uint64_t next_id;
    uint8_t head[SL_FRAME_HEADER_BYTES + PAYLOAD_BYTES];
    bool sending; /* head is the transport's */
    bool raw;     /* it has sent a frame that is not of our making */
};

struct world {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_loop_network network;
    struct sl_reactor *ps_reactors[SHARDS], *peer_reactor;
    struct sl_server *servers[SHARDS];
    struct sl_coordinator *coordinator;
    struct sl_transport *transport; /* of the peers */
    struct sl_endpoint endpoint;
    struct peer peers[PEERS];
    uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
};

static uint64_t clock_now(void *ctx)
{
    return ((const struct world *)ctx)->now_ns;
}

/* ---- The peers' side ------------------------------------------------------------------------- */

static void on_connected(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    (void)conn;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)conn;
    (void)header;
    return ((struct world *)ctx)->sink;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    (void)ctx;
    const struct peer *peer = conn->user;
    if (message->header.type == SL_FRAME_REPLY) {
        sl_assert(peer->raw || message->header.request_id < peer->next_id);
        sl_assert(message->header.credit_requests <= 1);
    } else {
        sl_assert(message->header.type == SL_FRAME_CONTROL);
    }
    sl_transport_release(conn, message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)ctx;
    (void)cookie;
    ((struct peer *)conn->user)->sending = false;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    (void)conn;
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)ctx;
    (void)err;
    struct peer *peer = conn->user;
    peer->conn = NULL;
    peer->sending = false;
}

static const struct sl_transport_events peer_events = {
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- The world ------------------------------------------------------------------------------- */

static void turn(struct world *world)
{
    world->now_ns += STEP_NS;
    for (uint32_t i = 0; i < SHARDS; i++) {
        (void)sl_reactor_turn(world->ps_reactors[i], world->now_ns);
    }
    (void)sl_reactor_turn(world->peer_reactor, world->now_ns);
}

static struct sl_reactor *make_reactor(struct world *world, const char *name, uint32_t index)
{
    struct sl_reactor_options options = {
        .index = index, .core = -1, .stepped = true, .clock = &world->clock, .seed = 7 + index};
    (void)snprintf(options.name, sizeof options.name, "%s", name);
    struct sl_reactor *reactor;
    sl_assert(sl_reactor_create(&options, &reactor) == 0);
    return reactor;
}

/* Table 0: sparse, ASP; 1: sparse, BSP; 2: dense, SSP(1); 3: dense, ASP with Adam. */
static void open_tables(struct world *world)
{
    static const enum sl_consistency_mode modes[TABLES] = {SL_CONSISTENCY_ASP, SL_CONSISTENCY_BSP,
                                                           SL_CONSISTENCY_SSP, SL_CONSISTENCY_ASP};
    for (uint32_t id = 0; id < TABLES; id++) {
        bool dense = id >= 2;
        struct sl_table_spec spec = {
            .kind = dense ? SL_TABLE_DENSE : SL_TABLE_SPARSE,
            .dim = dense ? 0 : 3 + id,
            .length = dense ? 5000 : 0,
            .optimizer = sl_optimizer_defaults(id == 3 ? SL_OPTIMIZER_ADAM : SL_OPTIMIZER_SUM),
            .consistency = {.mode = modes[id],
                            .staleness = modes[id] == SL_CONSISTENCY_SSP ? 1 : 0,
                            .worker_count = modes[id] == SL_CONSISTENCY_ASP ? 0 : 2},
        };
        (void)snprintf(spec.name, sizeof spec.name, "t%u", id);
        char reason[SL_MESSAGE_TEXT_BYTES];
        for (uint32_t i = 0; i < SHARDS; i++) {
            sl_assert(sl_shard_table_open(world->servers[i]->shard, id, &spec, reason,
                                          sizeof reason) == 0);
        }
    }
}

static void open_kv_tables(struct world *world)
{
    for (uint32_t id = TABLES; id <= TABLES + 1; id++) {
        struct sl_table_spec spec = {
            .kind = SL_TABLE_KV,
            .dim = fuzz_request_kv_width(id, TABLES),
            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        };
        (void)snprintf(spec.name, sizeof spec.name, "t%u", id);
        char reason[SL_MESSAGE_TEXT_BYTES];
        for (uint32_t i = 0; i < SHARDS; i++) {
            sl_assert(sl_shard_table_open(world->servers[i]->shard, id, &spec, reason,
                                          sizeof reason) == 0);
        }
    }
}

static void start(struct world *world)
{
    world->now_ns = SL_CLOCK_NS_PER_S;
    world->clock = (struct sl_clock){.now_ns = clock_now, .ctx = world};
    sl_loop_network_init(&world->network, 1);
    const struct sl_coordinator_options coordinator = {
        .ps_count = 1, .send = sl_server_send_to_peer, .close = sl_server_close_peer};
    sl_assert(sl_coordinator_create(&coordinator, &world->coordinator) == 0);
    for (uint32_t i = 0; i < SHARDS; i++) {
        world->ps_reactors[i] = make_reactor(world, "ps", i);
    }
    sl_assert(sl_reactor_connect(world->ps_reactors, SHARDS) == 0);
    for (uint32_t i = 0; i < SHARDS; i++) {
        (void)sl_reactor_turn(world->ps_reactors[i], world->now_ns); /* it is this thread's */
        const struct sl_server_options options = {
            .reactor = world->ps_reactors[i],
            .transport = &sl_loop_transport_ops,
            .transport_options.medium = &world->network,
            .local_index = i,
            .servers = world->servers,
            .server_count = SHARDS,
            .coordinator = i == 0 ? world->coordinator : NULL,
            .buffer_bytes_max = 1,
            .waiting_max = 512,
            .shard = {.kv_handler = i == 1 ? &fuzz_request_kv_handler : NULL},
        };
        sl_assert(sl_server_create(&options, &world->servers[i]) == 0);
        sl_assert(sl_server_set_shard(world->servers[i], i, SHARDS) == 0);
    }
    open_tables(world);
    open_kv_tables(world);
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    sl_assert(sl_server_listen(world->servers[0], &any, &world->endpoint) == 0);
    world->peer_reactor = make_reactor(world, "peers", 0);
    (void)sl_reactor_turn(world->peer_reactor, world->now_ns);
    const struct sl_transport_options options = {.medium = &world->network};
    sl_assert(sl_transport_open(&sl_loop_transport_ops, world->peer_reactor, &options,
                                &world->transport) == 0);
}

static void stop(struct world *world)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        if (world->peers[i].conn != NULL) {
            sl_transport_disconnect(world->peers[i].conn);
        }
    }
    for (uint32_t turns = 0; turns < TURNS_MAX && world->servers[0]->conn_count > 0; turns++) {
        turn(world);
    }
    sl_transport_close(&world->transport);
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_server_destroy(&world->servers[i]);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        sl_reactor_destroy(&world->ps_reactors[i]);
    }
    sl_reactor_destroy(&world->peer_reactor);
    sl_coordinator_destroy(&world->coordinator);
    sl_loop_network_fini(&world->network);
}

/* ---- What the input makes -------------------------------------------------------------------- */

static bool may_send(const struct peer *peer)
{
    return peer->conn != NULL && peer->conn->state == SL_CONN_OPEN && !peer->sending;
}

/* The frame lies in peer->head. */
static void send_head(struct world *world, struct peer *peer, size_t payload_bytes)
{
    const struct sl_transport_frame frame = {
        .head = peer->head,
        .head_bytes = (uint32_t)(SL_FRAME_HEADER_BYTES + payload_bytes),
    };
    peer->sending = sl_transport_send_burst(peer->conn, &frame, 1) == 1;
    for (uint32_t turns = 0; turns < TURNS_MAX && peer->sending; turns++) {
        turn(world);
    }
}

static void send_frame(struct world *world, struct peer *peer, const struct sl_frame *frame)
{
    sl_frame_encode(frame, peer->head);
    send_head(world, peer, frame->payload_bytes);
}

static void send_control(struct world *world, struct peer *peer, const struct sl_message *message)
{
    size_t bytes = sl_message_encoded_bytes(message);
    sl_message_encode(message, peer->head + SL_FRAME_HEADER_BYTES);
    send_frame(world, peer,
               &(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes});
}

/* A new connection in the peer's place, with a hello that is well formed. */
static void make_hello(struct world *world, struct peer *peer, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    uint8_t who = sl_bytes_u8(input);
    if (peer->conn != NULL) {
        sl_transport_disconnect(peer->conn);
        for (uint32_t turns = 0; turns < TURNS_MAX && peer->conn != NULL; turns++) {
            turn(world);
        }
    }
    if (peer->conn != NULL || sl_transport_connect(world->transport, &world->endpoint, &peer_events,
                                                   world, peer, &peer->conn) != 0) {
        return;
    }
    for (uint32_t turns = 0;
         turns < TURNS_MAX && peer->conn != NULL && peer->conn->state == SL_CONN_CONNECTING;
         turns++) {
        turn(world);
    }
    bool worker = (what & 2) != 0;
    struct sl_message message = {
        .kind = SL_MESSAGE_HELLO,
        .id = 1,
        .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                  .purpose = (what & 1) != 0 ? SL_MESSAGE_PURPOSE_CONTROL : SL_MESSAGE_PURPOSE_DATA,
                  .role = worker ? SL_MESSAGE_ROLE_WORKER : SL_MESSAGE_ROLE_CLIENT,
                  .task_index = worker ? who % 4U : 0,
                  .client_id = 1 + who / 4 % 4U,
                  .shard = (uint32_t)(what >> 2 & 1),
                  .checksum = (what & 8) != 0,
                  .joins = (what & 16) != 0},
    };
    if ((what & 32) == 0) {
        peer->next_id = 1; /* else it goes on, as after a reconnect */
    }
    if (may_send(peer)) {
        send_control(world, peer, &message);
    }
}

/* 32 bytes as they are, and what they say follows, as far as there is something. */
static void make_raw_frame(struct world *world, struct peer *peer, struct sl_bytes *input)
{
    sl_bytes_copy(input, peer->head, SL_FRAME_HEADER_BYTES);
    struct sl_bytes piece = fuzz_input_piece(input, PAYLOAD_BYTES);
    memset(peer->head + SL_FRAME_HEADER_BYTES, 0, PAYLOAD_BYTES);
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, piece.left);
    uint32_t said;
    memcpy(&said, peer->head, sizeof said);
    said %= SAID_BYTES_MAX; /* the medium sets memory for all of it aside */
    memcpy(peer->head, &said, sizeof said);
    if (said > PAYLOAD_BYTES) {
        said = 0; /* the medium carries whole frames: this one ends early, the connection with it */
    }
    if (may_send(peer)) {
        peer->raw = true;
        send_head(world, peer, said);
    }
}

static void make_raw_control(struct world *world, struct peer *peer, struct sl_bytes *input)
{
    struct sl_bytes piece = fuzz_input_piece(input, PAYLOAD_BYTES);
    uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, bytes);
    if (may_send(peer)) {
        send_frame(world, peer,
                   &(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = bytes});
    }
}

/* The id: the next, the last again, an old one, or one ahead. */
static uint64_t choose_id(struct peer *peer, uint8_t how)
{
    uint64_t id = peer->next_id;
    switch (how % 8) {
    case 1:
        id = id > 1 ? id - 1 : id;
        break;
    case 2:
        id = id > how / 8U ? id - how / 8U : 1;
        break;
    case 3:
        id += how / 8U;
        break;
    default:
        break;
    }
    peer->next_id = id + 1 > peer->next_id ? id + 1 : peer->next_id;
    return id;
}

static void send_request(struct world *world, struct peer *peer, uint8_t how, uint32_t bytes)
{
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = bytes,
        .request_id = choose_id(peer, how),
        .budget_us = (how & 128) != 0 ? 20000 : 5000000,
    };
    send_frame(world, peer, &frame);
}

static void make_raw_request(struct world *world, struct peer *peer, struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, PAYLOAD_BYTES);
    uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, bytes);
    if (may_send(peer)) {
        send_request(world, peer, how, bytes);
    }
}

/* The first key at or after `key` that is the shard's. */
static uint64_t key_of(uint32_t shard, uint64_t key)
{
    while (sl_partition_owner(key, SHARDS) != shard) {
        key++;
    }
    return key;
}

static void write_keys(struct sl_bytes_writer *writer, uint32_t shard, uint32_t count,
                       struct sl_bytes *input)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = key_of(shard, sl_bytes_u8(input));
        sl_bytes_put(writer, &key, sizeof key);
    }
}

static void write_floats(struct sl_bytes_writer *writer, uint64_t count)
{
    for (uint64_t i = 0; i < sl_bytes_pad8(4 * count) / 4; i++) {
        float value = i < count ? (float)(i % 3) : 0;
        sl_bytes_put(writer, &value, sizeof value);
    }
}

/* One section that fits its table, up to a range that may be another shard's. */
static void write_section(struct sl_bytes_writer *writer, uint32_t shard, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    if (what >= 192) {
        fuzz_request_kv_write(writer, shard, SHARDS, (uint8_t)(SL_REQUEST_KV_PUSH + what % 4),
                              TABLES, input);
        return;
    }
    uint8_t op = (uint8_t)(1 + what % 8);
    uint8_t count = sl_bytes_u8(input);
    struct sl_request_section section = {.op = op};
    bool dense = op >= SL_REQUEST_DENSE_PULL && op <= SL_REQUEST_DENSE_PUSH_PULL;
    if (op != SL_REQUEST_TICK) {
        section.table_id = (uint16_t)((dense ? 2 : 0) + count % 2);
    }
    if (dense) {
        section.start = 1024ULL * (sl_bytes_u8(input) % 5);
        section.count = 1 + count * 4ULL;
    } else if (op != SL_REQUEST_TICK) {
        section.key_count = count % 32U;
        section.bag_count = op == SL_REQUEST_PULL_POOLED ? 2 : 0;
    }
    sl_bytes_put(writer, &section, sizeof section);
    write_keys(writer, shard, section.key_count, input);
    if (op == SL_REQUEST_PULL_POOLED) {
        uint32_t ends[2] = {section.key_count / 2, section.key_count};
        sl_bytes_put(writer, ends, sizeof ends);
    } else if (op == SL_REQUEST_PUSH || op == SL_REQUEST_PUSH_PULL) {
        write_floats(writer, (uint64_t)section.key_count * (3U + section.table_id));
    } else if (op == SL_REQUEST_DENSE_PUSH || op == SL_REQUEST_DENSE_PUSH_PULL) {
        write_floats(writer, section.count);
    }
}

static void make_request(struct world *world, struct peer *peer, struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    uint8_t shape = sl_bytes_u8(input);
    struct sl_bytes_writer writer =
        sl_bytes_writer_over(peer->head + SL_FRAME_HEADER_BYTES, PAYLOAD_BYTES);
    const struct sl_request_prefix prefix = {
        .section_count = 1 + shape % 4U,
        .clock = shape == 255 ? SL_REQUEST_CLOCK_FINISHED : shape / 32U,
    };
    if (!may_send(peer)) {
        return;
    }
    sl_bytes_put(&writer, &prefix, sizeof prefix);
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        write_section(&writer, shape >> 4 & 1, input);
    }
    if (!writer.bad) {
        send_request(world, peer, how, (uint32_t)(PAYLOAD_BYTES - writer.left));
    }
}

static void pass_time(struct world *world, struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    world->now_ns += (how & 1) != 0 ? (uint64_t)how * 100 * SL_CLOCK_NS_PER_MS : 0;
    for (uint32_t i = 0; i <= how / 8U; i++) {
        turn(world);
    }
}

static void step(struct world *world, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    struct peer *peer = &world->peers[what / 8 % PEERS];
    switch (what % 8) {
    case 0:
        make_hello(world, peer, input);
        break;
    case 1:
        make_raw_frame(world, peer, input);
        break;
    case 2:
        make_raw_control(world, peer, input);
        break;
    case 3:
        make_raw_request(world, peer, input);
        break;
    case 4:
    case 5:
        make_request(world, peer, input);
        break;
    case 6:
        pass_time(world, input);
        break;
    default:
        if (peer->conn != NULL) {
            sl_transport_disconnect(peer->conn);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    static struct world world; /* large; zeroed anew for each input but for what is overwritten */
    memset(&world, 0, offsetof(struct world, sink));
    start(&world);
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    for (uint32_t frames = 0; frames < FRAMES_MAX && fuzz_input_has_more(&input); frames++) {
        step(&world, &input);
    }
    stop(&world);
    return 0;
}
