#include "lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

#define TURNS_MAX  (lane->endpoint == NULL ? 20000U : 50000000U)
#define GUARD_BYTE 0x5c

static struct lane_end *end_of(struct lane *lane, const struct sl_conn *conn)
{
    return conn->user == &lane->a ? &lane->a : &lane->b;
}

static void violated(struct lane_end *end, const char *violation)
{
    if (end->violation == NULL) {
        end->violation = violation;
        sl_transport_disconnect(end->conn);
    }
}

/* Target's upper layer */

static struct sl_rma_memory *find_memory(void *ctx, uint64_t key)
{
    struct lane *lane = ctx;
    for (uint32_t i = 0; i < LANE_MEMORIES; i++) {
        if (lane->memories[i].key == key) {
            return &lane->memories[i];
        }
    }
    return NULL;
}

static void memory_unused(void *ctx, struct sl_rma_memory *memory)
{
    struct lane *lane = ctx;
    assert_int_equal(memory->uses, 0);
    lane->unused_count++;
}

static bool may_send(void *ctx, uint32_t bytes)
{
    struct lane *lane = ctx;
    if (lane->send_budget < bytes) {
        return false;
    }
    lane->send_budget -= bytes;
    return true;
}

static const struct sl_rma_target_events target_events = {
    .find = find_memory, .unused = memory_unused, .may_send = may_send};

/* Initiator's upper layer */

static void slice_done(void *ctx, struct sl_rma_slice *slice, int err, const char *text)
{
    struct lane *lane = ctx;
    assert_false(slice->is_lent);
    assert_true((err == 0) == (text[0] == '\0'));
    lane->done_count++;
    if (err != 0) {
        lane->failed_count++;
        lane->last_err = err;
        snprintf(lane->last_text, sizeof lane->last_text, "%s", text);
    }
    slice->err = err;
    struct sl_rma_slice *next = lane->next;
    if (next != NULL && lane->initiator.conn != NULL &&
        sl_rma_initiator_send(&lane->initiator, &next, 1, 1000000) == 1) {
        lane->next = NULL;
    }
}

static const struct sl_rma_initiator_events initiator_events = {.done = slice_done};

/* Transports */

static void on_accepted(void *ctx, struct sl_conn *conn)
{
    struct lane *lane = ctx;
    conn->user = &lane->b;
    conn->is_welcome = true;
    lane->b.conn = conn;
    if (!lane->plays_target) {
        sl_rma_target_init(&lane->target, &target_events, lane, conn, &lane->b.outbox,
                           &lane->b.queue, lane->discard);
    }
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct lane *lane = ctx;
    lane->a.conn = conn;
    if (!lane->plays_initiator) {
        sl_rma_initiator_open(&lane->initiator, conn, &lane->a.outbox, &lane->a.queue,
                              (struct sl_credit){.bytes = SL_LIMIT_TRANSFER_CREDIT_BYTES,
                                                 .requests = SL_LIMIT_TRANSFER_SLICES});
    }
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct lane *lane = ctx;
    struct lane_end *end = end_of(lane, conn);
    const bool is_played = end == &lane->a ? lane->plays_initiator : lane->plays_target;
    if (is_played) {
        return lane->discard;
    }
    void *memory = end == &lane->a ? sl_rma_initiator_sink(&lane->initiator, header)
                                   : sl_rma_target_sink(&lane->target, header);
    if (memory == NULL) {
        violated(end, "sink");
    }
    return memory;
}

