#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "net/dpdk/receive.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/end.h"

#define PIECE      END_BODY_MAX
#define LONG       (SL_LIMIT_INLINE_PAYLOAD_BYTES + 4000U)
#define LONG_COUNT ((SL_FRAME_HEADER_BYTES + LONG + PIECE - 1) / PIECE)

static struct end end;

static void teardown(void)
{
    end_close(&end);
}

/* Frames of these payloads, numbered from `number`, one behind the other. Returns the bytes. */
static uint32_t make_bundle(uint8_t *to, uint32_t number, const uint32_t *payloads, uint32_t count)
{
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *frame = end_frame_make(number + i, payloads[i]);
        memcpy(to + bytes, frame, SL_FRAME_HEADER_BYTES + payloads[i]);
        bytes += (SL_FRAME_HEADER_BYTES + payloads[i] + 7) & ~7U;
        free(frame);
    }
    return bytes;
}

static enum sl_dpdk_taken take_bundle(uint32_t message, uint32_t number, const uint32_t *payloads,
                                      uint32_t count)
{
    uint8_t bundle[PIECE] = {0};
    uint32_t bytes = make_bundle(bundle, number, payloads, count);
    return end_take(&end, SL_DPDK_BUNDLE, message, 0, bundle, bytes);
}

static enum sl_dpdk_taken take_one(uint32_t message, uint32_t number, uint32_t payload_bytes)
{
    return take_bundle(message, number, &payload_bytes, 1);
}

static enum sl_dpdk_taken take_whole(uint32_t message, uint32_t number, uint32_t payload_bytes)
{
    uint32_t bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
    uint8_t *frame = end_frame_make(number, payload_bytes);
    enum sl_dpdk_taken taken = SL_DPDK_TAKEN;
    for (uint32_t n = 0; n * PIECE < bytes && taken <= SL_DPDK_PARKED; n++) {
        taken = end_take_piece(&end, message, frame, bytes, n);
    }
    free(frame);
    return taken;
}

#define CASE(name) SL_CASE_WITH(name, end_open(&end, NULL), teardown())

CASE(bundle__is_delivered_frame_by_frame)
{
    const uint32_t payloads[] = {0, 1, 64, 7, 300};
    assert_int_equal(take_bundle(0, 10, payloads, 5), SL_DPDK_TAKEN);
    assert_int_equal(end.frame_count, 0);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        end_frame_check(&end.frames[i], 10 + i, payloads[i]);
    }
    assert_int_equal(sl_dpdk_receive_next(end.conn), 1);
    assert_int_equal(end.conn->grant.consumed, end.conn->grant.arrived);
}

CASE(bundle__twice_is_delivered_once)
{
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    uint32_t arrived = end.conn->grant.arrived;
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1);
    assert_int_equal(end.conn->grant.arrived, arrived);
}

CASE(messages__are_delivered_in_order)
{
    assert_int_equal(take_one(3, 4, 8), SL_DPDK_TAKEN);
    assert_int_equal(take_whole(2, 3, 5000), SL_DPDK_TAKEN);
    assert_int_equal(take_one(1, 2, 100), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 0);
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end_deliver(&end);
    const uint32_t payloads[] = {64, 100, 5000, 8};
    assert_int_equal(end.frame_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        end_frame_check(&end.frames[i], 1 + i, payloads[i]);
    }
}

CASE(short_message__pieces_in_any_order)
{
    const uint32_t payload = SL_LIMIT_INLINE_PAYLOAD_BYTES, bytes = 32 + payload;
    const uint32_t count = (bytes + PIECE - 1) / PIECE;
    uint8_t *frame = end_frame_make(1, payload);
    for (uint32_t n = count; n > 0; n--) {
        enum sl_dpdk_taken expected = n > 1 ? SL_DPDK_PARKED : SL_DPDK_TAKEN;
        assert_int_equal(end_take_piece(&end, 0, frame, bytes, n - 1), expected);
        assert_int_equal(end_take_piece(&end, 0, frame, bytes, n - 1), SL_DPDK_TAKEN);
    }
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1);
    end_frame_check(&end.frames[0], 1, payload);
    assert_int_equal(end.conn->grant.arrived, bytes);
    free(frame);
}

