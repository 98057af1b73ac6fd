#include "reactor/reactor.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/hash.h"
#include "core/limits.h"
#include "core/log.h"
#include "reactor/outbound.h"
#include "reactor/ring.h"
#include "reactor/spin.h"
#include "reactor/stall.h"
#include "reactor/topology.h"

#define RING_ENTRIES_DEFAULT 1024

/* How long a loop sleeps at most while mail waits for room in somebody's lane. */
#define SPILL_RETRY_NS       (100 * SL_CLOCK_NS_PER_US)

/* Written by the owner with plain loads and stores, read by anybody. */
struct counters {
    _Atomic uint64_t turns, idle_turns, sleeps, mails, timers, events;
    _Atomic uint64_t stalls, preempted, turn_ns_max;
    _Atomic(const char *) stall_phase;
};

struct sl_reactor {
    struct sl_reactor_options options;
    const struct sl_clock *clock;
    _Atomic(const void *) owner; /* owner_token() of the thread; NULL: nobody's */
    _Atomic bool stopping;

    uint64_t now_ns;
    uint64_t random_state;
    bool in_turn;
    struct sl_spin spin;
    struct counters counters;

    struct sl_reactor_source *sources;
    struct sl_reactor_source *next_source; /* the one that the walk in progress visits next */

    struct sl_mailbox *mailbox;
    struct sl_outbound outbound;

    bool ring_ready;
    bool thread_started;
    pthread_t thread;
    sem_t start_done;
    int start_result;
    int (*on_start)(void *ctx);
    void *on_start_ctx;
    void (*on_stop)(void *ctx);
    void *on_stop_ctx;

    struct sl_ring ring;
    struct sl_ring_watch mailbox_watch;
    struct sl_stall stall;
    struct sl_timer_wheel timers;
};

/* ---- Ownership, counters, small things ------------------------------------------------------- */

/* An address that no other living thread has. */
static const void *owner_token(void)
{
    static _Thread_local char token;
    return &token;
}

bool sl_reactor_is_owner(const struct sl_reactor *reactor)
{
    const void *owner = atomic_load_explicit(&reactor->owner, memory_order_acquire);
    return owner == NULL || owner == owner_token();
}

static void own(struct sl_reactor *reactor, const void *token)
{
    atomic_store_explicit(&reactor->owner, token, memory_order_release);
}

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + more, memory_order_relaxed);
}

static uint64_t counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void sl_reactor_get_stats(const struct sl_reactor *reactor, struct sl_reactor_stats *out)
{
    const struct counters *counters = &reactor->counters;
    *out = (struct sl_reactor_stats){
        .turns = counted(&counters->turns),
        .idle_turns = counted(&counters->idle_turns),
        .sleeps = counted(&counters->sleeps),
        .mails = counted(&counters->mails),
        .timers = counted(&counters->timers),
        .events = counted(&counters->events),
        .stalls = counted(&counters->stalls),
        .preempted = counted(&counters->preempted),
        .turn_ns_max = counted(&counters->turn_ns_max),
        .stall_phase = atomic_load_explicit(&counters->stall_phase, memory_order_relaxed),
    };
}

uint64_t sl_reactor_now_ns(const struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return reactor->now_ns;
}

void sl_reactor_excuse_turn(struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    reactor->stall.excused = true;
}

const struct sl_clock *sl_reactor_clock(const struct sl_reactor *reactor)
{
    return reactor->clock;
}

uint64_t sl_reactor_random(struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return sl_hash_random(&reactor->random_state);
}

struct sl_timer_wheel *sl_reactor_timers(struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return &reactor->timers;
}

struct sl_ring *sl_reactor_ring(struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return reactor->ring_ready ? &reactor->ring : NULL;
}

struct sl_mailbox *sl_reactor_mailbox(struct sl_reactor *reactor)
{
    return reactor->mailbox;
}

uint32_t sl_reactor_index(const struct sl_reactor *reactor)
{
    return reactor->options.index;
}

const char *sl_reactor_name(const struct sl_reactor *reactor)
{
    return reactor->options.name;
}

/* ---- Creation -------------------------------------------------------------------------------- */

static bool options_valid(const struct sl_reactor_options *options)
{
    size_t name_bytes = strnlen(options->name, sizeof options->name);
    return name_bytes > 0 && name_bytes < sizeof options->name &&
           options->index < SL_LIMIT_REACTORS && options->core >= -1;
}

