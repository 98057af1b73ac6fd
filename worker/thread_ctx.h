/* A thread context connects one application thread to a client: a mailbox for answers of the
 * reactors, and a lane to each of them. It is created at the thread's first call, reused by another
 * thread after the thread's end, and freed with the client. Only attaching and detaching take the
 * set's lock. With manual progress the set has one context, whose thread drives the reactor itself.
 *
 * The work of a context is bounded so that no lane is ever full: a step posts one mail to each
 * reactor and receives at most two; a control operation, one and one. */
#ifndef SL_WORKER_THREAD_CTX_H
#define SL_WORKER_THREAD_CTX_H

#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"
#include "reactor/mailbox.h"
#include "reactor/reactor.h"

/* Longest sleep of a waiting thread. Bounds the delay after a lost wake-up; every wait ends with a
 * mail. */
#define SL_THREAD_CTX_WAIT_NS SL_CLOCK_NS_PER_S

struct sl_control_op;
struct sl_step;

/* Limit of steps of one thread context that are submitted and not returned. */
#define SL_THREAD_CTX_STEPS_MAX 256

/* All thread contexts of a client, and the client's one lock. */
struct sl_thread_ctx_set;

struct sl_thread_ctx {
    struct sl_thread_ctx_set *set;
    struct sl_thread_ctx *next;
    bool attached; /* under the set's lock */

    /* The attached thread's. */
    struct sl_reactor *driven;  /* manual progress; or NULL */
    struct sl_mailbox *mailbox; /* its own, or the driven reactor's */
    struct sl_step *steps;      /* all steps created here */
    struct sl_step *free_steps; /* reusable */
    uint32_t steps_out;         /* submitted and not returned */
    struct {
        struct sl_mailbox_lane *to, *from; /* to the reactor's mailbox; to this context's */
    } lanes[];
};

/* Creates a set. `reactors` must outlive it. `driven`: one of them, attached to the calling thread,
 * or NULL. With `driven`, only that thread can have a context: answers go to that reactor's
 * mailbox, and drains and waits drive it. Errors: NO_MEMORY (also: no thread-specific key left). */
int sl_thread_ctx_set_create(struct sl_reactor *const *reactors, uint32_t reactor_count,
                             struct sl_reactor *driven, struct sl_thread_ctx_set **out);

/* The reactors must have stopped or no longer use this client. Calls step_free for each step. Sets
 * *set to NULL. */
void sl_thread_ctx_set_destroy(struct sl_thread_ctx_set **set,
                               void (*step_free)(struct sl_step *step));

/* The set's lock, for other data that threads of a client share. Not on the data path. Any
 * thread. */
void sl_thread_ctx_set_lock(struct sl_thread_ctx_set *set);
void sl_thread_ctx_set_unlock(struct sl_thread_ctx_set *set);

/* Returns the calling thread's context. Errors: NO_MEMORY, TOO_LARGE (too many threads), INVALID
 * (another thread drives). */
int sl_thread_ctx_here(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out);

/* Posts to reactor `index`; cannot fail, see above. */
void sl_thread_ctx_post(struct sl_thread_ctx *thread_ctx, uint32_t index, struct sl_mail mail);

/* Runs available mail. */
void sl_thread_ctx_drain(struct sl_thread_ctx *thread_ctx);

/* Runs mail; sleeps until there is some; may return early. */
void sl_thread_ctx_wait(struct sl_thread_ctx *thread_ctx);

/* The same until done(ctx), which mail makes true. done must not use a thread context. */
void sl_thread_ctx_wait_until(struct sl_thread_ctx *thread_ctx, bool (*done)(void *ctx), void *ctx);

/* For a driving thread only; no effect otherwise. catch_up, before posting: processes events since
 * the thread last drove, such as a closed connection. kick, after posting: sends at once, not with
 * the next drain or wait. */
void sl_thread_ctx_catch_up(struct sl_thread_ctx *thread_ctx, uint64_t now_ns);
void sl_thread_ctx_kick(struct sl_thread_ctx *thread_ctx);

/* Posts an operation to its client_io's reactor; run waits until it is done. */
void sl_thread_ctx_call(struct sl_thread_ctx *thread_ctx, struct sl_control_op *op);
void sl_thread_ctx_run(struct sl_thread_ctx *thread_ctx, struct sl_control_op *op);

#endif
