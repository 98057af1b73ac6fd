#include <string.h>

#include "lane.h"

#define MIB (1U << 20)

static void open_played(struct lane *lane)
{
    *lane = (struct lane){.plays_initiator = true};
    lane_open(lane);
}

static void send_data(struct lane *lane, uint64_t id, uint32_t bytes)
{
    lane_send(lane, &lane->a,
              (struct sl_frame){.type = SL_FRAME_DATA, .request_id = id, .payload_bytes = bytes},
              NULL);
}

/* The target ended the connection, and used no memory afterwards. */
static void assert_refused(struct lane *lane)
{
    lane_turns(lane, 200);
    assert_non_null(lane->b.violation);
    assert_null(lane->a.conn);
    for (uint32_t i = 0; i < LANE_MEMORIES; i++) {
        assert_int_equal(lane->memories[i].uses, 0);
        assert_false(sl_rma_target_uses(&lane->target, &lane->memories[i]));
    }
    lane_close(lane);
}

SL_CASE(rma_target_received__refuses_data_that_was_not_announced)
{
    static const struct {
        uint64_t id;
        uint32_t bytes;
    } cases[] = {{1, 100}, {3, 100}, {2, 99}, {2, 101}, {2, MIB}, {2, 0}, {UINT64_MAX, MIB}};
    struct lane lane;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sl_rma_wire_slice slices[] = {lane_slice(SL_RMA_READ, 11, 0, 100),
                                                   lane_slice(SL_RMA_WRITE, 11, 0, 100),
                                                   lane_slice(SL_RMA_WRITE, 11, 0, 100)};
        open_played(&lane);
        lane_request(&lane, 1, slices, 3);
        send_data(&lane, cases[i].id, cases[i].bytes);
        assert_refused(&lane);
    }
    open_played(&lane);
    send_data(&lane, 1, 100); /* without a REQUEST */
    assert_refused(&lane);
    open_played(&lane);
    const struct sl_rma_wire_slice one = lane_slice(SL_RMA_WRITE, 11, 0, 100);
    lane_request(&lane, 1, &one, 1);
    send_data(&lane, 1, 100);
    send_data(&lane, 1, 100); /* once more */
    assert_refused(&lane);
}

static void check_request(struct sl_frame frame, uint32_t count, uint32_t slice_bytes, uint8_t op)
{
    static uint8_t payload[8192];
    struct sl_rma_wire_slice slice = lane_slice(SL_RMA_READ, 11, 0, slice_bytes);
    slice.op = op;
    memcpy(payload, &count, sizeof count);
    for (uint32_t i = 0; i < count && i < 257; i++) {
        memcpy(payload + 8 + i * sizeof slice, &slice, sizeof slice);
    }
    struct lane lane;
    open_played(&lane);
    frame.type = SL_FRAME_REQUEST;
    lane_send(&lane, &lane.a, frame, payload);
    assert_refused(&lane);
}

SL_CASE(rma_target_received__refuses_malformed_requests)
{
    struct sl_frame frame = {.request_id = 1, .budget_us = 1, .payload_bytes = 8};
    check_request(frame, 0, 1, SL_RMA_READ);
    frame.payload_bytes = 0;
    check_request(frame, 0, 1, SL_RMA_READ);
    frame.payload_bytes = sl_rma_wire_request_bytes(257);
    check_request(frame, 257, 1, SL_RMA_READ);
    frame.payload_bytes = sl_rma_wire_request_bytes(2);
    check_request(frame, 1, 1, SL_RMA_READ);
    check_request(frame, 3, 1, SL_RMA_READ);
    check_request(frame, 2, 0, SL_RMA_READ);
    check_request(frame, 2, 4 * MIB + 1, SL_RMA_READ);
    check_request(frame, 2, 1, 0);
    check_request(frame, 2, 1, 3);
    frame.request_id = 0;
    check_request(frame, 2, 1, SL_RMA_READ);
    frame.request_id = UINT64_MAX;
    check_request(frame, 2, 1, SL_RMA_READ);
    frame.request_id = 1;
    frame.budget_us = 0;
    check_request(frame, 2, 1, SL_RMA_READ);
    frame.budget_us = 1;
    frame.payload_bytes = sl_rma_wire_request_bytes(5);
    check_request(frame, 5, 4 * MIB, SL_RMA_READ); /* more than its credit */
}