static uint64_t seed_from_system(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) {
        seed = sl_clock_now_ns(sl_clock_system());
    }
    return seed;
}

int sl_reactor_create(const struct sl_reactor_options *options, struct sl_reactor **out)
{
    if (!options_valid(options)) {
        return SL_ERR_INVALID;
    }
    struct sl_reactor *reactor = calloc(1, sizeof *reactor);
    if (reactor == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    int err = sl_mailbox_create(&reactor->mailbox);
    if (err != 0) {
        free(reactor);
        return err;
    }
    reactor->options = *options;
    reactor->clock = options->clock != NULL ? options->clock : sl_clock_system();
    reactor->now_ns = sl_clock_now_ns(reactor->clock);
    reactor->random_state = options->seed != 0 ? options->seed : seed_from_system();
    sl_spin_init(&reactor->spin, options->spin_us * SL_CLOCK_NS_PER_US);
    sl_timer_wheel_init(&reactor->timers, reactor->now_ns);
    sem_init(&reactor->start_done, 0, 0);
    *out = reactor;
    return 0;
}

void sl_reactor_destroy(struct sl_reactor **reactor)
{
    if (*reactor == NULL) {
        return;
    }
    sl_assert(!(*reactor)->thread_started);
    sl_outbound_close(&(*reactor)->outbound);
    sl_mailbox_destroy(&(*reactor)->mailbox);
    sem_destroy(&(*reactor)->start_done);
    free(*reactor);
    *reactor = NULL;
}

static int connect_one(struct sl_reactor *from, struct sl_reactor *const *reactors, uint32_t count)
{
    int err = sl_outbound_open(&from->outbound, count);
    for (uint32_t to = 0; to < count && err == 0; to++) {
        err = sl_outbound_open_way(&from->outbound, to, reactors[to]->mailbox);
    }
    return err;
}

int sl_reactor_connect(struct sl_reactor *const *reactors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        sl_assert(reactors[i]->options.index == i);
        int err = connect_one(reactors[i], reactors, count);
        if (err != 0) {
            for (uint32_t opened = 0; opened <= i; opened++) {
                sl_outbound_close(&reactors[opened]->outbound);
            }
            return err;
        }
    }
    return 0;
}

/* ---- Sources --------------------------------------------------------------------------------- */

void sl_reactor_add_source(struct sl_reactor *reactor, struct sl_reactor_source *source)
{
    sl_reactor_assert_owner(reactor);
    sl_assert(source->name != NULL);
    sl_assert(source->poll != NULL);
    struct sl_reactor_source **end = &reactor->sources;
    while (*end != NULL) {
        sl_assert(*end != source);
        end = &(*end)->next;
    }
    source->next = NULL;
    *end = source;
}

void sl_reactor_remove_source(struct sl_reactor *reactor, struct sl_reactor_source *source)
{
    sl_reactor_assert_owner(reactor);
    struct sl_reactor_source **link = &reactor->sources;
    while (*link != source) {
        sl_assert(*link != NULL);
        link = &(*link)->next;
    }
    *link = source->next;
    if (reactor->next_source == source) {
        reactor->next_source = source->next;
    }
    source->next = NULL;
}

/* The walk over the sources: each may remove itself or others while it is visited. */
static struct sl_reactor_source *source_visit(struct sl_reactor *reactor,
                                              struct sl_reactor_source *source)
{
    reactor->next_source = source != NULL ? source->next : NULL;
    return source;
}

/* ---- Mail to others -------------------------------------------------------------------------- */

void sl_reactor_post(struct sl_reactor *from, uint32_t to_index, struct sl_mail mail)
{
    sl_reactor_assert_owner(from);
    sl_outbound_post(&from->outbound, to_index, mail);
}

/* ---- A turn ---------------------------------------------------------------------------------- */

/* A phase ends: counts what it did, and has it timed where there is a clock that moves. */
static uint32_t phase(struct sl_reactor *reactor, const char *name, uint32_t did,
                      _Atomic uint64_t *counter)
{
    if (did == 0) {
        return 0;
    }
    count(counter, did);
    if (!reactor->options.stepped) {
        sl_stall_mark(&reactor->stall, name);
    }
    return did;
}

