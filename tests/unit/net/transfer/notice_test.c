#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pair.h"

#define ROUNDS      8
#define ROUND_BYTES (1U << 20)
#define BYTES       (ROUNDS * ROUND_BYTES)

static struct pair pair;
static struct sl_transfer_noticed noticed;

static void setup(void)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0", .reactor_count = 2};
    pair_init(&pair, BYTES, &options);
}

#define CASE(name) SL_CASE_WITH(name, setup(), pair_fini(&pair))

static int send_text(const char *name, const char *text)
{
    const struct sl_transfer_notice notice = {
        .name = name, .text = text, .bytes = (uint32_t)strlen(text)};
    return sl_transfer_notice_send(pair.segment, &notice, PAIR_TIMEOUT_MS);
}

CASE(notice__arrives_in_order_with_its_sender)
{
    assert_int_equal(sl_transfer_notice_take(pair.there, 0, &noticed), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_notice_take(pair.there, 10, &noticed), SL_ERR_DEADLINE);
    assert_int_equal(send_text("a", "first"), 0);
    assert_int_equal(send_text("b", ""), 0);
    assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.sender, sl_transfer_name(pair.here));
    assert_string_equal(noticed.name, "a");
    assert_int_equal(noticed.bytes, 5);
    assert_string_equal((const char *)noticed.text, "first");
    assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "b");
    assert_int_equal(noticed.bytes, 0);
    assert_int_equal(sl_transfer_notice_take(pair.there, 10, &noticed), SL_ERR_DEADLINE);
}

CASE(notice_send__checks_its_arguments)
{
    static uint8_t text[SL_TRANSFER_NOTICE_BYTES + 1];
    struct sl_transfer_notice notice = {.name = "n", .text = text, .bytes = sizeof text};
    assert_int_equal(sl_transfer_notice_send(pair.segment, &notice, 100), SL_ERR_TOO_LARGE);
    notice.bytes = SL_TRANSFER_NOTICE_BYTES;
    assert_int_equal(sl_transfer_notice_send(pair.segment, &notice, 0), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_notice_send(pair.segment, &notice, PAIR_TIMEOUT_MS), 0);
    assert_int_equal(send_text("", "x"), SL_ERR_INVALID);
    assert_int_equal(send_text("a\nb", "x"), SL_ERR_INVALID);
    assert_int_equal(
        send_text("0123456789012345678901234567890123456789012345678901234567890123", "x"),
        SL_ERR_INVALID);
    assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_int_equal(noticed.bytes, SL_TRANSFER_NOTICE_BYTES);
}

CASE(notice__is_refused_by_a_full_inbox)
{
    char text[16];
    for (uint32_t i = 0; i < 1024; i++) {
        (void)snprintf(text, sizeof text, "%u", i);
        assert_int_equal(send_text("n", text), 0);
    }
    assert_int_equal(send_text("n", "more"), SL_ERR_AGAIN);
    for (uint32_t i = 0; i < 1024; i++) {
        (void)snprintf(text, sizeof text, "%u", i);
        assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
        assert_string_equal((const char *)noticed.text, text);
    }
    assert_int_equal(send_text("n", "again"), 0);
    assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal((const char *)noticed.text, "again");
}

static void *send_later(void *ctx)
{
    (void)usleep(20000);
    (void)send_text("later", "x");
    return NULL;
}

CASE(notice_take__waits)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, send_later, NULL), 0);
    assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
    assert_string_equal(noticed.name, "later");
    pthread_join(thread, NULL);
}

/* Each round has memory of its own: another reactor of the peer may write it, and what orders the
 * rounds is a connection, which a tool that looks for races cannot see. */
CASE(batch__sends_its_notice_when_all_requests_have_completed)
{
    const struct sl_transfer_notice notice = {.name = "done", .text = "batch", .bytes = 5};
    struct sl_transfer_request requests[2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const size_t from = round * ROUND_BYTES, half = ROUND_BYTES / 2;
        pair_fill(pair.local.base + from, ROUND_BYTES, round);
        requests[0] = pair_request(&pair, SL_TRANSFER_WRITE, from, from, half);
        requests[1] = pair_request(&pair, SL_TRANSFER_WRITE, from + half, from + half, half);
        assert_int_equal(
            sl_transfer_batch_submit(pair.batch, requests, 2, PAIR_TIMEOUT_MS, &notice), 0);
        assert_int_equal(sl_transfer_notice_take(pair.there, PAIR_TIMEOUT_MS, &noticed), 0);
        /* Visible to the process that takes the notice. */
        pair_expect(pair.remote.base + from, ROUND_BYTES, round);
        assert_string_equal(noticed.name, "done");
        assert_int_equal(sl_transfer_batch_wait(pair.batch), 0);
    }
}

CASE(batch__keeps_its_notice_when_a_request_fails)
{
    const struct sl_transfer_notice notice = {.name = "done"};
    const struct sl_transfer_request requests[2] = {
        pair_request(&pair, SL_TRANSFER_WRITE, 0, 0, 100),
        pair_request(&pair, SL_TRANSFER_WRITE, 0, BYTES, 100)};
    assert_int_equal(sl_transfer_batch_submit(pair.batch, requests, 2, PAIR_TIMEOUT_MS, &notice),
                     0);
    assert_int_equal(sl_transfer_batch_wait(pair.batch), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_notice_take(pair.there, 20, &noticed), SL_ERR_DEADLINE);
}
