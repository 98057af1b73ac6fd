/* A port connects one application thread to reactors: a mailbox for their answers, and a lane to
 * each of them. It is created at the thread's first call, reused by another thread after the
 * thread's end, and freed with its set. Only attaching and detaching take the set's lock. A set
 * with a driven reactor has one port, whose thread drives that reactor itself.
 *
 * The user bounds the mail in flight between a port and a reactor, so that no lane is ever full: at
 * most SL_LIMIT_LANE_MAILS each way. */
#ifndef SL_REACTOR_PORT_H
#define SL_REACTOR_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/err.h"
#include "reactor/mailbox.h"
#include "reactor/reactor.h"

/* Longest sleep of a waiting thread. Bounds the delay after a lost wake-up; every wait ends with a
 * mail. */
#define SL_PORT_WAIT_NS SL_CLOCK_NS_PER_S

/* The ports of all threads to the same reactors, and one lock. */
struct sl_port_set;

/* The user may put it first in a struct of its own (port_bytes), for data of the thread. */
struct sl_port {
    struct sl_port_set *set;
    struct sl_port *next;
    bool attached; /* under the set's lock */

    /* The attached thread's. */
    struct sl_reactor *driven;  /* or NULL */
    struct sl_mailbox *mailbox; /* its own, or that of the driven reactor */
    bool has_mailbox;           /* its own */
    struct sl_port_lanes {
        struct sl_mailbox_lane *to, *from; /* to the reactor's mailbox; to this port's */
    } * lanes;                             /* one per reactor */
};

/* Creates a set. `reactors` must outlive it. `driven`: one of them, attached to the calling thread,
 * or NULL. With `driven`, only that thread can have a port: answers go to that reactor's mailbox,
 * and drains and waits drive it. port_bytes: size of the user's struct, which begins with a struct
 * sl_port; the rest starts as zeros. Errors: NO_MEMORY (also: no thread-specific key left). */
int sl_port_set_create(struct sl_reactor *const *reactors, uint32_t reactor_count,
                       struct sl_reactor *driven, size_t port_bytes, struct sl_port_set **out);

/* The reactors must have stopped or no longer use these ports. Calls port_fini, which may be NULL,
 * for each port before it is freed. Sets *set to NULL. */
void sl_port_set_destroy(struct sl_port_set **set, void (*port_fini)(struct sl_port *port));

/* Returns whether this process was forked from the one that created the set. Any thread. */
bool sl_port_set_is_forked(const struct sl_port_set *set);

/* Reports FORKED in such a process; else returns 0. Any thread. */
int sl_port_set_check(const struct sl_port_set *set);

/* The set's lock, for other data that the threads share. Not on the data path. Any thread. */
void sl_port_set_lock(struct sl_port_set *set);
void sl_port_set_unlock(struct sl_port_set *set);

/* Returns the calling thread's port. Errors: NO_MEMORY, TOO_LARGE (too many threads), INVALID
 * (another thread drives), FORKED. */
int sl_port_here(struct sl_port_set *set, struct sl_port **out);

/* The functions below: the port's thread. */

/* Posts to reactor `index`; asserts that the lane is not full, see above. */
void sl_port_post(struct sl_port *port, uint32_t index, struct sl_mail mail);

/* Returns whether the port's thread may do the work of a mail to reactor `index` itself, at now_ns,
 * in place of the post: it drives that reactor (sl_reactor_enter). */
bool sl_port_enter(struct sl_port *port, uint32_t index, uint64_t now_ns);

/* The time; if the thread drives a reactor, as of the last drive: sl_reactor_driven_ns. */
uint64_t sl_port_now_ns(const struct sl_port *port, const struct sl_clock *clock);

/* Runs available mail. */
void sl_port_drain(struct sl_port *port);

/* Runs mail; sleeps until there is some; may return early. */
void sl_port_wait(struct sl_port *port);

/* The same until done(ctx), which mail makes true, for at most timeout_ns; may be SL_CLOCK_NEVER.
 * Returns the last done(ctx). done must not use a port. */
bool sl_port_wait_until(struct sl_port *port, uint64_t timeout_ns, bool (*done)(void *ctx),
                        void *ctx);

/* For a driving thread only; no effect otherwise. catch_up, before posting: processes events since
 * the thread last drove, such as a closed connection. kick, after posting: sends at once, not with
 * the next drain or wait. */
void sl_port_catch_up(struct sl_port *port, uint64_t now_ns);
void sl_port_kick(struct sl_port *port);

#endif
