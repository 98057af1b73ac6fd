#include <stdlib.h>
#include <string.h>

#include "tests/support/fault_transport.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define LONG_BYTES (SL_LIMIT_INLINE_PAYLOAD_BYTES + 8)
#define FRAMES_MAX 4000

/* Side a sends numbered replies, a few of them long, and credits; side b counts what comes. Both
 * transports are wrapped. */
struct fixture {
    struct sl_fault_plan plan;
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_conn *conn, *accepted;
    uint8_t *long_payload;
    uint8_t headers[FRAMES_MAX][SL_FRAME_HEADER_BYTES];
    uint32_t offered, taken, sent; /* frames: each <= the one before */
    uint32_t replies, credits;     /* received */
    uint32_t replies_sent, credits_sent;
    uint64_t received_hash; /* of what came, in its order */
    void *sink_memory;
    bool writable, closed, accepted_closed;
    int err, accepted_err;
    struct sl_transport *hand_to;
};

static const struct sl_transport_events events;

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    ((struct fixture *)ctx)->accepted = conn;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    (void)conn;
    ((struct fixture *)ctx)->writable = true;
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    (void)conn;
    struct fixture *fixture = ctx;
    assert_int_equal(header->payload_bytes, LONG_BYTES);
    assert_null(fixture->sink_memory); /* one at a time */
    fixture->sink_memory = malloc(header->payload_bytes);
    return fixture->sink_memory;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct fixture *fixture = ctx;
    if (message->header.type == SL_FRAME_REPLY) {
        fixture->replies++;
        assert_int_equal(message->header.request_id, fixture->replies);
    } else if (message->header.type == SL_FRAME_CREDIT) {
        fixture->credits++;
    }
    fixture->received_hash = fixture->received_hash * 31 + message->header.type;
    sl_transport_release(conn, message);
    if (message->token == NULL) {
        assert_memory_equal(message->payload, fixture->long_payload, LONG_BYTES);
        free(fixture->sink_memory);
        fixture->sink_memory = NULL;
    }
    if (message->header.type == SL_FRAME_CONTROL && fixture->hand_to != NULL) {
        struct sl_transport *to = fixture->hand_to;
        fixture->hand_to = NULL;
        fixture->accepted = NULL;
        assert_int_equal(sl_transport_migrate(conn, to, &events, fixture, fixture), SL_OK);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    (void)conn;
    struct fixture *fixture = ctx;
    assert_ptr_equal(cookie, fixture->headers[fixture->sent]); /* in the order of sending */
    fixture->sent++;
    assert_true(fixture->sent <= fixture->taken);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct fixture *fixture = ctx;
    fixture->writable = fixture->writable || conn == fixture->conn;
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct fixture *fixture = ctx;
    free(fixture->sink_memory);
    fixture->sink_memory = NULL;
    if (conn == fixture->conn) {
        fixture->closed = true;
        fixture->err = err;
    } else {
        fixture->accepted_closed = true;
        fixture->accepted_err = err;
    }
}

static const struct sl_transport_events events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

static bool may_lose_credits(const struct sl_frame *header)
{
    return header->type == SL_FRAME_CREDIT;
}

static struct fixture *setup(struct sl_fault_plan plan)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->long_payload = malloc(LONG_BYTES);
    memset(fixture->long_payload, 0x77, LONG_BYTES);
    fixture->plan = plan;
    fixture->plan.inner = &sl_loop_transport_ops;
    fixture->plan.inner_medium = &fixture->network;
    sl_loop_network_init(&fixture->network, plan.seed + 1);
    sl_stepped_pair_init(&fixture->pair, &sl_fault_ops, &fixture->plan, &fixture->plan);
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1"};
    struct sl_endpoint bound;
    assert_int_equal(
        sl_transport_listen(fixture->pair.b.transport, &endpoint, &events, fixture, &bound), SL_OK);
    assert_int_equal(sl_transport_connect(fixture->pair.a.transport, &bound, &events, fixture,
                                          fixture, &fixture->conn),
                     SL_OK);
    return fixture;
}

static void teardown(struct fixture *fixture)
{
    sl_stepped_pair_fini(&fixture->pair);
    sl_loop_network_fini(&fixture->network);
    assert_null(fixture->sink_memory);
    free(fixture->long_payload);
    free(fixture);
}

/* Frame n of the conversation. */
static struct sl_transport_frame frame_of(struct fixture *fixture, uint32_t n, uint8_t type)
{
    struct sl_frame header = {.type = type};
    if (type == SL_FRAME_REPLY) {
        header.request_id = ++fixture->replies_sent;
        header.payload_bytes = n % 50 == 0 ? LONG_BYTES : 0;
    }
    fixture->credits_sent += type == SL_FRAME_CREDIT;
    sl_frame_encode(&header, fixture->headers[n]);
    return (struct sl_transport_frame){
        .head = fixture->headers[n],
        .head_bytes = SL_FRAME_HEADER_BYTES,
        .payload = header.payload_bytes != 0 ? fixture->long_payload : NULL,
        .payload_bytes = header.payload_bytes,
        .cookie = fixture->headers[n],
    };
}

