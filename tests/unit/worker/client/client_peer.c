#include "tests/unit/worker/client/client_peer.h"
#include "worker/client/start.h"
#include "worker/client/table_opening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One connection of the ps. */
struct peer {
    struct sl_outbox_queue queue;
    uint8_t *sink;   /* a long request is being received into it */
    uint32_t number; /* of a data connection, from 1; 0: the coordinator's */
};

static uint64_t world_now(void *ctx)
{
    return ((struct peer_world *)ctx)->now_ns;
}

static void accepted(void *ctx, struct sl_conn *conn)
{
    conn->is_welcome = true;
    conn->user = calloc(1, sizeof(struct peer));
}

static void send_frame(struct peer_world *world, struct sl_conn *conn, struct sl_frame frame,
                       const void *payload)
{
    struct peer *peer = conn->user;
    uint8_t *room = sl_outbox_reserve(&world->outbox, frame.payload_bytes);
    assert_non_null(room);
    memcpy(room + SL_FRAME_HEADER_BYTES, payload, frame.payload_bytes);
    sl_outbox_commit(&world->outbox, conn, &peer->queue, &frame, NULL, 0, NULL, NULL);
}

static void send_message(struct peer_world *world, struct sl_conn *conn,
                         const struct sl_message *message)
{
    uint8_t bytes[1024];
    size_t count = sl_message_encoded_bytes(message);
    assert_true(count <= sizeof bytes);
    sl_message_encode(message, bytes);
    send_frame(world, conn,
               (struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)count},
               bytes);
}

static struct peer_heard *note(struct peer_world *world, const struct sl_conn *conn)
{
    assert_true(world->heard_count < PEER_HEARD_MAX);
    struct peer_heard *heard = &world->heard[world->heard_count++];
    *heard = (struct peer_heard){.connection = ((struct peer *)conn->user)->number};
    return heard;
}

static void greet(struct peer_world *world, struct sl_conn *conn, const struct sl_message *hello,
                  struct sl_message *answer)
{
    bool is_data = hello->hello.purpose == SL_MESSAGE_PURPOSE_DATA;
    if (is_data && world->is_deaf) {
        sl_transport_disconnect(conn);
        return;
    }
    answer->kind = SL_MESSAGE_WELCOME;
    answer->welcome = is_data ? world->welcome : world->control_welcome;
    if (is_data) {
        world->data = conn;
        ((struct peer *)conn->user)->number = ++world->data_connections;
    } else {
        world->control = conn;
    }
}

static void open_table(struct peer_world *world, const struct sl_conn *conn,
                       const struct sl_message *message, struct sl_message *answer)
{
    world->kept_tables += message->table_open.keep_id ? 1 : 0;
    if (conn == world->data && world->open_err != 0) {
        answer->kind = SL_MESSAGE_ERROR;
        answer->error.err = world->open_err;
        snprintf(answer->error.text, sizeof answer->error.text, "not this table");
    } else {
        answer->kind = SL_MESSAGE_TABLE_OPENED;
        answer->table_id = PEER_TABLE;
    }
}

static void join(struct peer_world *world, const struct sl_message *message,
                 struct sl_message *answer)
{
    world->heard[world->heard_count - 1].clock = message->clock;
    answer->kind = SL_MESSAGE_JOINED;
    answer->clock = world->joined > message->clock ? world->joined : message->clock;
}

