/* Over verbs a peer can say anything that fits a packet, name any memory, and stop at any moment.
 * It can end its own connection by it, and nothing else. */
#include "rdma_raw.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/log.h"
#include "rdma_asker.h"

#define RANDOM_ROUNDS 60
#define FLOOD         200

static struct world *world;
static struct peer *bystander;

static int open_world(void **state)
{
    world = world_open(2, NULL);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    bystander = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(bystander->open && world->nodes[0].peer_count == 1);
    return 0;
}

static void bystander_is_served(void)
{
    uint32_t sizes[] = {10, 3000, 100000}, before = bystander->received;
    peer_send_from_test(bystander, sizes, 3);
    WAIT_UNTIL(bystander->received == before + 3);
    assert_int_equal(bystander->closed, 0);
}

static int close_world(void **state)
{
    bystander_is_served();
    world_close(world);
    return 0;
}

static const struct sl_endpoint *server_endpoint(void)
{
    return &world->nodes[0].bound;
}

/* Whoever says this is turned away, and nobody above hears of him. */
static void expect_hello_refused(const void *data, size_t bytes)
{
    uint32_t before = world->nodes[0].peer_count;
    struct rdma_raw raw = rdma_raw_dial(server_endpoint());
    assert_false(rdma_raw_ask(&raw, data, bytes));
    rdma_raw_close(&raw);
    assert_int_equal(world->nodes[0].peer_count, before);
}

SL_CASE_WITH(hello__of_something_else, open_world, close_world)
{
    struct sl_rdma_hello hello = rdma_raw_hello();
    hello.magic++;
    expect_hello_refused(&hello, sizeof hello);
    hello = rdma_raw_hello();
    hello.version++;
    expect_hello_refused(&hello, sizeof hello);
    hello = rdma_raw_hello();
    expect_hello_refused(&hello, 4); /* what is missing are zeros, or nothing at all */
    expect_hello_refused(NULL, 0);
    expect_hello_refused(content_of(3, 56), 56);
}

SL_CASE_WITH(hello__of_a_target_that_is_not_there, open_world, close_world)
{
    const uint32_t targets[] = {1, 2, 255, 1U << 16, UINT32_MAX};
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        struct sl_rdma_hello hello = rdma_raw_hello();
        hello.target = targets[i];
        expect_hello_refused(&hello, sizeof hello);
    }
}

SL_CASE_WITH(hello__and_the_peer_is_gone, open_world, close_world)
{
    const struct sl_rdma_hello hello = rdma_raw_hello();
    for (uint32_t i = 0; i < 12; i++) {
        struct rdma_raw raw = rdma_raw_dial(server_endpoint());
        struct rdma_conn_param param = {.private_data = &hello,
                                        .private_data_len = sizeof hello,
                                        .responder_resources = 1,
                                        .initiator_depth = 1};
        assert_int_equal(raw.library->connect(raw.id, &param), 0);
        usleep(i % 3 * 3000);
        rdma_raw_close(&raw);
    }
    struct node *server = &world->nodes[0];
    WAIT_UNTIL(server->closed_count == server->open_count - 1);
}

struct session {
    struct rdma_raw raw;
    struct peer *accepted;
};

/* Connected, and one right frame was answered. */
static struct session begin(void)
{
    uint32_t before = world->nodes[0].peer_count;
    struct session session = {.raw = rdma_raw_connect(server_endpoint())};
    session.accepted = node_peer(&world->nodes[0], before);
    struct rdma_raw_packet good = rdma_raw_frames(1, 40);
    rdma_raw_send(&session.raw, good.bytes, good.count);
    const struct sl_rdma_packet *answer;
    uint32_t bytes;
    do {
        answer = rdma_raw_receive(&session.raw, &bytes);
        assert_non_null(answer);
    } while (answer->kind != SL_RDMA_FRAMES);
    assert_true(bytes >= sizeof *answer + FRAME_BYTES(40));
    assert_memory_equal((const uint8_t *)(answer + 1) + SL_FRAME_HEADER_BYTES, content_of(1, 40),
                        40);
    return session;
}

static void expect_end(struct session *session, int err)
{
    WAIT_UNTIL(session->accepted->closed == 1);
    assert_int_equal(session->accepted->close_err, err);
    assert_int_equal(session->accepted->received, 1);
    rdma_raw_await_end(&session->raw);
    rdma_raw_close(&session->raw);
}

static void expect_refused(const void *packet, size_t bytes, int err)
{
    struct session session = begin();
    rdma_raw_send(&session.raw, packet, bytes);
    expect_end(&session, err);
}

