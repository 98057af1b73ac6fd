/* A reactor: one thread, one loop. Each turn delivers the mail, runs the timers that are due, polls
 * the sources, runs the sources' flush, and, when a turn found nothing to do, sleeps in the ring
 * after a short spin (or never, in polling mode).
 *
 * A reactor is driven by its own thread (start/stop/join); or by a thread of the caller's, whenever
 * that has nothing better to do (attach/drive/detach); or, in a simulation, stepped by
 * sl_reactor_turn from the caller's thread with the caller's clock: then it has no ring. Everything
 * that a reactor owns is touched by its thread only, and entry points assert it. */
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
struct sl_ring;

/* What is asked for with every message, at the beginning of each reactor, so that to ask is no
 * call. Written by reactor.c only. */
struct sl_reactor_head {
    _Atomic(const void *) owner; /* the owner's &sl_reactor_thread; NULL: nobody's */
    uint64_t now_ns;
};

/* Its address is one that no other living thread has. */
extern _Thread_local char sl_reactor_thread __attribute__((tls_model("initial-exec")));

struct sl_reactor_options {
    char name[16];                /* "ps0.3": in logs, and the thread's name */
    uint32_t index;               /* among the reactors of its group */
    int core;                     /* logical core to pin to (topology.h), or -1: not pinned */
    bool polling;                 /* never sleep */
    bool stepped;                 /* no thread and no ring: driven by sl_reactor_turn */
    uint32_t spin_us;             /* event mode: how long an idle loop spins before it sleeps, at
                                   * most; 0: it does not. Spinning stops while idle times have of
                                   * late been too long for it to pay. */
    uint32_t ring_entries;        /* 0: 1024 */
    const struct sl_clock *clock; /* NULL: the system's; must outlive the reactor */
    uint64_t seed;                /* of sl_reactor_random; 0: from the system */
    /* Stepped: how long a job of an aside (aside.h) waits before it runs, asked once for each when
     * its turn has come; NULL: until the next turn. */
    uint64_t (*offload_ns)(void *ctx);
    void *offload_ctx;
};

/* What a turn polls: a transport, a server's queue of sliced work. Lives in its owner's object. */
struct sl_reactor_source {
    const char *name; /* in the stall detector's lines; static storage */
    /* Does up to `budget` events' worth of work; returns how much it did. */
    uint32_t (*poll)(struct sl_reactor_source *source, uint32_t budget);
    /* Once a turn, after all sources were polled: sends what the turn produced. May be NULL. */
    void (*flush)(struct sl_reactor_source *source);
    /* Before sleeping: arranges a wake-up through the ring, a timer or the mailbox. False: there is
     * work, do not sleep. NULL: the source never keeps the reactor awake. */
    bool (*arm)(struct sl_reactor_source *source);
    struct sl_reactor_source *next;
};

/* Created on any thread; *out is owned by the caller. Errors: INVALID, NO_MEMORY, UNSUPPORTED. */
int sl_reactor_create(const struct sl_reactor_options *options, struct sl_reactor **out);

/* Stopped, or never started. Nulls *reactor. */
void sl_reactor_destroy(struct sl_reactor **reactor);

/* Opens a lane for every ordered pair (and from each to itself), so that sl_reactor_post works
 * among them; reactors[i] has index i. Once, before start. Errors: NO_MEMORY, TOO_LARGE. */
int sl_reactor_connect(struct sl_reactor *const *reactors, uint32_t count);

/* Starts the thread, pins it, makes the ring, runs `on_start(ctx)` on it, and returns its result;
 * if that is an error the thread has ended and on_stop has not run. on_start may be NULL. Once: a
 * reactor that was stopped does not start again. The thread takes no signals. Errors: on_start's,
 * INVALID (no such core), UNSUPPORTED (no io_uring), NO_MEMORY, IO. Any thread. */
int sl_reactor_start(struct sl_reactor *reactor, int (*on_start)(void *ctx), void *ctx);

/* The loop ends after the turn in progress; mail that comes later is not delivered. Any thread,
 * also from a signal handler. */
void sl_reactor_stop(struct sl_reactor *reactor);

/* Waits for the thread to end; `on_stop(ctx)` set by sl_reactor_on_stop has run on it. What the
 * reactor owned belongs to nobody afterwards: any thread may then free it. Does nothing when the
 * thread was never started, or was joined before. */
void sl_reactor_join(struct sl_reactor *reactor);

/* Runs on the reactor's thread after the last turn, while the ring still exists. Owner, or before
 * start. */
void sl_reactor_on_stop(struct sl_reactor *reactor, void (*on_stop)(void *ctx), void *ctx);

/* Instead of start: the calling thread owns the reactor until it detaches, and makes the ring. It
 * is neither pinned nor renamed. Errors: UNSUPPORTED (no io_uring), NO_MEMORY, IO. Any thread. */
int sl_reactor_attach(struct sl_reactor *reactor);

/* What the reactor owned belongs to nobody afterwards; does nothing when no thread is attached.
 * Owner. */
