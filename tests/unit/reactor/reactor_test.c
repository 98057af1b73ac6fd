#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/limits.h"
#include "reactor/metrics.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"
#include "reactor/timer.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

#define MS      SL_CLOCK_NS_PER_MS
#define WAIT_NS SL_TEST_PATIENCE_NS

static struct sl_reactor *create(uint32_t index, bool polling, bool stepped)
{
    struct sl_reactor_options options = {
        .index = index,
        .core = -1,
        .polling = polling,
        .stepped = stepped,
        .seed = 7,
    };
    snprintf(options.name, sizeof options.name, "test.%u", index);
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    return reactor;
}

/* Starts, or skips the test where there is no io_uring. */
static void start(struct sl_reactor *reactor, int (*on_start)(void *ctx), void *ctx)
{
    int err = sl_reactor_start(reactor, on_start, ctx);
    if (err == SL_ERR_UNSUPPORTED) {
        skip();
    }
    assert_int_equal(err, 0);
}

static void stop(struct sl_reactor **reactor)
{
    sl_reactor_stop(*reactor);
    sl_reactor_join(*reactor);
    sl_reactor_destroy(reactor);
    assert_null(*reactor);
}

/* Waits until another thread has set the flag. */
static void await(_Atomic bool *flag)
{
    uint64_t until_ns = sl_clock_now_ns(sl_clock_system()) + WAIT_NS;
    while (!atomic_load(flag)) {
        assert_true(sl_clock_now_ns(sl_clock_system()) < until_ns);
        poll(NULL, 0, 1);
    }
}

static void await_sleep(struct sl_reactor *reactor, uint64_t sleeps)
{
    uint64_t until_ns = sl_clock_now_ns(sl_clock_system()) + WAIT_NS;
    struct sl_reactor_stats stats;
    do {
        assert_true(sl_clock_now_ns(sl_clock_system()) < until_ns);
        poll(NULL, 0, 1);
        sl_reactor_get_stats(reactor, &stats);
    } while (stats.sleeps < sleeps);
}

static void set_flag(void *ctx, uint64_t a, uint64_t b)
{
    atomic_store((_Atomic bool *)ctx, true);
}

SL_CASE(create__bad_options)
{
    struct sl_reactor *reactor;
    struct sl_reactor_options options = {.core = -1};
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    memset(options.name, 'x', sizeof options.name);
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    memcpy(options.name, "r", sizeof "r");
    options.index = SL_LIMIT_REACTORS;
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    options.index = 0;
    options.core = -2;
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    options.core = -1;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_string_equal(sl_reactor_name(reactor), "r");
    assert_null(sl_reactor_ring(reactor));
    sl_reactor_destroy(&reactor);
}

struct lifecycle {
    struct sl_reactor *reactor;
    int result; /* of on_start */
    bool ring_in_start, owner_in_start, ring_in_stop;
};

static int lifecycle_start(void *ctx)
{
    struct lifecycle *lifecycle = ctx;
    lifecycle->ring_in_start = sl_reactor_ring(lifecycle->reactor) != NULL;
    lifecycle->owner_in_start = sl_reactor_is_owner(lifecycle->reactor);
    return lifecycle->result;
}

static void lifecycle_stop(void *ctx)
{
    struct lifecycle *lifecycle = ctx;
    lifecycle->ring_in_stop = sl_reactor_ring(lifecycle->reactor) != NULL;
}

SL_CASE(start__runs_on_start_and_on_stop_on_the_thread)
{
    struct lifecycle lifecycle = {.reactor = create(0, false, false)};
    sl_reactor_on_stop(lifecycle.reactor, lifecycle_stop, &lifecycle);
    start(lifecycle.reactor, lifecycle_start, &lifecycle);
    assert_true(lifecycle.ring_in_start);
    assert_true(lifecycle.owner_in_start);
    assert_false(sl_reactor_is_owner(lifecycle.reactor));
    sl_reactor_stop(lifecycle.reactor);
    sl_reactor_join(lifecycle.reactor);
    assert_true(lifecycle.ring_in_stop);
    assert_true(sl_reactor_is_owner(lifecycle.reactor));
    assert_null(sl_reactor_ring(lifecycle.reactor));
    sl_reactor_join(lifecycle.reactor);
    sl_reactor_destroy(&lifecycle.reactor);
}

