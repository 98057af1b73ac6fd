#include "reactor/reactor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/hash.h"
#include "core/limits.h"
#include "reactor/reactor_internal.h"

/* Ownership, counters, accessors */

_Thread_local char sl_reactor_thread;
static _Thread_local struct sl_reactor *running;

void sl_reactor_own(struct sl_reactor *reactor)
{
    atomic_store_explicit(&reactor->head.owner, &sl_reactor_thread, memory_order_release);
}

void sl_reactor_disown(struct sl_reactor *reactor)
{
    atomic_store_explicit(&reactor->head.owner, NULL, memory_order_release);
}

void sl_reactor_get_stats(const struct sl_reactor *reactor, struct sl_reactor_stats *out)
{
    const struct sl_reactor_cells *cells = reactor->cells;
    *out = (struct sl_reactor_stats){
        .turns = sl_cell_get(&cells->turns),
        .idle_turns = sl_cell_get(&cells->idle_turns),
        .sleeps = sl_cell_get(&cells->sleeps),
        .mails = sl_cell_get(&cells->mails),
        .timers = sl_cell_get(&cells->timers),
        .events = sl_cell_get(&cells->events),
        .stalls = sl_cell_get(&cells->stalls),
        .preempted = sl_cell_get(&cells->preempted),
        .turn_ns_max = sl_cell_get(&cells->turn_ns_max),
        .stall_phase = atomic_load_explicit(&reactor->stall_phase, memory_order_relaxed),
    };
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

void sl_reactor_arm(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns)
{
    const uint64_t now_ns = reactor->head.now_ns;
    sl_timer_arm(sl_reactor_timers(reactor), timer,
                 after_ns < SL_CLOCK_NEVER - now_ns ? now_ns + after_ns : SL_CLOCK_NEVER);
}

void sl_reactor_disarm(struct sl_reactor *reactor, struct sl_timer *timer)
{
    sl_timer_disarm(sl_reactor_timers(reactor), timer);
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

/* Creation */

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
    reactor->head.now_ns = reactor->last_turn.began_ns = sl_clock_now_ns(reactor->clock);
    reactor->cells = options->cells != NULL ? options->cells : &reactor->own_cells;
    reactor->random_state = options->seed != 0 ? options->seed : seed_from_system();
    sl_spin_init(&reactor->spin, options->spin_us * SL_CLOCK_NS_PER_US);
    sl_timer_wheel_init(&reactor->timers, reactor->head.now_ns);
    sem_init(&reactor->thread.start_done, 0, 0);
    *out = reactor;
    return 0;
}

void sl_reactor_destroy(struct sl_reactor **reactor)
{
    if (*reactor == NULL) {
        return;
    }
    sl_assert((*reactor)->thread.kind == SL_REACTOR_THREAD_NONE);
    sl_outbound_mail_close(&(*reactor)->outbound);
    sl_mailbox_destroy(&(*reactor)->mailbox);
    sem_destroy(&(*reactor)->thread.start_done);
    free(*reactor);
    *reactor = NULL;
}

static int connect_one(struct sl_reactor *from, struct sl_reactor *const *reactors, uint32_t count)
{
    int err = sl_outbound_mail_open(&from->outbound, count);
    for (uint32_t to = 0; to < count && err == 0; to++) {
        err = sl_outbound_mail_open_lane(&from->outbound, to, reactors[to]->mailbox);
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
                sl_outbound_mail_close(&reactors[opened]->outbound);
            }
            return err;
        }
    }
    return 0;
}

/* Sources */

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

/* Advances the walk over the sources; a visited source may remove any source. */
static struct sl_reactor_source *source_visit(struct sl_reactor *reactor,
                                              struct sl_reactor_source *source)
{
    reactor->next_source = source != NULL ? source->next : NULL;
    return source;
}

/* Mail to other reactors */

void sl_reactor_post(struct sl_reactor *from, uint32_t to_index, struct sl_mail mail)
{
    sl_reactor_assert_owner(from);
    sl_outbound_mail_post(&from->outbound, to_index, mail);
}

