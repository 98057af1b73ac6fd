#include <stdlib.h>
#include <string.h>

#include "net/dpdk/ack.h"
#include "net/dpdk/send_queue.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/sending.h"

/* ---- Trains -----------------------------------------------------------------------------------
 */

CASE(bundle__has_all_short_frames)
{
    static const uint32_t sizes[] = {0, 64, 1, 300, 7, 64};
    uint8_t *frames[6];
    for (uint32_t i = 0; i < 6; i++) {
        frames[i] = make(i, sizes[i]);
        /* Some in two parts, of odd lengths too. */
        uint32_t apart = i % 2 == 1 ? sizes[i] / 2 + 1 : 0;
        assert_true(end_offer(&end, frames[i], 32 + sizes[i], apart, cookie_of(i)));
    }
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    expect_sent(0, SL_DPDK_BUNDLE, 0, 0);
    assert_int_equal(sent_header(0)->sequence, FIRST);
    assert_int_equal(sent_header(0)->connection, 0x200);
    assert_int_equal(sent_header(0)->acknowledged, 2000);
    assert_int_equal(sent_header(0)->granted, SL_DPDK_UNSCHEDULED_BYTES);
    uint32_t at = 0;
    for (uint32_t i = 0; i < 6; i++) {
        end_expect_frame(end_sent(&end, 0), &at, frames[i], sizes[i]);
    }
    assert_int_equal(at, end_sent(&end, 0)->parsed.body_bytes);
    assert_int_equal(end.conn->offered, at);
    assert_int_equal(sl_cell_get(&end.dpdk->base.cells->frames_sent), 6);
    acknowledge(FIRST + 1);
    assert_int_equal(end.cookie_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_ptr_equal(end.cookies[i], cookie_of(i));
    }
    assert_true(sl_dpdk_send_is_done(end.conn));
}

CASE(bundle__is_cut_where_the_packet_is_full)
{
    uint8_t *frames[40];
    for (uint32_t i = 0; i < 40; i++) {
        frames[i] = offer(i, 64);
    }
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    for (uint32_t n = 0, i = 0; n < 3; n++) {
        expect_sent(n, SL_DPDK_BUNDLE, n, 0);
        for (uint32_t at = 0; at < end_sent(&end, n)->parsed.body_bytes; i++) {
            end_expect_frame(end_sent(&end, n), &at, frames[i], 64);
        }
    }
    assert_true(end_acknowledge(&end, FIRST, 1 << 1, end.conn->granted_theirs));
    assert_int_equal(end.cookie_count, 0); /* the first two are missing */
    acknowledge(FIRST + 1);
    assert_int_equal(end.cookie_count, 15);
    acknowledge(FIRST + 3);
    assert_int_equal(end.cookie_count, 40);
}

/* Several frames in one head, some in the next packet. */
CASE(bundle__of_a_stream)
{
    enum { FRAMES = 30, BYTES = 32 + 64 };
    uint8_t *stream = end_keep(&end, malloc(FRAMES * BYTES));
    for (uint32_t i = 0; i < FRAMES; i++) {
        memcpy(stream + (size_t)i * BYTES, make(i, 64), BYTES);
    }
    assert_true(end_offer(&end, stream, FRAMES * BYTES, 0, cookie_of(7)));
    offer(FRAMES, 16);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    assert_int_equal(sl_cell_get(&end.dpdk->base.cells->frames_sent), FRAMES + 1);
    acknowledge(FIRST + 2);
    assert_int_equal(end.cookie_count, 1); /* the third has but the last frame */
    acknowledge(FIRST + 3);
    assert_int_equal(end.cookie_count, 2);
}