/* Sends until `count` frames are taken or the connection has ended, then lets things settle. */
static void converse(struct fixture *fixture, uint32_t count)
{
    struct sl_transport_frame frame = frame_of(fixture, 0, SL_FRAME_REPLY);
    for (int turn = 0; turn < 40000 && fixture->taken < count && !fixture->closed; turn++) {
        while (fixture->writable && !fixture->closed && fixture->taken < count) {
            if (sl_transport_send_burst(fixture->conn, &frame, 1) == 0) {
                fixture->writable = false;
            } else if (++fixture->taken < count) {
                frame = frame_of(fixture, fixture->taken,
                                 fixture->taken % 3 == 0 ? SL_FRAME_CREDIT : SL_FRAME_REPLY);
            }
        }
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    for (int turn = 0; turn < 3000; turn++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
}

static struct sl_fault_counts counts_of(const struct sl_stepped_side *side)
{
    struct sl_fault_counts counts;
    sl_fault_get_counts(side->transport, &counts);
    return counts;
}

/* ---- Cases ----------------------------------------------------------------------------------- */

SL_CASE(fault_ops__changes_nothing_without_faults)
{
    struct fixture *fixture = setup((struct sl_fault_plan){.seed = 1});
    converse(fixture, 500);
    assert_int_equal(fixture->taken, 500);
    assert_int_equal(fixture->sent, 500);
    assert_int_equal(fixture->replies, fixture->replies_sent);
    assert_int_equal(fixture->credits, fixture->credits_sent);
    sl_transport_disconnect(fixture->conn);
    for (int turn = 0; turn < 100; turn++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_true(fixture->closed && fixture->accepted_closed);
    assert_int_equal(fixture->err, SL_OK);
    assert_int_equal(fixture->accepted_err, SL_ERR_CLOSED);
    teardown(fixture);
}

SL_CASE(fault_ops__delays_in_order)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fixture *fixture = setup((struct sl_fault_plan){
            .seed = seed, .delay = 200000, .delay_us_max = 20000, .take_short = 300000});
        converse(fixture, 500);
        assert_int_equal(fixture->sent, 500);
        assert_int_equal(fixture->replies, fixture->replies_sent);
        assert_int_equal(fixture->credits, fixture->credits_sent);
        assert_true(counts_of(&fixture->pair.b).delayed > 20);
        assert_true(counts_of(&fixture->pair.a).taken_short > 20);
        teardown(fixture);
    }
}

/* What came before the end is delivered before it, however late. */
SL_CASE(fault_ops__delays_the_end_too)
{
    struct fixture *fixture =
        setup((struct sl_fault_plan){.seed = 3, .delay = 500000, .delay_us_max = 100000});
    converse(fixture, 40);
    for (uint32_t i = 40; i < 60; i++) {
        struct sl_transport_frame frame = frame_of(fixture, i, SL_FRAME_REPLY);
        while (sl_transport_send_burst(fixture->conn, &frame, 1) == 0) {
            sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
        }
        fixture->taken++;
    }
    sl_transport_disconnect(fixture->conn);
    for (int turn = 0; turn < 5000; turn++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture->replies, fixture->replies_sent);
    assert_true(fixture->accepted_closed);
    assert_int_equal(fixture->accepted_err, SL_ERR_CLOSED);
    teardown(fixture);
}

SL_CASE(fault_ops__loses_only_what_may_be_lost)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sl_fault_plan plan = {.seed = seed, .drop = 200000, .duplicate = 200000};
        struct fixture *fixture = setup(plan);
        converse(fixture, 500);
        assert_int_equal(fixture->credits, fixture->credits_sent); /* nobody said that it may */
        teardown(fixture);

        plan.may_lose = may_lose_credits;
        fixture = setup(plan);
        converse(fixture, 500);
        struct sl_fault_counts counts = counts_of(&fixture->pair.a);
        assert_true(counts.dropped > 5);
        assert_true(counts.duplicated > 5);
        assert_int_equal(fixture->replies, fixture->replies_sent);
        assert_int_equal(fixture->credits,
                         fixture->credits_sent - counts.dropped + counts.duplicated);
        assert_int_equal(fixture->sent, 500);
        teardown(fixture);
    }
}

SL_CASE(fault_ops__breaks_in_the_middle_of_a_frame)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture *fixture = setup((struct sl_fault_plan){.seed = seed, .truncate = 20000});
        converse(fixture, FRAMES_MAX);
        assert_true(fixture->closed);
        assert_int_equal(fixture->err, SL_ERR_IO);
        assert_int_equal(counts_of(&fixture->pair.a).truncated, 1);
        assert_true(fixture->replies + fixture->credits < fixture->taken);
        if (fixture->accepted != NULL) {
            assert_true(fixture->accepted_closed);
            assert_int_equal(fixture->accepted_err, SL_ERR_CLOSED);
        }
        teardown(fixture);
    }
}