static uint32_t sources_poll(struct sl_reactor *reactor)
{
    uint32_t did = 0;
    struct sl_reactor_source *source = reactor->sources;
    while (source_visit(reactor, source) != NULL) {
        const char *name = source->name; /* the source may be gone afterwards */
        uint32_t events = source->poll(source, SL_LIMIT_TURN_EVENTS);
        did += phase(reactor, name, events, &reactor->counters.events);
        source = reactor->next_source;
    }
    return did;
}

static void sources_flush(struct sl_reactor *reactor)
{
    struct sl_reactor_source *source = reactor->sources;
    while (source_visit(reactor, source) != NULL) {
        if (source->flush != NULL) {
            source->flush(source);
        }
        source = reactor->next_source;
    }
}

static uint32_t ring_reap(struct sl_reactor *reactor)
{
    return reactor->ring_ready ? sl_ring_reap(&reactor->ring, SL_LIMIT_TURN_EVENTS) : 0;
}

static uint32_t work(struct sl_reactor *reactor)
{
    struct counters *counters = &reactor->counters;
    uint32_t did = 0;
    did += phase(reactor, "mail", sl_mailbox_drain(reactor->mailbox, SL_LIMIT_TURN_EVENTS),
                 &counters->mails);
    did += phase(reactor, "timers", sl_timer_run(&reactor->timers, reactor->now_ns),
                 &counters->timers);
    did += phase(reactor, "ring", ring_reap(reactor), &counters->events);
    did += sources_poll(reactor);
    return did;
}

uint32_t sl_reactor_turn(struct sl_reactor *reactor, uint64_t now_ns)
{
    sl_reactor_assert_owner(reactor);
    sl_assert(!reactor->in_turn);
    sl_assert(now_ns >= reactor->now_ns);
    if (reactor->options.stepped) {
        own(reactor, owner_token());
    }
    reactor->in_turn = true;
    reactor->now_ns = now_ns;
    if (reactor->outbound.spilled_count > 0) {
        sl_outbound_retry(&reactor->outbound);
    }

    uint32_t did = work(reactor);
    sources_flush(reactor);
    if (did > 0 && !reactor->options.stepped) {
        sl_stall_mark(&reactor->stall, "flush");
    }
    if (reactor->ring_ready) {
        sl_ring_submit(&reactor->ring);
    }

    count(&reactor->counters.turns, 1);
    count(&reactor->counters.idle_turns, did == 0);
    reactor->in_turn = false;
    return did;
}

static bool sources_armed(struct sl_reactor *reactor)
{
    struct sl_reactor_source *source = reactor->sources;
    while (source_visit(reactor, source) != NULL) {
        if (source->arm != NULL && !source->arm(source)) {
            return false;
        }
        source = reactor->next_source;
    }
    return true;
}

