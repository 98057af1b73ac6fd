/* What a peer may send to harm the receiver: lengths that contradict each other, and connections
 * that only hold memory. */
#include <stdlib.h>

#include "core/log.h"
#include "net/dpdk/receive.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/end.h"

#define PIECE END_BODY_MAX
#define LONG  (SL_LIMIT_INLINE_PAYLOAD_BYTES + 4000U)
#define BIG   (1U << 20)

static struct end end;

static enum sl_dpdk_taken take_piece(uint32_t message, uint32_t payload_bytes, uint32_t n)
{
    uint8_t *frame = end_frame_make(1, payload_bytes);
    const enum sl_dpdk_taken taken =
        end_take_piece(&end, message, frame, SL_FRAME_HEADER_BYTES + payload_bytes, n);
    free(frame);
    return taken;
}

#define CASE(name) SL_CASE_WITH(name, end_open(&end, NULL), end_close(&end))

/* The sink would be of the first length, and the bound of the second. */
CASE(first_piece__of_a_longer_message_is_refused)
{
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_PARKED);
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_TAKEN); /* it came twice */
    assert_int_equal(take_piece(0, BIG, 0), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(sl_dpdk_slot_at(end.conn->receive, 0)->bytes, SL_FRAME_HEADER_BYTES + LONG);
}

/* A short frame of two pieces, of which one never comes, would be delivered with a long one's. */
CASE(first_piece__of_a_shorter_message_is_refused)
{
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_PARKED);
    end_deliver(&end); /* there is no sink now: the header stays known */
    assert_true(end.conn->receive->is_known);
    assert_int_equal(take_piece(0, 2 * PIECE - SL_FRAME_HEADER_BYTES, 0), SL_DPDK_PROTOCOL_ERROR);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 0);
}

/* The same while the head is known but its first piece found no room. */
CASE(first_piece__is_compared_with_what_the_head_remembers)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_port_info){.frame_bytes_max = 1514, .packets = 4});
    assert_int_equal(take_piece(1, LONG, 5), SL_DPDK_PARKED);
    assert_int_equal(take_piece(1, LONG, 4), SL_DPDK_PARKED); /* no more packets may wait */
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_NO_ROOM);
    assert_true(end.conn->receive->is_known);
    assert_int_equal(take_piece(0, BIG, 0), SL_DPDK_PROTOCOL_ERROR);
    uint8_t *sink = calloc(1, LONG);
    end.sink = sink;
    end_deliver(&end);
    assert_ptr_equal(end.conn->receive->sink, sink);
    uint8_t *frame = end_frame_make(2, LONG); /* another request, of the same length */
    assert_int_equal(end_take_piece(&end, 0, frame, SL_FRAME_HEADER_BYTES + LONG, 0),
                     SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_TAKEN);
    free(frame);
    free(sink);
}

/* Of a short message the whole piece is compared. */
CASE(first_piece__of_a_short_message_comes_again_as_it_was)
{
    const uint32_t bytes = 2 * PIECE;
    uint8_t *frame = end_frame_make(1, bytes - SL_FRAME_HEADER_BYTES);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 0), SL_DPDK_TAKEN);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 0), SL_DPDK_TAKEN);
    frame[PIECE - 1]++;
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 0), SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

/* Also when the sink has the piece. */
CASE(first_piece__of_a_long_message_comes_again_with_its_header)
{
    uint8_t *sink = calloc(1, LONG);
    end.sink = sink;
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_PARKED);
    end_deliver(&end);
    assert_ptr_equal(end.conn->receive->sink, sink);
    assert_int_equal(take_piece(0, LONG, 0), SL_DPDK_TAKEN);
    uint8_t *frame = end_frame_make(2, LONG);
    assert_int_equal(end_take_piece(&end, 0, frame, SL_FRAME_HEADER_BYTES + LONG, 0),
                     SL_DPDK_PROTOCOL_ERROR);
    free(frame);
    free(sink);
}

/* ---- Strangers ------------------------------------------------------------------------------- */

/* A connection as the transport makes it when somebody has shown a cookie. */
static void next_connection(bool is_welcome)
{
    end.conn->receive = NULL;
    sl_dpdk_grant_close(&end.dpdk->grants, &end.conn->grant);
    assert_int_equal(sl_dpdk_receive_open(end.conn), 0);
    sl_dpdk_grant_open(&end.dpdk->grants, &end.conn->grant);
    end.conn->base.is_welcome = is_welcome;
}

