#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/shared.h"
#include "net/rdma/send.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

#define MEMORY_BYTES (1U << 20)
#define FRAME(bytes) (SL_FRAME_HEADER_BYTES + (bytes))

struct fixture {
    struct rdma_wire wire;
    struct rdma_wire_end *a, *b;
    struct sl_shared shared; /* registered, but only when a test says so */
    uint8_t *memory;         /* not registered, MEMORY_BYTES */
    uint8_t *sink;
};

static void setup(struct fixture *fixture)
{
    rdma_wire_init(&fixture->wire);
    fixture->a = &fixture->wire.ends[0];
    fixture->b = &fixture->wire.ends[1];
    assert_int_equal(sl_shared_create("send", MEMORY_BYTES, SL_SHARED_WRITE, &fixture->shared), 0);
    fixture->memory = aligned_alloc(4096, MEMORY_BYTES);
    fixture->sink = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(fixture->memory);
    assert_non_null(fixture->sink);
    fixture->b->sink = fixture->sink;
}

static void teardown(struct fixture *fixture)
{
    rdma_wire_fini(&fixture->wire);
    sl_shared_destroy(&fixture->shared);
    free(fixture->memory);
    free(fixture->sink);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static void *cookie(uintptr_t number)
{
    return (void *)number;
}

static uint8_t *register_shared(struct fixture *fixture)
{
    assert_int_equal(sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->shared.base,
                                             fixture->shared.bytes),
                     0);
    return fixture->shared.base;
}

static void unregister_shared(struct fixture *fixture)
{
    sl_rdma_memory_unregister(&fixture->wire.fake.rdma.base, fixture->shared.base);
}

/* Makes `count` frames one behind the other, each at a multiple of 8, and queues them. */
static void send_row(struct fixture *fixture, uint32_t count, uint32_t payload_bytes)
{
    uint8_t *at = fixture->memory;
    for (uint32_t i = 0; i < count; i++) {
        rdma_wire_frame(at, SL_FRAME_REQUEST, i + 1, payload_bytes, (uint8_t)i);
        rdma_wire_send(fixture->a, at, cookie(i + 1));
        at += (FRAME(payload_bytes) + 7) & ~7U;
    }
}

static void expect_row(const struct fixture *fixture, uint32_t count, uint32_t payload_bytes)
{
    assert_int_equal(fixture->b->received, count);
    assert_int_equal(fixture->a->sent_count, count);
    for (uint32_t i = 0; i < count; i++) {
        rdma_wire_expect(fixture->b, i, i + 1, payload_bytes, (uint8_t)i);
        assert_int_equal(fixture->a->sent[i], i + 1);
    }
}

/* ---- Packets ----------------------------------------------------------------------------------
 */

/* Without a copy and without a key, from where they lie. */
CASE(flush__short_frames_go_inline)
{
    send_row(fixture, 3, 40);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->posted, 1);
    const struct rdma_wire_request *request = &fixture->a->requests[0];
    assert_int_equal(request->flags, IBV_SEND_INLINE);
    assert_int_equal(request->remote_sge_count, 2); /* the frames touch each other */
    assert_int_equal(request->remote_sges[1].addr, (uintptr_t)fixture->memory);
    assert_int_equal(request->bytes, sizeof(struct sl_rdma_packet) + 3 * FRAME(40));
    assert_int_equal(rdma_wire_head(request).kind, SL_RDMA_FRAMES);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->sent_count, 3); /* though nothing has been carried out */
    rdma_wire_settle(&fixture->wire);
    expect_row(fixture, 3, 40);
    assert_int_equal(sl_cell_get(&fixture->wire.fake.rdma.base.cells->copied_bytes), 0);
}

CASE(flush__pads_between_frames)
{
    send_row(fixture, 5, 3);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->a->requests[0].bytes,
                     sizeof(struct sl_rdma_packet) + 4 * 40 + FRAME(3));
    expect_row(fixture, 5, 3);
}

CASE(flush__fills_packets)
{
    send_row(fixture, 60, 500);
    rdma_wire_settle(&fixture->wire);
    expect_row(fixture, 60, 500);
    /* 15 of 536 bytes to a packet */
    assert_int_equal(fixture->b->conn->credit.counted_received, 4);
    assert_int_equal(fixture->a->requests[0].bytes,
                     sizeof(struct sl_rdma_packet) + 14 * 536 + FRAME(500));
}