SL_CASE(start__failure_of_on_start_comes_back)
{
    struct lifecycle lifecycle = {.reactor = create(0, false, false), .result = SL_ERR_IN_USE};
    sl_reactor_on_stop(lifecycle.reactor, lifecycle_stop, &lifecycle);
    assert_int_equal(sl_reactor_start(lifecycle.reactor, lifecycle_start, &lifecycle),
                     SL_ERR_IN_USE);
    assert_false(lifecycle.ring_in_stop);
    sl_reactor_destroy(&lifecycle.reactor);
}

SL_CASE(start__core_that_is_not_ours)
{
    struct sl_reactor_options options = {.name = "pinned", .core = 1 << 20};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_reactor_start(reactor, NULL, NULL), SL_ERR_INVALID);
    sl_reactor_destroy(&reactor);
}

static struct sl_reactor *signalled;

static void on_signal(int number)
{
    sl_reactor_stop(signalled);
}

SL_CASE(stop__from_a_signal_handler)
{
    signalled = create(0, false, false);
    start(signalled, NULL, NULL);
    await_sleep(signalled, 1);
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigaction(SIGUSR1, &action, &before);
    raise(SIGUSR1);
    sl_reactor_join(signalled);
    sigaction(SIGUSR1, &before, NULL);
    sl_reactor_destroy(&signalled);
}

SL_CASE(turn__polling_never_sleeps)
{
    struct sl_reactor *reactor = create(0, true, false);
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &lane), 0);
    start(reactor, NULL, NULL);
    struct sl_reactor_stats stats;
    do {
        sl_reactor_get_stats(reactor, &stats);
    } while (stats.idle_turns == 0);
    _Atomic bool ran = false;
    assert_int_equal(sl_mailbox_post(lane, (struct sl_mail){.run = set_flag, .ctx = &ran}), 0);
    await(&ran);
    sl_reactor_stop(reactor);
    sl_reactor_join(reactor);
    sl_reactor_get_stats(reactor, &stats);
    assert_int_equal(stats.sleeps, 0);
    assert_int_equal(stats.mails, 1);
    sl_mailbox_lane_close(&lane);
    sl_reactor_destroy(&reactor);
}

SL_CASE(sleep__post_wakes)
{
    struct sl_reactor *reactor = create(0, false, false);
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &lane), 0);
    start(reactor, NULL, NULL);
    for (uint64_t i = 1; i <= 5; i++) {
        await_sleep(reactor, i);
        _Atomic bool ran = false;
        assert_int_equal(sl_mailbox_post(lane, (struct sl_mail){.run = set_flag, .ctx = &ran}), 0);
        await(&ran);
    }
    sl_mailbox_lane_close(&lane);
    stop(&reactor);
}

struct slow_source {
    struct sl_reactor_source source;
    _Atomic bool done;
    bool computes;                 /* instead of sleeping */
    struct sl_reactor *excused_by; /* NULL: the turn is a stall */
};

static uint32_t slow_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct slow_source *slow = (struct slow_source *)source;
    if (atomic_load(&slow->done)) {
        return 0;
    }
    if (slow->computes) {
        /* Long enough to be seen however often others get the processor meanwhile. */
        struct timespec cpu;
        uint64_t begin_ns = 0;
        uint64_t now_ns;
        do {
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
            now_ns = (uint64_t)cpu.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)cpu.tv_nsec;
            begin_ns = begin_ns == 0 ? now_ns : begin_ns;
        } while (now_ns - begin_ns < 5 * MS);
    } else {
        poll(NULL, 0, 3);
    }
    if (slow->excused_by != NULL) {
        sl_reactor_excuse_turn(slow->excused_by);
    }
    atomic_store(&slow->done, true);
    return 1;
}

static struct sl_reactor_stats slow_turn(bool computes, bool excused)
{
    struct sl_reactor *reactor = create(0, false, false);
    struct slow_source slow = {.source = {.name = "slow", .poll = slow_poll},
                               .computes = computes,
                               .excused_by = excused ? reactor : NULL};
    sl_reactor_add_source(reactor, &slow.source);
    start(reactor, NULL, NULL);
    await(&slow.done);
    sl_reactor_stop(reactor);
    sl_reactor_join(reactor);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(reactor, &stats);
    assert_true(stats.turn_ns_max >= 3 * MS);
    sl_reactor_destroy(&reactor);
    return stats;
}