static void expect_packet_refused(const struct rdma_raw_packet *packet)
{
    expect_refused(packet->bytes, packet->count, SL_ERR_PROTOCOL);
}

/* A packet of this kind, and nothing that would have to be in it. */
static void expect_head_refused(struct sl_rdma_packet head)
{
    struct rdma_raw_packet packet = rdma_raw_begin(head);
    expect_packet_refused(&packet);
}

SL_CASE_WITH(packet__that_is_none, open_world, close_world)
{
    struct rdma_raw_packet good = rdma_raw_frames(2, 40);
    for (uint32_t bytes = 0; bytes < sizeof(struct sl_rdma_packet); bytes += 5) {
        expect_refused(good.bytes, bytes, SL_ERR_PROTOCOL);
    }
    expect_head_refused((struct sl_rdma_packet){.kind = 0});
    expect_head_refused((struct sl_rdma_packet){.kind = 9});
    expect_head_refused((struct sl_rdma_packet){.kind = 255});
    expect_refused(content_of(4, 4000), 4000, SL_ERR_PROTOCOL);
}

SL_CASE_WITH(packet__with_frames_that_are_none, open_world, close_world)
{
    const uint32_t counts[] = {0, 8, 71, 73, 80, 8192, UINT32_MAX, UINT32_MAX - 15};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct rdma_raw_packet bad = rdma_raw_begin(
            (struct sl_rdma_packet){.kind = SL_RDMA_FRAMES, .frame_bytes = counts[i]});
        rdma_raw_add_frame(&bad, 2, 40);
        expect_packet_refused(&bad);
    }
    struct rdma_raw_packet bad = rdma_raw_frames(2, 40);
    bad.bytes[sizeof(struct sl_rdma_packet)] += 8; /* the payload ends beyond the packet */
    expect_packet_refused(&bad);
    bad = rdma_raw_frames(2, 40);
    bad.bytes[sizeof(struct sl_rdma_packet) + offsetof(struct sl_frame, magic)]++;
    expect_packet_refused(&bad);
    bad = rdma_raw_frames(2, 40);
    bad.bytes[sizeof(struct sl_rdma_packet) + offsetof(struct sl_frame, type)] = 77;
    expect_packet_refused(&bad);
    bad = rdma_raw_frames(2, 40);
    bad.bytes[sizeof(struct sl_rdma_packet) + 3] = 0x7f;
    expect_refused(bad.bytes, bad.count, SL_ERR_TOO_LARGE);
}

/* A LONG, or a LANDING, of pieces like this one; the first with the header of a frame, the other
 * with all of it. */
static struct rdma_raw_packet packet_of_pieces(struct sl_rdma_packet head,
                                               struct sl_rdma_remote_sge piece, uint32_t count,
                                               uint32_t payload_bytes)
{
    const struct sl_frame header = {
        .type = SL_FRAME_REQUEST, .payload_bytes = payload_bytes, .request_id = 2, .budget_us = 1};
    const bool is_long = head.kind == SL_RDMA_LONG;
    uint8_t encoded[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&header, encoded);
    head.frame_bytes = is_long ? sizeof encoded : FRAME_BYTES(payload_bytes);
    struct rdma_raw_packet packet = rdma_raw_begin(head);
    for (uint32_t i = 0; i < count; i++) {
        rdma_raw_add(&packet, &piece, sizeof piece);
    }
    if (is_long) {
        rdma_raw_add(&packet, encoded, sizeof encoded);
    } else {
        rdma_raw_add_frame(&packet, 2, payload_bytes);
    }
    return packet;
}

static struct sl_rdma_remote_sge lent_piece(const struct rdma_raw *raw, uint32_t bytes)
{
    return (struct sl_rdma_remote_sge){
        .at = (uintptr_t)raw->lent, .key = raw->mr->rkey, .bytes = bytes};
}

static void expect_long_refused(uint8_t claimed, uint32_t count, uint32_t piece_bytes,
                                uint32_t payload_bytes, int err)
{
    struct session session = begin();
    struct rdma_raw_packet bad =
        packet_of_pieces((struct sl_rdma_packet){.kind = SL_RDMA_LONG, .remote_sge_count = claimed},
                         lent_piece(&session.raw, piece_bytes), count, payload_bytes);
    rdma_raw_send(&session.raw, bad.bytes, bad.count);
    expect_end(&session, err);
}

