#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/log.h"
#include "core/partition.h"
#include "ps/coordinator/coordinator.h"
#include "ps/process/state.h"

#define DEADLINE_S 200

struct start {
    struct server_fixture *fixture;
    uint32_t index;
};

static int start_server(void *ctx)
{
    const struct start *start = ctx;
    struct server_fixture *fixture = start->fixture;
    struct sl_server_options options = fixture->options;
    options.reactor = fixture->reactors[start->index];
    options.transports.first = sl_builtin_find(SL_ENDPOINT_TCP);
    options.local_index = start->index;
    options.servers = fixture->servers;
    options.server_count = SERVER_COUNT;
    options.coordinator = start->index == 0 ? fixture->coordinator : NULL;
    options.coordinator_ops = &sl_process_coordinator_ops;
    options.incarnation = options.incarnation == 0 ? 4711 : options.incarnation;
    int err = sl_server_create(&options, &fixture->servers[start->index]);
    if (err == 0 && fixture->lease_ns != 0) {
        sl_server_set_lease(fixture->servers[start->index], fixture->lease_ns);
    }
    return err;
}

static void stop_server(void *ctx)
{
    sl_server_destroy(ctx);
}

static void listen_on_loopback(struct server_fixture *fixture, uint32_t index)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    assert_int_equal(sl_server_listen(fixture->servers[index], &endpoint, &bound), 0);
    fixture->port = bound.port;
}

static void number(struct server_fixture *fixture, uint32_t index)
{
    assert_int_equal(sl_server_set_shard(fixture->servers[index], index, SERVER_COUNT), 0);
}

void server_fixture_keys(uint32_t shard, uint64_t *keys, uint32_t count)
{
    uint64_t key = 0;
    for (uint32_t i = 0; i < count; i++, key++) {
        while (sl_partition_owner(key, SERVER_COUNT) != shard) {
            key++;
        }
        keys[i] = key;
    }
}

void server_fixture_gradients(float *gradients, uint32_t count)
{
    for (uint32_t i = 0; i < count * SERVER_FIXTURE_DIM; i++) {
        gradients[i] = (float)(i / SERVER_FIXTURE_DIM % 1000);
    }
}

void server_fixture_number(struct server_fixture *fixture)
{
    for (uint32_t i = 0; i < SERVER_COUNT; i++) {
        server_fixture_run_on(fixture, i, number);
    }
}

void server_fixture_start(struct server_fixture *fixture, bool with_coordinator)
{
    sl_log_setup(SL_LOG_OFF, "test");
    sem_init(&fixture->drained, 0, 0);
    if (with_coordinator) {
        struct sl_coordinator_options options = {
            .ps_count = 1,
            .lease_ns = fixture->lease_ns,
            .send = sl_server_send_to_peer,
            .close = sl_server_close_peer,
        };
        assert_int_equal(sl_coordinator_create(&options, &fixture->coordinator), 0);
    }
    for (uint32_t i = 0; i < SERVER_COUNT; i++) {
        struct sl_reactor_options options = {.name = "test", .index = i, .core = -1};
        assert_int_equal(sl_reactor_create(&options, &fixture->reactors[i]), 0);
        sl_reactor_on_stop(fixture->reactors[i], stop_server, &fixture->servers[i]);
    }
    assert_int_equal(sl_reactor_connect(fixture->reactors, SERVER_COUNT), 0);
    for (uint32_t i = 0; i < SERVER_COUNT; i++) {
        struct start start = {.fixture = fixture, .index = i};
        assert_int_equal(sl_reactor_start(fixture->reactors[i], start_server, &start), 0);
    }
    server_fixture_run_on(fixture, 0, listen_on_loopback);
    if (!fixture->number_late) {
        server_fixture_number(fixture);
    }
}

void server_fixture_stop(struct server_fixture *fixture)
{
    for (uint32_t i = 0; i < SERVER_COUNT; i++) {
        sl_reactor_stop(fixture->reactors[i]);
        sl_reactor_join(fixture->reactors[i]);
        sl_reactor_destroy(&fixture->reactors[i]);
    }
    sem_destroy(&fixture->drained);
    if (fixture->coordinator != NULL) {
        sl_coordinator_destroy(&fixture->coordinator);
    }
}

void server_fixture_setup_least(struct server_fixture *fixture)
{
    fixture->options.buffer_bytes_max = 1;
    server_fixture_start(fixture, false);
}

struct errand {
    struct server_fixture *fixture;
    uint32_t index;
    void (*run)(struct server_fixture *fixture, uint32_t index);
    sem_t done;
};

