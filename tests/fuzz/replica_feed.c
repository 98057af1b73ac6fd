/* Input of a backup from its primary: hellos of any epoch and state, raw entries, entries that fit,
 * blocks of snapshots, ends, new epochs, and the passing of time. The backup may refuse them, and
 * report that it is not in sync; nothing may crash or leak. A backup that was not broken is
 * promoted in the end, and a snapshot of its shard can be taken. Each step of the input has a kind
 * and its arguments. */
#include <stddef.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/replication/state.h"
#include "ps/server/request.h"
#include "ps/shard/snapshot.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/ps_world.h"
#include "tests/fuzz/request_make.h"
#include "tests/support/shard_stream.h"

#define STEPS_MAX    64
#define ON_THE_WAY   30 /* turns in which what was sent last arrives */
#define MEMORY_BYTES ((size_t)4 << 20)
#define HEAD_BYTES   ((uint32_t)sizeof(struct sl_replication_entry_head))
#define BODY_MAX     (FUZZ_PAYLOAD_BYTES - HEAD_BYTES)
#define BACKUP       0 /* the one that listens */

/* One world, for one input after the other. */
static struct fuzz_world world;
static bool must_end; /* the process, as the backup says */

static struct fuzz_peer *const primary = &world.peers[0];

static void on_moved(void *ctx, uint32_t local_index, uint64_t epoch, bool in_sync)
{
    sl_assert(!in_sync); /* nobody has a backup that is */
}

static void on_failed(void *ctx, int err)
{
    sl_assert(err == SL_ERR_CORRUPT || err == SL_ERR_REFUSED);
    must_end = true;
}

static struct sl_server *backup_of(void)
{
    return world.servers[BACKUP];
}

static void tell(struct sl_server *server, uint64_t epoch, bool is_primary)
{
    const struct sl_replica_config pair = {.epoch = epoch, .is_primary = is_primary};
    sl_replication_set_config(server, &pair);
}

static void start(void)
{
    memset(&world, 0, offsetof(struct fuzz_world, sink));
    must_end = false;
    fuzz_world_begin(&world, 1);
    const struct sl_replication_options replication = {.state_changed = on_moved,
                                                       .failed = on_failed};
    for (uint32_t i = 0; i < FUZZ_SERVERS; i++) {
        struct sl_server_options options = fuzz_world_options(&world, 0);
        options.local_index = i;
        options.hooks = &sl_replication_hooks;
        options.replication = &replication;
        options.shard.memory_bytes_max = MEMORY_BYTES;
        options.shard.push_buffer_bytes_max = MEMORY_BYTES;
        sl_assert(sl_server_create(&options, &world.servers[i]) == 0);
        sl_assert(sl_server_set_shard(world.servers[i], 0, 1) == 0);
    }
    fuzz_world_listen(&world);
    tell(world.servers[1], 1, true);
    tell(backup_of(), 1, false);
    primary->is_primary = true;
}

static void make_hello(struct sl_bytes *input)
{
    const uint8_t how = sl_bytes_u8(input);
    const uint64_t epoch = backup_of()->replica->config.epoch;
    const struct sl_message message = {
        .kind = SL_MESSAGE_HELLO,
        .id = 1,
        .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                  .purpose = SL_MESSAGE_PURPOSE_REPLICA,
                  .role = SL_MESSAGE_ROLE_PS,
                  .client_id = 1,
                  .epoch = how % 8 == 7 ? epoch - 1 + how / 8 % 3 : epoch,
                  .state = 1 + how / 32U,
                  .checksum = (how & 16) != 0},
    };
    if (fuzz_peer_connect(&world, primary)) {
        fuzz_peer_send_message(&world, primary, &message);
        fuzz_world_turn(&world);
    }
    primary->next_id = backup_of()->replica->backup.position + 1;
}

/* The body lies behind where the head goes. */
static void send_entry(const struct sl_replication_entry_head *head, uint32_t body_bytes)
{
    if (fuzz_peer_may_send(primary)) {
        memcpy(primary->head + SL_FRAME_HEADER_BYTES, head, sizeof *head);
        const struct sl_frame frame = {
            .type = SL_FRAME_REQUEST,
            .payload_bytes = HEAD_BYTES + body_bytes,
            .request_id = primary->next_id++,
            .budget_us = UINT32_MAX,
        };
        fuzz_peer_send(&world, primary, &frame);
    }
}

static uint8_t *body(void)
{
    return primary->head + SL_FRAME_HEADER_BYTES + HEAD_BYTES;
}

/* A head as it is, with the number or without that it should have. */
static void make_raw_entry(struct sl_bytes *input)
{
    const uint8_t how = sl_bytes_u8(input);
    struct sl_replication_entry_head head;
    sl_bytes_copy(input, &head, sizeof head);
    struct sl_bytes piece = fuzz_input_piece(input, BODY_MAX);
    const uint32_t bytes = (uint32_t)piece.left;
    sl_bytes_copy(&piece, body(), bytes);
    if (how % 8 != 7) {
        head.body_bytes = bytes;
    }
    primary->next_id += how >= 240;
    send_entry(&head, bytes);
}

/* Of a client that comes again: 0: of none. */
static void name_client(struct sl_replication_entry_head *head, uint8_t who)
{
    head->role = (uint8_t)(who % 4 == 0   ? 0
                           : who % 4 == 1 ? SL_MESSAGE_ROLE_CLIENT
                                          : SL_MESSAGE_ROLE_WORKER);
    head->has_clock = head->role == SL_MESSAGE_ROLE_WORKER;
    head->task_index = head->has_clock ? who / 4 % 4U : 0;
    head->client_id = 1 + who / 4 % 8U;
}