/* So many connections that take what `take` gives, until there is no room. */
static uint32_t fill(struct sl_dpdk_receiving *taken[2000], uint32_t message, uint32_t n,
                     uint32_t payload_bytes)
{
    uint32_t count = 0;
    enum sl_dpdk_taken got = SL_DPDK_TAKEN;
    while (got <= SL_DPDK_PARKED) {
        assert_true(count < 2000);
        next_connection(false);
        taken[count++] = end.conn->receive;
        got = take_piece(message, payload_bytes, n);
    }
    assert_int_equal(got, SL_DPDK_NO_ROOM);
    return count;
}

static void drop_all(struct sl_dpdk_receiving *taken[2000], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        end.conn->receive = taken[i];
        sl_dpdk_receive_close(end.conn);
    }
}

/* A peer that is welcome gets its frames, short ones of several pieces and trains. */
static void expect_served(uint32_t messages)
{
    next_connection(true);
    const uint32_t before = end.frame_count;
    for (uint32_t m = 0; m < messages; m++) {
        for (uint32_t n = 0; n < 3; n++) {
            assert_int_equal(take_piece(m, 3 * PIECE - SL_FRAME_HEADER_BYTES, n), SL_DPDK_TAKEN);
        }
        end_deliver(&end);
    }
    assert_int_equal(end.frame_count - before, messages);
    sl_dpdk_receive_close(end.conn);
}

/* Each sends the first piece of a short frame, and nothing more. */
CASE(strangers__that_begin_short_frames_delay_nobody)
{
    static struct sl_dpdk_receiving *taken[2000];
    sl_dpdk_receive_close(end.conn);
    const uint32_t count = fill(taken, 0, 0, SL_LIMIT_INLINE_PAYLOAD_BYTES);
    expect_served(400);
    /* A newcomer's hello, which is whole and next, still comes through. */
    next_connection(false);
    uint8_t *hello = end_frame_make(1, 96);
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, hello, SL_FRAME_HEADER_BYTES + 96),
                     SL_DPDK_TAKEN);
    const uint32_t before = end.frame_count;
    end_deliver(&end);
    assert_int_equal(end.frame_count, before + 1);
    free(hello);
    sl_dpdk_receive_close(end.conn);
    drop_all(taken, count);
}

/* Each sends a packet whose message's length is not known. */
CASE(strangers__whose_packets_wait_delay_nobody)
{
    static struct sl_dpdk_receiving *taken[2000];
    sl_dpdk_receive_close(end.conn);
    const uint32_t count = fill(taken, 0, 1, LONG);
    next_connection(true);
    uint8_t *sink = calloc(1, LONG);
    end.sink = sink;
    const uint32_t pieces = (SL_FRAME_HEADER_BYTES + LONG + PIECE - 1) / PIECE;
    for (uint32_t n = pieces; n-- > 0;) { /* the first comes last, so that all others wait */
        assert_true(take_piece(0, LONG, n) <= SL_DPDK_PARKED);
    }
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1);
    free(sink);
    sl_dpdk_receive_close(end.conn);
    drop_all(taken, count);
}

/* What a reactor grants to senders of long messages is not for them. */
CASE(strangers__that_announce_more_are_granted_nothing)
{
    sl_dpdk_receive_close(end.conn);
    end.flags = SL_DPDK_FLAG_MORE;
    for (int is_welcome = 0; is_welcome < 2; is_welcome++) {
        next_connection(is_welcome == 1);
        assert_true(take_piece(0, LONG, 0) <= SL_DPDK_PARKED);
        assert_int_equal(end.conn->grant.requested > 0, is_welcome == 1);
        sl_dpdk_receive_close(end.conn);
    }
    end.flags = 0;
}

/* What strangers held comes back to their share. */
CASE(strangers__get_their_share_again)
{
    static struct sl_dpdk_receiving *taken[2000];
    sl_dpdk_receive_close(end.conn);
    uint32_t counts[3];
    for (uint32_t i = 0; i < 3; i++) {
        counts[i] = fill(taken, 0, 0, SL_LIMIT_INLINE_PAYLOAD_BYTES);
        drop_all(taken, counts[i]);
    }
    end.conn->receive = NULL;
    assert_int_equal(counts[1], counts[0]);
    assert_int_equal(counts[2], counts[0]);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "hostile");
}