uint32_t sl_reactor_group_count(const struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return reactor->outbound.peer_count;
}

/* A turn */

/* Ends a phase: counts its work, and marks its time unless the clock is simulated. */
static uint32_t phase(struct sl_reactor *reactor, const char *name, uint32_t did,
                      struct sl_cell *counter)
{
    if (did == 0) {
        return 0;
    }
    sl_cell_add(counter, did);
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
        const char *name = source->name; /* poll may free the source */
        uint32_t events = source->poll(source, SL_LIMIT_TURN_EVENTS);
        did += phase(reactor, name, events, &reactor->cells->events);
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

static uint32_t work(struct sl_reactor *reactor, bool with_timers)
{
    struct sl_reactor_cells *cells = reactor->cells;
    uint32_t did = 0;
    did += phase(reactor, "mail", sl_mailbox_drain(reactor->mailbox, SL_LIMIT_TURN_EVENTS),
                 &cells->mails);
    if (with_timers) {
        did += phase(reactor, "timers", sl_timer_run(&reactor->timers, reactor->head.now_ns),
                     &cells->timers);
    }
    did += phase(reactor, "ring", ring_reap(reactor), &cells->events);
    did += sources_poll(reactor);
    return did;
}

/* A separate phase, since the kernel sends in it. */
static void ring_submit(struct sl_reactor *reactor, uint32_t did)
{
    if (did > 0) {
        sl_stall_mark(&reactor->stall, "flush");
        reactor->last_phase = "submit";
    }
    sl_ring_submit(&reactor->ring);
}

static uint32_t turn(struct sl_reactor *reactor, uint64_t now_ns, bool with_timers)
{
    sl_reactor_assert_owner(reactor);
    sl_assert(!reactor->in_turn);
    sl_assert(now_ns >= reactor->head.now_ns);
    if (reactor->options.stepped) {
        sl_reactor_own(reactor);
    }
    struct sl_reactor *outer = running; /* a turn may step another, stepped reactor */
    running = reactor;
    reactor->in_turn = true;
    reactor->head.now_ns = reactor->last_turn.began_ns = now_ns;
    if (reactor->outbound.spilled_count > 0) {
        sl_outbound_mail_retry(&reactor->outbound);
    }

    uint32_t did = work(reactor, with_timers);
    sources_flush(reactor);
    reactor->last_phase = did > 0 ? "flush" : "unreported work";
    reactor->last_turn.has_submitted = reactor->ring_ready && sl_ring_has_to_submit(&reactor->ring);
    if (reactor->last_turn.has_submitted) {
        ring_submit(reactor, did);
    }

    sl_cell_add(&reactor->cells->turns, 1);
    sl_cell_add(&reactor->cells->idle_turns, did == 0);
    reactor->in_turn = false;
    running = outer;
    return did;
}

struct sl_reactor *sl_reactor_running(void)
{
    return running;
}

uint32_t sl_reactor_turn(struct sl_reactor *reactor, uint64_t now_ns)
{
    return turn(reactor, now_ns, true);
}

uint32_t sl_reactor_turn_untimed(struct sl_reactor *reactor, uint64_t now_ns)
{
    return turn(reactor, now_ns, false);
}

bool sl_reactor_arm_sources(struct sl_reactor *reactor)
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
        return reactor->head.now_ns;
    }
    for (struct sl_reactor_source *source = reactor->sources; source != NULL;
         source = source->next) {
        if (source->arm != NULL && !source->arm(source)) {
            return reactor->head.now_ns;
        }
    }
    return sl_timer_next_ns(&reactor->timers);
}

void sl_reactor_on_stop(struct sl_reactor *reactor, void (*on_stop)(void *ctx), void *ctx)
{
    sl_reactor_assert_owner(reactor);
    reactor->thread.on_stop = on_stop;
    reactor->thread.on_stop_ctx = ctx;
}