static void answer_control(struct peer_world *world, struct sl_conn *conn,
                           const struct sl_message *message)
{
    struct sl_message_ps ps = {.shard_count = 1};
    struct sl_message_placement placement = {.epoch = 1};
    struct sl_message answer = {.id = message->id};
    const bool is_greeting =
        message->kind == SL_MESSAGE_HELLO || message->kind == SL_MESSAGE_ATTACH;
    if (!is_greeting && conn == world->data) {
        note(world, conn)->kind = message->kind;
    }
    switch (message->kind) {
    case SL_MESSAGE_HELLO:
        greet(world, conn, message, &answer);
        break;
    case SL_MESSAGE_ATTACH:
        answer.kind = SL_MESSAGE_WELCOME;
        answer.welcome = world->welcome;
        break;
    case SL_MESSAGE_REGISTER:
        world->registered++;
        answer.kind = SL_MESSAGE_CLUSTER;
        snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", world->endpoint);
        peer_fill_path(world, &ps);
        answer.cluster = (struct sl_message_cluster){
            .ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1};
        break;
    case SL_MESSAGE_TABLE_OPEN:
        open_table(world, conn, message, &answer);
        break;
    case SL_MESSAGE_JOIN:
        join(world, message, &answer);
        break;
    case SL_MESSAGE_BARRIER:
        world->barrier = message->barrier;
        answer.kind = world->answers_barrier ? SL_MESSAGE_BARRIER_DONE : 0;
        break;
    case SL_MESSAGE_CHECKPOINT_ASK:
        world->checkpoint_timeout_ms = message->timeout_ms;
        answer = world->checkpoint_answer;
        answer.id = message->id;
        break;
    case SL_MESSAGE_HEARTBEAT:
        world->heartbeats++;
        break;
    default:
        break;
    }
    if (answer.kind != 0) {
        send_message(world, conn, &answer);
    }
}

void peer_fill_path(const struct peer_world *world, struct sl_message_ps *ps)
{
    const struct peer_path *path = &world->path;
    struct sl_endpoint endpoint = path->endpoint;
    endpoint.scheme = path->scheme;
    snprintf(ps->host, sizeof ps->host, "%s", path->host);
    if (path->is_only) {
        sl_endpoint_format(&endpoint, ps->data_endpoint, sizeof ps->data_endpoint);
    } else if (path->scheme != SL_ENDPOINT_SHM) {
        sl_endpoint_format(&endpoint, ps->bypass_endpoint, sizeof ps->bypass_endpoint);
    }
}

void peer_tell(struct peer_world *world, const struct sl_message *message)
{
    assert_non_null(world->control);
    send_message(world, world->control, message);
}

static uint64_t reply_bytes(const uint8_t *payload, size_t bytes, struct peer_heard *heard)
{
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    struct sl_request_section section;
    struct sl_request_view view;
    uint64_t sum = 0;
    assert_int_equal(sl_request_read_prefix(&cursor, &prefix), 0);
    heard->clock = prefix.clock;
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        assert_int_equal(sl_request_read_section(&cursor, &section), 0);
        uint32_t dim = section.count == 0 ? PEER_DIM : 0; /* a dense range is never empty */
        assert_int_equal(sl_request_read_body(&cursor, &section, dim, &view), 0);
        sum += sl_request_reply_bytes(&section, dim);
        heard->op = i == 0 ? section.op : heard->op;
    }
    return sum;
}

