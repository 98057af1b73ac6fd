#include <stdlib.h>
#include <string.h>

#include "net/dpdk/send.h"
#include "tests/unit/net/dpdk_end.h"

#define PIECE END_BODY_MAX
#define FIRST 1000U /* number of the first packet */

static struct end end;
static uint8_t *made[END_FRAMES]; /* frames that teardown frees */
static uint32_t made_count;

static int setup(void **state)
{
    (void)state;
    end_open(&end, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    end_close(&end);
    while (made_count > 0) {
        free(made[--made_count]);
    }
    return 0;
}

static uint8_t *make(uint32_t number, uint32_t payload_bytes)
{
    assert_true(made_count < END_FRAMES);
    made[made_count] = end_frame_make(number, payload_bytes);
    return made[made_count++];
}

static void *cookie_of(uint32_t number)
{
    return (void *)(uintptr_t)(number + 1);
}

/* A frame of this number and size, its number the cookie. */
static uint8_t *offer(uint32_t number, uint32_t payload_bytes)
{
    uint8_t *frame = make(number, payload_bytes);
    assert_true(
        end_offer(&end, frame, SL_FRAME_HEADER_BYTES + payload_bytes, 0, cookie_of(number)));
    return frame;
}

static void acknowledge(uint32_t acknowledged)
{
    assert_true(end_acknowledge(&end, acknowledged, 0, end.conn->granted_theirs));
}

static const struct sl_dpdk_header *sent_header(uint32_t n)
{
    return &end_sent(&end, n)->parsed.header;
}

static void expect_sent(uint32_t n, enum sl_dpdk_kind kind, uint32_t message, uint32_t offset)
{
    assert_int_equal(sent_header(n)->kind, kind);
    assert_int_equal(sent_header(n)->message, message);
    assert_int_equal(sent_header(n)->offset, offset);
}

/* The frame lies in a train at *at, which moves behind it. */
static void expect_frame(const struct end_packet *packet, uint32_t *at, const uint8_t *frame,
                         uint32_t payload_bytes)
{
    uint32_t bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
    assert_true(*at + bytes <= packet->parsed.body_bytes);
    assert_memory_equal(packet->parsed.body + *at, frame, bytes);
    *at += (bytes + 7) & ~7U;
}

/* ---- Trains -----------------------------------------------------------------------------------
 */

static void train__has_all_short_frames(void **state)
{
    (void)state;
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
    expect_sent(0, SL_DPDK_TRAIN, 0, 0);
    assert_int_equal(sent_header(0)->sequence, FIRST);
    assert_int_equal(sent_header(0)->connection, 0x200);
    assert_int_equal(sent_header(0)->acknowledged, 2000);
    assert_int_equal(sent_header(0)->granted, SL_DPDK_BLIND_BYTES);
    uint32_t at = 0;
    for (uint32_t i = 0; i < 6; i++) {
        expect_frame(end_sent(&end, 0), &at, frames[i], sizes[i]);
    }
    assert_int_equal(at, end_sent(&end, 0)->parsed.body_bytes);
    assert_int_equal(end.conn->offered, at);
    assert_int_equal(end.dpdk->stats.frames_sent, 6);
    acknowledge(FIRST + 1);
    assert_int_equal(end.cookie_count, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_ptr_equal(end.cookies[i], cookie_of(i));
    }
    assert_true(sl_dpdk_send_is_done(end.conn));
}

static void train__is_cut_where_the_packet_is_full(void **state)
{
    (void)state;
    uint8_t *frames[40];
    for (uint32_t i = 0; i < 40; i++) {
        frames[i] = offer(i, 64);
    }
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    for (uint32_t n = 0, i = 0; n < 3; n++) {
        expect_sent(n, SL_DPDK_TRAIN, n, 0);
        for (uint32_t at = 0; at < end_sent(&end, n)->parsed.body_bytes; i++) {
            expect_frame(end_sent(&end, n), &at, frames[i], 64);
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
static void train__of_a_stream(void **state)
{
    (void)state;
    enum { FRAMES = 30, BYTES = 32 + 64 };
    uint8_t *stream = malloc(FRAMES * BYTES);
    made[made_count++] = stream;
    for (uint32_t i = 0; i < FRAMES; i++) {
        memcpy(stream + (size_t)i * BYTES, make(i, 64), BYTES);
    }
    assert_true(end_offer(&end, stream, FRAMES * BYTES, 0, cookie_of(7)));
    offer(FRAMES, 16);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    assert_int_equal(end.dpdk->stats.frames_sent, FRAMES + 1);
    acknowledge(FIRST + 2);
    assert_int_equal(end.cookie_count, 1); /* the third has but the last frame */
    acknowledge(FIRST + 3);
    assert_int_equal(end.cookie_count, 2);
}

/* Frames of any length in a row, a long one among them. */
static void stream__with_a_long_frame(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {5, 3000, 9};
    uint8_t *stream = malloc(4000), *frames[3];
    made[made_count++] = stream;
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < 3; i++) {
        frames[i] = make(i, sizes[i]);
        memcpy(stream + bytes, frames[i], 32 + sizes[i]);
        bytes += 32 + sizes[i];
    }
    assert_true(end_offer(&end, stream, bytes, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
    expect_sent(0, SL_DPDK_TRAIN, 0, 0);
    uint32_t at = 0;
    expect_frame(end_sent(&end, 0), &at, frames[0], 5);
    for (uint32_t n = 0; n < 3; n++) {
        expect_sent(1 + n, SL_DPDK_DATA, 1, n * PIECE);
        assert_memory_equal(end_sent(&end, 1 + n)->parsed.body, frames[1] + n * PIECE,
                            end_sent(&end, 1 + n)->parsed.body_bytes);
    }
    expect_sent(4, SL_DPDK_TRAIN, 2, 0);
    at = 0;
    expect_frame(end_sent(&end, 4), &at, frames[2], 9);
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 5);
    assert_int_equal(end.cookie_count, 1);
}

static void joined__is_reported_once(void **state)
{
    (void)state;
    offer(0, 8);
    assert_true(end_offer(&end, make(1, 8), 40, 0, SL_TRANSPORT_JOINED));
    assert_true(end_offer(&end, make(2, 2000), 2032, 0, SL_TRANSPORT_JOINED));
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

static void queue__takes_so_many_and_says_when_there_is_room(void **state)
{
    (void)state;
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

static void pieces__are_of_equal_length(void **state)
{
    (void)state;
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

static void lost__goes_again_as_it_was_cut_and_first(void **state)
{
    (void)state;
    offer(0, 100);
    offer(1, 200);
    offer(2, 5000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
    offer(3, 50);
    /* The train and the first piece are missing, three have come. */
    assert_true(end_acknowledge(&end, FIRST, 0xe, end.conn->granted_theirs));
    assert_true(end.conn->dirty);
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
    expect_sent(7, SL_DPDK_TRAIN, 2, 0);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 8);
    assert_int_equal(end.cookie_count, 4);
    assert_int_equal(end.conn->offered, 136 + 232 + 5032 + 88); /* each once, trains padded */
}

static void timeout__asks_the_peer(void **state)
{
    (void)state;
    offer(0, 100);
    end_flush(&end);
    end.now_ns += SL_CLOCK_NS_PER_S;
    (void)sl_reactor_turn(end.dpdk->base.reactor, end.now_ns);
    sl_dpdk_send_expired(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    expect_sent(1, SL_DPDK_PROBE, 1, 0);
    assert_true((sent_header(1)->flags & SL_DPDK_FLAG_ANSWER) != 0);
    /* It came, and the train did not: the timer says when that is certain. */
    assert_true(end_acknowledge(&end, FIRST, 1, end.conn->granted_theirs));
    end.now_ns += SL_CLOCK_NS_PER_S;
    (void)sl_reactor_turn(end.dpdk->base.reactor, end.now_ns);
    sl_dpdk_send_expired(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    expect_sent(2, SL_DPDK_TRAIN, 0, 0);
}

/* ---- What bounds it ---------------------------------------------------------------------------
 */

static void grant__bounds_what_is_sent(void **state)
{
    (void)state;
    offer(0, 200000);
    offer(1, 64);
    end_flush(&end);
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_BLIND_BYTES / PIECE);
    assert_true(end.conn->offered <= SL_DPDK_BLIND_BYTES);
    assert_true(end_acknowledge(&end, FIRST + 10, 0, SL_DPDK_BLIND_BYTES - 1000)); /* an old one */
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_BLIND_BYTES / PIECE);
    assert_true(end_acknowledge(&end, FIRST + 10, 0, SL_DPDK_BLIND_BYTES + PIECE));
    assert_true(end.conn->dirty);
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_BLIND_BYTES / PIECE + 1);
    assert_true(end_acknowledge(&end, FIRST + 10, 0, 300000));
    for (uint32_t i = 0; i < 4; i++) {
        end_flush(&end);
    }
    assert_int_equal(end.sent_count, (200032 + PIECE - 1) / PIECE + 1);
    expect_sent(end.sent_count - 1, SL_DPDK_TRAIN, 1, 0);
}

static void grant__that_has_no_room_for_a_frame(void **state)
{
    (void)state;
    end.conn->granted_theirs = 100;
    offer(0, 64);
    offer(1, 64);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_int_equal(end.conn->offered, 96);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_true(end_acknowledge(&end, FIRST, 0, 192));
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
}

/* What it was granted, and where it was told, may be lost. */
static void grant__is_asked_for_again(void **state)
{
    (void)state;
    uint64_t pause_ns = SL_CLOCK_NS_PER_MS;
    end.conn->granted_theirs = 96;
    offer(0, 64);
    offer(1, 64);
    end_flush(&end);
    assert_int_equal(end.when_ns, SL_CLOCK_NEVER); /* the timer of what is on its way will do */
    for (uint32_t n = 1; n <= 12; n++) {
        acknowledge(FIRST + n);
        assert_true(end.conn->dirty);
        end_flush(&end);
        assert_int_equal(end.sent_count, n);
        assert_int_equal(end.when_ns, end.now_ns + pause_ns);
        end.now_ns += pause_ns - 1;
        end_flush(&end);
        assert_int_equal(end.sent_count, n);
        assert_int_equal(end.when_ns, end.now_ns + 1);
        end.now_ns++;
        end_flush(&end);
        assert_int_equal(end.sent_count, n + 1);
        assert_int_equal(sent_header(n)->kind, SL_DPDK_PROBE);
        assert_int_equal(end.when_ns, SL_CLOCK_NEVER);
        pause_ns = n < 8 ? 2 * pause_ns : 250 * SL_CLOCK_NS_PER_MS;
    }
    assert_true(end_acknowledge(&end, FIRST + 13, 0, 1000));
    end_flush(&end);
    assert_int_equal(end.sent_count, 14);
    assert_int_equal(sent_header(13)->kind, SL_DPDK_TRAIN);
    assert_int_equal(end.conn->send->ask_pause_ns, SL_CLOCK_NS_PER_MS);
}

/* The peer's window of messages is no wider. */
static void messages__no_more_than_the_peer_takes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SL_DPDK_MESSAGES; i++) {
        offer(i, 0);
        end_flush(&end);
    }
    assert_int_equal(end.sent_count, SL_DPDK_MESSAGES);
    /* All but the first have come: nothing is reported, and nothing has room in the queue. */
    acknowledge(FIRST + 1);
    assert_int_equal(end.cookie_count, 1);
    offer(1, 0);
    end_flush(&end);
    expect_sent(SL_DPDK_MESSAGES, SL_DPDK_TRAIN, SL_DPDK_MESSAGES, 0);
}

static void port__without_memory_goes_on_later(void **state)
{
    (void)state;
    end.lends_max = 2;
    offer(0, 5000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    assert_true(end.conn->ready && end.dpdk->awake);
    end.lends_max = 3;
    sl_dpdk_send_report(end.conn);
    assert_true(end.conn->dirty);
    end_flush(&end);
    assert_int_equal(end.sent_count, 4);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 1);
}

static void turn__sends_so_many_and_wants_another(void **state)
{
    (void)state;
    end.conn->granted_theirs = 1U << 20;
    offer(0, 300000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 64);
    assert_true(end.conn->ready && end.dpdk->awake);
    sl_dpdk_send_report(end.conn);
    assert_true(end.conn->dirty);
}

static void sums__by_the_device(void **state)
{
    (void)state;
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_facts){
                       .frame_bytes_max = 1514, .packets = END_PACKETS, .sums = true});
    uint8_t *frame = offer(0, 101);
    end_flush(&end); /* the port sees `unchecked`, or would find no sum */
    uint32_t at = 0;
    expect_frame(end_sent(&end, 0), &at, frame, 101);
}

/* ---- From where it lies -----------------------------------------------------------------------
 */

static uint8_t *open_gathering(uint32_t payload_bytes)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_facts){
                       .frame_bytes_max = 1514, .packets = END_PACKETS, .gathers = true});
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

