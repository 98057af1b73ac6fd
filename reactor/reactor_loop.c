/* Runs the turns of a reactor: on its own thread, or on an attached thread of the user. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/list.h"
#include "core/log.h"
#include "core/thread.h"
#include "reactor/reactor_internal.h"
#include "reactor/topology.h"

#define RING_ENTRIES_DEFAULT 1024

/* Longest sleep while mail waits for room in a lane. */
#define SPILL_RETRY_NS       (100 * SL_CLOCK_NS_PER_US)

/* A driving thread that was away this long first takes in pending events, in at most so many
 * turns. */
#define AWAY_NS              (100 * SL_CLOCK_NS_PER_US)
#define CATCH_UP_TURNS       64

/* A polling reactor reads the clock once per so many idle turns. These take less than a microsecond
 * together; reading the clock after each would add half. */
#define IDLE_TURNS           8

/* The loop */

static void mailbox_readable(struct sl_ring_watch *watch)
{
    struct sl_reactor *reactor = SL_CONTAINER_OF(watch, struct sl_reactor, mailbox_watch);
    sl_mailbox_disarm(reactor->mailbox);
}

/* The longest allowed sleep from now_ns. */
static uint64_t sleep_ns_max(const struct sl_reactor *reactor, uint64_t now_ns)
{
    uint64_t next_ns = sl_timer_next_ns(&reactor->timers);
    uint64_t left_ns = next_ns > now_ns ? next_ns - now_ns : 0;
    if (next_ns == SL_CLOCK_NEVER) {
        left_ns = SL_CLOCK_NEVER;
    }
    if (reactor->outbound.spilled_count > 0 && left_ns > SPILL_RETRY_NS) {
        left_ns = SPILL_RETRY_NS;
    }
    return left_ns;
}

/* Sleeps unless work is pending; returns the time afterwards. */
static uint64_t loop_sleep(struct sl_reactor *reactor, uint64_t now_ns)
{
    if (!sl_reactor_arm_sources(reactor)) {
        return now_ns;
    }
    uint64_t left_ns = sleep_ns_max(reactor, now_ns);
    if (left_ns == 0 || !sl_mailbox_arm(reactor->mailbox)) {
        return now_ns;
    }
    /* An earlier stop is seen here; a later one wakes the watched eventfd. */
    if (!atomic_load(&reactor->stopping)) {
        sl_cell_add(&reactor->cells->sleeps, 1);
        sl_ring_wait(&reactor->ring, left_ns);
    }
    sl_mailbox_awake(reactor->mailbox);
    sl_stall_slept(&reactor->stall);
    const uint64_t awake_ns = sl_clock_now_ns(reactor->clock);
    reactor->cpu_yield.slept_ns += awake_ns - now_ns;
    return awake_ns;
}

/* Leaves the core to low-priority threads although the loop has work. Returns the time
 * afterwards. */
static uint64_t loop_pause(struct sl_reactor *reactor)
{
    /* Less the timer slack, some 50 us by default, which the kernel adds. */
    const struct timespec pause = {.tv_nsec = SL_CPU_YIELD_NS - 50 * SL_CLOCK_NS_PER_US};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
    sl_stall_slept(&reactor->stall);
    return sl_clock_now_ns(reactor->clock);
}

static void loop_time_turn(struct sl_reactor *reactor, uint64_t now_ns, bool did_work)
{
    struct sl_reactor_cells *cells = reactor->cells;
    uint64_t took_ns = now_ns - reactor->head.now_ns;
    sl_cell_add(&cells->busy_ns, did_work ? took_ns : 0);
    if (took_ns > sl_cell_get(&cells->turn_ns_max)) {
        sl_cell_set(&cells->turn_ns_max, took_ns);
    }
    const char *name;
    switch (sl_stall_end(&reactor->stall, now_ns, reactor->last_phase, &name)) {
    case SL_STALL_NONE:
        break;
    case SL_STALL_PREEMPTED:
        sl_cell_add(&cells->preempted, 1);
        break;
    case SL_STALL_STALLED:
        sl_cell_add(&cells->stalls, 1);
        atomic_store_explicit(&reactor->stall_phase, name, memory_order_relaxed);
        break;
    }
}

/* Whether the turn is the last of a wait and its flush wrote to memory only: the caller does not
 * wait for a clock reading then, and the flush is not timed. */
static bool ends_wait(const struct sl_reactor *reactor, uint32_t did)
{
    return did > 0 && !reactor->last_turn.has_submitted && reactor->wait.done != NULL &&
           reactor->wait.done(reactor->wait.ctx);
}

