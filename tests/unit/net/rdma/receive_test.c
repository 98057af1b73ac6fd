#include <stdlib.h>
#include <string.h>

#include "net/rdma/end.h"
#include "net/rdma/receive.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

#define MEMORY_BYTES (1U << 20)
#define ODD          5 /* a sink may have any alignment */
#define FRAME(bytes) (SL_FRAME_HEADER_BYTES + (bytes))

struct fixture {
    struct rdma_wire wire;
    struct rdma_wire_end *a, *b;
    uint8_t *memory, *sink;
    struct ibv_mr *mr; /* of memory: what a peer of ours would let us read */
};

static void setup(struct fixture *fixture)
{
    rdma_wire_init(&fixture->wire);
    fixture->a = &fixture->wire.ends[0];
    fixture->b = &fixture->wire.ends[1];
    fixture->memory = aligned_alloc(4096, MEMORY_BYTES);
    fixture->sink = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(fixture->memory);
    assert_non_null(fixture->sink);
    fixture->mr =
        fixture->wire.fake.library.reg_mr(&fixture->wire.fake.pd, fixture->memory, MEMORY_BYTES,
                                          IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE);
}

static void register_sink(struct fixture *fixture)
{
    assert_int_equal(
        sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->sink, MEMORY_BYTES), 0);
}

static void teardown(struct fixture *fixture)
{
    (void)fixture->wire.fake.library.dereg_mr(fixture->mr);
    rdma_wire_fini(&fixture->wire);
    free(fixture->memory);
    free(fixture->sink);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

/* ---- Packets made by hand ---------------------------------------------------------------------
 */

struct packet {
    _Alignas(8) uint8_t bytes[SL_RDMA_PACKET_BYTES];
    uint32_t count;
};

static void add(struct packet *packet, const void *from, size_t bytes)
{
    assert_true(packet->count + bytes <= sizeof packet->bytes);
    memcpy(packet->bytes + packet->count, from, bytes);
    packet->count += (uint32_t)bytes;
}

/* With a limit that is right. */
static struct packet begin(struct sl_rdma_packet head)
{
    struct packet packet = {.count = 0};
    head.limit = SL_RDMA_WINDOW_MIN;
    add(&packet, &head, sizeof head);
    return packet;
}

static void add_frame(struct packet *packet, enum sl_frame_type type, uint64_t request_id,
                      uint32_t payload_bytes, uint8_t fill)
{
    uint8_t frame[SL_RDMA_PACKET_BYTES];
    rdma_wire_frame(frame, type, request_id, payload_bytes, fill);
    add(packet, frame, FRAME(payload_bytes));
}

static void add_header(struct packet *packet, enum sl_frame_type type, uint64_t request_id,
                       uint32_t payload_bytes)
{
    const struct sl_frame frame = {.type = (uint8_t)type,
                                   .payload_bytes = payload_bytes,
                                   .request_id = request_id,
                                   .budget_us = 1};
    uint8_t header[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&frame, header);
    add(packet, header, sizeof header);
}

static struct packet frames(uint64_t request_id, uint32_t payload_bytes, uint8_t fill)
{
    struct packet packet =
        begin((struct sl_rdma_packet){.kind = SL_RDMA_FRAMES, .frame_bytes = FRAME(payload_bytes)});
    add_frame(&packet, SL_FRAME_REQUEST, request_id, payload_bytes, fill);
    return packet;
}

/* A payload that lies `from` bytes into the memory, in `pieces` parts. */
static struct packet lying(struct fixture *fixture, uint64_t request_id, uint32_t from,
                           uint32_t payload_bytes, uint8_t remote_sges)
{
    struct packet packet = begin((struct sl_rdma_packet){.kind = SL_RDMA_LONG,
                                                         .remote_sge_count = remote_sges,
                                                         .frame_bytes = SL_FRAME_HEADER_BYTES});
    uint32_t left = payload_bytes, each = payload_bytes / remote_sges;
    for (uint8_t i = 0; i < remote_sges; i++) {
        uint32_t bytes = i + 1 == remote_sges ? left : each;
        const struct sl_rdma_remote_sge remote_sge = {
            .at = (uintptr_t)fixture->memory + from, .key = fixture->mr->rkey, .bytes = bytes};
        add(&packet, &remote_sge, sizeof remote_sge);
        from += bytes;
        left -= bytes;
    }
    add_header(&packet, SL_FRAME_REQUEST, request_id, payload_bytes);
    return packet;
}

static void inject(struct fixture *fixture, const struct packet *packet)
{
    rdma_wire_inject(fixture->b, packet->bytes, packet->count);
}

/* Of the receiver nothing but its end is left, and its buffer is posted again, unless it is looked
 * at when its turn comes: then with the end. */
static void expect_refused(const struct packet *packet, int err)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    setup(fixture);
    uint32_t posted = fixture->wire.fake.posted_count;
    inject(fixture, packet);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->b->conn->phase, SL_RDMA_ENDED);
    assert_int_equal(fixture->b->conn->end.err, err);
    assert_int_equal(fixture->b->received, 0);
    uint32_t pins = sl_rdma_receive_is_done(fixture->b->conn) ? 0 : 1;
    assert_int_equal(fixture->wire.fake.posted_count + pins, posted);
    assert_int_equal(fixture->a->conn->phase, SL_RDMA_LIVE);
    teardown(fixture);
    free(fixture);
}