static void run_errand(void *ctx, uint64_t a, uint64_t b)
{
    struct errand *errand = ctx;
    errand->run(errand->fixture, errand->index);
    sem_post(&errand->done);
}

void server_fixture_run_on(struct server_fixture *fixture, uint32_t index,
                           void (*run)(struct server_fixture *fixture, uint32_t index))
{
    struct errand errand = {.fixture = fixture, .index = index, .run = run};
    sem_init(&errand.done, 0, 0);
    struct sl_mailbox_lane *lane;
    struct sl_mailbox *mailbox = sl_reactor_mailbox(fixture->reactors[index]);
    assert_int_equal(sl_mailbox_lane_open(mailbox, &lane), 0);
    assert_int_equal(sl_mailbox_post(lane, (struct sl_mail){.run = run_errand, .ctx = &errand}), 0);
    sl_mailbox_lane_close(&lane);
    while (sem_wait(&errand.done) != 0) {
    }
    sem_destroy(&errand.done);
}

struct peer *peer_connect(const struct server_fixture *fixture)
{
    struct peer *peer = calloc(1, sizeof *peer);
    assert_non_null(peer);
    peer->next_id = 1;
    peer->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(peer->fd >= 0);
    struct timeval deadline = {.tv_sec = DEADLINE_S};
    assert_int_equal(setsockopt(peer->fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline), 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons(fixture->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    assert_int_equal(connect(peer->fd, (struct sockaddr *)&address, sizeof address), 0);
    return peer;
}

void peer_close(struct peer **peer)
{
    (void)close((*peer)->fd);
    free(*peer);
    *peer = NULL;
}

void peer_send_bytes(struct peer *peer, const void *bytes, size_t count)
{
    const uint8_t *next = bytes;
    while (count > 0) {
        ssize_t sent = send(peer->fd, next, count, MSG_NOSIGNAL);
        if (sent <= 0) {
            return; /* the server has closed: what the test expects shows when it receives */
        }
        next += sent;
        count -= (size_t)sent;
    }
}

void peer_send_frame(struct peer *peer, struct sl_frame frame, const void *payload)
{
    uint8_t head[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&frame, head);
    if (peer->checksum) {
        sl_frame_seal(head, payload, frame.payload_bytes, NULL, 0);
    }
    peer_send_bytes(peer, head, sizeof head);
    peer_send_bytes(peer, payload, frame.payload_bytes);
}

void peer_send_message(struct peer *peer, const struct sl_message *message)
{
    uint8_t payload[4096];
    struct sl_message named = *message;
    named.id = sl_frame_id(sl_frame_shard(peer->next_id), message->id);
    size_t bytes = sl_message_encoded_bytes(&named);
    assert_true(bytes <= sizeof payload);
    sl_message_encode(&named, payload);
    peer_send_frame(peer,
                    (struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes},
                    payload);
}

uint64_t peer_send_request(struct peer *peer, const struct shard_request *request,
                           uint32_t budget_us)
{
    struct sl_frame frame = {
        .type = SL_FRAME_REQUEST,
        .payload_bytes = (uint32_t)request->bytes,
        .request_id = peer->next_id++,
        .budget_us = budget_us,
    };
    peer_send_frame(peer, frame, request->payload);
    return frame.request_id;
}

/* False at the end of the stream. */
static bool receive_bytes(struct peer *peer, uint8_t *to, size_t count)
{
    while (count > 0) {
        ssize_t received = TEMP_FAILURE_RETRY(recv(peer->fd, to, count, 0));
        if (received <= 0) {
            assert_true(received == 0 || errno != EAGAIN); /* else the deadline passed */
            return false;
        }
        to += received;
        count -= (size_t)received;
    }
    return true;
}

bool peer_receive(struct peer *peer)
{
    uint8_t head[SL_FRAME_HEADER_BYTES];
    if (!receive_bytes(peer, head, sizeof head)) {
        return false;
    }
    assert_int_equal(sl_frame_decode(head, &peer->header), 0);
    if (!receive_bytes(peer, peer->payload, peer->header.payload_bytes)) {
        return false;
    }
    assert_int_equal(sl_frame_verify(&peer->header, peer->payload), 0);
    return true;
}

void peer_receive_message(struct peer *peer, struct sl_message *out)
{
    assert_true(peer_receive(peer));
    assert_int_equal(peer->header.type, SL_FRAME_CONTROL);
    assert_int_equal(sl_message_decode(peer->payload, peer->header.payload_bytes, out), 0);
    assert_true(out->id == 0 || sl_frame_shard(out->id) == sl_frame_shard(peer->next_id));
    out->id = sl_frame_number(out->id);
}

void peer_expect_end(struct peer *peer)
{
    while (peer_receive(peer)) {
    }
}

int peer_receive_reply(struct peer *peer, uint64_t id)
{
    assert_true(peer_receive(peer));
    assert_int_equal(peer->header.type, SL_FRAME_REPLY);
    assert_int_equal(peer->header.request_id, id);
    if (peer->header.status != 0) {
        peer->payload[peer->header.payload_bytes] = '\0';
    }
    return -(int)peer->header.status;
}

struct sl_message peer_hello(struct peer *peer, const struct sl_message_hello *hello)
{
    struct sl_message message = {.kind = SL_MESSAGE_HELLO, .id = 77, .hello = *hello};
    if (message.hello.protocol_version == 0) {
        message.hello.protocol_version = SL_FRAME_PROTOCOL_VERSION;
    }
    peer->checksum = hello->checksum;
    peer_send_message(peer, &message);
    struct sl_message answer;
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.id, 77);
    if (hello->purpose != SL_MESSAGE_PURPOSE_DATA || answer.kind != SL_MESSAGE_WELCOME) {
        return answer;
    }
    peer->next_id = sl_frame_id(hello->shard, 1);
    const struct sl_message attach = {.kind = SL_MESSAGE_ATTACH, .id = 78};
    peer_send_message(peer, &attach);
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.id, 78);
    return answer;
}

