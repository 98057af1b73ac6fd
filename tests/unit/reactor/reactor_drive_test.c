/* A reactor that a thread of the test's drives instead of one of its own. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "core/clock.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"
#include "tests/support/unit.h"

static struct sl_reactor *create(bool polling)
{
    struct sl_reactor_options options = {.name = "driven", .core = -1, .polling = polling};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    int err = sl_reactor_attach(reactor);
    if (err == SL_ERR_UNSUPPORTED) {
        sl_reactor_destroy(&reactor);
        skip();
    }
    assert_int_equal(err, 0);
    return reactor;
}

static void destroy(struct sl_reactor **reactor)
{
    sl_reactor_detach(*reactor);
    sl_reactor_destroy(reactor);
}

static void set_flag(void *ctx, uint64_t a, uint64_t b)
{
    *(bool *)ctx = true;
}

static bool is_set(void *ctx)
{
    return *(bool *)ctx;
}

SL_CASE(drive_once__runs_what_is_there_and_returns)
{
    struct sl_reactor *reactor = create(false);
    bool delivered = false;
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &lane), 0);
    sl_reactor_drive_once(reactor);
    assert_false(delivered);
    sl_mailbox_post(lane, (struct sl_mail){.run = set_flag, .ctx = &delivered});
    assert_false(delivered);
    sl_reactor_drive_once(reactor);
    assert_true(delivered);
    sl_mailbox_lane_close(&lane);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(reactor, &stats);
    assert_int_equal(stats.sleeps, 0);
    destroy(&reactor);
}

struct flag_timer {
    struct sl_timer timer;
    bool ran;
};

static void timer_ran(struct sl_timer *timer, uint64_t now_ns)
{
    ((struct flag_timer *)timer)->ran = true;
}

/* Not before it is due, although nothing was driven while the time passed. */
SL_CASE(drive_until__timers)
{
    struct sl_reactor *reactor = create(false);
    struct flag_timer late = {.timer.run = timer_ran}, later = {.timer.run = timer_ran};
    uint64_t now_ns = sl_clock_now_ns(sl_reactor_clock(reactor));
    sl_timer_arm(sl_reactor_timers(reactor), &late.timer, now_ns + 3 * SL_CLOCK_NS_PER_MS);
    sl_timer_arm(sl_reactor_timers(reactor), &later.timer, now_ns + 30 * SL_CLOCK_NS_PER_MS);
    poll(NULL, 0, 6);
    assert_false(late.ran);
    sl_reactor_drive_until(reactor, is_set, &late.ran);
    sl_reactor_drive_until(reactor, is_set, &later.ran);
    assert_true(sl_clock_now_ns(sl_reactor_clock(reactor)) >= now_ns + 30 * SL_CLOCK_NS_PER_MS);
    destroy(&reactor);
}

struct other {
    struct sl_reactor *reactor;
    struct sl_mailbox_lane *lane;
    bool *delivered;
};

/* Posts once the driving thread sleeps. */
static void *post_to_sleeper(void *ctx)
{
    struct other *other = ctx;
    struct sl_reactor_stats stats;
    do {
        poll(NULL, 0, 1);
        sl_reactor_get_stats(other->reactor, &stats);
    } while (stats.sleeps == 0);
    sl_mailbox_post(other->lane, (struct sl_mail){.run = set_flag, .ctx = other->delivered});
    return NULL;
}

SL_CASE(drive_until__mail_wakes)
{
    struct sl_reactor *reactor = create(false);
    bool delivered = false;
    struct other other = {.reactor = reactor, .delivered = &delivered};
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &other.lane), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, post_to_sleeper, &other), 0);
    sl_reactor_drive_until(reactor, is_set, &delivered);
    pthread_join(thread, NULL);
    sl_mailbox_lane_close(&other.lane);
    destroy(&reactor);
}

struct nop {
    struct sl_ring_op op;
    bool done;
};

static void nop_done(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    assert_int_equal(result, 0);
    ((struct nop *)op)->done = true;
}

SL_CASE(drive_until__completions)
{
    struct sl_reactor *reactor = create(true);
    struct nop nop = {.op.complete = nop_done};
    io_uring_prep_nop(sl_ring_sqe(sl_reactor_ring(reactor), &nop.op));
    sl_reactor_drive_until(reactor, is_set, &nop.done);
    destroy(&reactor);
}

static void *ask_owner(void *ctx)
{
    return sl_reactor_is_owner(ctx) ? ctx : NULL;
}

SL_CASE(attach__the_thread_owns_it_until_it_detaches)
{
    struct sl_reactor *reactor = create(false);
    assert_true(sl_reactor_is_owner(reactor));
    pthread_t thread;
    void *answer;
    assert_int_equal(pthread_create(&thread, NULL, ask_owner, reactor), 0);
    pthread_join(thread, &answer);
    assert_null(answer);
    sl_reactor_detach(reactor);
    assert_null(sl_reactor_ring(reactor));
    assert_int_equal(pthread_create(&thread, NULL, ask_owner, reactor), 0);
    pthread_join(thread, &answer);
    assert_ptr_equal(answer, reactor);
    destroy(&reactor);
}
