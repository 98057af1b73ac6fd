/* One application thread's attachment to a client: a mailbox for what the reactors answer, and a
 * lane into each of them. Made at the thread's first call, kept for it, and given to another thread
 * when it has ended; freed with the client. The set's lock is taken when a thread comes or goes,
 * and nowhere else. (A set with a driven reactor has one port, whose thread runs that reactor's
 * turns itself.)
 *
 * What a port has under way is bounded, so that no lane is ever full: a step posts one mail to each
 * reactor and gets at most two back, a call one and one. */
#ifndef SL_WORKER_THREAD_CTX_H
#define SL_WORKER_THREAD_CTX_H

#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "reactor/mailbox.h"
#include "reactor/reactor.h"

struct sl_control_op;
struct sl_step;

/* Steps of one port that were submitted and have not come back whole. */
#define SL_THREAD_CTX_STEPS_MAX 256

/* All ports of a client, and the one lock that its threads share. */
struct sl_thread_ctx_set;

struct sl_thread_ctx {
    struct sl_thread_ctx_set *set;
    struct sl_thread_ctx *next;
    bool attached; /* under the set's lock */

    /* The attached thread's. */
    struct sl_reactor *driven;  /* or NULL */
    struct sl_mailbox *mailbox; /* its own, or the driven reactor's */
    struct sl_step *steps;      /* all that were ever made here */
    struct sl_step *free_steps; /* those that can be used */
    uint32_t steps_out;         /* submitted and not returned */
    struct {
        struct sl_mailbox_lane *to, *from; /* the reactor's mailbox; the port's */
    } lanes[];
};

/* `reactors` must outlive the set. `driven`, one of them or NULL, is attached to the calling
 * thread, which alone may have a port then: its answers come to that reactor's mailbox, and
 * whenever it drains or waits it drives the reactor. Errors: NO_MEMORY (also: no thread-specific
 * key left). */
int sl_thread_ctx_set_create(struct sl_reactor *const *reactors, uint32_t reactor_count,
                             struct sl_reactor *driven, struct sl_thread_ctx_set **out);

/* Reactors have stopped, or will not touch what is of this client any more. `step_free` frees one
 * step; it is called for all. Nulls *set. */
void sl_thread_ctx_set_destroy(struct sl_thread_ctx_set **set,
                               void (*step_free)(struct sl_step *step));

/* Returns run(ctx), under the set's lock: for what a client's threads share besides. Not on the
 * data path. Any thread. */
int sl_thread_ctx_set_locked(struct sl_thread_ctx_set *set, int (*run)(void *ctx), void *ctx);

/* The calling thread's port. Errors: NO_MEMORY, TOO_LARGE (too many threads), INVALID (another
 * thread drives). */
int sl_thread_ctx_here(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out);

/* Posts to reactor `index`; cannot fail, see above. */
void sl_thread_ctx_post(struct sl_thread_ctx *thread_ctx, uint32_t index, struct sl_mail mail);

/* Runs the mail that is there. */
void sl_thread_ctx_drain(struct sl_thread_ctx *thread_ctx);

/* Runs mail, and sleeps until there is some when there is none; may also return early. */
void sl_thread_ctx_wait(struct sl_thread_ctx *thread_ctx);

/* The same until done(ctx), which what mail runs makes true, and which uses no port itself. */
void sl_thread_ctx_wait_until(struct sl_thread_ctx *thread_ctx, bool (*done)(void *ctx), void *ctx);

/* For a thread that drives, around what it posts. The first: it may not have driven for long, and
 * takes in what happened meanwhile, such as the end of a connection. The second: what it has posted
 * leaves now, not with the next drain or wait. Others have nothing to do. */
void sl_thread_ctx_catch_up(struct sl_thread_ctx *thread_ctx, uint64_t now_ns);
void sl_thread_ctx_kick(struct sl_thread_ctx *thread_ctx);

/* Posts a call to the reactor of its hub. */
void sl_thread_ctx_call(struct sl_thread_ctx *thread_ctx, struct sl_control_op *op);

#endif