/* So many that lie apart do not fit the pieces of a request: they are copied. */
CASE(flush__frames_that_lie_apart)
{
    fixture->wire.fake.nic.caps.sge_max = 3;
    for (uint32_t i = 0; i < 5; i++) {
        uint8_t *at = fixture->memory + 1000 * i;
        rdma_wire_frame(at, SL_FRAME_REQUEST, i + 1, 8, (uint8_t)i);
        rdma_wire_send(fixture->a, at, cookie(i + 1));
    }
    rdma_wire_settle(&fixture->wire);
    expect_row(fixture, 5, 8);
    assert_int_equal(fixture->a->requests[0].remote_sge_count, 1);
    assert_int_equal(sl_cell_get(&fixture->wire.fake.rdma.base.cells->copied_bytes), 5 * FRAME(8));
}

/* Several frames in one head count as one until `sent`, and are cut only between frames. */
CASE(flush__runs_are_cut_between_frames)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 20; i++) {
        rdma_wire_frame(fixture->memory + bytes, SL_FRAME_REQUEST, i + 1, 1000, (uint8_t)i);
        bytes += FRAME(1000);
    }
    const struct sl_transport_frame run = {
        .head = fixture->memory, .head_bytes = bytes, .cookie = cookie(7)};
    assert_int_equal(sl_rdma_send_burst(&fixture->a->conn->base, &run, 1), 1);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->b->received, 20);
    for (uint32_t i = 0; i < 20; i++) {
        rdma_wire_expect(fixture->b, i, i + 1, 1000, (uint8_t)i);
    }
    assert_int_equal(fixture->a->sent_count, 1);
    assert_int_equal(fixture->a->sent[0], 7);
    assert_int_equal(fixture->b->conn->credit.counted_received, 3);
}

/* What is registered, and not very short, is read by the device; `sent` waits for that. */
CASE(flush__registered_parts_stay_where_they_are)
{
    uint8_t *memory = register_shared(fixture);
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 100, 1);
    rdma_wire_send(fixture->a, fixture->memory, cookie(1));
    rdma_wire_frame(memory, SL_FRAME_REQUEST, 2, 3000, 2);
    rdma_wire_send(fixture->a, memory, cookie(2));
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->posted, 1);
    const struct rdma_wire_request *request = &fixture->a->requests[0];
    assert_int_equal(request->remote_sge_count, 2);
    assert_int_equal(request->remote_sges[1].addr, (uintptr_t)memory);
    assert_int_equal(request->flags, IBV_SEND_SIGNALED);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->sent_count, 0); /* it is in the same packet as the other */
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->a->sent_count, 2);
    rdma_wire_expect(fixture->b, 0, 1, 100, 1);
    rdma_wire_expect(fixture->b, 1, 2, 3000, 2);
    unregister_shared(fixture);
}

CASE(sent__joined_frames_are_reported_once)
{
    uint8_t *memory = register_shared(fixture);
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 8, 1);
    rdma_wire_frame(memory, SL_FRAME_REQUEST, 2, 5000, 2);
    rdma_wire_send(fixture->a, fixture->memory, cookie(5));
    rdma_wire_turn(&fixture->wire);
    rdma_wire_send(fixture->a, memory, SL_TRANSPORT_COALESCED);
    rdma_wire_turn(&fixture->wire);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->sent_count, 0);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->a->sent_count, 1);
    assert_int_equal(fixture->a->sent[0], 5);
    assert_int_equal(fixture->b->received, 2);
    unregister_shared(fixture);
}

/* ---- The send queue ---------------------------------------------------------------------------
 */

CASE(signal__every_so_often)
{
    fixture->a->conn->credit.limit_theirs = 1000;
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 8, 1);
    for (uint32_t i = 0; i < 70; i++) {
        rdma_wire_send(fixture->a, fixture->memory, cookie(i + 1));
        rdma_wire_turn(&fixture->wire);
    }
    assert_int_equal(fixture->a->posted, 70);
    for (uint32_t i = 0; i < 70; i++) {
        bool is_due = (i + 1) % SL_RDMA_SIGNAL_EVERY == 0;
        assert_int_equal((fixture->a->requests[i].flags & IBV_SEND_SIGNALED) != 0, is_due);
    }
}

