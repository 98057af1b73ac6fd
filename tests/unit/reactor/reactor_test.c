#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/clock.h"
#include "core/limits.h"
#include "reactor/reactor.h"
#include "reactor/ring.h"
#include "reactor/topology.h"

#define MS      SL_CLOCK_NS_PER_MS
#define WAIT_NS (30 * SL_CLOCK_NS_PER_S)

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
    (void)a;
    (void)b;
    atomic_store((_Atomic bool *)ctx, true);
}

/* ---- Creation -------------------------------------------------------------------------------- */

static void create__bad_options(void **state)
{
    (void)state;
    struct sl_reactor *reactor;
    struct sl_reactor_options options = {.core = -1};
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    memset(options.name, 'x', sizeof options.name);
    assert_int_equal(sl_reactor_create(&options, &reactor), SL_ERR_INVALID);
    strcpy(options.name, "r");
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

static void random__depends_on_the_seed_alone(void **state)
{
    (void)state;
    struct sl_reactor *one = create(0, false, true);
    struct sl_reactor *other = create(1, false, true);
    uint64_t first = sl_reactor_random(one);
    assert_int_equal(first, sl_reactor_random(other));
    assert_int_not_equal(first, sl_reactor_random(one));
    sl_reactor_destroy(&one);
    sl_reactor_destroy(&other);
}

/* ---- Stepped --------------------------------------------------------------------------------- */

#define TRACE_BYTES 4096

/* What happened, as text, in the order in which it did. */
struct trace {
    char text[TRACE_BYTES];
    size_t bytes;
};

static void trace_add(struct trace *trace, const char *what, uint64_t a, uint64_t b)
{
    int wrote = snprintf(trace->text + trace->bytes, TRACE_BYTES - trace->bytes, "%s(%llu,%llu) ",
                         what, (unsigned long long)a, (unsigned long long)b);
    assert_true(wrote > 0 && (size_t)wrote < TRACE_BYTES - trace->bytes);
    trace->bytes += (size_t)wrote;
}

static void trace_mail(void *ctx, uint64_t a, uint64_t b)
{
    trace_add(ctx, "mail", a, b);
}

struct ticker {
    struct sl_timer timer;
    struct sl_reactor *from;
    struct trace *trace;
    uint32_t to;
    uint64_t number;
};

static void ticker_run(struct sl_timer *timer, uint64_t now_ns)
{
    struct ticker *ticker = (struct ticker *)timer;
    trace_add(ticker->trace, "tick", ticker->to, now_ns);
    sl_reactor_post(ticker->from, ticker->to,
                    (struct sl_mail){.run = trace_mail,
                                     .ctx = ticker->trace,
                                     .a = ++ticker->number,
                                     .b = sl_reactor_random(ticker->from) % 1000});
    sl_timer_arm(sl_reactor_timers(ticker->from), timer, now_ns + (3 + 4 * ticker->to) * MS / 2);
}

static uint64_t zero_clock(void *ctx)
{
    (void)ctx;
    return 0;
}

/* Runs two reactors that write to each other, on a virtual clock, for 50 ms. */
static void stepped_run(struct trace *trace)
{
    const struct sl_clock clock = {.now_ns = zero_clock};
    struct sl_reactor *reactors[2];
    struct ticker tickers[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_reactor_options options = {
            .name = "sim", .index = i, .core = -1, .stepped = true, .clock = &clock, .seed = 9 + i};
        assert_int_equal(sl_reactor_create(&options, &reactors[i]), 0);
    }
    assert_int_equal(sl_reactor_connect(reactors, 2), 0);
    for (uint32_t i = 0; i < 2; i++) {
        tickers[i] = (struct ticker){
            .timer.run = ticker_run, .from = reactors[i], .trace = trace, .to = 1 - i};
        sl_timer_arm(sl_reactor_timers(reactors[i]), &tickers[i].timer, MS);
    }
    uint64_t now_ns = 0;
    while (now_ns < 50 * MS) {
        uint32_t did = sl_reactor_turn(reactors[0], now_ns) + sl_reactor_turn(reactors[1], now_ns);
        if (did == 0) {
            uint64_t next[2] = {sl_reactor_next_ns(reactors[0]), sl_reactor_next_ns(reactors[1])};
            assert_true(next[0] > now_ns && next[1] > now_ns);
            now_ns = next[0] < next[1] ? next[0] : next[1];
        }
    }
    sl_reactor_destroy(&reactors[0]);
    sl_reactor_destroy(&reactors[1]);
}

static void turn__stepped_is_deterministic(void **state)
{
    (void)state;
    static struct trace first, second;
    stepped_run(&first);
    stepped_run(&second);
    assert_string_equal(first.text, second.text);
    assert_non_null(strstr(first.text, "tick(1,1000000) "));
    assert_non_null(strstr(first.text, "mail(14,"));
}

static void next_ns__mail_is_due_at_once(void **state)
{
    (void)state;
    struct sl_reactor *reactor = create(0, false, true);
    uint64_t now_ns = sl_reactor_now_ns(reactor) + MS;
    assert_int_equal(sl_reactor_connect(&reactor, 1), 0);
    assert_int_equal(sl_reactor_turn(reactor, now_ns), 0);
    assert_int_equal(sl_reactor_next_ns(reactor), SL_CLOCK_NEVER);
    _Atomic bool ran = false;
    sl_reactor_post(reactor, 0, (struct sl_mail){.run = set_flag, .ctx = &ran});
    assert_int_equal(sl_reactor_next_ns(reactor), now_ns);
    assert_int_equal(sl_reactor_turn(reactor, now_ns), 1);
    assert_true(ran);
    sl_reactor_destroy(&reactor);
}

static void count_mail(void *ctx, uint64_t a, uint64_t b)
{
    (void)b;
    uint64_t *next = ctx;
    assert_int_equal(*next, a);
    ++*next;
}

static void post__spilled_mail_keeps_its_order(void **state)
{
    (void)state;
    struct sl_reactor *reactors[2] = {create(0, false, true), create(1, false, true)};
    uint64_t now_ns = sl_reactor_now_ns(reactors[1]) + MS;
    assert_int_equal(sl_reactor_connect(reactors, 2), 0);
    uint64_t next = 0;
    uint64_t posted = 0;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 2 * SL_LIMIT_LANE_MAILS; i++) {
            sl_reactor_post(reactors[0], 1,
                            (struct sl_mail){.run = count_mail, .ctx = &next, .a = posted++});
        }
        sl_reactor_turn(reactors[1], now_ns);
        sl_reactor_turn(reactors[0], now_ns);
        assert_int_equal(sl_reactor_next_ns(reactors[0]), now_ns);
    }
    while (sl_reactor_turn(reactors[1], now_ns) > 0) {
        sl_reactor_turn(reactors[0], now_ns);
    }
    assert_int_equal(next, posted);
    /* What is left when a reactor ends goes with it. */
    for (uint32_t i = 0; i < 2 * SL_LIMIT_LANE_MAILS; i++) {
        sl_reactor_post(reactors[0], 1, (struct sl_mail){.run = count_mail, .ctx = &next});
    }
    sl_reactor_destroy(&reactors[1]);
    sl_reactor_destroy(&reactors[0]);
}

