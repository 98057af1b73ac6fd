/* Data-plane frames through whole turns of a ps process: two shards, tables of every consistency,
 * KV tables with and without a handler, and peers whose frames the input makes, well or badly:
 * hellos, raw frames, raw requests, requests whose sections fit, replays, ends, and the passing of
 * time. Nothing may crash or leak, no reply may be unasked for, and in the end everything is given
 * back. */
#include <stddef.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/state.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/ps_world.h"
#include "tests/fuzz/request_kv.h"
#include "tests/fuzz/request_make.h"

#define SHARDS         FUZZ_SERVERS
#define FRAMES_MAX     64          /* of one input */
#define SAID_BYTES_MAX (16U << 20) /* by a raw frame's header: over every limit */

static struct sl_coordinator *start(struct fuzz_world *world)
{
    const struct sl_coordinator_options coordinator_options = {
        .ps_count = 1, .send = sl_server_send_to_peer, .close = sl_server_close_peer};
    struct sl_coordinator *coordinator;
    sl_assert(sl_coordinator_create(&coordinator_options, &coordinator) == 0);
    fuzz_world_begin(world, SHARDS);
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct sl_server_options options = fuzz_world_options(world, i);
        options.coordinator = i == 0 ? coordinator : NULL;
        options.coordinator_ops = &sl_process_coordinator_ops;
        options.shard.kv_handler = i == 1 ? &fuzz_request_kv_handler : NULL;
        sl_assert(sl_server_create(&options, &world->servers[i]) == 0);
        sl_assert(sl_server_set_shard(world->servers[i], i, SHARDS) == 0);
        fuzz_request_open_tables(world->servers[i]->shard);
    }
    fuzz_world_listen(world);
    return coordinator;
}

/* A new connection in the peer's place, with a hello that is well formed. */
static void make_hello(struct fuzz_world *world, struct fuzz_peer *peer, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    uint8_t who = sl_bytes_u8(input);
    const bool is_connected = fuzz_peer_connect(world, peer);
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
                  .join_running = (what & 16) != 0},
    };
    if ((what & 32) == 0) {
        peer->next_id = 1; /* else it goes on, as after a reconnect */
    }
    if (is_connected) {
        fuzz_peer_send_message(world, peer, &message);
        fuzz_peer_attach(world, peer, message.hello.shard);
    }
}

/* 32 bytes as they are, and what they say follows, as far as there is something. */
static void make_raw_frame(struct fuzz_world *world, struct fuzz_peer *peer, struct sl_bytes *input)
{
    sl_bytes_copy(input, peer->head, SL_FRAME_HEADER_BYTES);
    struct sl_bytes piece = fuzz_input_piece(input, FUZZ_PAYLOAD_BYTES);
    memset(peer->head + SL_FRAME_HEADER_BYTES, 0, FUZZ_PAYLOAD_BYTES);
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, piece.left);
    uint32_t said;
    memcpy(&said, peer->head, sizeof said);
    said %= SAID_BYTES_MAX; /* the medium allocates memory for all of it */
    memcpy(peer->head, &said, sizeof said);
    if (said > FUZZ_PAYLOAD_BYTES) {
        said = 0; /* the medium carries whole frames: this one ends early, the connection with it */
    }
    if (fuzz_peer_may_send(peer)) {
        peer->raw = true;
        fuzz_peer_send_head(world, peer, said);
    }
}

static void make_raw_control(struct fuzz_world *world, struct fuzz_peer *peer,
                             struct sl_bytes *input)
{
    struct sl_bytes piece = fuzz_input_piece(input, FUZZ_PAYLOAD_BYTES);
    uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, bytes);
    if (fuzz_peer_may_send(peer)) {
        fuzz_peer_send(world, peer,
                       &(struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = bytes});
    }
}

/* The id: the next, the last again, an old one, or one ahead. */
static uint64_t choose_id(struct fuzz_peer *peer, uint8_t how)
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

static void send_request(struct fuzz_world *world, struct fuzz_peer *peer, uint8_t how,
                         uint32_t bytes)
{
    const struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = bytes,
        .request_id = sl_frame_id(peer->shard, choose_id(peer, how)),
        .budget_us = (how & 128) != 0 ? 20000 : 5000000,
    };
    fuzz_peer_send(world, peer, &frame);
}

static void make_raw_request(struct fuzz_world *world, struct fuzz_peer *peer,
                             struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, FUZZ_PAYLOAD_BYTES);
    uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, bytes);
    if (fuzz_peer_may_send(peer)) {
        send_request(world, peer, how, bytes);
    }
}

static void make_request(struct fuzz_world *world, struct fuzz_peer *peer, struct sl_bytes *input)
{
    uint8_t how = sl_bytes_u8(input);
    uint8_t shape = sl_bytes_u8(input);
    struct sl_bytes_writer writer =
        sl_bytes_writer_over(peer->head + SL_FRAME_HEADER_BYTES, FUZZ_PAYLOAD_BYTES);
    if (!fuzz_peer_may_send(peer)) {
        return;
    }
    fuzz_request_make(&writer, shape >> 4 & 1, SHARDS, shape, input);
    if (!writer.bad) {
        send_request(world, peer, how, (uint32_t)(FUZZ_PAYLOAD_BYTES - writer.left));
    }
}

static void step(struct fuzz_world *world, struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    struct fuzz_peer *peer = &world->peers[what / 8 % FUZZ_PEERS];
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
        fuzz_world_pass(world, input);
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
    static struct fuzz_world world; /* large; zeroed anew but for what is overwritten */
    memset(&world, 0, offsetof(struct fuzz_world, sink));
    struct sl_coordinator *coordinator = start(&world);
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    for (uint32_t frames = 0; frames < FRAMES_MAX && fuzz_input_has_more(&input); frames++) {
        step(&world, &input);
    }
    fuzz_world_end(&world);
    sl_coordinator_destroy(&coordinator);
    return 0;
}