/* The device is slow: the queue holds what it can, the rest waits, and so does who queues. */
CASE(queue__is_never_overrun)
{
    fixture->a->conn->credit.limit_theirs = 5000;
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 8, 1);
    const struct sl_transport_frame frame = {
        .head = fixture->memory, .head_bytes = FRAME(8), .cookie = cookie(9)};
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        taken += sl_rdma_send_burst(&fixture->a->conn->base, &frame, 1);
        rdma_wire_turn(&fixture->wire);
    }
    assert_int_equal(fixture->a->posted, SL_RDMA_SENDS);
    assert_int_equal(taken, SL_RDMA_SENDS + SL_RDMA_QUEUE);
    assert_int_equal(fixture->a->sent_count, SL_RDMA_SENDS);
    assert_int_equal(fixture->a->writable_count, 0);
    fixture->b->conn->credit.limit_ours = fixture->b->conn->credit.limit_told = 5000;
    fixture->b->conn->credit.window = 5000;
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->b->received, taken);
    assert_int_equal(fixture->a->sent_count, taken);
    assert_int_equal(fixture->a->writable_count, 1);
}

CASE(post__fails)
{
    fixture->a->post_error = ENOMEM;
    send_row(fixture, 1, 8);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fixture->a->conn->phase, SL_RDMA_ENDED);
    assert_int_equal(fixture->a->conn->end.err, SL_ERR_IO);
}

/* ---- Credit -----------------------------------------------------------------------------------
 */

CASE(credit__is_never_overdrawn)
{
    fixture->b->hold = true;
    send_row(fixture, 100, 8000);
    for (uint32_t i = 0; i < 3; i++) {
        rdma_wire_turn(&fixture->wire);
    }
    assert_int_equal(fixture->a->posted, SL_RDMA_WINDOW_MIN);
    for (uint32_t i = 0; i < SL_RDMA_WINDOW_MIN; i++) {
        assert_int_equal(rdma_wire_head(&fixture->a->requests[i]).flags,
                         i + 1 == SL_RDMA_WINDOW_MIN ? SL_RDMA_STALLED : 0);
    }
    rdma_wire_settle(&fixture->wire); /* the window grows, until it does not */
    assert_int_equal(fixture->b->received, SL_RDMA_WINDOW_MAX);
    assert_int_equal(fixture->b->conn->credit.window, SL_RDMA_WINDOW_MAX);
    while (fixture->b->released < 100) {
        rdma_wire_release(fixture->b, fixture->b->released);
        rdma_wire_settle(&fixture->wire);
    }
    assert_int_equal(fixture->b->received, 100);
}

/* Frames that are queued when the credit is used up already: nothing goes that could say so. */
CASE(credit__a_stall_is_told_once)
{
    fixture->a->conn->credit.counted_sent = fixture->a->conn->credit.limit_theirs;
    send_row(fixture, 2, 8);
    for (uint32_t i = 0; i < 4; i++) {
        rdma_wire_turn(&fixture->wire);
    }
    assert_int_equal(fixture->a->posted, 1);
    struct sl_rdma_packet head = rdma_wire_head(&fixture->a->requests[0]);
    assert_int_equal(head.kind, SL_RDMA_CREDIT_UPDATE);
    assert_int_equal(head.flags, SL_RDMA_STALLED);
}

/* Who only receives tells of credit by itself, when half of it was used; who answers, never. */
CASE(note__only_where_nothing_else_goes)
{
    for (uint32_t i = 0; i < SL_RDMA_WINDOW_MIN; i++) {
        send_row(fixture, 1, 8);
        rdma_wire_settle(&fixture->wire);
    }
    assert_int_equal(fixture->b->posted, 2);
    assert_int_equal(rdma_wire_head(&fixture->b->requests[1]).kind, SL_RDMA_CREDIT_UPDATE);
    assert_int_equal(rdma_wire_head(&fixture->b->requests[1]).limit, 2 * SL_RDMA_WINDOW_MIN);
    for (uint32_t i = 0; i < SL_RDMA_WINDOW_MIN; i++) {
        send_row(fixture, 1, 8);
        rdma_wire_turn(&fixture->wire);
        (void)rdma_wire_carry(fixture->a, 1);
        rdma_wire_send(fixture->b, fixture->memory, cookie(1));
        rdma_wire_settle(&fixture->wire);
    }
    assert_int_equal(fixture->b->posted, 2 + SL_RDMA_WINDOW_MIN);
    assert_int_equal(fixture->a->posted, 2 * SL_RDMA_WINDOW_MIN);
}

/* Receive buffers for NOTEs are few: the peer is asked to answer, and waited for. */
CASE(note__waits_for_the_peer)
{
    for (uint32_t i = 0; i < 10; i++) {
        fixture->a->conn->credit.note_due = true;
        sl_rdma_mark_dirty(fixture->a->conn);
        rdma_wire_turn(&fixture->wire);
    }
    assert_int_equal(fixture->a->posted, SL_RDMA_SPARE - 1);
    assert_int_equal(rdma_wire_head(&fixture->a->requests[SL_RDMA_SPARE - 2]).flags, SL_RDMA_PING);
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->b->posted, 1);
    assert_int_equal(fixture->a->posted, SL_RDMA_SPARE);
}