static void answer_request(struct peer_world *world, struct sl_conn *conn,
                           const struct sl_transport_message *message)
{
    static uint8_t payload[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    struct peer_heard *heard = note(world, conn);
    heard->id = message->header.request_id;
    uint64_t bytes = reply_bytes(message->payload, message->header.payload_bytes, heard);
    uint64_t cost = sl_request_credit_bytes(message->header.payload_bytes, bytes);
    struct sl_frame frame = {
        .type = SL_FRAME_REPLY,
        .request_id = message->header.request_id,
        .payload_bytes = (uint32_t)bytes,
        .credit_requests = 1,
        .credit_bytes = (uint32_t)cost,
    };
    memset(payload, 0, bytes);
    switch (world->manner) {
    case PEER_SILENT:
        return;
    case PEER_HANGS_UP:
        sl_transport_disconnect(conn);
        return;
    case PEER_UNKNOWN_ID:
        frame.request_id += 100;
        break;
    case PEER_WRONG_LENGTH:
        frame.payload_bytes += 8;
        break;
    case PEER_ERROR_WITHOUT_TEXT:
        frame.status = -SL_ERR_NO_MEMORY;
        frame.payload_bytes = 0;
        break;
    case PEER_ERROR_WITH_LONG_TEXT:
        frame.status = -SL_ERR_NOT_FOUND;
        frame.payload_bytes = 20000; /* longer than what the transport's own buffers take */
        memset(payload, 'x', frame.payload_bytes);
        memcpy(payload, "no\ntable", 8);
        break;
    case PEER_LATE:
        frame.status = -SL_ERR_DEADLINE;
        frame.payload_bytes = 7;
        memcpy(payload, "no turn", 7);
        break;
    case PEER_TWICE:
        send_frame(world, conn, frame, payload);
        break;
    case PEER_CORRECT:
        break;
    }
    send_frame(world, conn, frame, payload);
}

void peer_refuse(struct peer_world *world, int err)
{
    assert_true(world->heard_count > 0);
    const struct sl_frame frame = {
        .type = SL_FRAME_REPLY,
        .request_id = world->heard[world->heard_count - 1].id,
        .status = (uint8_t)-err,
        .credit_requests = 1,
    };
    send_frame(world, world->data, frame, "");
}

static void *sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct peer *peer = conn->user;
    free(peer->sink);
    peer->sink = malloc(header->payload_bytes);
    return peer->sink;
}

static void received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct peer_world *world = ctx;
    if (message->header.type == SL_FRAME_CONTROL) {
        struct sl_message decoded;
        assert_int_equal(
            sl_message_decode(message->payload, message->header.payload_bytes, &decoded), 0);
        answer_control(world, conn, &decoded);
        sl_message_fini(&decoded);
    } else {
        answer_request(world, conn, message);
    }
    if (message->token != NULL) {
        sl_transport_release(conn, message);
    } else {
        struct peer *peer = conn->user;
        free(peer->sink);
        peer->sink = NULL;
    }
}

static void sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct peer_world *world = ctx;
    sl_outbox_sent(&world->outbox, cookie);
}

static void writable(void *ctx, struct sl_conn *conn)
{
    struct peer_world *world = ctx;
    sl_outbox_writable(&world->outbox, conn, &((struct peer *)conn->user)->queue);
}

static void closed(void *ctx, struct sl_conn *conn, int err)
{
    struct peer_world *world = ctx;
    sl_outbox_closed(&world->outbox, conn, &((struct peer *)conn->user)->queue);
    free(((struct peer *)conn->user)->sink);
    free(conn->user);
    world->data = world->data == conn ? NULL : world->data;
    world->control = world->control == conn ? NULL : world->control;
}

static const struct sl_transport_events ps_events = {.accepted = accepted,
                                                     .sink = sink,
                                                     .received = received,
                                                     .sent = sent,
                                                     .writable = writable,
                                                     .closed = closed};

/* The preferred path leads over a network of its own. It is neither shared memory nor RDMA nor
 * DPDK, but is treated as such. */
static struct peer_world *path_world;

static const struct sl_transport_ops *path_base(void)
{
    return path_world->path.scheme == SL_ENDPOINT_RDMA ? &sl_loop_device_ops
                                                       : &sl_loop_transport_ops;
}

static int open_path(struct sl_reactor *reactor, const struct sl_transport_options *options,
                     struct sl_transport **out)
{
    assert_ptr_equal(options->medium, &path_world->network);
    path_world->path.options = *options;
    const struct sl_transport_options path = {.medium = &path_world->path.network};
    return path_base()->open(reactor, &path, out);
}

static int register_path(struct sl_transport *transport, void *base, size_t bytes)
{
    struct peer_path *path = &path_world->path;
    assert_int_equal(path_base()->memory_register(transport, base, bytes), 0);
    assert_true(path->registered_count < PEER_REGISTERED_MAX);
    path->registered[path->registered_count].base = base;
    path->registered[path->registered_count++].bytes = bytes;
    return 0;
}

