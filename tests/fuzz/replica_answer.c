/* What a backup answers its primary: welcomes, acknowledgements and credit of any kind, raw
 * messages, ends, while a client writes and epochs pass. Nothing may crash or leak, and with the
 * last epoch, which has no backup, nobody waits for one any more. The input: a step each. */
#include <stddef.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/replication/state.h"
#include "ps/server/request.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/ps_world.h"
#include "tests/fuzz/request_make.h"

#define STEPS_MAX  64
#define ON_THE_WAY 30 /* turns in which what was sent last arrives */

/* One world, for one input after the other. */
static struct fuzz_world world;
static struct sl_endpoint backup_endpoint;
static struct fuzz_peer *const client = &world.peers[0];

static void on_moved(void *ctx, uint32_t local_index, uint64_t epoch, bool in_sync)
{
    const struct sl_replication *replica = world.servers[local_index]->replica;
    sl_assert(epoch == replica->config.epoch);
    sl_assert(!in_sync || replica->log.ended >= replica->log.answered);
}

static void on_failed(void *ctx, int err)
{
    sl_assert(false); /* the coordinator gives it to nobody else */
}

static void tell(bool has_backup)
{
    const struct sl_replica_config pair = {
        .epoch = world.servers[0]->replica->config.epoch + 1,
        .is_primary = true,
        .has_backup = has_backup,
        .backup_task = 1,
        .backup = backup_endpoint,
    };
    sl_replication_set_config(world.servers[0], &pair);
}

static void start(void)
{
    memset(&world, 0, offsetof(struct fuzz_world, sink));
    fuzz_world_begin(&world, 1);
    const struct sl_replication_options replication = {.state_changed = on_moved,
                                                       .failed = on_failed};
    for (uint32_t i = 0; i < FUZZ_SERVERS; i++) {
        struct sl_server_options options = fuzz_world_options(&world, 0);
        options.local_index = i;
        options.hooks = &sl_replication_hooks;
        options.replication = &replication;
        sl_assert(sl_server_create(&options, &world.servers[i]) == 0);
        sl_assert(sl_server_set_shard(world.servers[i], 0, 1) == 0);
    }
    fuzz_request_open_tables(world.servers[0]->shard);
    fuzz_world_listen(&world);
    backup_endpoint = fuzz_world_accept(&world, 1);
}

/* The connection that the primary made last; NULL: none. */
static struct fuzz_peer *backup(void)
{
    for (uint32_t i = FUZZ_PEERS - 1; i > 0; i--) {
        if (fuzz_peer_may_send(&world.peers[i])) {
            return &world.peers[i];
        }
    }
    return NULL;
}

static void make_hello(struct sl_bytes *input)
{
    const uint8_t who = sl_bytes_u8(input);
    const bool is_worker = who % 2 != 0;
    const struct sl_message message = {
        .kind = SL_MESSAGE_HELLO,
        .id = 1,
        .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                  .purpose = SL_MESSAGE_PURPOSE_DATA,
                  .role = is_worker ? SL_MESSAGE_ROLE_WORKER : SL_MESSAGE_ROLE_CLIENT,
                  .client_id = 1 + who % 4U},
    };
    client->next_id = 1;
    if (fuzz_peer_connect(&world, client)) {
        fuzz_peer_send_message(&world, client, &message);
        fuzz_peer_attach(&world, client, 0);
    }
}

static void make_request(struct sl_bytes *input)
{
    const uint8_t shape = sl_bytes_u8(input);
    struct sl_bytes_writer writer =
        sl_bytes_writer_over(client->head + SL_FRAME_HEADER_BYTES, FUZZ_PAYLOAD_BYTES);
    if (!fuzz_peer_may_send(client)) {
        return;
    }
    fuzz_request_make(&writer, 0, 1, shape, input);
    if (!writer.bad) {
        const struct sl_frame frame = {
            .type = SL_FRAME_REQUEST,
            .payload_bytes = (uint32_t)(FUZZ_PAYLOAD_BYTES - writer.left),
            .request_id = client->next_id++,
            .budget_us = 5000000,
        };
        fuzz_peer_send(&world, client, &frame);
    }
}