/* ---- Sources --------------------------------------------------------------------------------- */

struct probe_source {
    struct sl_reactor_source source;
    struct sl_reactor *reactor;
    struct trace *trace;
    uint64_t id;
    struct probe_source *removes[2]; /* in its poll, once */
    struct probe_source *adds;       /* in its poll, once */
};

static uint32_t probe_poll(struct sl_reactor_source *source, uint32_t budget)
{
    struct probe_source *probe = (struct probe_source *)source;
    assert_true(budget > 0);
    trace_add(probe->trace, "poll", probe->id, 0);
    for (uint32_t i = 0; i < 2; i++) {
        if (probe->removes[i] != NULL) {
            sl_reactor_remove_source(probe->reactor, &probe->removes[i]->source);
            probe->removes[i] = NULL;
        }
    }
    if (probe->adds != NULL) {
        sl_reactor_add_source(probe->reactor, &probe->adds->source);
        probe->adds = NULL;
    }
    return 0;
}

static void probe_flush(struct sl_reactor_source *source)
{
    struct probe_source *probe = (struct probe_source *)source;
    trace_add(probe->trace, "flush", probe->id, 0);
}

static bool probe_arm(struct sl_reactor_source *source)
{
    return ((struct probe_source *)source)->id != 3;
}

static struct probe_source probe_source(struct sl_reactor *reactor, struct trace *trace,
                                        uint64_t id)
{
    return (struct probe_source){
        .source = {.name = "probe", .poll = probe_poll, .flush = probe_flush, .arm = probe_arm},
        .reactor = reactor,
        .trace = trace,
        .id = id,
    };
}

