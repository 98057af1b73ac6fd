#include "net/dpdk/send.h"
#include "net/dpdk/send_queue.h"
#include "tests/support/unit.h"
#include "tests/unit/net/dpdk/sending.h"

/* ---- What bounds it ---------------------------------------------------------------------------
 */

CASE(grant__bounds_what_is_sent)
{
    offer(0, 200000);
    offer(1, 64);
    end_flush(&end);
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_UNSCHEDULED_BYTES / PIECE);
    assert_true(end.conn->offered <= SL_DPDK_UNSCHEDULED_BYTES);
    assert_true(
        end_acknowledge(&end, FIRST + 10, 0, SL_DPDK_UNSCHEDULED_BYTES - 1000)); /* an old one */
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_UNSCHEDULED_BYTES / PIECE);
    assert_true(end_acknowledge(&end, FIRST + 10, 0, SL_DPDK_UNSCHEDULED_BYTES + PIECE));
    assert_true(sl_list_linked(&end.conn->dirty));
    end_flush(&end);
    assert_int_equal(end.sent_count, SL_DPDK_UNSCHEDULED_BYTES / PIECE + 1);
    assert_true(end_acknowledge(&end, FIRST + 10, 0, 300000));
    for (uint32_t i = 0; i < 4; i++) {
        end_flush(&end);
    }
    assert_int_equal(end.sent_count, (200032 + PIECE - 1) / PIECE + 1);
    expect_sent(end.sent_count - 1, SL_DPDK_BUNDLE, 1, 0);
}

CASE(more__is_told_while_the_grant_is_less)
{
    end.conn->granted_theirs = 1U << 20;
    offer(0, 30000);
    end_flush(&end);
    for (uint32_t i = 0; i < end.sent_count; i++) {
        assert_int_equal(sent_header(i)->flags & SL_DPDK_FLAG_MORE, 0);
    }
    end.conn->granted_theirs = end.conn->offered + 20000;
    offer(1, 10000);
    offer(2, 64);
    offer(3, 300000);
    end_flush(&end);
    assert_true((sent_header(end.sent_count - 1)->flags & SL_DPDK_FLAG_MORE) != 0);
}

