/* A reactor is one thread with one event loop. Each turn delivers mail, runs due timers, polls the
 * sources and flushes them. After an idle turn the loop spins briefly, then sleeps in the ring
 * (never in polling mode).
 *
 * A reactor is driven in one of three ways: by its own thread (start, stop, join); by a caller's
 * thread when that has time (attach, drive, detach); or by sl_reactor_turn with a simulated clock
 * (stepped: no ring). Only the owner thread touches a reactor's state; entry points assert this. */
#ifndef SL_REACTOR_REACTOR_H
#define SL_REACTOR_REACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/assert.h"
#include "core/clock.h"
#include "reactor/mailbox.h"
#include "reactor/timer.h"

struct sl_reactor;
struct sl_reactor_cells;
struct sl_ring;

/* Fields read for every message, at the start of each reactor, so that inline functions can read
 * them. Written by reactor.c only. */
struct sl_reactor_head {
    _Atomic(const void *) owner; /* the owner's &sl_reactor_thread; NULL: no owner */
    uint64_t now_ns;
};

/* Its address identifies a living thread. */
extern _Thread_local char sl_reactor_thread __attribute__((tls_model("initial-exec")));

struct sl_reactor_options {
    char name[16];  /* such as "ps0.3"; in logs, and as thread name */
    uint32_t index; /* in its group */
    int core;       /* logical core to pin to (topology.h); -1: not pinned */
    bool polling;   /* never sleep */
    bool stepped;   /* driven by sl_reactor_turn, without thread and ring */
    /* Event mode: the longest spin of an idle loop before it sleeps, in us; 0: never spins. The
     * loop stops spinning while recent idle times were too long for it. */
    uint32_t spin_us;
    uint32_t ring_entries;          /* 0: 1024 */
    const struct sl_clock *clock;   /* NULL: the system clock; must outlive the reactor */
    uint64_t seed;                  /* of sl_reactor_random; 0: taken from the system */
    struct sl_reactor_cells *cells; /* zeroed, outlive the reactor; NULL: a block of its own */
    /* Stepped: the delay in ns of an offload job (offload.h), asked once per job when it is first
     * in the queue; NULL: runs in the next turn. */
    uint64_t (*offload_ns)(void *ctx);
    void *offload_ctx;
};

/* An object that each turn polls: a transport, a server's queue of work. Storage of its owner. */
struct sl_reactor_source {
    const char *name; /* in stall logs; static storage */
    /* Handles up to `budget` events; returns the number handled. */
    uint32_t (*poll)(struct sl_reactor_source *source, uint32_t budget);
    /* Called once a turn, after all sources were polled: sends the turn's output. May be NULL. */
    void (*flush)(struct sl_reactor_source *source);
    /* Called before sleeping: arranges a wake-up by the ring, a timer or the mailbox. False: there
     * is work, do not sleep. NULL: the source never keeps the reactor awake. */
    bool (*arm)(struct sl_reactor_source *source);
    struct sl_reactor_source *next;
};

/* Creates a reactor, owned by the caller. Errors: INVALID, NO_MEMORY, UNSUPPORTED. Any thread. */
int sl_reactor_create(const struct sl_reactor_options *options, struct sl_reactor **out);

/* The reactor must be stopped or never started. Nulls *reactor. */
void sl_reactor_destroy(struct sl_reactor **reactor);

/* Opens a lane for every ordered pair and from each reactor to itself, for sl_reactor_post;
 * reactors[i] has index i. Once, before start. Errors: NO_MEMORY, TOO_LARGE. */
int sl_reactor_connect(struct sl_reactor *const *reactors, uint32_t count);

/* Starts the thread, pins it, creates the ring, runs `on_start(ctx)` there and returns its result.
 * On error the thread has ended without on_stop. on_start may be NULL. Once: a stopped reactor does
 * not start again. The thread blocks all signals. Errors: on_start's, INVALID (no such core),
 * UNSUPPORTED (no io_uring), NO_MEMORY, IO. Any thread. */
int sl_reactor_start(struct sl_reactor *reactor, int (*on_start)(void *ctx), void *ctx);

/* Ends the loop after the current turn; later mail is not delivered. Any thread, also a signal
 * handler. */
void sl_reactor_stop(struct sl_reactor *reactor);

/* Waits for the thread, which runs the callback of sl_reactor_on_stop. Afterwards any thread may
 * free the reactor's objects. No effect if the thread was never started or is already joined. */
void sl_reactor_join(struct sl_reactor *reactor);

/* Sets a callback that runs on the reactor's thread after the last turn, while the ring still
 * exists. Owner, or before start. */
void sl_reactor_on_stop(struct sl_reactor *reactor, void (*on_stop)(void *ctx), void *ctx);

/* Instead of start: makes the calling thread the owner until it detaches, and creates the ring.
 * Neither pins nor renames the thread. Errors: UNSUPPORTED (no io_uring), NO_MEMORY, IO. Any
 * thread. */
int sl_reactor_attach(struct sl_reactor *reactor);

/* Ends the ownership of the attached thread, if any. Owner. */
void sl_reactor_detach(struct sl_reactor *reactor);

/* For an attached reactor. drive_once runs one turn without sleeping and returns the work done.
 * drive_until runs turns, with spinning and sleeping, until done(ctx), checked before each turn.
 * The reactor runs only inside these calls. After a long pause, both take in pending events before
 * any timer runs. Not in a turn. Owner. */