static void unregister_path(struct sl_transport *transport, void *base)
{
    struct peer_path *path = &path_world->path;
    path_base()->memory_unregister(transport, base);
    uint32_t i = 0;
    while (i < path->registered_count && path->registered[i].base != base) {
        i++;
    }
    assert_true(i < path->registered_count);
    path->registered[i] = path->registered[--path->registered_count];
}

static uint32_t send_path(struct sl_conn *conn, const struct sl_transport_frame *frames,
                          uint32_t count)
{
    uint32_t taken = sl_loop_transport_ops.send_burst(conn, frames, count);
    if (taken > 0) {
        path_world->path.reply_buffer = frames[taken - 1].reply_buffer;
        path_world->path.reply_buffer_bytes = frames[taken - 1].reply_buffer_bytes;
        path_world->path.payload = frames[taken - 1].payload;
    }
    return taken;
}

static struct sl_transport_ops path_ops;

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    if (scheme != path_world->path.scheme) {
        return scheme == SL_ENDPOINT_TCP ? &sl_loop_transport_ops : NULL;
    }
    path_ops = *path_base();
    path_ops.capabilities |= path_world->path.is_plain || scheme != SL_ENDPOINT_SHM
                                 ? 0
                                 : SL_TRANSPORT_MAPS_MEMORY | SL_TRANSPORT_DIRECT_REPLIES;
    path_ops.open = open_path;
    path_ops.memory_register = register_path;
    path_ops.memory_unregister = unregister_path;
    path_ops.send_burst = send_path;
    return path_world->path.is_missing ? NULL : &path_ops;
}

void peer_listen_path(struct peer_world *world)
{
    struct sl_endpoint bound;
    const struct sl_transport_options options = {.medium = &world->path.network};
    struct sl_transport **transport = &world->path.transport;
    path_world = world;
    assert_int_equal(sl_transport_open(path_base(), world->reactors[0], &options, transport), 0);
    assert_int_equal(
        sl_transport_listen(*transport, &world->path.endpoint, &ps_events, world, &bound), 0);
}

void peer_ignore_path(struct peer_world *world)
{
    sl_transport_close(&world->path.transport);
}

void peer_turn(struct peer_world *world)
{
    world->now_ns += SL_CLOCK_NS_PER_MS;
    sl_reactor_turn(world->reactors[0], world->now_ns);
    sl_reactor_turn(world->reactors[1], world->now_ns);
}

void peer_turns(struct peer_world *world, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        peer_turn(world);
    }
}

static void start_ps(struct peer_world *world)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_reactor_options options = {
            .name = "r", .core = -1, .stepped = true, .clock = &world->clock, .seed = 1 + i};
        assert_int_equal(sl_reactor_create(&options, &world->reactors[i]), 0);
        sl_reactor_turn(world->reactors[i], world->now_ns); /* it is this thread's */
    }
    const struct sl_transport_options options = {.medium = &world->network};
    assert_int_equal(
        sl_transport_open(&sl_loop_transport_ops, world->reactors[0], &options, &world->transport),
        0);
    assert_int_equal(sl_outbox_init(&world->outbox, SL_OUTBOX_MEMORY_BYTES_MIN, false), 0);
    const struct sl_endpoint any = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    assert_int_equal(sl_transport_listen(world->transport, &any, &ps_events, world, &bound), 0);
    sl_endpoint_format(&bound, world->endpoint, sizeof world->endpoint);
    world->path.endpoint = bound;
    world->path.scheme = SL_ENDPOINT_SHM;
}