/* Frames of any length in a row, a long one among them. */
CASE(stream__with_a_long_frame)
{
    static const uint32_t sizes[] = {5, 3000, 9};
    uint8_t *stream = end_keep(&end, malloc(4000)), *frames[3];
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 3; i++) {
        frames[i] = make(i, sizes[i]);
        memcpy(stream + bytes, frames[i], 32 + sizes[i]);
        bytes += 32 + sizes[i];
    }
    assert_true(end_offer(&end, stream, bytes, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
    expect_sent(0, SL_DPDK_BUNDLE, 0, 0);
    uint32_t at = 0;
    end_expect_frame(end_sent(&end, 0), &at, frames[0], 5);
    for (uint32_t n = 0; n < 3; n++) {
        expect_sent(1 + n, SL_DPDK_DATA, 1, n * PIECE);
        assert_memory_equal(end_sent(&end, 1 + n)->parsed.body, frames[1] + n * PIECE,
                            end_sent(&end, 1 + n)->parsed.body_bytes);
    }
    expect_sent(4, SL_DPDK_BUNDLE, 2, 0);
    at = 0;
    end_expect_frame(end_sent(&end, 4), &at, frames[2], 9);
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 5);
    assert_int_equal(end.cookie_count, 1);
}

CASE(joined__is_reported_once)
{
    offer(0, 8);
    assert_true(end_offer(&end, make(1, 8), 40, 0, SL_TRANSPORT_COALESCED));
    assert_true(end_offer(&end, make(2, 2000), 2032, 0, SL_TRANSPORT_COALESCED));
    offer(3, 8);
    end_flush(&end);
    acknowledge(FIRST + 1);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 3);
    assert_int_equal(end.cookie_count, 1);
    assert_ptr_equal(end.cookies[0], cookie_of(0));
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 2);
}

CASE(queue__takes_so_many_and_says_when_there_is_room)
{
    for (uint32_t i = 0; i < SL_DPDK_QUEUE; i++) {
        offer(i, 0);
    }
    assert_false(end_offer(&end, make(1, 0), 32, 0, cookie_of(1)));
    end_flush(&end);
    assert_int_equal(end.writables, 0);
    acknowledge(FIRST + 1);
    assert_int_equal(end.writables, 1);
    assert_int_equal(end.cookie_count, PIECE / 32);
    acknowledge(FIRST + 2);
    assert_int_equal(end.writables, 1);
    end.conn->base.state = SL_CONN_CLOSING;
    assert_false(end_offer(&end, make(1, 0), 32, 0, cookie_of(1)));
}

/* ---- Pieces -----------------------------------------------------------------------------------
 */

CASE(pieces__are_of_equal_length)
{
    enum { BYTES = 32 + 20001 };
    uint8_t *frame = make(0, 20001);
    assert_true(end_offer(&end, frame, BYTES, 7777, cookie_of(0))); /* in two odd parts */
    end_flush(&end);
    assert_int_equal(end.sent_count, (BYTES + PIECE - 1) / PIECE);
    for (uint32_t n = 0; n < end.sent_count; n++) {
        uint32_t left = BYTES - n * PIECE;
        expect_sent(n, SL_DPDK_DATA, 0, n * PIECE);
        assert_int_equal(end_sent(&end, n)->parsed.body_bytes, left < PIECE ? left : PIECE);
        assert_memory_equal(end_sent(&end, n)->parsed.body, frame + n * PIECE,
                            left < PIECE ? left : PIECE);
        acknowledge(FIRST + n + 1);
        assert_int_equal(end.cookie_count, n + 1 == end.sent_count);
    }
}

CASE(lost__goes_again_as_it_was_cut_and_first)
{
    offer(0, 100);
    offer(1, 200);
    offer(2, 5000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
    offer(3, 50);
    /* The train and the first piece are missing, three have come. */
    assert_true(end_acknowledge(&end, FIRST, 0xe, end.conn->granted_theirs));
    assert_true(sl_list_linked(&end.conn->dirty));
    end_flush(&end);
    assert_int_equal(end.sent_count, 8);
    for (uint32_t n = 0; n < 2; n++) {
        const struct end_packet *before = end_sent(&end, n), *again = end_sent(&end, 5 + n);
        expect_sent(5 + n, (enum sl_dpdk_kind)before->parsed.header.kind,
                    before->parsed.header.message, before->parsed.header.offset);
        assert_int_equal(again->parsed.header.sequence, FIRST + 5 + n);
        assert_int_equal(again->parsed.body_bytes, before->parsed.body_bytes);
        assert_memory_equal(again->parsed.body, before->parsed.body, before->parsed.body_bytes);
    }
    expect_sent(7, SL_DPDK_BUNDLE, 2, 0);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 8);
    assert_int_equal(end.cookie_count, 4);
    assert_int_equal(end.conn->offered, 136 + 232 + 5032 + 88); /* each once, trains padded */
}