uint32_t sl_reactor_drive_once(struct sl_reactor *reactor);
void sl_reactor_drive_until(struct sl_reactor *reactor, bool (*done)(void *ctx), void *ctx);

/* Between these calls the driving thread may do the work of a mail itself, without the mail.
 * Returns whether it may: not in a turn, and not before mail that waits. Then now_ns is the
 * reactor's time. Owner. */
bool sl_reactor_enter(struct sl_reactor *reactor, uint64_t now_ns);

/* The time when the last drive ended its work, or began a turn without any. Owner. */
uint64_t sl_reactor_driven_ns(const struct sl_reactor *reactor);

/* Runs one turn at the given time; returns the work done, 0 if idle. Owner; callers outside
 * reactor/ only for a stepped reactor, whose first caller becomes the owner. */
uint32_t sl_reactor_turn(struct sl_reactor *reactor, uint64_t now_ns);

/* The earliest time at which an idle stepped reactor has work: now_ns if there is mail or a source
 * refuses to be armed. Owner. */
uint64_t sl_reactor_next_ns(const struct sl_reactor *reactor);

/* Adds or removes a source; sources are polled in the order of adding. Allowed in a turn, also by
 * the source itself; a source added in a turn is polled in this turn or the next. Owner, before
 * start, or after join. */
void sl_reactor_add_source(struct sl_reactor *reactor, struct sl_reactor_source *source);
void sl_reactor_remove_source(struct sl_reactor *reactor, struct sl_reactor_source *source);

/* Excludes the current turn from stall detection, for a setup that takes long (maps buffers, opens
 * a transport). Not on the data path. Owner. */
void sl_reactor_excuse_turn(struct sl_reactor *reactor);

/* For a fresh reading. Any thread. */
const struct sl_clock *sl_reactor_clock(const struct sl_reactor *reactor);

/* The next number of the seeded generator. Owner. */
uint64_t sl_reactor_random(struct sl_reactor *reactor);

/* Owner. */
struct sl_timer_wheel *sl_reactor_timers(struct sl_reactor *reactor);

/* Arms or rearms the timer to run after_ns from now; SL_CLOCK_NEVER: never. Owner. */
void sl_reactor_arm(struct sl_reactor *reactor, struct sl_timer *timer, uint64_t after_ns);

/* Disarms the timer if it is armed. Owner. */
void sl_reactor_disarm(struct sl_reactor *reactor, struct sl_timer *timer);

/* NULL if stepped or before start. Owner. */
struct sl_ring *sl_reactor_ring(struct sl_reactor *reactor);

/* For opening a lane from a thread that is no reactor. Any thread. */
struct sl_mailbox *sl_reactor_mailbox(struct sl_reactor *reactor);

/* Posts to a reactor of the connected group. If the lane is full, the sender lists the mail and
 * posts it in a later turn, in order. Never loses mail, never blocks. Owner of `from`. */
void sl_reactor_post(struct sl_reactor *from, uint32_t to_index, struct sl_mail mail);

/* The reactor whose turn runs on the calling thread, so that mail can be answered by mail; NULL:
 * none. Any thread. */
struct sl_reactor *sl_reactor_running(void);

/* Number of connected reactors, including this one; 0: not connected. Owner. */
uint32_t sl_reactor_group_count(const struct sl_reactor *reactor);

uint32_t sl_reactor_index(const struct sl_reactor *reactor);
const char *sl_reactor_name(const struct sl_reactor *reactor);

/* True on the owner's thread, and on any thread before start and after join. */
static inline bool sl_reactor_is_owner(const struct sl_reactor *reactor)
{
    const struct sl_reactor_head *head = (const struct sl_reactor_head *)reactor;
    const void *owner = atomic_load_explicit(&head->owner, memory_order_acquire);
    return owner == &sl_reactor_thread || owner == NULL;
}
#define sl_reactor_assert_owner(reactor) sl_assert(sl_reactor_is_owner(reactor))

/* The time of the turn, read once per turn: cheap. Owner. */
static inline uint64_t sl_reactor_now_ns(const struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return ((const struct sl_reactor_head *)reactor)->now_ns;
}

/* Counters since creation. While the reactor runs, each is correct, but they are not a consistent
 * snapshot. */
struct sl_reactor_stats {
    uint64_t turns, idle_turns, sleeps, mails, timers, events;
    /* Turns longer than SL_LIMIT_TURN_STALL_NS in which the thread computed that long or blocked in
     * a system call: a source that takes too much at once. */
    uint64_t stalls;
    /* Equally long turns in which the thread did neither: it waited for a processor, because there
     * are more threads than cores. A turn with both causes is a stall only if its own part is long
     * enough. */
    uint64_t preempted;
    /* Wall-clock time of the longest turn, stall or preempted. Polling: includes up to 7 idle turns
     * before it. */
    uint64_t turn_ns_max;
    /* The longest phase of the last stall: a source's name, "mail", "timers", "ring", "flush",
     * "submit", or "unreported work" if every phase reported none. NULL: no stall yet. Static
     * storage. */
    const char *stall_phase;
};

/* Any thread. A stepped reactor has no stalls: its clock does not move within a turn. */
void sl_reactor_get_stats(const struct sl_reactor *reactor, struct sl_reactor_stats *out);

#endif