SL_CASE_WITH(long__whose_pieces_do_not_fit, open_world, close_world)
{
    expect_long_refused(0, 0, 0, 50000, SL_ERR_PROTOCOL);
    expect_long_refused(2, 1, 25000, 50000, SL_ERR_PROTOCOL);
    expect_long_refused(9, 9, 10000, 90000, SL_ERR_PROTOCOL);
    expect_long_refused(255, 255, 1, 255, SL_ERR_PROTOCOL);
    expect_long_refused(1, 1, 49999, 50000, SL_ERR_PROTOCOL);
    expect_long_refused(1, 1, 50001, 50000, SL_ERR_PROTOCOL);
    expect_long_refused(2, 2, 1U << 31, 0, SL_ERR_PROTOCOL);
    expect_long_refused(1, 1, SL_LIMIT_FRAME_PAYLOAD_BYTES + 1, SL_LIMIT_FRAME_PAYLOAD_BYTES + 1,
                        SL_ERR_TOO_LARGE);
}

SL_CASE_WITH(reply_buffer__whose_pieces_do_not_fit, open_world, close_world)
{
    const uint32_t claims[] = {0, 2, 9, 255};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        struct session session = begin();
        struct rdma_raw_packet bad =
            packet_of_pieces((struct sl_rdma_packet){.kind = SL_RDMA_REPLY_BUFFER,
                                                     .reply_buffer_count = (uint8_t)claims[i]},
                             lent_piece(&session.raw, 1000), 1, 40);
        rdma_raw_send(&session.raw, bad.bytes, bad.count);
        expect_end(&session, SL_ERR_PROTOCOL);
    }
}

/* The device says so, in the middle of a read: there is nothing to be had there. */
SL_CASE_WITH(long__that_lies_nowhere, open_world, close_world)
{
    for (uint32_t i = 0; i < 6; i++) {
        struct session session = begin();
        struct sl_rdma_remote_sge piece = lent_piece(&session.raw, 50000);
        piece.key += i % 2 == 0 ? 0x100 : 0;
        piece.at = i % 2 == 0 ? piece.at : i % 4 == 1 ? 0 : UINT64_MAX - 100;
        struct rdma_raw_packet bad = packet_of_pieces(
            (struct sl_rdma_packet){.kind = SL_RDMA_LONG, .remote_sge_count = 1}, piece, 1, 50000);
        rdma_raw_send(&session.raw, bad.bytes, bad.count);
        WAIT_UNTIL(session.accepted->closed == 1);
        const int err = session.accepted->close_err;
        assert_true(err == SL_ERR_PROTOCOL || err == SL_ERR_IO);
        assert_int_equal(session.accepted->received, 1);
        rdma_raw_await_end(&session.raw);
        rdma_raw_close(&session.raw);
    }
}

/* Its memory goes while it is read. */
SL_CASE_WITH(long__and_the_peer_is_gone, open_world, close_world)
{
    for (uint32_t i = 0; i < 10; i++) {
        struct session session = begin();
        struct rdma_raw_packet packet =
            packet_of_pieces((struct sl_rdma_packet){.kind = SL_RDMA_LONG, .remote_sge_count = 1},
                             lent_piece(&session.raw, RAW_LENT_BYTES), 1, RAW_LENT_BYTES);
        memcpy(session.raw.lent, content_of(2, RAW_LENT_BYTES), RAW_LENT_BYTES);
        rdma_raw_send(&session.raw, packet.bytes, packet.count);
        usleep(i * 700);
        rdma_raw_close(&session.raw);
        WAIT_UNTIL(session.accepted->closed == 1);
    }
}

SL_CASE_WITH(kind__that_is_not_for_him_to_say, open_world, close_world)
{
    expect_head_refused((struct sl_rdma_packet){.kind = SL_RDMA_FIN + 1});
    expect_head_refused((struct sl_rdma_packet){.kind = SL_RDMA_FIN, .frame_bytes = 8});
}

/* Written to no landing, of a request that nobody has made. */
SL_CASE_WITH(written__for_nothing, open_world, close_world)
{
    struct rdma_raw_packet bad = rdma_raw_begin(
        (struct sl_rdma_packet){.kind = SL_RDMA_WRITTEN, .frame_bytes = SL_FRAME_HEADER_BYTES});
    struct sl_frame header = {.type = SL_FRAME_REPLY, .payload_bytes = 50000, .request_id = 2};
    uint8_t encoded[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&header, encoded);
    rdma_raw_add(&bad, encoded, sizeof encoded);
    expect_packet_refused(&bad);
    bad.count -= 4;
    expect_packet_refused(&bad);
}