CASE(long_message__goes_to_its_sink)
{
    uint8_t *frame = end_frame_make(1, LONG), *sink = malloc(LONG);
    uint32_t bytes = 32 + LONG;
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 2), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 2), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.asked, 0); /* its header has not come */
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 0), SL_DPDK_PARKED);
    end.sink = sink;
    end_deliver(&end);
    assert_int_equal(end.asked, 1);
    assert_int_equal(end.lent, 0);
    for (uint32_t n = LONG_COUNT; n > 0; n--) {
        assert_int_equal(end_take_piece(&end, 0, frame, bytes, n - 1), SL_DPDK_TAKEN);
        end_deliver(&end);
        assert_int_equal(end.frame_count, n == 2 ? 1 : end.frame_count);
    }
    assert_int_equal(end.frame_count, 1);
    end_frame_check(&end.frames[0], 1, LONG);
    assert_ptr_equal(end.frames[0].message.payload, sink);
    assert_null(end.frames[0].message.token);
    assert_int_equal(end.conn->grant.consumed, bytes);
    free(frame);
    free(sink);
}

CASE(long_message__waits_for_its_turn)
{
    uint8_t *sink = malloc(LONG);
    end.sink = sink;
    assert_int_equal(take_whole(1, 2, LONG), SL_DPDK_PARKED);
    end_deliver(&end);
    assert_int_equal(end.asked, 0);
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 2);
    end_frame_check(&end.frames[1], 2, LONG);
    assert_int_equal(end.lent, 0);
    free(sink);
}

CASE(sink__is_asked_again)
{
    uint8_t *sink = malloc(LONG);
    assert_int_equal(take_whole(0, 1, LONG), SL_DPDK_PARKED);
    assert_int_equal(take_one(1, 2, 64), SL_DPDK_TAKEN);
    for (uint32_t i = 1; i <= 3; i++) {
        sl_list_remove(&end.conn->ready);
        end.dpdk->awake = false;
        end_deliver(&end);
        assert_int_equal(end.asked, i);
        assert_true(sl_list_linked(&end.conn->ready));
        assert_false(end.dpdk->awake);
        assert_false(sl_dpdk_receive_is_owed(end.conn));
    }
    assert_int_equal(end.conn->grant.granted, SL_DPDK_UNSCHEDULED_BYTES); /* no more is asked for */
    end.sink = sink;
    end_deliver(&end);
    assert_int_equal(end.frame_count, 2);
    free(sink);
}

/* With no packet to spare the header alone is remembered; the rest comes again. */
CASE(long_message__without_room_for_packets)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_port_info){.frame_bytes_max = 1514, .packets = 4});
    uint8_t *frame = end_frame_make(1, LONG), *sink = malloc(LONG);
    uint32_t bytes = 32 + LONG;
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 5), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 4), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 3), SL_DPDK_NO_ROOM);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 0), SL_DPDK_NO_ROOM);
    assert_int_equal(end.conn->grant.arrived, 2 * PIECE);
    end.sink = sink;
    end_deliver(&end);
    assert_int_equal(end.asked, 1);
    assert_int_equal(end.lent, 0);
    assert_int_equal(take_whole(0, 1, LONG), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1);
    end_frame_check(&end.frames[0], 1, LONG);
    free(frame);
    free(sink);
}

/* The same for one that was not at the head when its first piece came. */
CASE(long_message__begun_without_room_for_its_first_piece)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_port_info){.frame_bytes_max = 1514, .packets = 4});
    uint8_t *frame = end_frame_make(2, LONG), *sink = malloc(LONG);
    uint32_t bytes = 32 + LONG;
    assert_int_equal(end_take_piece(&end, 1, frame, bytes, 5), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 1, frame, bytes, 4), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 1, frame, bytes, 0), SL_DPDK_NO_ROOM);
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end.sink = sink;
    end_deliver(&end);
    assert_int_equal(end.asked, 0);
    assert_int_equal(end_take_piece(&end, 1, frame, bytes, 0), SL_DPDK_NO_ROOM);
    end_deliver(&end);
    assert_int_equal(end.asked, 1);
    assert_int_equal(take_whole(1, 2, LONG), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 2);
    end_frame_check(&end.frames[1], 2, LONG);
    free(frame);
    free(sink);
}