SL_CASE(packet__that_is_none)
{
    struct packet good = frames(1, 40, 1), bad;
    for (uint32_t count = 0; count < good.count; count++) {
        bad = good;
        bad.count = count;
        expect_refused(&bad, SL_ERR_PROTOCOL);
    }
    bad = good;
    bad.count += 8;
    expect_refused(&bad, SL_ERR_PROTOCOL);
    for (uint32_t kind = 0; kind < 256; kind += STRIDE) {
        if (kind != SL_RDMA_FRAMES) {
            bad = good;
            bad.bytes[offsetof(struct sl_rdma_packet, kind)] = (uint8_t)kind;
            expect_refused(&bad, SL_ERR_PROTOCOL);
        }
    }
    for (uint32_t remote_sges = 1; remote_sges < 256; remote_sges += STRIDE) {
        bad = good;
        bad.bytes[offsetof(struct sl_rdma_packet, remote_sge_count)] = (uint8_t)remote_sges;
        expect_refused(&bad, SL_ERR_PROTOCOL);
        bad = good;
        bad.bytes[offsetof(struct sl_rdma_packet, reply_buffer_count)] = (uint8_t)remote_sges;
        expect_refused(&bad, SL_ERR_PROTOCOL);
    }
}

SL_CASE(packet__with_frames_that_are_none)
{
    struct packet good = frames(1, 40, 1), bad = good;
    bad.bytes[sizeof(struct sl_rdma_packet)]++; /* a byte that is not there */
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = good;
    bad.bytes[sizeof(struct sl_rdma_packet) + offsetof(struct sl_frame, magic)]++;
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = good;
    bad.bytes[sizeof(struct sl_rdma_packet) + 3] = 0x7f;
    expect_refused(&bad, SL_ERR_TOO_LARGE);
}

/* One frame's padding is missing: the next begins in it. */
CASE(packet__without_padding)
{
    struct packet packet =
        begin((struct sl_rdma_packet){.kind = SL_RDMA_FRAMES, .frame_bytes = FRAME(3) + FRAME(5)});
    add_frame(&packet, SL_FRAME_REQUEST, 1, 3, 1);
    add_frame(&packet, SL_FRAME_REQUEST, 2, 5, 2);
    inject(fixture, &packet);
    assert_int_equal(fixture->b->received, 1);
    assert_int_equal(fixture->b->conn->end.err, SL_ERR_PROTOCOL);
}

CASE(packet__of_another_version_is_delivered)
{
    struct packet packet = frames(1, 40, 1);
    packet.bytes[sizeof(struct sl_rdma_packet) + offsetof(struct sl_frame, version)]++;
    inject(fixture, &packet);
    assert_int_equal(fixture->b->received, 1);
    assert_int_equal(fixture->b->messages[0].header.version, SL_FRAME_PROTOCOL_VERSION + 1);
}

static struct packet with_counts(uint32_t limit, uint32_t done)
{
    struct packet packet = frames(1, 40, 1);
    memcpy(packet.bytes, &limit, sizeof limit);
    memcpy(packet.bytes + sizeof limit, &done, sizeof done);
    return packet;
}