/* Runs one turn from *now_ns and sets *now_ns to its end: one clock reading ends a turn and begins
 * the next. Up to idle_turns idle turns in a row count as one with the turn after them, and leave
 * *now_ns. Returns the work done. */
static uint32_t loop_turn(struct sl_reactor *reactor, uint64_t *now_ns, uint32_t idle_turns,
                          uint32_t (*turn)(struct sl_reactor *reactor, uint64_t now_ns))
{
    if (reactor->last_turn.untimed_count == 0) {
        sl_stall_begin(&reactor->stall, *now_ns);
    }
    uint32_t did = turn(reactor, *now_ns);
    if (did == 0 && ++reactor->last_turn.untimed_count < idle_turns) {
        return 0;
    }
    reactor->last_turn.untimed_count = 0;
    *now_ns = ends_wait(reactor, did) ? reactor->stall.mark_ns : sl_clock_now_ns(reactor->clock);
    loop_time_turn(reactor, *now_ns, did > 0);
    return did;
}

static uint32_t idle_turns(const struct sl_reactor *reactor)
{
    return reactor->options.polling ? IDLE_TURNS : 1;
}

/* Spins, yields or sleeps after a turn that did `did` work. Returns the time afterwards. */
static uint64_t loop_cpu_yield(struct sl_reactor *reactor, uint32_t did, uint64_t now_ns)
{
    if (did > 0) {
        sl_spin_busy(&reactor->spin, reactor->head.now_ns);
    } else if (!reactor->options.polling && !sl_spin_idle(&reactor->spin, now_ns)) {
        return loop_sleep(reactor, now_ns);
    }
    if (reactor->last_turn.untimed_count == 0 && sl_cpu_yield_is_due(&reactor->cpu_yield, now_ns)) {
        return did > 0 ? loop_pause(reactor) : loop_sleep(reactor, now_ns);
    }
    return now_ns;
}

static void loop(struct sl_reactor *reactor)
{
    uint64_t now_ns = sl_clock_now_ns(reactor->clock);
    sl_stall_init(&reactor->stall, reactor->clock, reactor->options.name, now_ns);
    while (!atomic_load_explicit(&reactor->stopping, memory_order_acquire)) {
        uint32_t did = loop_turn(reactor, &now_ns, idle_turns(reactor), sl_reactor_turn);
        now_ns = loop_cpu_yield(reactor, did, now_ns);
    }
}

/* The reactor's thread */

/* On the thread that uses the ring. */
static int make_ring(struct sl_reactor *reactor)
{
    uint32_t entries = reactor->options.ring_entries;
    int err = sl_ring_init(&reactor->ring, entries > 0 ? entries : RING_ENTRIES_DEFAULT);
    if (err != 0) {
        return err;
    }
    reactor->ring_ready = true;
    sl_ring_watch(&reactor->ring, &reactor->mailbox_watch, sl_mailbox_fd(reactor->mailbox),
                  mailbox_readable);
    return 0;
}

static void drop_ring(struct sl_reactor *reactor)
{
    if (reactor->ring_ready) {
        sl_ring_fini(&reactor->ring);
        reactor->ring_ready = false;
    }
}

static int thread_begin(struct sl_reactor *reactor)
{
    const struct sl_reactor_options *options = &reactor->options;
    int err = options->core >= 0 ? sl_topology_pin_thread(options->core) : 0;
    if (err != 0) {
        sl_log_error("reactor %s cannot be pinned to core %d: is it outside the process's affinity "
                     "mask?",
                     options->name, options->core);
        return err;
    }
    if (options->core >= 0) {
        sl_spin_lengthen(&reactor->spin);
    }
    err = make_ring(reactor);
    return err == 0 && reactor->thread.on_start != NULL
               ? reactor->thread.on_start(reactor->thread.on_start_ctx)
               : err;
}

static void *reactor_loop_thread_main(void *arg)
{
    struct sl_reactor *reactor = arg;
    sl_reactor_own(reactor);
    int err = thread_begin(reactor);
    reactor->thread.start_result = err;
    sem_post(&reactor->thread.start_done);
    if (err == 0) {
        loop(reactor);
        if (reactor->thread.on_stop != NULL) {
            reactor->thread.on_stop(reactor->thread.on_stop_ctx);
        }
    }
    drop_ring(reactor);
    return NULL;
}

static int thread_create(struct sl_reactor *reactor)
{
    int err = sl_thread_start(&reactor->thread.id, reactor->options.name, reactor_loop_thread_main,
                              reactor);
    if (err != 0) {
        sl_thread_log_failure(sl_reactor_name(reactor), err);
    }
    return err == 0 ? 0 : SL_ERR_NO_MEMORY;
}