SL_CASE(stall__slow_source_is_counted)
{
    for (int computes = 0; computes < 2; computes++) {
        struct sl_reactor_stats stats = slow_turn(computes, false);
        assert_true(stats.stalls >= 1);
        assert_string_equal(stats.stall_phase, "slow");
    }
}

/* Moves its clock by 3 ms in its only turn with work and by 2 ms in the flush after it, by 7 ms in
 * idle turns. */
struct timed_source {
    struct sl_reactor_source source;
    uint64_t now_ns;
    bool done, flushed;
};

static uint64_t timed_now_ns(void *ctx)
{
    return ((struct timed_source *)ctx)->now_ns;
}

static uint32_t timed_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct timed_source *timed = (struct timed_source *)source;
    const bool works = !timed->done;
    timed->now_ns += works ? 3 * MS : 7 * MS;
    timed->done = true;
    return works;
}

static void timed_flush(struct sl_reactor_source *source)
{
    struct timed_source *timed = (struct timed_source *)source;
    timed->now_ns += timed->flushed ? 0 : 2 * MS;
    timed->flushed = true;
}

SL_CASE(cells__busy_time_is_that_of_turns_with_work)
{
    static struct sl_reactor_cells cells;
    struct timed_source timed = {
        .source = {.name = "timed", .poll = timed_poll, .flush = timed_flush}, .now_ns = MS};
    const struct sl_clock clock = {.now_ns = timed_now_ns, .ctx = &timed};
    const struct sl_reactor_options options = {
        .name = "test", .core = -1, .clock = &clock, .cells = &cells};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    if (sl_reactor_attach(reactor) == SL_ERR_UNSUPPORTED) {
        skip();
    }
    (void)sl_reactor_drive_once(reactor); /* submits what the ring watches */
    sl_reactor_add_source(reactor, &timed.source);
    (void)sl_reactor_drive_once(reactor);
    assert_int_equal(sl_reactor_driven_ns(reactor), 4 * MS);
    (void)sl_reactor_drive_once(reactor);
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor); /* the cells outlive it */
    assert_int_equal(sl_cell_get(&cells.busy_ns), 5 * MS);
    assert_int_equal(sl_cell_get(&cells.events), 1);
    assert_int_equal(sl_cell_get(&cells.turns), sl_cell_get(&cells.idle_turns) + 1);
    assert_int_equal(sl_cell_get(&cells.turn_ns_max), 7 * MS);
}

static void enter_again(void *ctx, uint64_t now_ns, uint64_t b)
{
    struct sl_reactor *reactor = ctx;
    assert_false(sl_reactor_enter(reactor, now_ns));
    assert_int_not_equal(sl_reactor_now_ns(reactor), now_ns);
}

SL_CASE(enter__not_before_mail_and_not_in_a_turn)
{
    const uint64_t later_ns = sl_clock_now_ns(sl_clock_system()) + 3600 * SL_CLOCK_NS_PER_S;
    const struct sl_reactor_options options = {.name = "test", .core = -1};
    struct sl_reactor *reactor;
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    if (sl_reactor_attach(reactor) == SL_ERR_UNSUPPORTED) {
        skip();
    }
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &lane), 0);
    const struct sl_mail mail = {.run = enter_again, .ctx = reactor, .a = later_ns};
    assert_int_equal(sl_mailbox_post(lane, mail), 0);
    assert_false(sl_reactor_enter(reactor, later_ns));
    assert_int_equal(sl_reactor_drive_once(reactor), 1);
    assert_true(sl_reactor_enter(reactor, later_ns));
    assert_int_equal(sl_reactor_now_ns(reactor), later_ns);
    sl_mailbox_lane_close(&lane);
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor);
}

static const char *first_seen;

static void see_event(struct sl_ring_watch *watch)
{
    first_seen = first_seen != NULL ? first_seen : "event";
}