void peer_setup(struct peer_world *world)
{
    world->now_ns = SL_CLOCK_NS_PER_S;
    world->clock = (struct sl_clock){.now_ns = world_now, .ctx = world};
    sl_loop_network_init(&world->network, 5);
    sl_loop_network_init(&world->path.network, 6);
    start_ps(world);
    world->welcome = (struct sl_message_welcome){
        .protocol_version = SL_FRAME_PROTOCOL_VERSION,
        .credit_bytes = SL_LIMIT_CREDIT_BYTES,
        .credit_requests = SL_LIMIT_CREDIT_REQUESTS,
        .shard_count = 1,
        .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
        .incarnation = 77,
        .counts = true,
    };
    world->control_welcome = (struct sl_message_welcome){
        .protocol_version = SL_FRAME_PROTOCOL_VERSION,
        .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
        .incarnation = 77,
    };
}

int peer_start_client(struct peer_world *world, int32_t task_index)
{
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = world->endpoint,
        .task_index = task_index,
        .start_timeout_ms = 1000,
        .join_running = world->client_joins,
        .disable_shm = world->path.client_wants_none && world->path.scheme == SL_ENDPOINT_SHM,
        .disable_rdma = world->path.client_wants_none && world->path.scheme == SL_ENDPOINT_RDMA,
        .rdma_device = world->path.scheme == SL_ENDPOINT_RDMA ? world->path.device : NULL,
        .dpdk_device = world->path.scheme == SL_ENDPOINT_DPDK ? world->path.device : NULL,
        .has_rdma_gid_index = world->path.gid_index != 0,
        .rdma_gid_index = world->path.gid_index,
        .tls_certificate = world->path.client_wants_tls ? "certificate" : NULL,
        .tls_key = world->path.client_wants_tls ? "key" : NULL,
        .tls_authority = world->path.client_wants_tls ? "authority" : NULL,
    };
    const struct sl_client_setup setup = {.reactors = &world->reactors[1],
                                          .reactor_count = 1,
                                          .find_transport = find_transport,
                                          .medium = &world->network,
                                          .host = world->path.client_host,
                                          .client_id = 1};
    path_world = world;
    assert_int_equal(sl_start_begin(&options, &setup, &world->client), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        err = sl_start_poll(world->client);
    }
    return err;
}

void peer_start_with_table(struct peer_world *world, int32_t task_index)
{
    assert_int_equal(peer_start_client(world, task_index), 0);
    struct sl_table_spec spec = {.name = "t", .kind = SL_TABLE_SPARSE, .dim = PEER_DIM};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table_opening opening;
    assert_int_equal(sl_table_opening_begin(&opening, world->client, &spec, 1000), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        err = sl_table_opening_poll(&opening, &world->table);
    }
    assert_int_equal(err, 0);
}

void peer_teardown(struct peer_world *world)
{
    sl_start_close_begin(world->client);
    bool done = false;
    for (int turns = 0; !done && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        done = sl_start_close_poll(world->client);
    }
    assert_true(done);
    sl_start_free(&world->client);
    sl_transport_close(&world->transport);
    if (world->path.transport != NULL) {
        sl_transport_close(&world->path.transport);
    }
    sl_outbox_fini(&world->outbox);
    sl_reactor_destroy(&world->reactors[0]);
    sl_reactor_destroy(&world->reactors[1]);
    sl_loop_network_fini(&world->network);
    sl_loop_network_fini(&world->path.network);
}

void peer_again(struct peer_world *world)
{
    peer_teardown(world);
    memset(world, 0, sizeof *world);
    peer_setup(world);
}

void peer_hang_up(struct peer_world *world)
{
    assert_non_null(world->data);
    sl_transport_disconnect(world->data);
    const struct sl_shard_conn *link = &world->client->conns[0];
    for (int turns = 0; link->state == SL_SHARD_CONN_OPEN && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
    }
    assert_int_not_equal(link->state, SL_SHARD_CONN_OPEN);
}

void peer_assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

void peer_expect(struct peer_world *world, struct sl_step *step, int err, const char *text)
{
    for (int turns = 0; !sl_step_done(step) && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
    }
    assert_true(sl_step_done(step));
    assert_int_equal(sl_step_wait(step), err);
    peer_assert_contains(sl_step_error(step), text);
    sl_step_destroy(&step);
}
