#include <stdlib.h>
#include <string.h>

#include "lane.h"

#define RANDOM_SLICES 600
#define NARROW_SLICES 20U
#define MIB           (1U << 20)

static const struct sl_transport_ops *const all_ops[] = {&sl_loop_transport_ops,
                                                         &sl_loop_shared_ops, &sl_loop_device_ops};

static struct sl_rma_slice slice_of(const struct lane *lane, enum sl_rma_op op, uint32_t at,
                                    uint64_t offset, uint32_t bytes)
{
    return (struct sl_rma_slice){.local = lane->local + at,
                                 .key = lane->memories[0].key,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .op = op};
}

static void fill(uint64_t *seed, uint8_t *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        const uint64_t word = sl_hash_random(seed);
        memcpy(to + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
}

/* Sizes around every boundary, at odd addresses on both sides: written, and read back. */
static void check_sizes(const struct sl_transport_ops *ops)
{
    static const uint32_t sizes[] = {1,       7,           8,           9,      4095,  16383,
                                     16384,   16385,       65535,       65537,  99999, MIB,
                                     MIB + 1, 2 * MIB - 3, 4 * MIB - 1, 4 * MIB};
    struct lane lane = {.ops = ops};
    lane_open(&lane);
    uint64_t seed = 5;
    for (uint32_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t bytes = sizes[i], odd = i % 7 + 1;
        struct sl_rma_slice write = slice_of(&lane, SL_RMA_WRITE, odd, 3 * odd, bytes);
        struct sl_rma_slice read = slice_of(&lane, SL_RMA_READ, 8 * MIB + 2 * odd, 3 * odd, bytes);
        fill(&seed, lane.local, bytes + 16);
        lane_run(&lane, &write, 1);
        assert_memory_equal(lane.memories[0].base + 3 * odd, write.local, bytes);
        lane_run(&lane, &read, 1);
        assert_memory_equal(read.local, write.local, bytes);
    }
    assert_int_equal(lane.failed_count, 0);
    lane_close(&lane);
}

SL_CASE(rma_initiator_send__moves_every_size)
{
    for (size_t i = 0; i < sizeof all_ops / sizeof all_ops[0]; i++) {
        check_sizes(all_ops[i]);
    }
}

static uint32_t random_bytes(uint64_t *seed)
{
    static const uint32_t limits[] = {64, 4096, 40000, 40000, 200000, MIB};
    return 1 + (uint32_t)(sl_hash_random(seed) % limits[sl_hash_random(seed) % 6]);
}

/* READs and WRITEs in disjoint places, against copies of both memories. */
static void check_random(const struct sl_transport_ops *ops, uint64_t seed)
{
    struct lane lane = {.ops = ops, .seed = seed};
    lane_open(&lane);
    struct sl_rma_slice *slices = calloc(RANDOM_SLICES, sizeof *slices);
    uint8_t *local = malloc(LANE_MEMORY_BYTES), *remote = malloc(LANE_MEMORY_BYTES);
    fill(&seed, lane.local, LANE_MEMORY_BYTES);
    memcpy(lane.memories[0].base, lane.local + MIB, LANE_MEMORY_BYTES - MIB);
    memcpy(local, lane.local, LANE_MEMORY_BYTES);
    memcpy(remote, lane.memories[0].base, LANE_MEMORY_BYTES);
    uint32_t count = 0, at = 0;
    uint64_t offset = 0;
    while (count < RANDOM_SLICES) {
        const uint32_t bytes = random_bytes(&seed);
        at += (uint32_t)(sl_hash_random(&seed) % 30);
        offset += sl_hash_random(&seed) % 30;
        if (at + bytes > LANE_MEMORY_BYTES || offset + bytes > LANE_MEMORY_BYTES) {
            break;
        }
        const bool writes = sl_hash_random(&seed) % 2 == 0;
        slices[count++] = slice_of(&lane, writes ? SL_RMA_WRITE : SL_RMA_READ, at, offset, bytes);
        memcpy(writes ? remote + offset : local + at, writes ? local + at : remote + offset, bytes);
        at += bytes;
        offset += bytes;
    }
    assert_true(count > 100);
    lane_run(&lane, slices, count);
    lane_turns(&lane, 200); /* credit returns */
    assert_int_equal(lane.failed_count, 0);
    assert_memory_equal(lane.local, local, LANE_MEMORY_BYTES);
    assert_memory_equal(lane.memories[0].base, remote, LANE_MEMORY_BYTES);
    assert_int_equal(lane.memories[0].uses, 0);
    assert_true(lane.initiator.credit.bytes + lane.target.due.bytes ==
                SL_LIMIT_TRANSFER_CREDIT_BYTES);
    assert_int_equal(lane.initiator.credit.requests + lane.target.due.requests,
                     SL_LIMIT_TRANSFER_SLICES);
    lane_close(&lane);
    free(slices);
    free(local);
    free(remote);
}

SL_CASE(rma_initiator_send__moves_random_slices)
{
    for (uint64_t seed = 0; seed < 9; seed++) {
        check_random(all_ops[seed % 3], seed);
    }
}

static uint64_t frames_sent(const struct sl_transport *transport)
{
    struct sl_transport_stats stats;
    sl_transport_get_stats(transport, &stats);
    return stats.frames_sent;
}

static void run_many(struct lane *lane, enum sl_rma_op op)
{
    struct sl_rma_slice slices[SL_LIMIT_TRANSFER_SLICES];
    for (uint32_t i = 0; i < SL_LIMIT_TRANSFER_SLICES; i++) {
        slices[i] = slice_of(lane, op, 100 * i, 50 * i, 40);
    }
    lane_run(lane, slices, SL_LIMIT_TRANSFER_SLICES);
}

SL_CASE(rma_initiator_send__needs_one_request_for_many_slices)
{
    struct lane lane = {0};
    lane_open(&lane);
    run_many(&lane, SL_RMA_READ);
    assert_int_equal(frames_sent(lane.pair.a.transport), 1);
    assert_int_equal(frames_sent(lane.pair.b.transport), SL_LIMIT_TRANSFER_SLICES);
    run_many(&lane, SL_RMA_WRITE);
    assert_int_equal(frames_sent(lane.pair.a.transport), 2 + SL_LIMIT_TRANSFER_SLICES);
    /* The DATA of a turn is acknowledged together; it comes in up to eight a turn. */
    assert_true(frames_sent(lane.pair.b.transport) <
                SL_LIMIT_TRANSFER_SLICES + SL_LIMIT_TRANSFER_SLICES / 2);
    lane_close(&lane);
}

SL_CASE(rma_initiator_send__stops_at_the_credit)
{
    struct lane lane = {.keeps_data_waiting = true};
    lane_open(&lane);
    struct sl_rma_slice slices[5], *offered[5];
    for (uint32_t i = 0; i < 5; i++) {
        slices[i] = slice_of(&lane, SL_RMA_READ, i * 4 * MIB, i * 4 * MIB, 4 * MIB);
        offered[i] = &slices[i];
    }
    assert_int_equal(sl_rma_initiator_send(&lane.initiator, offered, 5, 1000000), 4);
    lane_turns(&lane, 50);
    assert_int_equal(sl_rma_initiator_send(&lane.initiator, offered + 4, 1, 1000000), 0);
    lane.keeps_data_waiting = false;
    lane_until_done(&lane, 4);
    assert_int_equal(sl_rma_initiator_send(&lane.initiator, offered + 4, 1, 1000000), 1);
    lane_until_done(&lane, 5);
    lane_close(&lane);
}

/* Over the device the payloads are copied, and the outbox has room for 13. */
static const struct lane narrow = {.ops = &sl_loop_device_ops,
                                   .outbox_bytes = SL_OUTBOX_MEMORY_BYTES_MIN};

static void send_more_than_fits(struct lane *lane, struct sl_rma_slice slices[NARROW_SLICES])
{
    struct sl_rma_slice *offered[NARROW_SLICES];
    lane_open(lane);
    for (uint32_t i = 0; i < NARROW_SLICES; i++) {
        slices[i] = slice_of(lane, SL_RMA_WRITE, i << 18, i << 18, 1U << 18);
        offered[i] = &slices[i];
    }
    uint64_t seed = 3;
    fill(&seed, lane->local, NARROW_SLICES << 18);
    assert_int_equal(sl_rma_initiator_send(&lane->initiator, offered, NARROW_SLICES, 1000000),
                     NARROW_SLICES);
    assert_non_null(lane->initiator.unsent);
    assert_int_equal(sl_rma_initiator_send(&lane->initiator, offered, 1, 1000000), 0);
}

SL_CASE(rma_initiator_pump__sends_what_had_no_room)
{
    struct lane lane = narrow;
    struct sl_rma_slice slices[NARROW_SLICES];
    send_more_than_fits(&lane, slices);
    lane_until_done(&lane, NARROW_SLICES);
    assert_null(lane.initiator.unsent);
    assert_int_equal(lane.failed_count, 0);
    assert_memory_equal(lane.memories[0].base, lane.local, NARROW_SLICES << 18);
    lane_close(&lane);
}

SL_CASE(rma_initiator_send__reports_an_error_for_each_slice)
{
    struct lane lane = {0};
    lane_open(&lane);
    memset(lane.local, 1, 8 * MIB);
    struct sl_rma_slice slices[] = {
        slice_of(&lane, SL_RMA_WRITE, 0, 0, 100),
        slice_of(&lane, SL_RMA_WRITE, 0, LANE_MEMORY_BYTES - 99, 100),
        slice_of(&lane, SL_RMA_WRITE, 0, UINT64_MAX - 7, MIB),
        slice_of(&lane, SL_RMA_WRITE, 0, 200, MIB),
        slice_of(&lane, SL_RMA_READ, 10 * MIB, LANE_MEMORY_BYTES, 1),
        slice_of(&lane, SL_RMA_READ, 10 * MIB, 0, 100),
    };
    lane_run(&lane, slices, 6);
    static const int expected[] = {0, SL_ERR_INVALID, SL_ERR_INVALID, 0, SL_ERR_INVALID, 0};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(slices[i].err, expected[i]);
    }
    assert_string_equal(lane.last_text, sl_rma_wire_error_text(SL_ERR_INVALID));
    assert_memory_equal(lane.memories[0].base, lane.local, 100);
    assert_memory_equal(lane.memories[0].base + 200, lane.local, MIB);
    assert_int_equal(lane.memories[0].base[LANE_MEMORY_BYTES - 1], 0);
    slices[0].key = 99;
    slices[1] = slice_of(&lane, SL_RMA_WRITE, 0, 0, 100);
    slices[1].key = lane.memories[1].key;
    slices[5].key = lane.memories[2].key;
    lane_run(&lane, &slices[0], 1);
    assert_int_equal(slices[0].err, SL_ERR_NOT_FOUND);
    lane_run(&lane, &slices[1], 1);
    assert_int_equal(slices[1].err, SL_ERR_REFUSED);
    lane_run(&lane, &slices[5], 1);
    assert_int_equal(slices[5].err, SL_ERR_REFUSED);
    lane_close(&lane);
}