static struct peer *connect_as(const struct server_fixture *fixture,
                               const struct sl_message_hello *hello)
{
    struct peer *peer = peer_connect(fixture);
    struct sl_message answer = peer_hello(peer, hello);
    assert_int_equal(answer.kind, SL_MESSAGE_WELCOME);
    assert_int_equal(answer.welcome.shard, hello->shard);
    assert_int_equal(answer.welcome.shard_count, SERVER_COUNT);
    peer->hello = *hello;
    peer->welcome = answer.welcome;
    return peer;
}

struct peer *peer_join(const struct server_fixture *fixture, uint32_t worker, uint32_t shard)
{
    static uint64_t client_id;
    struct sl_message_hello hello = {
        .purpose = SL_MESSAGE_PURPOSE_DATA,
        .role = worker == UINT32_MAX ? SL_MESSAGE_ROLE_CLIENT : SL_MESSAGE_ROLE_WORKER,
        .task_index = worker == UINT32_MAX ? 0 : worker,
        .client_id = ++client_id,
        .shard = shard,
    };
    return connect_as(fixture, &hello);
}

void peer_join_clock(struct peer *peer, uint32_t clock)
{
    struct sl_message message = {.kind = SL_MESSAGE_JOIN, .id = 6, .clock = clock};
    peer_send_message(peer, &message);
    peer_receive_message(peer, &message);
    assert_int_equal(message.kind, SL_MESSAGE_JOINED);
    assert_int_equal(message.id, 6);
    assert_int_equal(message.clock, clock);
}

void peer_sync(struct peer *peer)
{
    struct sl_message message = {.kind = SL_MESSAGE_STATS_GET, .id = 8};
    peer_send_message(peer, &message);
    peer_receive_message(peer, &message);
    assert_int_equal(message.kind, SL_MESSAGE_STATS);
    sl_message_fini(&message);
}

void peer_open_table(struct peer *peer, uint32_t id, enum sl_consistency_mode mode)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = 5,
        .table_open = {.spec = {.kind = SL_TABLE_SPARSE,
                                .dim = SERVER_FIXTURE_DIM,
                                .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
                                .consistency = {.mode = mode}},
                       .table_id = id},
    };
    message.table_open.spec.consistency.worker_count = mode == SL_CONSISTENCY_ASP ? 0 : 2;
    (void)snprintf(message.table_open.spec.name, sizeof message.table_open.spec.name, "t%u", id);
    peer_send_message(peer, &message);
    struct sl_message answer;
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.kind, SL_MESSAGE_TABLE_OPENED);
    assert_int_equal(answer.table_id, id);
}

struct peer *peer_join_table(const struct server_fixture *fixture, uint32_t worker,
                             enum sl_consistency_mode mode)
{
    struct peer *peer = peer_join(fixture, worker, 0);
    peer_open_table(peer, 0, mode);
    return peer;
}

void peer_expect_end_and_close(struct peer **peer)
{
    peer_expect_end(*peer);
    peer_close(peer);
}