CASE(window__bounds_what_is_ahead)
{
    assert_int_equal(take_one(SL_DPDK_MESSAGES, 1, 8), SL_DPDK_NO_ROOM);
    assert_int_equal(take_one(SL_DPDK_MESSAGES - 1, 1, 8), SL_DPDK_TAKEN);
    assert_int_equal(take_one(0, 1, 8), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(take_one(SL_DPDK_MESSAGES, 1, 8), SL_DPDK_TAKEN);
    assert_int_equal(take_one(UINT32_MAX, 1, 8), SL_DPDK_TAKEN); /* long since delivered */
    assert_int_equal(end.frame_count, 1);
}

/* ---- What a malicious peer may send -----------------------------------------------------------
 */

static void expect_end(void)
{
    assert_int_equal(end.conn->base.failure, SL_ERR_PROTOCOL); /* conn.c ends the connection */
}

CASE(malicious__pieces_with_wrong_bounds)
{
    uint8_t *frame = end_frame_make(1, 5000);
    const uint32_t last = 3 * PIECE, tail = 5032 - last;
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 8, frame, PIECE), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, PIECE, frame, PIECE + 8),
                     SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, PIECE, frame, 0), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 3000 * PIECE, frame, PIECE),
                     SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, 31), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, PIECE), SL_DPDK_TAKEN);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, last, frame, tail - 1),
                     SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, last, frame, PIECE), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 4 * PIECE, frame, PIECE),
                     SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, PIECE, frame, PIECE - 8),
                     SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

CASE(malicious__the_first_piece_of_a_long_message)
{
    uint8_t *frame = end_frame_make(1, LONG);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, 400), SL_DPDK_PROTOCOL_ERROR);
    frame[6] ^= 1; /* the version: only a short frame may have another */
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, PIECE), SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

CASE(malicious__parked_pieces_beyond_the_end)
{
    uint8_t *frame = end_frame_make(1, 5000);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 7 * PIECE, frame, PIECE), SL_DPDK_PARKED);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, PIECE), SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

CASE(malicious__parked_pieces_beyond_the_end_of_a_long_message)
{
    uint8_t *frame = end_frame_make(1, LONG), *sink = malloc(LONG);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 99 * PIECE, frame, PIECE), SL_DPDK_PARKED);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, frame, PIECE), SL_DPDK_PARKED);
    end.sink = sink;
    end_deliver(&end);
    assert_int_equal(end.frame_count, 0);
    expect_end();
    free(frame);
    free(sink);
}

CASE(malicious__a_piece_of_another_length)
{
    uint8_t *frame = end_frame_make(1, LONG);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, PIECE, frame, PIECE), SL_DPDK_PARKED);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, PIECE, frame, PIECE - 8),
                     SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

CASE(malicious__headers_that_are_none)
{
    uint8_t zeros[256] = {0};
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 0, 0, zeros, 256), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, zeros, 256), SL_DPDK_TAKEN);
    end_deliver(&end);
    expect_end();
    assert_int_equal(end.frame_count, 0);
}

CASE(malicious__bundles_that_lie)
{
    uint8_t bytes[PIECE] = {0};
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, bytes, 24), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, bytes, 36), SL_DPDK_PROTOCOL_ERROR);
    const uint32_t payloads[] = {64, 64};
    uint32_t length = make_bundle(bytes, 1, payloads, 2);
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, bytes, length - 8), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1); /* what was right before */
    expect_end();
}

CASE(malicious__a_long_frame_in_a_bundle)
{
    uint8_t *frame = end_frame_make(1, LONG);
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, frame, PIECE), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.asked, 0);
    expect_end();
    free(frame);
}

