#include "tests/unit/ps/agent/fixture.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct fixture *f = ctx;
    f->conn = conn;
    f->accepted_count++;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    fail_msg("a member sends nothing long");
    return NULL;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *frame)
{
    struct fixture *f = ctx;
    struct sl_message message;
    assert_int_equal(sl_message_decode(frame->payload, frame->header.payload_bytes, &message), 0);
    sl_transport_release(conn, frame);
    switch (message.kind) {
    case SL_MESSAGE_HELLO:
        f->hello = message.hello;
        f->hello_count++;
        break;
    case SL_MESSAGE_REGISTER:
        f->reg = message.reg;
        f->reg.replica_reports = NULL;
        f->reported = message.reg.replica_report_count == 0 ? (struct sl_message_replica_report){0}
                                                            : message.reg.replica_reports[0];
        sl_message_fini(&message);
        f->register_id = message.id;
        f->register_count++;
        break;
    case SL_MESSAGE_HEARTBEAT:
        f->heartbeat_count++;
        break;
    case SL_MESSAGE_GOODBYE:
        f->goodbye_count++;
        break;
    case SL_MESSAGE_REPORT:
        f->report_bytes = message.report.byte_count;
        f->report_count++;
        break;
    case SL_MESSAGE_CHECKPOINT_PART:
        f->part = message.checkpoint_part;
        f->part_count++;
        memset(f->part_files, 0, sizeof f->part_files);
        assert_true(message.checkpoint_part.file_count <= FIXTURE_FILES);
        for (uint32_t i = 0; i < message.checkpoint_part.file_count; i++) {
            f->part_files[i] = message.checkpoint_part.files[i];
        }
        break;
    case SL_MESSAGE_CHECKPOINT_DONE:
        f->done_number = message.checkpoint_number;
        f->done_count++;
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
    case SL_MESSAGE_TABLE_OPEN:
        f->request = message;
        f->request_count++;
        break;
    default:
        fail_msg("a message of kind %d", (int)message.kind);
    }
    sl_message_fini(&message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    sl_outbox_sent(&((struct fixture *)ctx)->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *f = ctx;
    sl_outbox_writable(&f->outbox, conn, &f->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct fixture *f = ctx;
    sl_outbox_closed(&f->outbox, conn, &f->queue);
    f->conn = NULL;
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

void send_message(struct fixture *f, const struct sl_message *message)
{
    uint32_t bytes = (uint32_t)sl_message_encoded_bytes(message);
    uint8_t *room = sl_outbox_reserve(&f->outbox, bytes);
    assert_non_null(room);
    sl_message_encode(message, room + SL_FRAME_HEADER_BYTES);
    struct sl_frame header = {.type = SL_FRAME_CONTROL, .payload_bytes = bytes};
    sl_outbox_commit(&f->outbox, f->conn, &f->queue, &header, NULL, 0, NULL, NULL);
}

void send_error(struct fixture *f, uint64_t id, int err)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    (void)snprintf(message.error.text, sizeof message.error.text, "the case says so");
    send_message(f, &message);
}

void send_cluster(struct fixture *f, uint64_t id, uint32_t shards_0)
{
    struct sl_message_ps ps[] = {
        {.task_index = 0, .shard_count = shards_0, .data_endpoint = "tcp://a:1"},
        {.task_index = 1, .first_shard = shards_0, .shard_count = 2, .data_endpoint = "tcp://b:1"},
        {.task_index = 2,
         .first_shard = shards_0 + 2,
         .shard_count = 4,
         .data_endpoint = "tcp://c:1"},
    };
    struct sl_message_placement placements[16];
    for (uint32_t shard = 0; shard < shards_0 + 6; shard++) {
        placements[shard] = (struct sl_message_placement){.epoch = 1};
    }
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER, .id = id};
    message.cluster = (struct sl_message_cluster){.ps = ps,
                                                  .ps_count = 3,
                                                  .placements = placements,
                                                  .shard_count = shards_0 + 6,
                                                  .worker_count = 5,
                                                  .restore = f->cluster_restore};
    send_message(f, &message);
}

void send_lost(struct fixture *f, enum sl_message_role role)
{
    struct sl_message message = {.kind = SL_MESSAGE_EXPIRED};
    message.expired = (struct sl_message_expired){
        .role = role, .task_index = 3, .client_id = 1234, .why = "no heartbeat for 10 s"};
    send_message(f, &message);
}

static void on_joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct fixture *f = ctx;
    f->joined_count++;
    f->first_shard = first_shard;
    f->shard_count = shard_count;
    f->lease_ns = lease_ns;
}

static void on_failed(void *ctx, int err)
{
    struct fixture *f = ctx;
    f->failed_count++;
    f->failed_err = err;
}

static void on_lost(void *ctx, const struct sl_message_expired *lost)
{
    struct fixture *f = ctx;
    f->lost_count++;
    f->lost = *lost;
}

static void on_absent(void *ctx)
{
    ((struct fixture *)ctx)->absent_count++;
}

static void on_checkpoint(void *ctx, const struct sl_message_checkpoint *begun)
{
    struct fixture *f = ctx;
    f->begun_count++;
    f->begun = *begun;
}

static void on_complete(void *ctx, const struct sl_message_checkpoint_publish *complete)
{
    struct fixture *f = ctx;
    f->complete_count++;
    f->complete = *complete;
    assert_true(complete->file_count <= FIXTURE_FILES);
    memcpy(f->complete_files, complete->files, complete->file_count * sizeof f->complete_files[0]);
}

static void on_completed(void *ctx, uint64_t number)
{
    ((struct fixture *)ctx)->completed = (uint32_t)number;
}

static struct sl_endpoint endpoint_at(uint16_t port)
{
    return (struct sl_endpoint){.scheme = SL_ENDPOINT_TCP, .port = port, .host = "127.0.0.1"};
}

void open_member(struct fixture *f)
{
    const struct sl_agent_options options = {
        .reactor = f->pair.a.reactor,
        .transport = &sl_loop_transport_ops,
        .transport_options = {.medium = &f->network},
        .coordinator = endpoint_at(PORT),
        .task_index = 1,
        .shard_count = 2,
        .ps_count = 3,
        .worker_count = 5,
        .data = endpoint_at(5555),
        .bypass = {.scheme = SL_ENDPOINT_RDMA, .port = 5556, .host = "127.0.0.1"},
        .has_bypass = f->has_bypass,
        .host = "boot-4711/net-1",
        .incarnation = INCARNATION,
        .start_timeout_ns = START_TIMEOUT_NS,
        .events = {.joined = on_joined,
                   .failed = on_failed,
                   .expired = on_lost,
                   .absent = on_absent,
                   .checkpoint = f->has_no_directory ? NULL : on_checkpoint,
                   .checkpoint_publish = f->has_no_directory ? NULL : on_complete,
                   .checkpoint_completed = on_completed},
        .checkpoints = {.restore = f->restore, .newest = f->checkpoint_newest},
        .ctx = f,
    };
    assert_int_equal(sl_agent_open(&options, &f->member), 0);
}

void listen_now(struct fixture *f)
{
    struct sl_endpoint endpoint = endpoint_at(PORT);
    assert_int_equal(sl_transport_listen(f->pair.b.transport, &endpoint, &events, f, &endpoint), 0);
}

void fixture_setup(struct fixture *f)
{
    sl_log_setup(SL_LOG_OFF, "test");
    sl_loop_network_init(&f->network, 5);
    sl_stepped_pair_init(&f->pair, &sl_loop_transport_ops, &f->network, &f->network);
    assert_int_equal(sl_outbox_init(&f->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    open_member(f);
}

void fixture_teardown(struct fixture *f)
{
    sl_agent_close(&f->member);
    assert_null(f->member);
    sl_stepped_pair_fini(&f->pair);
    sl_outbox_fini(&f->outbox);
    sl_loop_network_fini(&f->network);
}

void until(struct fixture *f, const uint32_t *counter, uint32_t least)
{
    for (uint32_t turn = 0; *counter < least; turn++) {
        assert_true(turn < 30000);
        sl_stepped_pair_turn(&f->pair, SL_CLOCK_NS_PER_MS);
    }
}

void pass(struct fixture *f, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        sl_stepped_pair_turn(&f->pair, SL_CLOCK_NS_PER_MS);
    }
}

void greet_with(struct fixture *f, uint32_t lease_ms)
{
    uint32_t registers = f->register_count;
    until(f, &f->hello_count, f->accepted_count == 0 ? 1 : f->hello_count + 1);
    struct sl_message welcome = {.kind = SL_MESSAGE_WELCOME};
    welcome.welcome = (struct sl_message_welcome){.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                                  .lease_ms = lease_ms,
                                                  .software = "test",
                                                  .wants_reports = f->wants_reports,
                                                  .http = "127.0.0.1:9480"};
    send_message(f, &welcome);
    until(f, &f->register_count, registers + 1);
}

void greet(struct fixture *f)
{
    greet_with(f, LEASE_MS);
}

void join(struct fixture *f)
{
    listen_now(f);
    greet(f);
    send_cluster(f, f->register_id, 3);
    until(f, &f->joined_count, 1);
}

void disconnect(struct fixture *f)
{
    sl_transport_disconnect(f->conn);
    while (f->conn != NULL) {
        pass(f, 1);
    }
}