static void remove_source__inside_polls(void **state)
{
    (void)state;
    struct sl_reactor *reactor = create(0, false, true);
    uint64_t now_ns = sl_reactor_now_ns(reactor);
    struct trace trace = {0};
    struct probe_source probes[4];
    for (uint64_t i = 0; i < 4; i++) {
        probes[i] = probe_source(reactor, &trace, i);
    }
    sl_reactor_add_source(reactor, &probes[0].source);
    sl_reactor_add_source(reactor, &probes[1].source);
    sl_reactor_add_source(reactor, &probes[2].source);
    /* The second removes itself and the one after it, and adds another. */
    probes[1].removes[0] = &probes[1];
    probes[1].removes[1] = &probes[2];
    probes[1].adds = &probes[3];
    sl_reactor_turn(reactor, now_ns);
    trace.bytes = 0;
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "poll(0,0) poll(3,0) flush(0,0) flush(3,0) ");
    /* Source 3 never lets the reactor sleep. */
    assert_int_equal(sl_reactor_next_ns(reactor), now_ns);

    probes[0].removes[0] = &probes[0];
    trace.bytes = 0;
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "poll(0,0) poll(3,0) flush(3,0) ");
    sl_reactor_remove_source(reactor, &probes[3].source);
    trace.bytes = 0;
    trace.text[0] = '\0';
    sl_reactor_turn(reactor, now_ns);
    assert_string_equal(trace.text, "");
    sl_reactor_destroy(&reactor);
}

/* ---- Threads --------------------------------------------------------------------------------- */

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

static void start__runs_on_start_and_on_stop_on_the_thread(void **state)
{
    (void)state;
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

static void start__failure_of_on_start_comes_back(void **state)
{
    (void)state;
    struct lifecycle lifecycle = {.reactor = create(0, false, false), .result = SL_ERR_IN_USE};
    sl_reactor_on_stop(lifecycle.reactor, lifecycle_stop, &lifecycle);
    assert_int_equal(sl_reactor_start(lifecycle.reactor, lifecycle_start, &lifecycle),
                     SL_ERR_IN_USE);
    assert_false(lifecycle.ring_in_stop);
    sl_reactor_destroy(&lifecycle.reactor);
}

static void start__core_that_is_not_ours(void **state)
{
    (void)state;
    struct sl_reactor_options options = {.name = "pinned", .core = 1 << 20};
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_reactor_start(reactor, NULL, NULL), SL_ERR_INVALID);
    sl_reactor_destroy(&reactor);
}

static void start__pinned(void **state)
{
    (void)state;
    struct sl_reactor_options options = {.name = "pinned"};
    assert_int_equal(sl_topology_core_for(0, true, &options.core), 0);
    struct sl_reactor *reactor;
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    start(reactor, NULL, NULL);
    stop(&reactor);
}

static struct sl_reactor *signalled;

static void on_signal(int number)
{
    (void)number;
    sl_reactor_stop(signalled);
}

static void stop__from_a_signal_handler(void **state)
{
    (void)state;
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

static void stop__before_start(void **state)
{
    (void)state;
    struct sl_reactor *reactor = create(0, false, false);
    sl_reactor_stop(reactor);
    start(reactor, NULL, NULL);
    sl_reactor_join(reactor);
    sl_reactor_destroy(&reactor);
}

static void turn__polling_never_sleeps(void **state)
{
    (void)state;
    struct sl_reactor *reactor = create(0, true, false);
    struct sl_mailbox_lane *lane;
    assert_int_equal(sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &lane), 0);
    start(reactor, NULL, NULL);
    _Atomic bool ran = false;
    poll(NULL, 0, 5);
    assert_int_equal(sl_mailbox_post(lane, (struct sl_mail){.run = set_flag, .ctx = &ran}), 0);
    await(&ran);
    sl_reactor_stop(reactor);
    sl_reactor_join(reactor);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(reactor, &stats);
    assert_int_equal(stats.sleeps, 0);
    assert_int_equal(stats.mails, 1);
    assert_true(stats.idle_turns > 0);
    sl_mailbox_lane_close(&lane);
    sl_reactor_destroy(&reactor);
}

/* ---- What wakes a sleeping reactor ----------------------------------------------------------- */

static void sleep__post_wakes(void **state)
{
    (void)state;
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

struct waker {
    struct sl_timer timer;
    struct sl_ring_op op;
    struct __kernel_timespec after;
    struct sl_reactor *reactor;
    uint64_t due_ns;
    _Atomic bool ran;
    bool early;
};

static void waker_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct waker *waker = (struct waker *)timer;
    waker->early = now_ns < waker->due_ns;
    atomic_store(&waker->ran, true);
}