/* Nobody hears of a cut until the timeout; then both do. What was on its way is lost with it. */
SL_CASE(fault_ops__cuts_the_cable)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct fixture *fixture = setup((struct sl_fault_plan){.seed = seed, .cut = 20000});
        struct sl_transport_frame frame = frame_of(fixture, 0, SL_FRAME_REPLY);
        while (counts_of(&fixture->pair.a).cut == 0) {
            if (fixture->writable && sl_transport_send_burst(fixture->conn, &frame, 1) == 1) {
                fixture->taken++;
                frame = frame_of(fixture, fixture->taken, SL_FRAME_REPLY);
            }
            sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
        }
        for (int turn = 0; turn < 9900; turn++) {
            sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
        }
        assert_false(fixture->closed || fixture->accepted_closed);
        assert_int_equal(fixture->replies, fixture->taken - 1);
        assert_int_equal(fixture->sent, fixture->taken - 1);
        assert_true(sl_reactor_next_ns(fixture->pair.a.reactor) > fixture->pair.now_ns);
        for (int turn = 0; turn < 200; turn++) {
            sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
        }
        assert_true(fixture->closed && fixture->accepted_closed);
        assert_int_equal(fixture->err, SL_ERR_DEADLINE);
        assert_int_equal(fixture->accepted_err, SL_ERR_CLOSED);
        teardown(fixture);
    }
}

SL_CASE(fault_ops__fails_on_the_receiving_side)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct fixture *fixture = setup((struct sl_fault_plan){
            .seed = seed, .fail = 20000, .delay = 100000, .delay_us_max = 5000});
        converse(fixture, FRAMES_MAX);
        assert_true(fixture->closed && fixture->accepted_closed);
        assert_int_equal(fixture->accepted_err, SL_ERR_IO);
        assert_int_equal(fixture->err, SL_ERR_CLOSED);
        teardown(fixture);
    }
}

SL_CASE(fault_ops__replays_from_its_seed)
{
    uint64_t hashes[3];
    for (int run = 0; run < 3; run++) {
        struct fixture *fixture = setup((struct sl_fault_plan){.seed = run == 2 ? 8 : 7,
                                                               .drop = 100000,
                                                               .duplicate = 100000,
                                                               .may_lose = may_lose_credits,
                                                               .delay = 100000,
                                                               .delay_us_max = 5000,
                                                               .take_short = 100000});
        converse(fixture, 500);
        hashes[run] = fixture->received_hash;
        teardown(fixture);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(hashes[0] != hashes[2]);
}

/* A simulation moves its clock to what the reactor waits for: a connection that is on its way to
 * its end must not keep it where it is. */
SL_CASE(fault_ops__sleeps_while_it_closes)
{
    struct fixture *fixture =
        setup((struct sl_fault_plan){.seed = 6, .take_short = SL_FAULT_PER_FRAME / 2});
    while (!fixture->writable) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    struct sl_transport_frame frame = frame_of(fixture, 0, SL_FRAME_REPLY);
    bool is_short = false; /* side b has no turn, so that not all is sent */
    while (fixture->taken < 16 || !is_short) {
        is_short = sl_transport_send_burst(fixture->conn, &frame, 1) == 0;
        if (!is_short) {
            frame = frame_of(fixture, ++fixture->taken, SL_FRAME_REPLY);
        }
    }
    sl_transport_disconnect(fixture->conn);
    struct sl_reactor *reactor = fixture->pair.a.reactor;
    (void)sl_reactor_turn(reactor, fixture->pair.now_ns);
    (void)sl_reactor_turn(reactor, fixture->pair.now_ns);
    assert_false(fixture->closed);
    assert_true(sl_fault_ops.arm(fixture->pair.a.transport));
    for (int turn = 0; turn < 100; turn++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_true(fixture->closed);
    teardown(fixture);
}

SL_CASE(fault_ops__migrates)
{
    struct fixture *fixture =
        setup((struct sl_fault_plan){.seed = 5, .delay = 200000, .delay_us_max = 5000});
    fixture->hand_to = fixture->pair.a.transport;
    while (!fixture->writable) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    struct sl_transport_frame frame = frame_of(fixture, 0, SL_FRAME_CONTROL);
    while (sl_transport_send_burst(fixture->conn, &frame, 1) == 0) {
    }
    fixture->taken++;
    while (fixture->accepted == NULL || fixture->hand_to != NULL) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_ptr_equal(fixture->accepted->transport, fixture->pair.a.transport);
    assert_ptr_equal(fixture->accepted->user, fixture);
    for (uint32_t i = 1; i < 200; i++) {
        frame = frame_of(fixture, i, SL_FRAME_REPLY);
        while (sl_transport_send_burst(fixture->conn, &frame, 1) == 0) {
            sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
        }
        fixture->taken++;
    }
    for (int turn = 0; turn < 3000; turn++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture->replies, 199);
    teardown(fixture);
}