/* Every slice is reported once, whenever the connection ends, and the lane works again. */
SL_CASE(rma_initiator_closed__reports_what_is_in_flight)
{
    for (uint32_t turns = 0; turns < 30; turns++) {
        struct lane lane = {.seed = turns};
        lane_open(&lane);
        struct sl_rma_slice slices[20], *offered[20];
        for (uint32_t i = 0; i < 20; i++) {
            slices[i] = slice_of(&lane, i % 2 == 0 ? SL_RMA_READ : SL_RMA_WRITE, i * MIB / 2,
                                 i * MIB / 2, i % 3 == 0 ? 1000 : MIB / 2);
            offered[i] = &slices[i];
        }
        assert_int_equal(sl_rma_initiator_send(&lane.initiator, offered, 20, 1000000), 20);
        lane_turns(&lane, turns);
        struct lane_end *end = turns % 2 == 0 ? &lane.a : &lane.b;
        if (end->conn != NULL) {
            sl_transport_disconnect(end->conn);
        }
        lane_turns(&lane, 300);
        assert_null(lane.a.conn);
        assert_null(lane.b.conn);
        assert_int_equal(lane.done_count, 20);
        assert_true(lane.failed_count == 0 || lane.last_err == SL_ERR_CLOSED);
        assert_int_equal(lane.memories[0].uses, 0);
        lane_connect(&lane);
        lane_run(&lane, slices, 20);
        assert_true(slices[0].id == 21);
        assert_int_equal(slices[19].err, 0);
        lane_close(&lane);
    }
}