int sl_reactor_start(struct sl_reactor *reactor, int (*on_start)(void *ctx), void *ctx)
{
    sl_assert(!reactor->options.stepped);
    sl_assert(reactor->thread.kind == SL_REACTOR_THREAD_NONE);
    reactor->thread.on_start = on_start;
    reactor->thread.on_start_ctx = ctx;
    int err = thread_create(reactor);
    if (err != 0) {
        return err;
    }
    reactor->thread.kind = SL_REACTOR_THREAD_OWN;
    while (sem_wait(&reactor->thread.start_done) != 0) {
        /* Interrupted by a signal. */
    }
    err = reactor->thread.start_result;
    if (err != 0) {
        sl_reactor_join(reactor);
    }
    return err;
}

void sl_reactor_stop(struct sl_reactor *reactor)
{
    atomic_store(&reactor->stopping, true);
    sl_mailbox_wake(reactor->mailbox);
}

void sl_reactor_join(struct sl_reactor *reactor)
{
    if (reactor->thread.kind != SL_REACTOR_THREAD_OWN) {
        return;
    }
    pthread_join(reactor->thread.id, NULL);
    reactor->thread.kind = SL_REACTOR_THREAD_NONE;
    sl_reactor_disown(reactor);
}

/* A caller's thread */

int sl_reactor_attach(struct sl_reactor *reactor)
{
    sl_assert(!reactor->options.stepped);
    sl_assert(reactor->thread.kind == SL_REACTOR_THREAD_NONE);
    sl_reactor_own(reactor);
    int err = make_ring(reactor);
    if (err != 0) {
        sl_reactor_disown(reactor);
        return err;
    }
    reactor->thread.kind = SL_REACTOR_THREAD_CALLERS;
    sl_stall_init(&reactor->stall, reactor->clock, reactor->options.name,
                  sl_clock_now_ns(reactor->clock));
    return 0;
}

void sl_reactor_detach(struct sl_reactor *reactor)
{
    if (reactor->thread.kind != SL_REACTOR_THREAD_CALLERS) {
        return;
    }
    sl_reactor_assert_owner(reactor);
    drop_ring(reactor);
    reactor->thread.kind = SL_REACTOR_THREAD_NONE;
    sl_reactor_disown(reactor);
}

/* Takes in pending events before timers run: an event that arrived before a deadline is not late
 * because the driving thread was away. Returns the time afterwards. */
static uint64_t catch_up(struct sl_reactor *reactor, uint32_t *did)
{
    uint64_t now_ns = sl_clock_now_ns(reactor->clock);
    reactor->last_turn.untimed_count = 0;
    uint32_t turns = now_ns - reactor->last_turn.began_ns < AWAY_NS ? 0 : CATCH_UP_TURNS;
    for (*did = 0; turns > 0; turns--) {
        uint32_t more = loop_turn(reactor, &now_ns, 1, sl_reactor_turn_untimed);
        if (more == 0) {
            break;
        }
        *did += more;
    }
    return now_ns;
}

bool sl_reactor_enter(struct sl_reactor *reactor, uint64_t now_ns)
{
    sl_reactor_assert_owner(reactor);
    sl_assert(reactor->thread.kind == SL_REACTOR_THREAD_CALLERS);
    if (reactor->in_turn || sl_mailbox_is_rung(reactor->mailbox)) {
        return false;
    }
    reactor->head.now_ns = now_ns > reactor->head.now_ns ? now_ns : reactor->head.now_ns;
    return true;
}

uint64_t sl_reactor_driven_ns(const struct sl_reactor *reactor)
{
    return reactor->stall.mark_ns;
}

uint32_t sl_reactor_drive_once(struct sl_reactor *reactor)
{
    sl_assert(reactor->thread.kind == SL_REACTOR_THREAD_CALLERS);
    uint32_t did;
    uint64_t now_ns = catch_up(reactor, &did);
    return did + loop_turn(reactor, &now_ns, 1, sl_reactor_turn);
}

void sl_reactor_drive_until(struct sl_reactor *reactor, bool (*done)(void *ctx), void *ctx)
{
    sl_assert(reactor->thread.kind == SL_REACTOR_THREAD_CALLERS);
    uint32_t did;
    uint64_t now_ns = catch_up(reactor, &did);
    reactor->wait.done = done;
    reactor->wait.ctx = ctx;
    for (; !done(ctx); did = 0) {
        /* Work of catch_up counts: the caller may wait for it. */
        did += loop_turn(reactor, &now_ns, idle_turns(reactor), sl_reactor_turn);
        now_ns = loop_cpu_yield(reactor, did, now_ns);
    }
    reactor->wait.done = NULL;
}