SL_CASE_WITH(done__more_than_was_sent, open_world, close_world)
{
    expect_head_refused((struct sl_rdma_packet){.kind = SL_RDMA_CREDIT_UPDATE, .done = 1});
    expect_head_refused((struct sl_rdma_packet){.kind = SL_RDMA_CREDIT_UPDATE, .done = 1U << 31});
}

/* He has been told how many the other side has room for. */
SL_CASE_WITH(credit__more_than_there_is, open_world, close_world)
{
    struct session session = begin();
    session.raw.theirs.limit = 0;
    node_set_policy(&world->nodes[0], (struct policy){.echo = false, .hold = true});
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct rdma_raw_packet packet = rdma_raw_frames(2 + i, 100);
        rdma_raw_send(&session.raw, packet.bytes, packet.count);
    }
    WAIT_UNTIL(session.accepted->closed == 1);
    assert_int_equal(session.accepted->close_err, SL_ERR_PROTOCOL);
    rdma_raw_await_end(&session.raw);
    rdma_raw_close(&session.raw);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
}

/* More than the receive buffers hold, which the device sees, on either side. */
SL_CASE_WITH(packet__that_is_too_long, open_world, close_world)
{
    struct session session = begin();
    rdma_raw_send(&session.raw, content_of(1, RAW_SEND_BYTES), RAW_SEND_BYTES);
    WAIT_UNTIL(session.accepted->closed == 1);
    assert_int_equal(session.accepted->received, 1);
    rdma_raw_await_end(&session.raw);
    rdma_raw_close(&session.raw);
}

/* Nobody was given a key: the device refuses, and this connection's end is all. */
SL_CASE_WITH(write__where_nothing_is_offered, open_world, close_world)
{
    for (uint32_t i = 0; i < 4; i++) {
        struct session session = begin();
        rdma_raw_write(&session.raw, (uintptr_t)world->nodes[0].slab.base, 0x100 * (i + 1), 64);
        rdma_raw_await_end(&session.raw);
        rdma_raw_close(&session.raw);
        WAIT_UNTIL(session.accepted->closed == 1);
    }
}

SL_CASE_WITH(bye__and_then_more, open_world, close_world)
{
    struct session session = begin();
    struct rdma_raw_packet bye = rdma_raw_begin((struct sl_rdma_packet){.kind = SL_RDMA_FIN});
    struct rdma_raw_packet more = rdma_raw_frames(2, 40);
    rdma_raw_send(&session.raw, bye.bytes, bye.count);
    rdma_raw_send(&session.raw, more.bytes, more.count);
    WAIT_UNTIL(session.accepted->closed == 1);
    assert_true(session.accepted->close_err == SL_ERR_PROTOCOL ||
                session.accepted->close_err == SL_ERR_CLOSED);
    assert_int_equal(session.accepted->received, 1);
    rdma_raw_close(&session.raw);
}

SL_CASE_WITH(reply_buffer__that_is_nowhere, open_world, close_world)
{
    struct sl_endpoint at;
    answerer_open(&world->nodes[0], &at);
    for (uint32_t i = 0; i < 4; i++) {
        struct rdma_raw raw = rdma_raw_connect(&at);
        struct sl_rdma_remote_sge piece = lent_piece(&raw, 100000);
        piece.key += i % 2 == 0 ? 0x100 : 0;
        piece.at = i % 2 == 0 ? piece.at : 4096;
        const uint32_t question[2] = {100000, ANSWER_FROM_REGISTERED};
        struct rdma_raw_packet packet = packet_of_pieces(
            (struct sl_rdma_packet){.kind = SL_RDMA_REPLY_BUFFER, .reply_buffer_count = 1}, piece,
            1, 8);
        memcpy(packet.bytes + packet.count - sizeof question, question, sizeof question);
        rdma_raw_send(&raw, packet.bytes, packet.count);
        rdma_raw_await_end(&raw);
        rdma_raw_close(&raw);
        WAIT_UNTIL(answerer_open_count == 0);
    }
}

static void *believe_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    static _Alignas(64) uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    return sink;
}

static atomic_uint believed, believers;

/* Answers every frame with a long one, which may have a landing. */
static void believe_received(void *ctx, struct sl_conn *conn,
                             const struct sl_transport_message *message)
{
    static uint8_t head[SL_FRAME_HEADER_BYTES];
    const struct sl_frame header = {
        .type = SL_FRAME_REPLY, .payload_bytes = 30000, .request_id = 2};
    sl_frame_encode(&header, head);
    const struct sl_transport_frame answer = {.head = head,
                                              .head_bytes = sizeof head,
                                              .payload = content_of(2, 30000),
                                              .payload_bytes = 30000};
    (void)sl_transport_send_burst(conn, &answer, 1);
    sl_transport_release(conn, message);
    believed++;
}

