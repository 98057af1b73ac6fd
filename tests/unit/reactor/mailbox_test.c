#include <poll.h>
#include <pthread.h>

#include "core/clock.h"
#include "core/limits.h"
#include "reactor/mailbox.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

#define WAIT_NS SL_TEST_PATIENCE_NS

/* Mails of each sender must come in the order 0, 1, 2, … */
struct receiver {
    struct sl_mailbox *mailbox;
    uint64_t next[8];
    uint64_t received;
};

static void receive(void *ctx, uint64_t sender, uint64_t number)
{
    struct receiver *receiver = ctx;
    assert_int_equal(receiver->next[sender], number);
    receiver->next[sender]++;
    receiver->received++;
}

static void setup(struct receiver *receiver)
{
    assert_int_equal(sl_mailbox_create(&receiver->mailbox), 0);
}

static void teardown(struct receiver *receiver)
{
    sl_mailbox_destroy(&receiver->mailbox);
}

static int post(struct receiver *receiver, struct sl_mailbox_lane *lane, uint64_t sender,
                uint64_t number)
{
    return sl_mailbox_post(
        lane, (struct sl_mail){.run = receive, .ctx = receiver, .a = sender, .b = number});
}

static bool readable(const struct sl_mailbox *mailbox)
{
    struct pollfd fd = {.fd = sl_mailbox_fd(mailbox), .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

#define CASE(name) SL_CASE_USING(name, struct receiver, receiver, setup, teardown)

CASE(post__full_lane_says_again)
{
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lane), 0);
    for (uint64_t i = 0; i < SL_LIMIT_LANE_MAILS; i++) {
        assert_int_equal(post(receiver, lane, 0, i), 0);
    }
    assert_int_equal(post(receiver, lane, 0, SL_LIMIT_LANE_MAILS), SL_ERR_AGAIN);
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, 1), 1);
    assert_int_equal(post(receiver, lane, 0, SL_LIMIT_LANE_MAILS), 0);
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, UINT32_MAX), SL_LIMIT_LANE_MAILS);
    sl_mailbox_lane_close(&lane);
    assert_null(lane);
}

CASE(drain__budget_goes_round_the_lanes)
{
    struct sl_mailbox_lane *lanes[2];
    for (uint64_t lane = 0; lane < 2; lane++) {
        assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lanes[lane]), 0);
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(post(receiver, lanes[lane], lane, i), 0);
        }
    }
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, 10), 10);
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, 10), 10);
    assert_int_equal(receiver->next[0], 10);
    assert_int_equal(receiver->next[1], 10);
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, 1000), 180);
    sl_mailbox_lane_close(&lanes[0]);
    sl_mailbox_lane_close(&lanes[1]);
}

CASE(close__what_was_posted_is_delivered_and_the_slot_is_free)
{
    for (uint64_t i = 0; i < 3 * SL_LIMIT_LANES; i++) {
        struct sl_mailbox_lane *lane;
        assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lane), 0);
        assert_int_equal(post(receiver, lane, 0, i), 0);
        sl_mailbox_lane_close(&lane);
        assert_int_equal(sl_mailbox_drain(receiver->mailbox, 10), 1);
    }
}

CASE(open__lanes_are_limited)
{
    static struct sl_mailbox_lane *lanes[SL_LIMIT_LANES];
    for (uint32_t i = 0; i < SL_LIMIT_LANES; i++) {
        assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lanes[i]), 0);
    }
    struct sl_mailbox_lane *more;
    assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &more), SL_ERR_TOO_LARGE);
    sl_mailbox_lane_close(&lanes[7]);
    sl_mailbox_drain(receiver->mailbox, 1);
    assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lanes[7]), 0);
    for (uint32_t i = 0; i < SL_LIMIT_LANES; i++) {
        sl_mailbox_lane_close(&lanes[i]);
    }
}

static void count_drop(void *ctx)
{
    (*(uint32_t *)ctx)++;
}

/* What was drained is not dropped, and what never will be is dropped once. */
CASE(destroy__drops_what_was_not_drained)
{
    struct sl_mailbox_lane *lane;
    uint32_t dropped = 0;
    struct sl_mail mail = {.run = receive, .ctx = &dropped, .drop = count_drop};
    assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lane), 0);
    assert_int_equal(post(receiver, lane, 0, 0), 0);
    assert_int_equal(sl_mailbox_drain(receiver->mailbox, 10), 1);
    assert_int_equal(sl_mailbox_post(lane, mail), 0);
    sl_mailbox_destroy(&receiver->mailbox);
    assert_int_equal(sl_mailbox_post(lane, mail), 0);
    sl_mailbox_lane_close(&lane);
    assert_int_equal(dropped, 2);
    assert_int_equal(receiver->received, 1);
}

CASE(arm__refuses_while_there_is_mail)
{
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(receiver->mailbox, &lane), 0);
    assert_int_equal(post(receiver, lane, 0, 0), 0);
    assert_false(readable(receiver->mailbox));
    assert_true(sl_mailbox_pending(receiver->mailbox));
    assert_false(sl_mailbox_arm(receiver->mailbox));

    sl_mailbox_drain(receiver->mailbox, 1);
    assert_true(sl_mailbox_arm(receiver->mailbox));
    assert_false(readable(receiver->mailbox));
    assert_int_equal(post(receiver, lane, 0, 1), 0);
    assert_true(readable(receiver->mailbox));
    sl_mailbox_disarm(receiver->mailbox);
    assert_false(readable(receiver->mailbox));
    sl_mailbox_lane_close(&lane);
}

#define SENDERS     3
#define MAILS       20000
#define PAUSE_EVERY 500 /* mails: lets the receiver fall asleep */

struct sender {
    struct receiver *receiver;
    uint64_t index;
};

static void *sender_main(void *arg)
{
    struct sender *sender = arg;
    struct sl_mailbox_lane *lane;
    if (sl_mailbox_lane_open(sender->receiver->mailbox, &lane) != 0) {
        return "no lane";
    }
    for (uint64_t i = 0; i < MAILS; i++) {
        while (post(sender->receiver, lane, sender->index, i) == SL_ERR_AGAIN) {
            poll(NULL, 0, 1);
        }
        if (i % PAUSE_EVERY == sender->index) {
            poll(NULL, 0, 1);
        }
    }
    sl_mailbox_lane_close(&lane);
    return NULL;
}

CASE(wait__nothing_is_lost_or_reordered)
{
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    for (uint64_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.receiver = receiver, .index = i};
        assert_int_equal(pthread_create(&threads[i], NULL, sender_main, &senders[i]), 0);
    }
    uint64_t until_ns = sl_clock_now_ns(sl_clock_system()) + WAIT_NS;
    while (receiver->received < SENDERS * MAILS) {
        assert_true(sl_clock_now_ns(sl_clock_system()) < until_ns);
        if (sl_mailbox_drain(receiver->mailbox, 256) == 0) {
            /* A wake-up that is missed shows as a test that takes until the deadline. */
            sl_mailbox_wait(receiver->mailbox, WAIT_NS);
        }
    }
    for (uint64_t i = 0; i < SENDERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
        assert_int_equal(receiver->next[i], MAILS);
    }
}

CASE(wait__returns_after_the_timeout)
{
    uint64_t before_ns = sl_clock_now_ns(sl_clock_system());
    sl_mailbox_wait(receiver->mailbox, 2 * SL_CLOCK_NS_PER_MS);
    assert_true(sl_clock_now_ns(sl_clock_system()) - before_ns >= 2 * SL_CLOCK_NS_PER_MS);
    sl_mailbox_wait(receiver->mailbox, 0);
}