static int waker_start_timer(void *ctx)
{
    struct waker *waker = ctx;
    waker->timer.run = waker_timer;
    waker->due_ns = sl_reactor_now_ns(waker->reactor) + 20 * MS;
    sl_timer_arm(sl_reactor_timers(waker->reactor), &waker->timer, waker->due_ns);
    return 0;
}

static void sleep__timer_wakes(void **state)
{
    (void)state;
    struct waker waker = {.reactor = create(0, false, false)};
    start(waker.reactor, waker_start_timer, &waker);
    await(&waker.ran);
    assert_false(waker.early);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(waker.reactor, &stats);
    assert_true(stats.sleeps > 0);
    stop(&waker.reactor);
}

static void waker_complete(struct sl_ring_op *op, int32_t result, uint32_t cqe_flags)
{
    (void)result;
    (void)cqe_flags;
    struct waker *waker = (struct waker *)((char *)op - offsetof(struct waker, op));
    atomic_store(&waker->ran, true);
}

static int waker_start_op(void *ctx)
{
    struct waker *waker = ctx;
    waker->op.complete = waker_complete;
    waker->after = (struct __kernel_timespec){.tv_nsec = 20 * MS};
    struct io_uring_sqe *sqe = sl_ring_sqe(sl_reactor_ring(waker->reactor), &waker->op);
    io_uring_prep_timeout(sqe, &waker->after, 0, 0);
    return 0;
}

static void sleep__completion_wakes(void **state)
{
    (void)state;
    struct waker waker = {.reactor = create(0, false, false)};
    start(waker.reactor, waker_start_op, &waker);
    await(&waker.ran);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(waker.reactor, &stats);
    assert_true(stats.sleeps > 0);
    assert_true(stats.events > 0);
    stop(&waker.reactor);
}

/* ---- Stalls ---------------------------------------------------------------------------------- */

struct slow_source {
    struct sl_reactor_source source;
    _Atomic bool done;
    bool computes; /* instead of sleeping */
};

static uint32_t slow_poll(struct sl_reactor_source *source, uint32_t budget)
{
    (void)budget;
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
    atomic_store(&slow->done, true);
    return 1;
}

static void expect_stall(bool computes)
{
    struct slow_source slow = {.source = {.name = "slow", .poll = slow_poll}, .computes = computes};
    struct sl_reactor *reactor = create(0, false, false);
    sl_reactor_add_source(reactor, &slow.source);
    start(reactor, NULL, NULL);
    await(&slow.done);
    sl_reactor_stop(reactor);
    sl_reactor_join(reactor);
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(reactor, &stats);
    assert_true(stats.stalls >= 1);
    assert_string_equal(stats.stall_phase, "slow");
    assert_true(stats.turn_ns_max >= 3 * MS);
    sl_reactor_destroy(&reactor);
}

static void stall__blocking_source_is_counted(void **state)
{
    (void)state;
    expect_stall(false);
}

static void stall__computing_source_is_counted(void **state)
{
    (void)state;
    expect_stall(true);
}

/* ---- Mail among three ------------------------------------------------------------------------ */

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
    (void)budget;
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

static void post__among_three_with_full_lanes(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(create__bad_options),
        cmocka_unit_test(random__depends_on_the_seed_alone),
        cmocka_unit_test(turn__stepped_is_deterministic),
        cmocka_unit_test(next_ns__mail_is_due_at_once),
        cmocka_unit_test(post__spilled_mail_keeps_its_order),
        cmocka_unit_test(remove_source__inside_polls),
        cmocka_unit_test(start__runs_on_start_and_on_stop_on_the_thread),
        cmocka_unit_test(start__failure_of_on_start_comes_back),
        cmocka_unit_test(start__core_that_is_not_ours),
        cmocka_unit_test(start__pinned),
        cmocka_unit_test(stop__from_a_signal_handler),
        cmocka_unit_test(stop__before_start),
        cmocka_unit_test(turn__polling_never_sleeps),
        cmocka_unit_test(sleep__post_wakes),
        cmocka_unit_test(sleep__timer_wakes),
        cmocka_unit_test(sleep__completion_wakes),
        cmocka_unit_test(stall__blocking_source_is_counted),
        cmocka_unit_test(stall__computing_source_is_counted),
        cmocka_unit_test(post__among_three_with_full_lanes),
    };
    return cmocka_run_group_tests_name("reactor/reactor", tests, NULL, NULL);
}