static void welcome(struct fuzz_peer *peer, struct sl_bytes *input)
{
    const uint8_t how = sl_bytes_u8(input);
    const struct sl_message message = {
        .kind = SL_MESSAGE_WELCOME,
        .id = 1,
        .welcome = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                    .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
                    .incarnation = 7,
                    .resumed = (how & 1) != 0,
                    .position = (how & 2) != 0 ? sl_bytes_u8(input) : 0,
                    .credit_bytes = (how & 4) != 0 ? sl_bytes_u32(input) : 4U << 20,
                    .credit_requests = (how & 8) != 0 ? sl_bytes_u8(input) : 1000,
                    .shard = (how & 48) == 48,
                    .shard_count = 1},
    };
    fuzz_peer_send_message(&world, peer, &message);
}

/* An acknowledgement; 255: of all that can be. */
static void acknowledge(struct fuzz_peer *peer, struct sl_bytes *input)
{
    const uint8_t number = sl_bytes_u8(input);
    const uint8_t how = sl_bytes_u8(input);
    const struct sl_frame frame = {
        .type = SL_FRAME_REPLY,
        .request_id = number == 255 ? UINT64_MAX : number,
        .credit_bytes = (how & 1) != 0 ? UINT32_MAX : 0,
        .credit_requests = (how & 2) != 0 ? UINT16_MAX : how / 4,
    };
    fuzz_peer_send(&world, peer, &frame);
}

/* A control message as it is, or a frame of a type that is not expected. */
static void say_raw(struct fuzz_peer *peer, struct sl_bytes *input)
{
    const uint8_t how = sl_bytes_u8(input);
    struct sl_bytes piece = fuzz_input_piece(input, FUZZ_PAYLOAD_BYTES);
    const struct sl_frame frame = {
        .type = how == 255   ? SL_FRAME_REQUEST
                : how >= 250 ? SL_FRAME_REPLY
                             : SL_FRAME_CONTROL,
        .payload_bytes = (uint32_t)piece.left,
        .request_id = how >= 250,
        .budget_us = how == 255,
    };
    sl_bytes_copy(&piece, peer->head + SL_FRAME_HEADER_BYTES, piece.left);
    fuzz_peer_send(&world, peer, &frame);
}

static void step_of_backup(uint8_t what, struct sl_bytes *input)
{
    struct fuzz_peer *peer = backup();
    if (peer == NULL) {
        return;
    }
    switch (what % 4) {
    case 0:
        welcome(peer, input);
        break;
    case 1:
    case 2:
        acknowledge(peer, input);
        break;
    default:
        say_raw(peer, input);
        break;
    }
}

static void step(struct sl_bytes *input)
{
    const uint8_t what = sl_bytes_u8(input);
    switch (what % 8) {
    case 0:
        make_hello(input);
        break;
    case 1:
    case 2:
        make_request(input);
        break;
    case 3:
    case 4:
    case 5:
        step_of_backup(what / 8, input);
        break;
    case 6:
        fuzz_world_pass(&world, input);
        break;
    default:
        if (what >= 64) {
            tell(what < 192);
        } else if (backup() != NULL) {
            sl_transport_disconnect(backup()->conn);
        }
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    start();
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    for (uint32_t steps = 0; steps < STEPS_MAX && fuzz_input_has_more(&input); steps++) {
        step(&input);
    }
    tell(false);
    for (uint32_t turns = 0; turns < ON_THE_WAY; turns++) {
        fuzz_world_turn(&world);
    }
    sl_assert(!sl_replication_log_is_awaited(world.servers[0]));
    sl_assert(world.servers[0]->replica->log.entry_count == 0);
    fuzz_world_end(&world);
    return 0;
}