SL_CASE(counts__that_cannot_be)
{
    struct packet bad = with_counts(SL_RDMA_WINDOW_MIN - 1, 0); /* it takes credit back */
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = with_counts(SL_RDMA_WINDOW_MIN, 1); /* nothing was there to be read */
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = with_counts(1U << 30, 0);
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

CASE(credit__is_overdrawn)
{
    struct packet packet = frames(1, 40, 1);
    fixture->b->hold = true;
    for (uint32_t i = 0; i < SL_RDMA_WINDOW_MIN; i++) {
        inject(fixture, &packet);
    }
    assert_int_equal(fixture->b->conn->phase, SL_RDMA_LIVE);
    inject(fixture, &packet);
    assert_int_equal(fixture->b->received, SL_RDMA_WINDOW_MIN);
    assert_int_equal(fixture->b->conn->end.err, SL_ERR_PROTOCOL);
    for (uint32_t i = 0; i < SL_RDMA_WINDOW_MIN; i++) {
        rdma_wire_release(fixture->b, i); /* whose connection has ended */
    }
}

/* A piece of a LONG, or of an answer to a reply buffer, in a packet that is otherwise right. */
static struct packet with_remote_sge(enum sl_rdma_packet_kind kind, uint32_t remote_sge_bytes,
                                     uint32_t payload_bytes)
{
    bool is_long = kind == SL_RDMA_LONG;
    struct packet packet =
        begin((struct sl_rdma_packet){.kind = (uint8_t)kind,
                                      .remote_sge_count = is_long ? 1 : 0,
                                      .reply_buffer_count = is_long ? 0 : 1,
                                      .frame_bytes = is_long ? SL_FRAME_HEADER_BYTES : FRAME(8)});
    const struct sl_rdma_remote_sge remote_sge = {.at = 4096, .key = 1, .bytes = remote_sge_bytes};
    add(&packet, &remote_sge, sizeof remote_sge);
    if (is_long) {
        add_header(&packet, SL_FRAME_REQUEST, 1, payload_bytes);
    } else {
        add_frame(&packet, SL_FRAME_REQUEST, 1, 8, 0);
    }
    return packet;
}

SL_CASE(remote_sges__that_do_not_fit)
{
    struct packet bad = with_remote_sge(SL_RDMA_LONG, 0, 0);
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = with_remote_sge(SL_RDMA_LONG, 49999, 50000);
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = with_remote_sge(SL_RDMA_LONG, 50001, 50000);
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = with_remote_sge(SL_RDMA_LONG, SL_LIMIT_FRAME_PAYLOAD_BYTES + 1,
                          SL_LIMIT_FRAME_PAYLOAD_BYTES + 1);
    expect_refused(&bad, SL_ERR_TOO_LARGE);
    bad = with_remote_sge(SL_RDMA_REPLY_BUFFER, 0, 8);
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

SL_CASE(written__where_nothing_was_lent)
{
    struct packet bad = begin(
        (struct sl_rdma_packet){.kind = SL_RDMA_WRITTEN, .frame_bytes = SL_FRAME_HEADER_BYTES});
    add_header(&bad, SL_FRAME_REPLY, 1, 40);
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

CASE(fin__is_the_last)
{
    struct packet fin = begin((struct sl_rdma_packet){.kind = SL_RDMA_FIN});
    struct packet more = frames(1, 40, 1);
    inject(fixture, &fin);
    assert_true(fixture->b->conn->end.fin_received);
    inject(fixture, &more);
    assert_int_equal(fixture->b->received, 0);
    assert_true(sl_rdma_receive_is_done(fixture->b->conn));
}

/* ---- Order ------------------------------------------------------------------------------------
 */

CASE(long__holds_back_what_follows)
{
    register_sink(fixture);
    memset(fixture->memory, 2, 50000);
    fixture->b->sink = fixture->sink;
    struct packet packets[] = {frames(1, 40, 1), lying(fixture, 2, 0, 50000, 3), frames(3, 40, 3)};
    for (uint32_t i = 0; i < 3; i++) {
        inject(fixture, &packets[i]);
    }
    assert_int_equal(fixture->b->received, 1);
    assert_int_equal(fixture->b->posted, 3); /* a read for each piece */
    assert_false(sl_rdma_receive_is_done(fixture->b->conn));
    (void)rdma_wire_carry(fixture->b, 2);
    assert_int_equal(fixture->b->received, 1);
    (void)rdma_wire_carry(fixture->b, 1);
    assert_int_equal(fixture->b->received, 3);
    rdma_wire_expect(fixture->b, 1, 2, 50000, 2);
    assert_null(fixture->b->messages[1].token);
    rdma_wire_expect(fixture->b, 2, 3, 40, 3);
    assert_true(sl_rdma_receive_is_done(fixture->b->conn));
}

CASE(sink__refused_then_given)
{
    struct packet packet = lying(fixture, 1, 0, 50000, 1), next = frames(2, 40, 2);
    register_sink(fixture);
    memset(fixture->memory, 1, 50000);
    inject(fixture, &packet);
    inject(fixture, &next);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t asked = fixture->b->asked;
        fixture->wire.fake.rdma.awake = false;
        rdma_wire_turn(&fixture->wire);
        assert_int_equal(fixture->b->asked, asked + 1);
        assert_false(fixture->wire.fake.rdma.awake); /* nobody stays awake for it */
    }
    assert_int_equal(fixture->b->received, 0);
    fixture->b->sink = fixture->sink + ODD;
    rdma_wire_turn(&fixture->wire);
    (void)rdma_wire_carry(fixture->b, 1);
    assert_int_equal(fixture->b->received, 2);
    rdma_wire_expect(fixture->b, 0, 1, 50000, 1);
}

/* Short payloads behind a long one do not wait to be read, only to be delivered. */
CASE(long__short_ones_are_read_ahead)
{
    struct packet packets[6];
    register_sink(fixture);
    for (uint32_t i = 0; i < 6; i++) {
        memset(fixture->memory + i * 50000, (int)i, 50000);
        packets[i] = lying(fixture, i + 1, i * 50000, i == 0 ? 50000 : 9000, 1);
        inject(fixture, &packets[i]);
    }
    assert_int_equal(fixture->b->posted, 5); /* nobody has named a sink for the first */
    (void)rdma_wire_carry(fixture->b, 5);
    assert_int_equal(fixture->b->received, 0);
    fixture->b->sink = fixture->sink + ODD;
    rdma_wire_turn(&fixture->wire);
    (void)rdma_wire_carry(fixture->b, 1);
    assert_int_equal(fixture->b->received, 6);
    for (uint32_t i = 0; i < 6; i++) {
        rdma_wire_expect(fixture->b, i, i + 1, i == 0 ? 50000 : 9000, (uint8_t)i);
    }
    assert_int_equal(fixture->b->conn->credit.reads_done, 6);
}

CASE(long__no_more_reads_than_the_peer_serves)
{
    fixture->b->conn->reads_peer = 2;
    for (uint32_t i = 0; i < 6; i++) {
        memset(fixture->memory + i * 9000, (int)i, 9000);
        struct packet packet = lying(fixture, i + 1, i * 9000, 9000, 1);
        inject(fixture, &packet);
    }
    for (uint32_t i = 0; i < 6; i++) {
        assert_true(fixture->b->posted - fixture->b->done <= 2);
        assert_int_equal(rdma_wire_carry(fixture->b, 1), 1);
    }
    assert_int_equal(fixture->b->received, 6);
}

/* The sink's memory cannot be registered: block by block. */
CASE(sink__without_keys)
{
    struct packet first = lying(fixture, 1, 0, 9000, 1), second = lying(fixture, 2, 0, 100000, 3);
    memset(fixture->memory, 5, 100000);
    fixture->b->sink = fixture->sink + ODD;
    inject(fixture, &first); /* so that there are blocks */
    rdma_wire_settle(&fixture->wire);
    fixture->wire.fake.live_bytes_max = fixture->wire.fake.live_bytes;
    inject(fixture, &second);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->b->received, 2);
    rdma_wire_expect(fixture->b, 1, 2, 100000, 5);
    assert_ptr_equal(fixture->b->messages[1].payload, fixture->sink + ODD);
    assert_int_equal(sl_cell_get(&fixture->wire.fake.rdma.base.cells->copied_bytes), 100000);
}

/* ---- Credit and blocks ------------------------------------------------------------------------
 */

/* A packet's credit comes back with its last message, whatever the order. */
CASE(release__gives_credit_back)
{
    struct packet packet =
        begin((struct sl_rdma_packet){.kind = SL_RDMA_FRAMES, .frame_bytes = 3 * FRAME(40)});
    for (uint32_t i = 0; i < 3; i++) {
        add_frame(&packet, SL_FRAME_REQUEST, i + 1, 40, (uint8_t)i);
    }
    fixture->b->hold = true;
    inject(fixture, &packet);
    assert_int_equal(fixture->b->received, 3);
    assert_int_equal(fixture->b->conn->credit.counted_consumed, 0);
    rdma_wire_release(fixture->b, 1);
    rdma_wire_release(fixture->b, 2);
    assert_int_equal(fixture->b->conn->credit.limit_ours, SL_RDMA_WINDOW_MIN);
    rdma_wire_release(fixture->b, 0);
    assert_int_equal(fixture->b->conn->credit.counted_consumed, 1);
    assert_int_equal(fixture->b->conn->credit.limit_ours, SL_RDMA_WINDOW_MIN + 1);
}

/* Another connection is where the message's was: it gets no credit for it. */
CASE(release__after_the_connection)
{
    struct packet packet = frames(1, 40, 1);
    fixture->b->hold = true;
    inject(fixture, &packet);
    fixture->b->conn->serial = 4711;
    rdma_wire_release(fixture->b, 0);
    assert_int_equal(fixture->b->conn->credit.counted_consumed, 0);
}

CASE(stalled__widens_the_window)
{
    for (uint32_t window = SL_RDMA_WINDOW_MIN; window < 4 * SL_RDMA_WINDOW_MAX; window *= 2) {
        struct packet packet =
            begin((struct sl_rdma_packet){.kind = SL_RDMA_CREDIT_UPDATE, .flags = SL_RDMA_STALLED});
        inject(fixture, &packet);
    }
    assert_int_equal(fixture->b->conn->credit.window, SL_RDMA_WINDOW_MAX);
    assert_int_equal(fixture->b->conn->credit.limit_ours, SL_RDMA_WINDOW_MAX);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(rdma_wire_head(&fixture->b->requests[0]).limit, SL_RDMA_WINDOW_MAX);
}

CASE(ping__is_answered)
{
    struct packet packet =
        begin((struct sl_rdma_packet){.kind = SL_RDMA_CREDIT_UPDATE, .flags = SL_RDMA_PING});
    inject(fixture, &packet);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->b->posted, 1);
    assert_int_equal(rdma_wire_head(&fixture->b->requests[0]).kind, SL_RDMA_CREDIT_UPDATE);
}