void sl_reactor_detach(struct sl_reactor *reactor);

/* Attached: one turn now, without sleeping (returns the work done); or turns as a thread's loop has
 * them, spinning and sleeping included, until done(ctx), which is asked before each. Between two
 * calls nothing of the reactor runs; after a long while, both first take in what has come, before
 * any timer runs. Not in a turn. Owner. */
uint32_t sl_reactor_drive_once(struct sl_reactor *reactor);
void sl_reactor_drive_until(struct sl_reactor *reactor, bool (*done)(void *ctx), void *ctx);

/* One turn at the given time; returns the work done, 0 when idle. Owner; from outside only for a
 * stepped reactor (the first caller becomes the owner). */
uint32_t sl_reactor_turn(struct sl_reactor *reactor, uint64_t now_ns);

/* The earliest time at which a stepped reactor that is idle has something to do: now_ns when there
 * is mail or a source refuses to be armed. Owner. */
uint64_t sl_reactor_next_ns(const struct sl_reactor *reactor);

/* Adds a source, polled in the order of adding, until removed. Both may be called in a turn, also
 * by the source itself; one added in a turn may be polled in that turn or not until the next.
 * Owner, before start, or after join. */
void sl_reactor_add_source(struct sl_reactor *reactor, struct sl_reactor_source *source);
void sl_reactor_remove_source(struct sl_reactor *reactor, struct sl_reactor_source *source);

/* The turn in progress sets something up (maps buffers, opens a transport) and may take long: it is
 * no stall. Not on the data path. Owner. */
void sl_reactor_excuse_turn(struct sl_reactor *reactor);

/* A fresh reading, for what needs it. Any thread. */
const struct sl_clock *sl_reactor_clock(const struct sl_reactor *reactor);

/* The next number of the reactor's seeded generator. Owner. */
uint64_t sl_reactor_random(struct sl_reactor *reactor);

/* Owner. */
struct sl_timer_wheel *sl_reactor_timers(struct sl_reactor *reactor);

/* NULL in a stepped reactor, and before start. Owner. */
struct sl_ring *sl_reactor_ring(struct sl_reactor *reactor);

/* To open a lane into it from a thread that is no reactor. Any thread. */
struct sl_mailbox *sl_reactor_mailbox(struct sl_reactor *reactor);

/* Posts to another reactor of the connected group. A full lane is spilled to a list of the sender's
 * and posted in a later turn, in order: never lost, never blocking. Owner of `from`. */
void sl_reactor_post(struct sl_reactor *from, uint32_t to_index, struct sl_mail mail);

/* The reactor whose turn the calling thread is in, so that what came as mail can be answered by
 * mail; NULL: none. Any thread. */
struct sl_reactor *sl_reactor_running(void);

/* How many reactors are connected, itself included; 0: none are. Owner. */
uint32_t sl_reactor_group_count(const struct sl_reactor *reactor);

uint32_t sl_reactor_index(const struct sl_reactor *reactor);
const char *sl_reactor_name(const struct sl_reactor *reactor);

/* True on the reactor's thread; on any thread before it starts and after it was joined. */
static inline bool sl_reactor_is_owner(const struct sl_reactor *reactor)
{
    const struct sl_reactor_head *head = (const struct sl_reactor_head *)reactor;
    const void *owner = atomic_load_explicit(&head->owner, memory_order_acquire);
    return owner == &sl_reactor_thread || owner == NULL;
}
#define sl_reactor_assert_owner(reactor) sl_assert(sl_reactor_is_owner(reactor))

/* The turn's time, read once per turn: cheap. Owner. */
static inline uint64_t sl_reactor_now_ns(const struct sl_reactor *reactor)
{
    sl_reactor_assert_owner(reactor);
    return ((const struct sl_reactor_head *)reactor)->now_ns;
}

/* Counters since creation. Read while the reactor runs, each is right, but they are not of one
 * moment. */
struct sl_reactor_stats {
    uint64_t turns, idle_turns, sleeps, mails, timers, events;
    /* Turns longer than SL_LIMIT_TURN_STALL_NS by the clock in which the thread computed for as
     * long, or blocked in a system call: a source that takes too much at a time. */
    uint64_t stalls;
    /* Turns as long as that in which the thread did neither, so it was waiting for a processor:
     * more threads than cores. A long turn that was both counts as preempted unless its own part
     * alone makes it a stall. */
    uint64_t preempted;
    uint64_t turn_ns_max;    /* the longest turn by the clock, of either kind; polling: with the
                              * up to 7 before it that found nothing */
    const char *stall_phase; /* what took longest in the last stall: a source's name, or "mail",
                              * "timers", "ring", "flush", "submit", or "unreported work" when all
                              * said that they did nothing; NULL: none so far. Static storage. */
};

/* Any thread. A stepped reactor has no stalls: its clock does not move within a turn. */
void sl_reactor_get_stats(const struct sl_reactor *reactor, struct sl_reactor_stats *out);

#endif