CASE(timeout__asks_the_peer)
{
    offer(0, 100);
    end_flush(&end);
    end.now_ns += SL_CLOCK_NS_PER_S;
    (void)sl_reactor_turn(end.dpdk->base.reactor, end.now_ns);
    sl_dpdk_send_expired(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    expect_sent(1, SL_DPDK_PROBE, 0, 0);
    assert_true((sent_header(1)->flags & SL_DPDK_FLAG_ANSWER) != 0);
    /* It came, and the train did not: the timer says when that is certain. */
    assert_true(end_acknowledge(&end, FIRST, 1, end.conn->granted_theirs));
    end.now_ns += SL_CLOCK_NS_PER_S;
    (void)sl_reactor_turn(end.dpdk->base.reactor, end.now_ns);
    sl_dpdk_send_expired(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    expect_sent(2, SL_DPDK_BUNDLE, 0, 0);
}

/* ---- From where it lies -----------------------------------------------------------------------
 */

static uint8_t *open_gathering(uint32_t payload_bytes)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_port_info){.frame_bytes_max = 1514,
                                               .packets = END_PACKETS,
                                               .tx_gather = true,
                                               .tx_checksum = true});
    uint8_t *frame = make(0, payload_bytes);
    end.dpdk->regions[0] = (struct sl_dpdk_region){.base = frame, .bytes = 32 + payload_bytes};
    end.dpdk->region_count = 1;
    return frame;
}

static void expect_pieces(uint32_t first, const uint8_t *frame, uint32_t bytes)
{
    for (uint32_t n = 0; n * PIECE < bytes; n++) {
        uint32_t left = bytes - n * PIECE;
        expect_sent(first + n, SL_DPDK_DATA, 0, n * PIECE);
        assert_memory_equal(end_sent(&end, first + n)->parsed.body, frame + n * PIECE,
                            left < PIECE ? left : PIECE);
    }
}

CASE(gather__reports_when_the_device_has_read)
{
    uint8_t *frame = open_gathering(5000);
    assert_true(end_offer(&end, frame, 5032, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.tail_count, 4);
    expect_pieces(0, frame, 5032);
    assert_int_equal(sl_cell_get(&end.dpdk->base.cells->copied_bytes), 0);
    end.dpdk->awake = false;
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 0);
    assert_true(sl_list_linked(&end.conn->ready) && end.dpdk->awake);
    assert_true(sl_dpdk_send_is_reading(end.conn));
    end_read_rests(&end);
    assert_false(sl_dpdk_send_is_reading(end.conn));
    sl_dpdk_send_report(end.conn);
    assert_int_equal(end.cookie_count, 1);
}

/* A piece in both parts, the first of an odd length. */
CASE(gather__with_a_head_that_is_copied)
{
    uint8_t *frame = open_gathering(5000);
    end.dpdk->regions[0].base += 101;
    end.dpdk->regions[0].bytes -= 101;
    assert_true(end_offer(&end, frame, 5032, 5032 - 101, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.tail_count, 4);
    expect_pieces(0, frame, 5032);
}

CASE(gather__what_is_lost_again)
{
    uint8_t *frame = open_gathering(7 * PIECE - 32);
    assert_true(end_offer(&end, frame, 7 * PIECE, 0, cookie_of(0)));
    end_flush(&end);
    end_read_rests(&end);
    assert_true(end_acknowledge(&end, FIRST, 0x3f, end.conn->granted_theirs));
    end_flush(&end);
    assert_int_equal(end.sent_count, 8);
    assert_int_equal(end.tail_count, 1);
    expect_sent(7, SL_DPDK_DATA, 0, 0);
    acknowledge(FIRST + 8);
    assert_int_equal(end.cookie_count, 0);
    end_read_rests(&end);
    sl_dpdk_send_report(end.conn);
    assert_int_equal(end.cookie_count, 1);
}

CASE(gather__not_what_is_elsewhere)
{
    uint8_t *frame = open_gathering(5000);
    end.dpdk->regions[0].bytes = 5000;
    assert_true(end_offer(&end, frame, 5032, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.tail_count, 0);
    assert_int_equal(end.sent_count, 4);
    assert_int_equal(sl_cell_get(&end.dpdk->base.cells->copied_bytes), 5032);
}