static void see_timer(struct sl_timer *timer, uint64_t now_ns)
{
    first_seen = first_seen != NULL ? first_seen : "timer";
}

/* What came while the thread was away is taken in before timers, also if the thread enters first.
 */
SL_CASE(enter__is_no_drive)
{
    const struct sl_reactor_options options = {.name = "test", .core = -1};
    const struct sl_clock *clock = sl_clock_system();
    struct sl_timer timer = {.run = see_timer};
    struct sl_ring_watch watch;
    struct sl_reactor *reactor;
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    if (sl_reactor_attach(reactor) == SL_ERR_UNSUPPORTED) {
        skip();
    }
    sl_ring_watch(sl_reactor_ring(reactor), &watch, fd, see_event);
    (void)sl_reactor_drive_once(reactor);
    const uint64_t driven_ns = sl_reactor_driven_ns(reactor);
    first_seen = NULL;
    assert_int_equal(eventfd_write(fd, 1), 0);
    sl_timer_arm(sl_reactor_timers(reactor), &timer, driven_ns + 1);
    poll(NULL, 0, 10);
    assert_true(sl_reactor_enter(reactor, sl_clock_now_ns(clock)));
    assert_int_equal(sl_reactor_driven_ns(reactor), driven_ns);
    (void)sl_reactor_drive_once(reactor);
    assert_string_equal(first_seen, "event");
    sl_timer_disarm(sl_reactor_timers(reactor), &timer);
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor);
    close(fd);
}

SL_CASE(excuse_turn__long_on_purpose_is_no_stall)
{
    for (int computes = 0; computes < 2; computes++) {
        struct sl_reactor_stats stats = slow_turn(computes, true);
        assert_true(stats.stall_phase == NULL || strcmp(stats.stall_phase, "slow") != 0);
    }
}

#define GROUP 3
#define MAILS 30000 /* from each to each, itself included: far more than a lane holds */

struct member {
    struct sl_reactor_source source;
    struct sl_reactor *reactor;
    struct member *group;
    uint64_t posted;
    uint64_t next[GROUP]; /* expected number from each */
    bool wrong;
    _Atomic bool done;
};

static void member_mail(void *ctx, uint64_t from, uint64_t number)
{
    struct member *member = ctx;
    member->wrong = member->wrong || member->next[from] != number;
    member->next[from]++;
    bool all = true;
    for (uint32_t i = 0; i < GROUP; i++) {
        all = all && member->next[i] == MAILS;
    }
    if (all) {
        atomic_store(&member->done, true);
    }
}

/* Posts more in a turn than a lane holds, so that much is spilled. */
static uint32_t member_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct member *member = (struct member *)source;
    uint32_t posted = 0;
    while (member->posted < MAILS && posted < 2 * SL_LIMIT_LANE_MAILS) {
        for (uint32_t to = 0; to < GROUP; to++) {
            sl_reactor_post(member->reactor, to,
                            (struct sl_mail){.run = member_mail,
                                             .ctx = &member->group[to],
                                             .a = sl_reactor_index(member->reactor),
                                             .b = member->posted});
        }
        member->posted++;
        posted++;
    }
    return posted;
}

SL_CASE(post__among_three_with_full_lanes)
{
    struct sl_reactor *reactors[GROUP];
    static struct member members[GROUP];
    for (uint32_t i = 0; i < GROUP; i++) {
        reactors[i] = create(i, false, false);
        members[i] = (struct member){
            .source = {.name = "member", .poll = member_poll},
            .reactor = reactors[i],
            .group = members,
        };
        sl_reactor_add_source(reactors[i], &members[i].source);
    }
    assert_int_equal(sl_reactor_connect(reactors, GROUP), 0);
    for (uint32_t i = 0; i < GROUP; i++) {
        start(reactors[i], NULL, NULL);
    }
    for (uint32_t i = 0; i < GROUP; i++) {
        await(&members[i].done);
    }
    for (uint32_t i = 0; i < GROUP; i++) {
        sl_reactor_stop(reactors[i]);
        sl_reactor_join(reactors[i]);
        assert_false(members[i].wrong);
    }
    for (uint32_t i = 0; i < GROUP; i++) {
        sl_reactor_destroy(&reactors[i]);
    }
}