CASE(malicious__one_message_of_two_kinds)
{
    uint8_t *frame = end_frame_make(1, 5000);
    assert_int_equal(take_one(1, 1, 64), SL_DPDK_TAKEN);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 1, 0, frame, PIECE), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 2, 0, frame, PIECE), SL_DPDK_TAKEN);
    assert_int_equal(take_one(2, 1, 64), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(end_take(&end, SL_DPDK_DATA, 3, PIECE, frame, PIECE), SL_DPDK_PARKED);
    assert_int_equal(take_one(3, 1, 64), SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

/* What has come before is not counted, and so no offence, when all that was granted is used. */
CASE(malicious__more_than_was_granted)
{
    uint8_t *frame = end_frame_make(1, 200000);
    uint32_t bytes = 200032, n = 0;
    for (; (n + 1) * PIECE <= SL_DPDK_UNSCHEDULED_BYTES; n++) {
        assert_int_equal(end_take_piece(&end, 0, frame, bytes, n), SL_DPDK_PARKED);
    }
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, 3), SL_DPDK_TAKEN);
    assert_int_equal(end_take_piece(&end, 0, frame, bytes, n), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(take_one(1, 2, 1300), SL_DPDK_PROTOCOL_ERROR);
    assert_int_equal(take_whole(1, 2, 1000), SL_DPDK_PROTOCOL_ERROR);
    free(frame);
}

CASE(another_version__is_for_the_layer_above)
{
    uint8_t *frame = end_frame_make(1, 64);
    frame[6] = 77;
    assert_int_equal(end_take(&end, SL_DPDK_BUNDLE, 0, 0, frame, 96), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, 1);
    assert_int_equal(end.frames[0].header.version, 77);
    free(frame);
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

/* Messages that are kept use up the blocks; the last are for the head. */
CASE(blocks__run_out_and_come_back)
{
    uint32_t message = 0;
    end.holds = true;
    while (take_whole(message, message + 1, 16000) == SL_DPDK_TAKEN) {
        end_deliver(&end);
        message++;
        assert_true(message < 2000);
    }
    assert_int_equal(end.frame_count, message);
    assert_in_range(message, 128 * 4, 128 * 5);
    end_release(&end, 0);
    end_release(&end, 2);
    end_release(&end, 1);
    assert_int_equal(take_whole(message, message + 1, 16000), SL_DPDK_NO_ROOM);
    end_release(&end, 3);
    assert_int_equal(take_whole(message, message + 1, 16000), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, message + 1);
    for (uint32_t i = 4; i <= message; i++) {
        end_frame_check(&end.frames[i], i + 1, 16000);
        end_release(&end, i);
    }
}

CASE(blocks__some_are_left_for_the_head)
{
    uint32_t message = 0;
    end.holds = true;
    for (; message < 4 * 96; message++) {
        assert_int_equal(take_whole(message, message + 1, 16000), SL_DPDK_TAKEN);
        end_deliver(&end);
    }
    assert_int_equal(take_whole(message + 1, message + 2, 16000), SL_DPDK_NO_ROOM);
    assert_int_equal(take_whole(message, message + 1, 16000), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(end.frame_count, message + 1);
    for (uint32_t i = 0; i <= message; i++) {
        end_release(&end, i);
    }
}

CASE(close__with_a_bit_of_everything)
{
    uint8_t *frame = end_frame_make(1, LONG);
    end.holds = true;
    assert_int_equal(take_one(0, 1, 64), SL_DPDK_TAKEN);
    end_deliver(&end);
    assert_int_equal(take_one(2, 1, 64), SL_DPDK_TAKEN);
    assert_int_equal(take_whole(3, 1, 16000), SL_DPDK_TAKEN);
    assert_int_equal(end_take_piece(&end, 1, frame, 32 + LONG, 3), SL_DPDK_PARKED);
    assert_int_equal(end_take_piece(&end, 1, frame, 32 + LONG, 0), SL_DPDK_PARKED);
    free(frame); /* teardown finds what is not given back */
}

CASE(owed__while_the_head_is_not_whole)
{
    uint8_t *frame = end_frame_make(1, 5000);
    assert_false(sl_dpdk_receive_is_owed(end.conn));
    assert_int_equal(end_take_piece(&end, 0, frame, 5032, 0), SL_DPDK_TAKEN);
    assert_true(sl_dpdk_receive_is_owed(end.conn));
    for (uint32_t n = 1; n < 4; n++) {
        assert_int_equal(end_take_piece(&end, 0, frame, 5032, n), SL_DPDK_TAKEN);
    }
    end_deliver(&end);
    assert_false(sl_dpdk_receive_is_owed(end.conn));
    free(frame);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "receive");
}