SL_CASE(rma_target_received__wants_ids_and_data_in_order)
{
    const struct sl_rma_wire_slice read = lane_slice(SL_RMA_READ, 11, 0, 8),
                                   write = lane_slice(SL_RMA_WRITE, 11, 0, 8);
    struct lane lane;
    open_played(&lane);
    lane_request(&lane, 5, &read, 1);
    lane_request(&lane, 5, &read, 1);
    assert_refused(&lane);
    open_played(&lane);
    lane_request(&lane, 1, &write, 1);
    lane_request(&lane, 2, &read, 1); /* before the DATA */
    assert_refused(&lane);
    open_played(&lane);
    lane_send(&lane, &lane.a, (struct sl_frame){.type = SL_FRAME_REPLY, .request_id = 1}, NULL);
    assert_refused(&lane);
    open_played(&lane);
    lane_send(&lane, &lane.a, (struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = MIB},
              NULL);
    assert_refused(&lane);
}

/* 256 slices are unanswered: one more is too many, also if it is short. */
SL_CASE(rma_target_received__bounds_the_slices_in_flight)
{
    static struct sl_rma_wire_slice slices[SL_LIMIT_TRANSFER_SLICES];
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        slices[i] = lane_slice(SL_RMA_READ, 11, 0, 8);
    }
    struct lane lane;
    open_played(&lane);
    lane.send_budget = 0;
    lane_request(&lane, 1, slices, SL_LIMIT_TRANSFER_SLICES);
    lane_turns(&lane, 50);
    assert_null(lane.b.violation);
    assert_int_equal(lane.reply_count, 0);
    assert_int_equal(lane.memories[0].uses, SL_LIMIT_TRANSFER_SLICES);
    assert_true(sl_rma_target_uses(&lane.target, &lane.memories[0]));
    assert_false(sl_rma_target_uses(&lane.target, &lane.memories[1]));
    lane_request(&lane, 300, slices, 1);
    assert_refused(&lane);
}

SL_CASE(rma_target_received__drops_the_data_of_refused_slices)
{
    const struct sl_rma_wire_slice slices[] = {
        lane_slice(SL_RMA_WRITE, 11, LANE_MEMORY_BYTES, 1),
        lane_slice(SL_RMA_WRITE, 11, LANE_MEMORY_BYTES - MIB + 1, MIB),
        lane_slice(SL_RMA_WRITE, 12, 0, MIB),
        lane_slice(SL_RMA_WRITE, 99, 0, 100),
        lane_slice(SL_RMA_WRITE, 11, UINT64_MAX - 99, 100),
        lane_slice(SL_RMA_WRITE, 13, 0, 100),
    };
    static const int expected[] = {SL_ERR_INVALID,   SL_ERR_INVALID, SL_ERR_REFUSED,
                                   SL_ERR_NOT_FOUND, SL_ERR_INVALID, 0};
    struct lane lane;
    open_played(&lane);
    memset(lane.memories[2].base, 1, 200);
    lane_request(&lane, 1, slices, 6);
    for (uint32_t i = 0; i < 6; i++) {
        send_data(&lane, 1 + i, slices[i].bytes);
    }
    lane_turns(&lane, 300);
    assert_int_equal(lane.reply_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(lane.replies[i].id, 1 + i);
        assert_int_equal(lane.replies[i].status, expected[i]);
    }
    assert_int_equal(lane.replies[5].count, 1);
    assert_int_equal(lane.memories[2].base[99], 0);
    assert_int_equal(lane.memories[2].base[100], 1);
    lane_close(&lane);
}

SL_CASE(rma_target_pump__acknowledges_writes_together)
{
    struct sl_rma_wire_slice slices[20];
    for (uint32_t i = 0; i < 20; i++) {
        slices[i] = lane_slice(i == 10 ? SL_RMA_READ : SL_RMA_WRITE, 11, 100 * i, 100);
    }
    struct lane lane;
    open_played(&lane);
    lane.keeps_data_waiting = true;
    lane_request(&lane, 1, slices, 20);
    for (uint32_t i = 0; i < 20; i++) {
        if (i != 10) {
            send_data(&lane, 1 + i, 100);
        }
    }
    lane_turns(&lane, 200);
    assert_int_equal(lane.reply_count, 0);
    assert_false(sl_rma_target_pump(&lane.target));
    lane_turns(&lane, 50);
    assert_int_equal(lane.reply_count, 3);
    assert_int_equal(lane.replies[0].id, 1);
    assert_int_equal(lane.replies[0].count, 10);
    assert_int_equal(lane.replies[1].id, 12);
    assert_int_equal(lane.replies[1].count, 9);
    assert_int_equal(lane.replies[2].id, 11);
    assert_int_equal(lane.replies[2].payload_bytes, 100);
    assert_int_equal(lane.unused_count, 1);
    lane_close(&lane);
}