static void believe_accepted(void *ctx, struct sl_conn *conn)
{
    conn->is_welcome = true;
    believers++;
}

static void believe_closed(void *ctx, struct sl_conn *conn, int err)
{
    believers--;
}

static void ignore_cookie(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void ignore(void *ctx, struct sl_conn *conn)
{
}

static const struct sl_transport_events believer = {.accepted = believe_accepted,
                                                    .sink = believe_sink,
                                                    .received = believe_received,
                                                    .sent = ignore_cookie,
                                                    .writable = ignore,
                                                    .closed = believe_closed};

static void listen_believing(struct node *node, void *ctx)
{
    struct sl_endpoint endpoint = node->bound;
    endpoint.port = 0;
    assert_int_equal(sl_transport_listen(node->transport, &endpoint, &believer, NULL, ctx), 0);
}

static struct rdma_raw_packet random_packet(uint64_t *seed, const struct rdma_raw *raw)
{
    const uint32_t bytes = (uint32_t)(sl_hash_random(seed) % 60000);
    const uint8_t pieces = (uint8_t)(1 + sl_hash_random(seed) % 2);
    struct sl_rdma_packet head = {.kind = (uint8_t)(1 + sl_hash_random(seed) % 8),
                                  .remote_sge_count = pieces,
                                  .flags = (uint8_t)(sl_hash_random(seed) % 4)};
    struct rdma_raw_packet packet = rdma_raw_frames(2, bytes % 3000);
    if (sl_hash_random(seed) % 2 == 0) {
        head.kind = sl_hash_random(seed) % 2 == 0 ? SL_RDMA_LONG : SL_RDMA_REPLY_BUFFER;
    }
    if (sl_hash_random(seed) % 3 != 0) {
        const uint32_t payload = head.kind != SL_RDMA_LONG ? 40 : bytes * pieces;
        head.reply_buffer_count = head.kind == SL_RDMA_REPLY_BUFFER ? pieces : 0;
        head.remote_sge_count = head.kind == SL_RDMA_REPLY_BUFFER ? 0 : pieces;
        packet = packet_of_pieces(head, lent_piece(raw, bytes), pieces, payload);
    }
    const bool is_right = sl_hash_random(seed) % 2 == 0;
    for (uint64_t count = is_right ? 0 : sl_hash_random(seed) % 4; count > 0; count--) {
        const uint64_t within = sl_hash_random(seed) % 2 == 0 ? 16 : packet.count;
        packet.bytes[sl_hash_random(seed) % within] = (uint8_t)sl_hash_random(seed);
    }
    if (sl_hash_random(seed) % 8 == 0) {
        packet.count = (uint32_t)(sl_hash_random(seed) % (packet.count + 1));
    }
    return packet;
}

static void play_at_random(uint64_t seed, const struct sl_endpoint *at)
{
    struct rdma_raw raw = rdma_raw_connect(at);
    for (uint64_t moves = 1 + sl_hash_random(&seed) % 10; moves > 0; moves--) {
        struct rdma_raw_packet packet = random_packet(&seed, &raw);
        rdma_raw_send(&raw, packet.bytes, packet.count);
    }
    if (sl_hash_random(&seed) % 4 != 0) {
        rdma_raw_settle(&raw);
    }
    rdma_raw_close(&raw);
}

SL_CASE_WITH(packets__at_random, open_world, close_world)
{
    struct sl_endpoint at;
    node_run(&world->nodes[0], listen_believing, &at);
    for (uint64_t seed = 1; seed <= RANDOM_ROUNDS; seed++) {
        play_at_random(seed, &at);
        if (seed % 20 == 0) {
            bystander_is_served();
        }
    }
    WAIT_UNTIL(believers == 0);
    assert_true(believed > RANDOM_ROUNDS / 4);
}

int main(void)
{
    static struct conformance_target target;
    if (!rdma_target_init(&target, "rdma mad", "RDMA_IP")) {
        return SKIPPED;
    }
    if (getenv("STARLING_LOG") == NULL) {
        sl_log_setup(SL_LOG_OFF, target.name); /* all that it says is expected */
    }
    return sl_unit_run("rdma mad", __FILE__);
}