/* A WRITE may be answered before the transport has reported it sent: then it is over when the
 * connection has closed, and `done` can send nothing more. */
SL_CASE(rma_initiator_send__from_done)
{
    uint32_t sent_count = 0, late_count = 0;
    for (uint32_t seed = 0; seed < 60; seed++) {
        struct lane lane = {.seed = seed};
        lane_open(&lane);
        struct sl_rma_slice write = slice_of(&lane, SL_RMA_WRITE, 0, 0, 20000), *offered = &write;
        struct sl_rma_slice next = slice_of(&lane, SL_RMA_READ, 0, 0, 100);
        assert_int_equal(sl_rma_initiator_send(&lane.initiator, &offered, 1, 1000000), 1);
        lane.next = &next;
        while (!write.is_answered) {
            lane_turns(&lane, 1);
        }
        const bool is_late = lane.done_count == 0;
        if (is_late) {
            sl_transport_disconnect(lane.b.conn);
        }
        lane_turns(&lane, 200);
        assert_int_equal(write.err, 0);
        assert_int_equal(lane.done_count, lane.next == NULL ? 2 : 1);
        assert_true(is_late || lane.next == NULL);
        sent_count += lane.next == NULL;
        late_count += is_late;
        lane_close(&lane);
    }
    assert_true(sent_count > 0 && late_count > 0);
}