CASE(grant__that_has_no_room_for_a_frame)
{
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
CASE(grant__is_asked_for_again)
{
    uint64_t pause_ns = SL_CLOCK_NS_PER_MS;
    end.conn->granted_theirs = 96;
    offer(0, 64);
    offer(1, 64);
    end_flush(&end);
    assert_int_equal(end.when_ns, SL_CLOCK_NEVER); /* the timer of what is on its way will do */
    for (uint32_t n = 1; n <= 12; n++) {
        acknowledge(FIRST + n);
        assert_true(sl_list_linked(&end.conn->dirty));
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
    assert_int_equal(sent_header(13)->kind, SL_DPDK_BUNDLE);
    assert_int_equal(end.conn->send->ask_pause_ns, SL_CLOCK_NS_PER_MS);
}

/* The peer's window of messages is no wider. */
CASE(messages__no_more_than_the_peer_takes)
{
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
    expect_sent(SL_DPDK_MESSAGES, SL_DPDK_BUNDLE, SL_DPDK_MESSAGES, 0);
}

CASE(port__without_memory_goes_on_later)
{
    end.lends_max = 2;
    offer(0, 5000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    assert_true(sl_list_linked(&end.conn->ready) && end.dpdk->awake);
    end.lends_max = 3;
    sl_dpdk_send_report(end.conn);
    assert_true(sl_list_linked(&end.conn->dirty));
    end_flush(&end);
    assert_int_equal(end.sent_count, 4);
    assert_int_equal(end.cookie_count, 0);
    acknowledge(FIRST + 4);
    assert_int_equal(end.cookie_count, 1);
}

CASE(turn__sends_so_many_and_wants_another)
{
    end.conn->granted_theirs = 1U << 20;
    offer(0, 300000);
    end_flush(&end);
    assert_int_equal(end.sent_count, 64);
    assert_true(sl_list_linked(&end.conn->ready) && end.dpdk->awake);
    sl_dpdk_send_report(end.conn);
    assert_true(sl_list_linked(&end.conn->dirty));
}

CASE(checksums__by_the_device)
{
    end_close(&end);
    end_open(&end, &(struct sl_dpdk_port_info){
                       .frame_bytes_max = 1514, .packets = END_PACKETS, .tx_checksum = true});
    uint8_t *frame = offer(0, 101);
    end_flush(&end); /* the port sees `unchecked`, or would find no sum */
    uint32_t at = 0;
    end_expect_frame(end_sent(&end, 0), &at, frame, 101);
}

/* ---- Acknowledgements -------------------------------------------------------------------------
 */

CASE(acknowledgement__alone)
{
    end_flush(&end);
    assert_int_equal(end.sent_count, 0);
    sl_dpdk_received_packets_take(&end.conn->received, 2000);
    end.conn->ack = SL_DPDK_ACK_DUE;
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_int_equal(sent_header(0)->kind, SL_DPDK_ACK);
    assert_int_equal(sent_header(0)->sequence, FIRST);
    assert_int_equal(sent_header(0)->acknowledged, 2001);
    assert_int_equal(end.conn->sent_packets.next, FIRST);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
}

CASE(acknowledgement__with_what_goes_anyway)
{
    sl_dpdk_received_packets_take(&end.conn->received, 2002);
    end.conn->ack = SL_DPDK_ACK_DUE_NOW;
    uint8_t *frame = offer(0, 64);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    expect_sent(0, SL_DPDK_BUNDLE, 0, 0);
    assert_int_equal(sent_header(0)->acknowledged, 2000);
    assert_int_equal(end_sent(&end, 0)->parsed.sack_words, 1);
    assert_int_equal(end_sent(&end, 0)->parsed.sack[0], 2);
    uint32_t at = 0;
    end_expect_frame(end_sent(&end, 0), &at, frame, 64);
    assert_int_equal(end.conn->ack, SL_DPDK_ACK_NOT_DUE);
}

CASE(acknowledgement__that_does_not_fit)
{
    sl_dpdk_received_packets_take(&end.conn->received, 2002);
    end.conn->ack = SL_DPDK_ACK_DUE;
    offer(0, 2 * PIECE - 32);
    end_flush(&end);
    assert_int_equal(end.sent_count, 3);
    assert_int_equal(end_sent(&end, 0)->parsed.body_bytes, PIECE);
    assert_int_equal(end_sent(&end, 0)->parsed.sack_words, 0);
    assert_int_equal(sent_header(2)->kind, SL_DPDK_ACK);
    assert_int_equal(end_sent(&end, 2)->parsed.sack_words, 1);
}

CASE(acknowledgement__of_what_was_never_sent)
{
    offer(0, 64);
    end_flush(&end);
    assert_false(end_acknowledge(&end, FIRST + 2, 0, 1U << 20));
    assert_false(end_acknowledge(&end, FIRST, 2, 1U << 20));
    assert_int_equal(end.cookie_count, 0);
    assert_int_equal(end.conn->granted_theirs, SL_DPDK_UNSCHEDULED_BYTES);
}

CASE(grant__is_told_once)
{
    sl_dpdk_grant_arrived(&end.dpdk->grants, &end.conn->grant, 5000);
    sl_dpdk_grant_consumed(&end.dpdk->grants, &end.conn->grant, 5000);
    end.conn->ack = SL_DPDK_ACK_DUE;
    end_flush(&end);
    assert_int_equal(sent_header(0)->granted, SL_DPDK_UNSCHEDULED_BYTES + 5000);
    assert_int_equal(end.conn->grant.advertised, SL_DPDK_UNSCHEDULED_BYTES + 5000);
}

/* ---- Without content --------------------------------------------------------------------------
 */

CASE(fin__goes_behind_the_last_frame)
{
    end.conn->granted_theirs = 0;
    offer(0, 64);
    sl_dpdk_send_bye(end.conn);
    end_flush(&end);
    assert_int_equal(end.sent_count, 0);
    assert_true(end_acknowledge(&end, FIRST, 0, 1000));
    end_flush(&end);
    assert_int_equal(end.sent_count, 2);
    expect_sent(1, SL_DPDK_FIN, 1, 0);
    assert_true(end_acknowledge(&end, FIRST + 1, 0, 1000));
    assert_int_equal(end.conn->end.fin, SL_DPDK_FIN_NONE);
    assert_true(end_acknowledge(&end, FIRST + 2, 0, 1000));
    assert_int_equal(end.conn->end.fin, SL_DPDK_FIN_ACKNOWLEDGED);
    assert_true(sl_list_linked(&end.conn->ready));
}

CASE(unnumbered__is_sent_at_once)
{
    const uint8_t body = 5;
    struct sl_dpdk_header header = {.connection = 9, .kind = SL_DPDK_RESET, .body_bytes = 1};
    sl_dpdk_send_unnumbered(end.dpdk, end.conn->path.netif, &end.conn->path.route, 0, &header,
                            &body);
    end_flush(&end);
    assert_int_equal(end.sent_count, 1);
    assert_int_equal(sent_header(0)->kind, SL_DPDK_RESET);
    assert_int_equal(sent_header(0)->connection, 9);
    assert_int_equal(end_sent(&end, 0)->parsed.body[0], 5);
}