static void make_write(struct sl_bytes *input)
{
    const uint8_t who = sl_bytes_u8(input);
    const uint8_t how = sl_bytes_u8(input);
    const uint8_t shape = sl_bytes_u8(input);
    struct sl_replication_entry_head head = {
        .kind = SL_REPLICATION_ENTRY_WRITE,
        .request_id = how,
        .error = how % 16 == 15 ? -SL_ERR_INVALID : 0,
        .first = how / 16 == 1,
    };
    name_client(&head, who);
    struct sl_bytes_writer writer = sl_bytes_writer_over(body(), BODY_MAX);
    if (how / 16 != 2) {
        fuzz_request_make(&writer, 0, 1, shape, input);
        head.end = 1 + shape % 4U - (how / 16 == 3);
    }
    head.body_bytes = (uint32_t)(BODY_MAX - writer.left);
    if (!writer.bad) {
        send_entry(&head, head.body_bytes);
    }
}

static void make_message(struct sl_bytes *input)
{
    const uint8_t who = sl_bytes_u8(input);
    const uint8_t how = sl_bytes_u8(input);
    const bool is_table = how % 2 == 0;
    struct sl_message message = {.kind = is_table ? SL_MESSAGE_TABLE_OPEN : SL_MESSAGE_JOIN};
    if (is_table) {
        message.table_open.table_id = how / 2 % FUZZ_REQUEST_TABLES;
        message.table_open.spec = fuzz_request_spec(how / 16 % FUZZ_REQUEST_TABLES);
    } else {
        message.clock = how / 2;
    }
    struct sl_replication_entry_head head = {
        .kind = is_table ? SL_REPLICATION_ENTRY_TABLE : SL_REPLICATION_ENTRY_JOIN,
        .message_bytes = (uint32_t)sl_message_encoded_bytes(&message),
    };
    name_client(&head, who);
    head.body_bytes = (uint32_t)sl_bytes_pad8(head.message_bytes);
    memset(body(), 0, head.body_bytes);
    sl_message_encode(&message, body());
    send_entry(&head, head.body_bytes);
}

static void make_client(struct sl_bytes *input)
{
    const uint8_t who = sl_bytes_u8(input);
    const uint8_t how = sl_bytes_u8(input);
    static const uint8_t KINDS[] = {SL_REPLICATION_ENTRY_SESSION, SL_REPLICATION_ENTRY_END,
                                    SL_REPLICATION_ENTRY_EXPIRED};
    struct sl_replication_entry_head head = {.kind = KINDS[how % 3],
                                             .is_expired = how / 4 % 2 != 0};
    name_client(&head, who);
    send_entry(&head, 0);
}

/* Blocks as shard_stream_pack has them, all that are left of the input. */
static void make_snapshot(struct sl_bytes *input)
{
    while (fuzz_input_has_more(input)) {
        struct sl_replication_entry_head head = {.kind = SL_REPLICATION_ENTRY_SNAPSHOT};
        head.role = (uint8_t)sl_bytes_u32(input);
        head.task_index = sl_bytes_u32(input);
        head.end = sl_bytes_u32(input);
        uint32_t bytes = sl_bytes_u32(input);
        bytes = bytes < input->left ? bytes : (uint32_t)input->left;
        bytes = bytes < BODY_MAX ? bytes : BODY_MAX;
        sl_bytes_copy(input, body(), bytes);
        head.body_bytes = bytes;
        send_entry(&head, bytes);
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
        make_raw_entry(input);
        break;
    case 2:
    case 3:
        make_write(input);
        break;
    case 4:
        make_message(input);
        break;
    case 5:
        make_client(input);
        break;
    case 6:
        fuzz_world_pass(&world, input);
        break;
    default:
        if (what == 255) {
            make_snapshot(input);
        } else if (what >= 128) {
            tell(backup_of(), backup_of()->replica->config.epoch + 1, false);
        } else if (primary->conn != NULL) {
            sl_transport_disconnect(primary->conn);
        }
        break;
    }
}

static void check_snapshot(struct sl_shard *shard)
{
    const struct sl_shard_snapshot_options options = {.base = NULL};
    struct shard_stream snapshot = {0};
    sl_assert(sl_shard_snapshot_begin(shard, &options) == 0);
    while (shard_stream_snapshot(shard, 1000, &snapshot)) {
    }
    sl_shard_snapshot_end(shard, NULL);
    shard_stream_fini(&snapshot);
}

static void finish(void)
{
    struct sl_server *backup = backup_of();
    for (uint32_t turns = 0;
         turns < ON_THE_WAY || (turns < FUZZ_TURNS_MAX && sl_replication_receiver_waits(backup));
         turns++) {
        fuzz_world_turn(&world);
    }
    sl_assert(!sl_replication_receiver_waits(backup));
    sl_assert(backup->replica->backup.position <= backup->replica->backup.received);
    tell(backup, backup->replica->config.epoch + 1, true);
    fuzz_world_turn(&world);
    const bool is_whole = !backup->replica->backup.is_broken && !backup->replica->backup.is_loading;
    sl_assert(must_end == !is_whole);
    if (is_whole) {
        sl_assert(backup->role.serves);
        check_snapshot(backup->shard);
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
    finish();
    fuzz_world_end(&world);
    return 0;
}