/* Hostile targets */

static void open_hostile(struct lane *lane, struct sl_rma_slice *slices, uint32_t count)
{
    struct sl_rma_slice *offered[8];
    for (uint32_t i = 0; i < count; i++) {
        offered[i] = &slices[i];
    }
    assert_int_equal(sl_rma_initiator_send(&lane->initiator, offered, count, 1000000), count);
    lane_turns(lane, 100);
}

/* Returns whether the initiator takes the reply. */
static bool is_taken(struct sl_frame frame, const void *payload, bool twice)
{
    struct lane lane = {.plays_target = true};
    lane_open(&lane);
    struct sl_rma_slice slices[] = {
        slice_of(&lane, SL_RMA_READ, 0, 0, 100),    slice_of(&lane, SL_RMA_WRITE, 200, 0, 100),
        slice_of(&lane, SL_RMA_WRITE, 300, 0, 100), slice_of(&lane, SL_RMA_READ, MIB, 0, MIB),
        slice_of(&lane, SL_RMA_WRITE, 0, 0, MIB),
    };
    open_hostile(&lane, slices, 5);
    frame.type = frame.type == 0 ? SL_FRAME_REPLY : frame.type;
    lane_send(&lane, &lane.b, frame, payload);
    if (twice) {
        lane_send(&lane, &lane.b, frame, payload);
    }
    lane_turns(&lane, 100);
    const bool is_refused = lane.a.violation != NULL;
    assert_int_equal(is_refused, lane.a.conn == NULL);
    if (is_refused) {
        assert_int_equal(lane.done_count, 5);
    }
    lane_close(&lane);
    return !is_refused;
}