CASE(uncounted__needs_no_credit)
{
    fixture->a->conn->credit.counted_sent = fixture->a->conn->credit.limit_theirs;
    assert_true(sl_rdma_send_uncounted(fixture->a->conn, SL_RDMA_FIN, 0));
    assert_int_equal(rdma_wire_head(&fixture->a->requests[0]).kind, SL_RDMA_FIN);
    assert_int_equal(fixture->a->requests[0].bytes, sizeof(struct sl_rdma_packet));
    assert_true((fixture->a->requests[0].flags & IBV_SEND_SIGNALED) != 0);
    assert_false(sl_rdma_send_is_done(fixture->a->conn));
    (void)rdma_wire_carry(fixture->a, 1);
    assert_true(sl_rdma_send_is_done(fixture->a->conn));
    assert_true(fixture->b->conn->end.fin_received);
}

/* ---- Long frames ------------------------------------------------------------------------------
 */

/* Of memory that is not registered: copied; `sent` when the peer has it. */
CASE(long__of_any_memory)
{
    static const uint32_t sizes[] = {8200,  16384, 16385,
                                     31000, 33000, SL_TRANSPORT_UNREGISTERED_BYTES_MAX};
    for (uint32_t i = 0; i < 6; i++) {
        memset(fixture->sink, 0xee, MEMORY_BYTES);
        rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, i + 1, sizes[i], (uint8_t)i);
        rdma_wire_send(fixture->a, fixture->memory, cookie(i + 1));
        rdma_wire_turn(&fixture->wire);
        rdma_wire_turn(&fixture->wire);
        assert_int_equal(fixture->a->sent_count, i);
        assert_true(sl_rdma_send_waits(fixture->a->conn));
        rdma_wire_settle(&fixture->wire);
        assert_int_equal(fixture->a->sent_count, i + 1);
        assert_false(sl_rdma_send_waits(fixture->a->conn));
        rdma_wire_expect(fixture->b, i, i + 1, sizes[i], (uint8_t)i);
        assert_true(sizes[i] <= SL_LIMIT_INLINE_PAYLOAD_BYTES ||
                    fixture->b->messages[i].payload == fixture->sink);
        assert_int_equal(fixture->wire.fake.nic.pool.lent, 0);
    }
}

/* The head's part of the payload comes with the packet; only the rest is read. */
CASE(long__a_short_beginning_comes_along)
{
    uint8_t *memory = register_shared(fixture);
    assert_int_equal(
        sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->sink, MEMORY_BYTES), 0);
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 50200, 3);
    memset(memory, 3, 50000);
    const struct sl_transport_frame frame = {.head = fixture->memory,
                                             .head_bytes = FRAME(200),
                                             .payload = memory,
                                             .payload_bytes = 50000,
                                             .cookie = cookie(1)};
    assert_int_equal(sl_rdma_send_burst(&fixture->a->conn->base, &frame, 1), 1);
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->b, 0, 1, 50200, 3);
    assert_int_equal(fixture->b->requests[0].opcode, IBV_WR_RDMA_READ);
    assert_int_equal(fixture->b->requests[0].bytes, 50000);
    assert_int_equal(fixture->b->requests[0].remote_at, (uintptr_t)memory);
    assert_int_equal(sl_cell_get(&fixture->wire.fake.rdma.base.cells->copied_bytes), FRAME(200));
    unregister_shared(fixture);
}

/* Many at a time: copies of unread ones take a part of the blocks at most, and all arrive. */
CASE(long__many_at_once)
{
    fixture->wire.fake.rdma.options.buffers_max = 16;
    for (uint32_t i = 0; i < 30; i++) {
        uint8_t *at = fixture->memory + 12000 * i;
        rdma_wire_frame(at, SL_FRAME_REQUEST, i + 1, 10000, (uint8_t)i);
        rdma_wire_send(fixture->a, at, cookie(i + 1));
    }
    rdma_wire_turn(&fixture->wire);
    assert_true(fixture->wire.fake.nic.pool.lent <= 8);
    rdma_wire_settle(&fixture->wire);
    expect_row(fixture, 30, 10000);
}

/* No memory can be registered: what can be copied still goes, the rest waits, and ends the
 * connection when that took too long. */