SL_CASE(rma_target_pump__answers_within_the_limit_and_the_deadline)
{
    const struct sl_rma_wire_slice slices[] = {lane_slice(SL_RMA_READ, 11, 0, 100),
                                               lane_slice(SL_RMA_READ, 11, 0, MIB),
                                               lane_slice(SL_RMA_READ, 11, 0, 10)};
    struct lane lane;
    open_played(&lane);
    lane.send_budget = 100;
    lane_request(&lane, 1, slices, 3); /* with a second to answer */
    lane_turns(&lane, 100);
    assert_int_equal(lane.reply_count, 1);
    assert_true(sl_rma_target_pump(&lane.target));
    assert_int_equal(lane.memories[0].uses, 2);
    lane.send_budget = MIB;
    lane_turns(&lane, 100);
    assert_int_equal(lane.reply_count, 2);
    assert_int_equal(lane.replies[1].payload_bytes, MIB);
    lane_turns(&lane, 1000);
    assert_int_equal(lane.reply_count, 3);
    assert_int_equal(lane.replies[2].status, SL_ERR_DEADLINE);
    assert_int_equal(lane.memories[0].uses, 0);
    lane_close(&lane);
}

/* A peer that announces and never sends holds the memory until its connection ends. */
SL_CASE(rma_target_closed__ends_the_use_of_memory)
{
    const struct sl_rma_wire_slice slices[] = {lane_slice(SL_RMA_READ, 12, 0, 4 * MIB),
                                               lane_slice(SL_RMA_WRITE, 13, 0, 4 * MIB)};
    struct lane lane;
    open_played(&lane);
    lane_request(&lane, 1, slices, 2);
    lane_turns(&lane, 100);
    assert_int_equal(lane.memories[1].uses, 0);
    assert_int_equal(lane.memories[2].uses, 1);
    assert_true(sl_rma_target_uses(&lane.target, &lane.memories[2]));
    sl_transport_disconnect(lane.a.conn);
    lane_turns(&lane, 100);
    assert_null(lane.b.conn);
    assert_int_equal(lane.memories[2].uses, 0);
    assert_int_equal(lane.unused_count, 2);
    lane_close(&lane);
}

/* More replies are unsent than slices may be in flight: the target withholds credit. */
SL_CASE(rma_target_pump__returns_no_credit_without_a_free_slice)
{
    static struct sl_rma_wire_slice slices[SL_LIMIT_TRANSFER_SLICES];
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        slices[i] = lane_slice(SL_RMA_READ, 11, i, SL_LIMIT_INLINE_PAYLOAD_BYTES + 1);
    }
    struct lane lane;
    open_played(&lane);
    lane.keeps_data_waiting = true;
    uint64_t id = 1;
    for (uint32_t i = 0; i < 2; i++, id += SL_LIMIT_TRANSFER_SLICES) {
        lane_request(&lane, id, slices, SL_LIMIT_TRANSFER_SLICES);
        while (lane.target.reads.first == NULL) {
            lane_turns(&lane, 1);
        }
        assert_false(
            sl_rma_target_pump(&lane.target)); /* into the outbox, faster than it empties */
        assert_true(lane.target.credit.requests <= lane.target.free_count);
    }
    assert_true(lane.target.credit.requests < SL_LIMIT_TRANSFER_SLICES);
    lane.keeps_data_waiting = false;
    lane_turns(&lane, 2000);
    assert_int_equal(lane.memories[0].uses, 0);
    assert_true(lane.target.credit.requests + lane.target.due.requests == SL_LIMIT_TRANSFER_SLICES);
    assert_true(lane.target.due.requests < SL_LIMIT_TRANSFER_SLICES / 4);
    lane_close(&lane);
}

/* Copied replies return their credit at once: a peer that reads none may not fill the outbox. */
SL_CASE(rma_target_pump__leaves_half_of_the_outbox_to_other_peers)
{
    static struct sl_rma_wire_slice slices[SL_LIMIT_TRANSFER_SLICES];
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        slices[i] = lane_slice(SL_RMA_READ, 11, i, 16 << 10);
    }
    struct lane lane = {.plays_initiator = true, .outbox_bytes = SL_OUTBOX_MEMORY_BYTES_MIN};
    lane_open(&lane);
    lane.target.checksum = true;
    lane.keeps_data_waiting = true;
    lane_request(&lane, 1, slices, SL_LIMIT_TRANSFER_SLICES);
    while (lane.target.reads.first == NULL) {
        lane_turns(&lane, 1);
    }
    assert_true(sl_rma_target_pump(&lane.target)); /* the others wait */
    assert_true(lane.b.outbox.free_count + 1 >= lane.b.outbox.block_count / 2);
    lane.keeps_data_waiting = false;
    lane_turns(&lane, 2000);
    assert_int_equal(lane.reply_count, SL_LIMIT_TRANSFER_SLICES);
    lane_close(&lane);
}