/* After disconnect: dropped, but the peer hears that it was dealt with. */
CASE(drain__drops_what_comes)
{
    struct packet packets[] = {lying(fixture, 1, 0, 50000, 1), frames(2, 40, 2),
                               lying(fixture, 3, 0, 9000, 1)};
    inject(fixture, &packets[0]); /* for which there is no sink yet */
    sl_rdma_conn_disconnect(&fixture->b->conn->base);
    inject(fixture, &packets[1]);
    inject(fixture, &packets[2]);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->b->received, 0);
    assert_true(sl_rdma_receive_is_done(fixture->b->conn));
    assert_int_equal(fixture->b->conn->credit.reads_done, 2);
    assert_int_equal(fixture->b->conn->credit.counted_consumed, 3);
}

/* The end, with reads outstanding and packets waiting: everything is given back (teardown looks).
 */
CASE(end__with_everything_in_flight)
{
    fixture->b->hold = true;
    fixture->b->sink = fixture->sink + ODD;
    struct packet packets[] = {frames(1, 40, 1), lying(fixture, 2, 0, 50000, 1),
                               lying(fixture, 3, 0, 9000, 1), frames(4, 40, 4)};
    for (uint32_t i = 0; i < 4; i++) {
        inject(fixture, &packets[i]);
    }
    assert_int_equal(fixture->b->posted, 2);
    sl_rdma_conn_end(fixture->b->conn, SL_ERR_IO);
    assert_int_equal(fixture->b->received, 1);
    rdma_wire_release(fixture->b, 0);
}