static void take_reply(struct lane *lane, const struct sl_transport_message *message)
{
    struct lane_reply *reply = &lane->replies[lane->reply_count++ % LANE_REPLIES_MAX];
    *reply = (struct lane_reply){.id = message->header.request_id,
                                 .status = -(int)message->header.status,
                                 .payload_bytes = message->header.payload_bytes};
    if (message->header.payload_bytes >= sizeof reply->count) {
        memcpy(&reply->count, message->payload, sizeof reply->count);
    }
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct lane *lane = ctx;
    struct lane_end *end = end_of(lane, conn);
    const bool is_initiator = end == &lane->a;
    if (is_initiator ? lane->plays_initiator : lane->plays_target) {
        if (is_initiator) {
            take_reply(lane, message);
        }
        sl_transport_release(conn, message);
        return;
    }
    const char *violation = "none";
    const int err = is_initiator ? sl_rma_initiator_received(&lane->initiator, message, &violation)
                                 : sl_rma_target_received(&lane->target, message, &violation);
    if (err != 0) {
        assert_int_equal(err, SL_ERR_PROTOCOL);
        violated(end, violation);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    sl_outbox_sent(&end_of(ctx, conn)->outbox, cookie);
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    struct lane_end *end = end_of(ctx, conn);
    sl_outbox_writable(&end->outbox, conn, &end->queue);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct lane *lane = ctx;
    struct lane_end *end = end_of(lane, conn);
    sl_outbox_closed(&end->outbox, conn, &end->queue);
    if (end == &lane->a && !lane->plays_initiator) {
        sl_rma_initiator_closed(&lane->initiator, SL_ERR_CLOSED, "closed by the test");
    } else if (end == &lane->b && !lane->plays_target) {
        sl_rma_target_closed(&lane->target);
    }
    end->conn = NULL;
    end->close_err = err;
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

static void make_memory(struct sl_rma_memory *memory, uint64_t key, bool peers_read,
                        bool peers_write)
{
    *memory = (struct sl_rma_memory){.key = key,
                                     .bytes = LANE_MEMORY_BYTES,
                                     .peers_read = peers_read,
                                     .peers_write = peers_write};
    memory->base = calloc(1, LANE_MEMORY_BYTES + LANE_GUARD_BYTES);
    assert_non_null(memory->base);
    memset(memory->base + LANE_MEMORY_BYTES, GUARD_BYTE, LANE_GUARD_BYTES);
}

static void turn(struct lane *lane)
{
    if (lane->endpoint == NULL) {
        sl_stepped_pair_turn(&lane->pair, SL_CLOCK_NS_PER_MS);
    } else {
        (void)sl_reactor_drive_once(lane->pair.a.reactor);
    }
}

void lane_connect(struct lane *lane)
{
    struct sl_endpoint bound, any;
    const char *endpoint = lane->endpoint == NULL ? "tcp://127.0.0.1:0" : lane->endpoint;
    assert_int_equal(sl_endpoint_parse(endpoint, &any, NULL), 0);
    lane->a.violation = lane->b.violation = NULL;
    assert_int_equal(sl_transport_listen(lane->pair.b.transport, &any, &events, lane, &bound), 0);
    struct sl_conn *conn;
    assert_int_equal(
        sl_transport_connect(lane->pair.a.transport, &bound, 0, &events, lane, &lane->a, &conn), 0);
    for (uint32_t i = 0; i < TURNS_MAX && (lane->a.conn == NULL || lane->b.conn == NULL); i++) {
        turn(lane);
    }
    assert_non_null(lane->b.conn);
}

static void open_real(struct lane *lane)
{
    const struct sl_reactor_options options = {.name = "rma", .core = -1, .seed = 1};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_reactor_attach(reactor), 0);
    lane->pair.a.reactor = lane->pair.b.reactor = reactor;
    assert_int_equal(sl_transport_open(lane->ops, reactor, NULL, &lane->pair.a.transport), 0);
    assert_int_equal(sl_transport_open(lane->ops, reactor, NULL, &lane->pair.b.transport), 0);
}

static void close_real(struct lane *lane)
{
    sl_transport_close(&lane->pair.a.transport);
    sl_transport_close(&lane->pair.b.transport);
    sl_reactor_detach(lane->pair.a.reactor);
    sl_reactor_destroy(&lane->pair.a.reactor);
}

static void open_stepped(struct lane *lane)
{
    lane->ops = lane->ops == NULL ? &sl_loop_transport_ops : lane->ops;
    sl_stepped_pair_init(&lane->pair, lane->ops, &lane->network, &lane->network);
    turn(lane); /* the reactors are this thread's */
}

void lane_open(struct lane *lane)
{
    sl_log_setup(SL_LOG_OFF, "test");
    sl_loop_network_init(&lane->network, lane->seed + 1);
    if (lane->endpoint != NULL) {
        open_real(lane);
    } else {
        open_stepped(lane);
    }
    const size_t bytes = lane->outbox_bytes == 0 ? (size_t)64 << 20 : lane->outbox_bytes;
    assert_int_equal(sl_outbox_init(&lane->a.outbox, bytes, false), 0);
    assert_int_equal(sl_outbox_init(&lane->b.outbox, bytes, false), 0);
    if ((lane->ops->capabilities & SL_TRANSPORT_REGISTERS) != 0) {
        assert_int_equal(sl_outbox_register(&lane->a.outbox, lane->pair.a.transport), 0);
        assert_int_equal(sl_outbox_register(&lane->b.outbox, lane->pair.b.transport), 0);
    }
    make_memory(&lane->memories[0], 11, true, true);
    make_memory(&lane->memories[1], 12, true, false);
    make_memory(&lane->memories[2], 13, false, true);
    lane->local = calloc(1, LANE_MEMORY_BYTES);
    lane->discard = malloc(SL_LIMIT_FRAME_PAYLOAD_BYTES);
    assert_non_null(lane->local);
    assert_non_null(lane->discard);
    lane->send_budget = UINT64_MAX / 2;
    sl_rma_initiator_init(&lane->initiator, &initiator_events, lane);
    lane_connect(lane);
}

void lane_close(struct lane *lane)
{
    if (lane->endpoint != NULL) {
        close_real(lane);
    } else {
        sl_stepped_pair_fini(&lane->pair);
    }
    sl_outbox_fini(&lane->a.outbox);
    sl_outbox_fini(&lane->b.outbox);
    sl_loop_network_fini(&lane->network);
    for (uint32_t i = 0; i < LANE_MEMORIES; i++) {
        const uint8_t *guard = lane->memories[i].base + LANE_MEMORY_BYTES;
        assert_int_equal(lane->memories[i].uses, 0);
        for (uint32_t k = 0; k < LANE_GUARD_BYTES; k++) {
            assert_int_equal(guard[k], GUARD_BYTE);
        }
        free(lane->memories[i].base);
    }
    assert_true(sl_list_empty(&lane->initiator.in_flight));
    assert_int_equal(lane->initiator.in_flight_count, 0);
    assert_true(lane->initiator.in_flight_bytes == 0);
    free(lane->local);
    free(lane->discard);
}

void lane_turns(struct lane *lane, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        turn(lane);
        if (lane->b.conn != NULL && !lane->plays_target && !lane->keeps_data_waiting) {
            (void)sl_rma_target_pump(&lane->target);
        }
        if (lane->a.conn != NULL && !lane->plays_initiator) {
            sl_rma_initiator_pump(&lane->initiator);
        }
    }
}