CASE(long__without_keys)
{
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 10000, 1);
    rdma_wire_send(fixture->a, fixture->memory, cookie(1));
    rdma_wire_settle(&fixture->wire); /* there are blocks now */
    fixture->wire.fake.live_bytes_max = fixture->wire.fake.live_bytes;
    uint8_t *memory = register_shared(fixture);
    rdma_wire_frame(memory, SL_FRAME_REQUEST, 2, 100000, 2);
    rdma_wire_send(fixture->a, memory, cookie(2));
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->b, 1, 2, 100000, 2);
    assert_int_equal(fixture->a->sent_count, 2);
    rdma_wire_frame(memory, SL_FRAME_REQUEST, 3, 400000, 3);
    rdma_wire_send(fixture->a, memory, cookie(3));
    for (uint32_t ms = 0; ms < fixture->wire.fake.rdma.base.peer_timeout_ms; ms += 500) {
        rdma_wire_settle(&fixture->wire);
        assert_int_equal(fixture->a->conn->phase, SL_RDMA_LIVE);
        rdma_fake_sleep(&fixture->wire.fake, 500);
    }
    rdma_wire_settle(&fixture->wire);
    assert_int_equal(fixture->a->conn->phase, SL_RDMA_ENDED);
    assert_int_equal(fixture->a->conn->end.err, SL_ERR_NO_MEMORY);
    unregister_shared(fixture);
}

/* It goes when there is memory again, and what waits behind it too, in order. */
CASE(long__waits_for_memory)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    for (uint32_t round = 0; round < 2; round++) { /* patience begins anew with each frame */
        uint8_t *memory = register_shared(fixture);
        fake->live_bytes_max = fake->live_bytes;
        rdma_wire_frame(memory, SL_FRAME_REQUEST, 1, 400000 + round, 1);
        rdma_wire_send(fixture->a, memory, cookie(1));
        rdma_wire_frame(fixture->memory + 500000, SL_FRAME_REQUEST, 2, 10, 2);
        rdma_wire_send(fixture->a, fixture->memory + 500000, cookie(2));
        rdma_wire_settle(&fixture->wire);
        rdma_fake_sleep(fake, fake->rdma.base.peer_timeout_ms - 1000);
        assert_true(fake->rdma.awake); /* the reactor does not sleep over it */
        rdma_wire_settle(&fixture->wire);
        fake->live_bytes_max = 0;
        rdma_wire_settle(&fixture->wire); /* not before the next round of retries */
        assert_int_equal(fixture->b->received, 2 * round);
        rdma_fake_sleep(fake, 20);
        rdma_wire_settle(&fixture->wire);
        assert_int_equal(fixture->b->received, 2 * round + 2);
        rdma_wire_expect(fixture->b, 2 * round, 1, 400000 + round, 1);
        rdma_wire_expect(fixture->b, 2 * round + 1, 2, 10, 2);
        unregister_shared(fixture);
    }
}

/* There is memory for the payload or for the reply buffer: the payload is sent, and the answer
 * comes as any other. */
CASE(long__its_reply_buffer_does_not_take_its_memory)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    register_shared(fixture);
    assert_int_equal(sl_rdma_memory_register(&fake->rdma.base, fixture->memory, MEMORY_BYTES), 0);
    fake->live_bytes_max = fake->live_bytes + MEMORY_BYTES + 1000;
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 400000, 1);
    const struct sl_transport_frame frame = {.head = fixture->memory,
                                             .head_bytes = FRAME(400000),
                                             .reply_buffer = fixture->shared.base,
                                             .reply_buffer_bytes = 400000,
                                             .cookie = cookie(1)};
    assert_int_equal(sl_rdma_send_burst(&fixture->a->conn->base, &frame, 1), 1);
    rdma_wire_settle(&fixture->wire);
    rdma_wire_expect(fixture->b, 0, 1, 400000, 1);
    unregister_shared(fixture);
}

/* What was copied for peers to read leaves a block to receive with. */
CASE(long__copies_leave_a_block)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    const uint32_t total = fake->nic.pool.total[SL_RDMA_BLOCK_STAGING];
    fake->live_bytes_max = fake->live_bytes;
    fixture->b->conn->credit.window = fixture->b->conn->credit.limit_told = 2 * total;
    fixture->a->conn->credit.limit_theirs = fixture->b->conn->credit.limit_ours = 2 * total;
    send_row(fixture, total + 2, 10000);
    rdma_wire_turn(&fixture->wire);
    assert_int_equal(fake->nic.pool.total[SL_RDMA_BLOCK_STAGING], total);
    assert_int_equal(fake->nic.pool.lent, total - 1);
    rdma_wire_settle(&fixture->wire);
    rdma_fake_sleep(fake, 20);
    rdma_wire_settle(&fixture->wire);
    expect_row(fixture, total + 2, 10000);
}