uint64_t sl_reactor_next_ns(const struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    if (reactor->outbound.spilled_count > 0 || sl_mailbox_pending(reactor->mailbox)) {
        return reactor->now_ns;
    }
    for (struct sl_reactor_source *source = reactor->sources; source != NULL;
         source = source->next) {
        if (source->arm != NULL && !source->arm(source)) {
            return reactor->now_ns;
        }
    }
    return sl_timer_next_ns(&reactor->timers);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void mailbox_readable(struct sl_ring_watch *watch)
{
    struct sl_reactor *reactor =
        (struct sl_reactor *)((char *)watch - offsetof(struct sl_reactor, mailbox_watch));
    sl_mailbox_disarm(reactor->mailbox);
}

/* Until when the loop may sleep, as a duration from now_ns. */
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

/* Sleeps unless something turns out to be waiting; returns the time afterwards. */
static uint64_t loop_sleep(struct sl_reactor *reactor, uint64_t now_ns)
{
    if (!sources_armed(reactor)) {
        return now_ns;
    }
    uint64_t left_ns = sleep_ns_max(reactor, now_ns);
    if (left_ns == 0 || !sl_mailbox_arm(reactor->mailbox)) {
        return now_ns;
    }
    /* A stop before this is seen here, a later one finds the eventfd watched. */
    if (!atomic_load(&reactor->stopping)) {
        count(&reactor->counters.sleeps, 1);
        sl_ring_wait(&reactor->ring, left_ns);
    }
    sl_mailbox_disarm(reactor->mailbox);
    now_ns = sl_clock_now_ns(reactor->clock);
    sl_stall_slept(&reactor->stall, now_ns);
    return now_ns;
}

static void loop_time_turn(struct sl_reactor *reactor, uint64_t now_ns, bool did_work)
{
    struct counters *counters = &reactor->counters;
    uint64_t took_ns = now_ns - reactor->now_ns;
    if (took_ns > counted(&counters->turn_ns_max)) {
        atomic_store_explicit(&counters->turn_ns_max, took_ns, memory_order_relaxed);
    }
    const char *name;
    switch (sl_stall_end(&reactor->stall, now_ns, did_work ? "submit" : "unreported work", &name)) {
    case SL_STALL_NONE:
        break;
    case SL_STALL_PREEMPTED:
        count(&counters->preempted, 1);
        break;
    case SL_STALL_STALLED:
        count(&counters->stalls, 1);
        atomic_store_explicit(&counters->stall_phase, name, memory_order_relaxed);
        break;
    }
}

static void loop(struct sl_reactor *reactor)
{
    /* One reading of the clock ends a turn and begins the next. */
    uint64_t now_ns = sl_clock_now_ns(reactor->clock);
    sl_stall_init(&reactor->stall, reactor->clock, reactor->options.name, now_ns);
    while (!atomic_load_explicit(&reactor->stopping, memory_order_acquire)) {
        sl_stall_begin(&reactor->stall, now_ns);
        uint32_t did = sl_reactor_turn(reactor, now_ns);
        now_ns = sl_clock_now_ns(reactor->clock);
        loop_time_turn(reactor, now_ns, did > 0);
        if (did > 0) {
            sl_spin_busy(&reactor->spin, reactor->now_ns);
        } else if (!reactor->options.polling && !sl_spin_idle(&reactor->spin, now_ns)) {
            now_ns = loop_sleep(reactor, now_ns);
        }
    }
}

/* ---- The thread ------------------------------------------------------------------------------ */

static int thread_begin(struct sl_reactor *reactor)
{
    const struct sl_reactor_options *options = &reactor->options;
    pthread_setname_np(pthread_self(), options->name);
    int err = options->core >= 0 ? sl_topology_pin_thread(options->core) : 0;
    if (err != 0) {
        sl_log_error("reactor %s cannot be pinned to core %d: is it outside the process's affinity "
                     "mask?",
                     options->name, options->core);
        return err;
    }
    uint32_t entries = options->ring_entries > 0 ? options->ring_entries : RING_ENTRIES_DEFAULT;
    err = sl_ring_init(&reactor->ring, entries);
    if (err != 0) {
        return err;
    }
    reactor->ring_ready = true;
    sl_ring_watch(&reactor->ring, &reactor->mailbox_watch, sl_mailbox_fd(reactor->mailbox),
                  mailbox_readable);
    return reactor->on_start != NULL ? reactor->on_start(reactor->on_start_ctx) : 0;
}

static void *thread_main(void *arg)
{
    struct sl_reactor *reactor = arg;
    own(reactor, owner_token());
    int err = thread_begin(reactor);
    reactor->start_result = err;
    sem_post(&reactor->start_done);
    if (err == 0) {
        loop(reactor);
        if (reactor->on_stop != NULL) {
            reactor->on_stop(reactor->on_stop_ctx);
        }
    }
    if (reactor->ring_ready) {
        sl_ring_fini(&reactor->ring);
        reactor->ring_ready = false;
    }
    return NULL;
}

/* The new thread inherits a mask that blocks everything: signals are for the main thread. */
static int thread_create(struct sl_reactor *reactor)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&reactor->thread, NULL, thread_main, reactor);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err == 0 ? 0 : SL_ERR_NO_MEMORY;
}

int sl_reactor_start(struct sl_reactor *reactor, int (*on_start)(void *ctx), void *ctx)
{
    sl_assert(!reactor->options.stepped);
    sl_assert(!reactor->thread_started);
    reactor->on_start = on_start;
    reactor->on_start_ctx = ctx;
    int err = thread_create(reactor);
    if (err != 0) {
        return err;
    }
    reactor->thread_started = true;
    while (sem_wait(&reactor->start_done) != 0) {
        /* A signal came; go on waiting. */
    }
    err = reactor->start_result;
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
    if (!reactor->thread_started) {
        return;
    }
    pthread_join(reactor->thread, NULL);
    reactor->thread_started = false;
    own(reactor, NULL);
}

void sl_reactor_on_stop(struct sl_reactor *reactor, void (*on_stop)(void *ctx), void *ctx)
{
    sl_reactor_assert_owner(reactor);
    reactor->on_stop = on_stop;
    reactor->on_stop_ctx = ctx;
}