static void gather__reports_when_the_device_has_read(void **state)
{
    (void)state;
    uint8_t *frame = open_gathering(5000);
    assert_true(end_offer(&end, frame, 5032, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.rest_count, 4);
    expect_pieces(0, frame, 5032);
    assert_int_equal(end.dpdk->stats.copied_bytes, 0);
    end.dpdk->awake = false;
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 0);
    assert_true(end.conn->ready && end.dpdk->awake);
    assert_true(sl_dpdk_send_is_reading(end.conn));
    end_read_rests(&end);
    assert_false(sl_dpdk_send_is_reading(end.conn));
    sl_dpdk_send_report(end.conn);
    assert_int_equal(end.cookie_count, 1);
}

/* A piece in both parts, the first of an odd length. */
static void gather__with_a_head_that_is_copied(void **state)
{
    (void)state;
    uint8_t *frame = open_gathering(5000);
    end.dpdk->regions[0].base += 101;
    end.dpdk->regions[0].bytes -= 101;
    assert_true(end_offer(&end, frame, 5032, 5032 - 101, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.rest_count, 4);
    expect_pieces(0, frame, 5032);
}

static void gather__what_is_lost_again(void **state)
{
    (void)state;
    uint8_t *frame = open_gathering(7 * PIECE - 32);
    assert_true(end_offer(&end, frame, 7 * PIECE, 0, cookie_of(0)));
    end_flush(&end);
    end_read_rests(&end);
    assert_true(end_acknowledge(&end, FIRST, 0x3f, end.conn->granted_theirs));
    end_flush(&end);
    assert_int_equal(end.sent_count, 8);
    assert_int_equal(end.rest_count, 1);
    expect_sent(7, SL_DPDK_DATA, 0, 0);
    acknowledge(FIRST + 8);
    assert_int_equal(end.cookie_count, 0);
    end_read_rests(&end);
    sl_dpdk_send_report(end.conn);
    assert_int_equal(end.cookie_count, 1);
}

static void gather__not_what_is_elsewhere(void **state)
{
    (void)state;
    uint8_t *frame = open_gathering(5000);
    end.dpdk->regions[0].bytes = 5000;
    assert_true(end_offer(&end, frame, 5032, 0, cookie_of(0)));
    end_flush(&end);
    assert_int_equal(end.rest_count, 0);
    assert_int_equal(end.sent_count, 4);
    assert_int_equal(end.dpdk->stats.copied_bytes, 5032);
}

/* ---- Acknowledgements -------------------------------------------------------------------------
 */

static void acknowledgement__alone(void **state)
{
    (void)state;
    end_flush(&end);
    assert_int_equal(end.sent_count, 0);
    sl_dpdk_seen_take(&end.conn->seen, 2000);
    end.conn->ack_due = true;
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_int_equal(sent_header(0)->kind, SL_DPDK_ACK);
    assert_int_equal(sent_header(0)->sequence, FIRST);
    assert_int_equal(sent_header(0)->acknowledged, 2001);
    assert_int_equal(end.conn->flights.next, FIRST);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
}

static void acknowledgement__with_what_goes_anyway(void **state)
{
    (void)state;
    sl_dpdk_seen_take(&end.conn->seen, 2002);
    end.conn->ack_due = end.conn->ack_now = true;
    uint8_t *frame = offer(0, 64);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    expect_sent(0, SL_DPDK_TRAIN, 0, 0);
    assert_int_equal(sent_header(0)->acknowledged, 2000);
    assert_int_equal(end_sent(&end, 0)->parsed.sack_words, 1);
    assert_int_equal(end_sent(&end, 0)->parsed.sack[0], 2);
    uint32_t at = 0;
    expect_frame(end_sent(&end, 0), &at, frame, 64);
    assert_false(end.conn->ack_due || end.conn->ack_now);
}

static void acknowledgement__that_does_not_fit(void **state)
{
    (void)state;
    sl_dpdk_seen_take(&end.conn->seen, 2002);
    end.conn->ack_due = true;
    offer(0, 2 * PIECE - 32);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    assert_int_equal(end_sent(&end, 0)->parsed.body_bytes, PIECE);
    assert_int_equal(end_sent(&end, 0)->parsed.sack_words, 0);
    assert_int_equal(sent_header(2)->kind, SL_DPDK_ACK);
    assert_int_equal(end_sent(&end, 2)->parsed.sack_words, 1);
}

static void acknowledgement__of_what_was_never_sent(void **state)
{
    (void)state;
    offer(0, 64);
    end_flush(&end);
    assert_false(end_acknowledge(&end, FIRST + 2, 0, 1U << 20));
    assert_false(end_acknowledge(&end, FIRST, 2, 1U << 20));
    assert_int_equal(end.cookie_count, 0);
    assert_int_equal(end.conn->granted_theirs, SL_DPDK_BLIND_BYTES);
}

static void grant__is_told_once(void **state)
{
    (void)state;
    sl_dpdk_grant_arrived(&end.dpdk->grants, &end.conn->grant, 5000);
    sl_dpdk_grant_consumed(&end.dpdk->grants, &end.conn->grant, 5000);
    end.conn->ack_due = true;
    end_flush(&end);
    assert_int_equal(sent_header(0)->granted, SL_DPDK_BLIND_BYTES + 5000);
    assert_int_equal(end.conn->grant.told, SL_DPDK_BLIND_BYTES + 5000);
}

/* ---- Without content --------------------------------------------------------------------------
 */

static void bye__goes_behind_the_last_frame(void **state)
{
    (void)state;
    end.conn->granted_theirs = 0;
    offer(0, 64);
    sl_dpdk_send_bye(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 0);
    assert_true(end_acknowledge(&end, FIRST, 0, 1000));
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    expect_sent(1, SL_DPDK_BYE, 1, 0);
    assert_true(end_acknowledge(&end, FIRST + 1, 0, 1000));
    assert_false(end.conn->bye_acked);
    assert_true(end_acknowledge(&end, FIRST + 2, 0, 1000));
    assert_true(end.conn->bye_acked && end.conn->ready);
}

static void moved__goes_before_all_until_it_has_come(void **state)
{
    (void)state;
    struct sl_dpdk_hello hello;
    offer(0, 4000);
    sl_dpdk_send_moved(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 4);
    assert_int_equal(sent_header(0)->kind, SL_DPDK_MOVED);
    assert_int_equal(
        sl_dpdk_hello_decode(end_sent(&end, 0)->parsed.body, SL_DPDK_HELLO_BYTES, &hello), 0);
    assert_int_equal(hello.connection, end.conn->id);
    assert_true(end_acknowledge(&end, FIRST, 7, end.conn->granted_theirs)); /* all the others */
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
    assert_int_equal(sent_header(4)->kind, SL_DPDK_MOVED);
    acknowledge(FIRST + 5);
    end_flush(&end);
    assert_int_equal(end.sent_count, 5);
}

static void loose__is_sent_at_once(void **state)
{
    (void)state;
    const uint8_t body = 5;
    struct sl_dpdk_header header = {.connection = 9, .kind = SL_DPDK_RESET, .body_bytes = 1};
    sl_dpdk_send_loose(end.dpdk, end.conn->side, &end.conn->route, 0, &header, &body);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_int_equal(sent_header(0)->kind, SL_DPDK_RESET);
    assert_int_equal(sent_header(0)->connection, 9);
    assert_int_equal(end_sent(&end, 0)->parsed.body[0], 5);
}

static void leave__goes_on_with_the_next_number(void **state)
{
    (void)state;
    static struct end other;
    offer(0, 64);
    end_flush(&end);
    acknowledge(FIRST + 1);
    end_open(&other, NULL);
    struct sl_dpdk_sending *sending = sl_dpdk_send_leave(end.conn);
    assert_non_null(sending);
    sl_dpdk_send_arrive(other.conn, sending);
    assert_true(end_offer(&other, make(1, 8), 40, 0, cookie_of(1)));
    end_flush(&other);
    assert_int_equal(other.sent_count, 1);
    assert_int_equal(end_sent(&other, 0)->parsed.header.message, 1);
    end_close(&other);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest cases[] = {
        CASE(train__has_all_short_frames),
        CASE(train__is_cut_where_the_packet_is_full),
        CASE(train__of_a_stream),
        CASE(stream__with_a_long_frame),
        CASE(joined__is_reported_once),
        CASE(queue__takes_so_many_and_says_when_there_is_room),
        CASE(pieces__are_of_equal_length),
        CASE(lost__goes_again_as_it_was_cut_and_first),
        CASE(timeout__asks_the_peer),
        CASE(grant__bounds_what_is_sent),
        CASE(grant__that_has_no_room_for_a_frame),
        CASE(grant__is_asked_for_again),
        CASE(messages__no_more_than_the_peer_takes),
        CASE(port__without_memory_goes_on_later),
        CASE(turn__sends_so_many_and_wants_another),
        CASE(sums__by_the_device),
        CASE(gather__reports_when_the_device_has_read),
        CASE(gather__with_a_head_that_is_copied),
        CASE(gather__what_is_lost_again),
        CASE(gather__not_what_is_elsewhere),
        CASE(acknowledgement__alone),
        CASE(acknowledgement__with_what_goes_anyway),
        CASE(acknowledgement__that_does_not_fit),
        CASE(acknowledgement__of_what_was_never_sent),
        CASE(grant__is_told_once),
        CASE(bye__goes_behind_the_last_frame),
        CASE(moved__goes_before_all_until_it_has_come),
        CASE(loose__is_sent_at_once),
        CASE(leave__goes_on_with_the_next_number),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