SL_CASE(rma_initiator_received__refuses_odd_replies)
{
    const struct sl_rma_wire_prefix one = {.slice_count = 1}, two = {.slice_count = 2},
                                    three = {.slice_count = 3}, none = {0};
    const uint32_t prefix_bytes = sizeof one;
    /* what a target may send */
    assert_true(is_taken((struct sl_frame){.request_id = 1, .payload_bytes = 100}, NULL, false));
    assert_true(is_taken((struct sl_frame){.request_id = 4, .payload_bytes = MIB}, NULL, false));
    assert_true(
        is_taken((struct sl_frame){.request_id = 2, .payload_bytes = prefix_bytes}, &two, false));
    assert_true(
        is_taken((struct sl_frame){.request_id = 3, .payload_bytes = prefix_bytes}, &one, false));
    assert_true(is_taken((struct sl_frame){.request_id = 5, .status = 8, .payload_bytes = 4},
                         "\x1b\xff \n", false));
    assert_true(is_taken((struct sl_frame){.request_id = 1, .status = 255}, NULL, false));
    assert_true(is_taken((struct sl_frame){.type = SL_FRAME_CREDIT, .credit_bytes = UINT32_MAX},
                         NULL, true));
    /* what it may not */
    assert_false(is_taken((struct sl_frame){.request_id = 0, .payload_bytes = 100}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 6, .payload_bytes = 100}, NULL, false));
    assert_false(
        is_taken((struct sl_frame){.request_id = UINT64_MAX, .payload_bytes = MIB}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 1, .payload_bytes = 99}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 1, .payload_bytes = MIB}, NULL, false));
    assert_false(
        is_taken((struct sl_frame){.request_id = 4, .payload_bytes = MIB - 1}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 4, .payload_bytes = 100}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 4, .payload_bytes = MIB, .status = 3},
                          NULL, false));
    assert_false(
        is_taken((struct sl_frame){.request_id = 2, .payload_bytes = prefix_bytes}, &none, false));
    assert_false(is_taken((struct sl_frame){.request_id = 2, .payload_bytes = prefix_bytes}, &three,
                          false)); /* the third is a READ */
    assert_false(is_taken((struct sl_frame){.request_id = 5, .payload_bytes = prefix_bytes}, &two,
                          false)); /* beyond the last */
    assert_false(is_taken((struct sl_frame){.request_id = 5, .payload_bytes = MIB}, NULL, false));
    assert_false(is_taken((struct sl_frame){.request_id = 2, .payload_bytes = 100}, NULL, false));
    assert_false(
        is_taken((struct sl_frame){.type = SL_FRAME_REQUEST, .request_id = 1}, NULL, false));
    assert_false(is_taken((struct sl_frame){.type = SL_FRAME_DATA, .request_id = 1}, NULL, false));
    /* twice */
    assert_false(is_taken((struct sl_frame){.request_id = 1, .payload_bytes = 100}, NULL, true));
    assert_false(
        is_taken((struct sl_frame){.request_id = 2, .payload_bytes = prefix_bytes}, &one, true));
    assert_false(is_taken((struct sl_frame){.request_id = 5, .status = 8}, NULL, true));
}

/* A WRITE is acknowledged whose DATA the outbox has not taken yet. */
SL_CASE(rma_initiator_received__refuses_an_answer_to_unsent_data)
{
    struct lane lane = narrow;
    lane.plays_target = true;
    struct sl_rma_slice slices[NARROW_SLICES];
    send_more_than_fits(&lane, slices);
    const struct sl_rma_wire_prefix one = {.slice_count = 1};
    const struct sl_transport_message message = {.header = {.type = SL_FRAME_REPLY,
                                                            .request_id = NARROW_SLICES,
                                                            .payload_bytes = sizeof one},
                                                 .payload = (const uint8_t *)&one};
    const char *violation = NULL;
    assert_int_equal(sl_rma_initiator_received(&lane.initiator, &message, &violation),
                     SL_ERR_PROTOCOL);
    assert_non_null(violation);
    sl_transport_disconnect(lane.a.conn);
    lane_turns(&lane, 300);
    assert_int_equal(lane.done_count, NARROW_SLICES);
    lane_close(&lane);
}