void lane_until_done(struct lane *lane, uint32_t count)
{
    for (uint32_t i = 0; i < TURNS_MAX && lane->done_count < count && lane->a.conn != NULL; i++) {
        lane_turns(lane, 1);
    }
    assert_int_equal(lane->done_count, count);
}

void lane_run(struct lane *lane, struct sl_rma_slice *slices, uint32_t count)
{
    struct sl_rma_slice *offered[SL_LIMIT_TRANSFER_SLICES];
    const uint32_t before = lane->done_count;
    uint32_t sent = 0;
    for (uint32_t turn = 0; sent < count; turn++) {
        uint32_t some = 0;
        while (some < SL_LIMIT_TRANSFER_SLICES && sent + some < count) {
            offered[some] = &slices[sent + some];
            some++;
        }
        sent += sl_rma_initiator_send(&lane->initiator, offered, some, 1000000);
        lane_turns(lane, 1);
        assert_true(turn < TURNS_MAX);
    }
    lane_until_done(lane, before + count);
}

void lane_send(struct lane *lane, struct lane_end *end, struct sl_frame frame, const void *payload)
{
    uint8_t *head = sl_outbox_reserve(&end->outbox, frame.payload_bytes);
    assert_non_null(head);
    if (payload == NULL) {
        memset(head + SL_FRAME_HEADER_BYTES, 0, frame.payload_bytes);
    } else {
        memcpy(head + SL_FRAME_HEADER_BYTES, payload, frame.payload_bytes);
    }
    sl_outbox_commit(&end->outbox, end->conn, &end->queue, &frame, NULL, 0, NULL, NULL);
}

void lane_request(struct lane *lane, uint64_t first_id, const struct sl_rma_wire_slice *slices,
                  uint32_t count)
{
    static uint8_t payload[SL_LIMIT_INLINE_PAYLOAD_BYTES];
    const struct sl_rma_wire_prefix prefix = {.slice_count = count};
    memcpy(payload, &prefix, sizeof prefix);
    memcpy(payload + sizeof prefix, slices, count * sizeof *slices);
    lane_send(lane, &lane->a,
              (struct sl_frame){.type = SL_FRAME_REQUEST,
                                .payload_bytes = sl_rma_wire_request_bytes(count),
                                .request_id = first_id,
                                .budget_us = 1000000},
              payload);
}
