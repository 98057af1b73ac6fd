#include "worker/thread_ctx.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/assert.h"
#include "worker/client_io.h"
#include "worker/control_op.h"
#include "worker/step_internal.h"

#define DRAIN_BUDGET   256

/* After this time without driving, a driving thread catches up on events. */
#define UNDRIVEN_NS    (100 * SL_CLOCK_NS_PER_US)
#define CATCH_UP_TURNS 64

static_assert(2 * SL_THREAD_CTX_STEPS_MAX + 64 <= SL_LIMIT_LANE_MAILS, "a lane is never full");

struct sl_thread_ctx_set {
    pthread_mutex_t lock;
    pthread_key_t key; /* the thread's context */
    struct sl_reactor *const *reactors;
    uint32_t reactor_count;
    struct sl_reactor *driven;
    struct sl_thread_ctx *thread_ctxs; /* all of them */
};

/* Thread exit: the context can be reused. */
static void detach(void *value)
{
    struct sl_thread_ctx *thread_ctx = value;
    struct sl_thread_ctx_set *set = thread_ctx->set;
    pthread_mutex_lock(&set->lock);
    thread_ctx->attached = false;
    pthread_mutex_unlock(&set->lock);
}

int sl_thread_ctx_set_create(struct sl_reactor *const *reactors, uint32_t reactor_count,
                             struct sl_reactor *driven, struct sl_thread_ctx_set **out)
{
    struct sl_thread_ctx_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    set->reactors = reactors;
    set->reactor_count = reactor_count;
    set->driven = driven;
    if (pthread_key_create(&set->key, detach) != 0) {
        free(set);
        return SL_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&set->lock, NULL);
    *out = set;
    return 0;
}

void sl_thread_ctx_set_lock(struct sl_thread_ctx_set *set)
{
    pthread_mutex_lock(&set->lock);
}

void sl_thread_ctx_set_unlock(struct sl_thread_ctx_set *set)
{
    pthread_mutex_unlock(&set->lock);
}

static void thread_ctx_destroy(struct sl_thread_ctx *thread_ctx)
{
    for (uint32_t i = 0; i < thread_ctx->set->reactor_count; i++) {
        if (thread_ctx->lanes[i].to != NULL) {
            sl_mailbox_lane_close(&thread_ctx->lanes[i].to);
        }
        if (thread_ctx->lanes[i].from != NULL) {
            sl_mailbox_lane_close(&thread_ctx->lanes[i].from);
        }
    }
    if (thread_ctx->mailbox != NULL && thread_ctx->driven == NULL) {
        sl_mailbox_destroy(&thread_ctx->mailbox);
    }
    free(thread_ctx);
}

void sl_thread_ctx_set_destroy(struct sl_thread_ctx_set **set,
                               void (*step_free)(struct sl_step *step))
{
    struct sl_thread_ctx_set *gone = *set;
    *set = NULL;
    pthread_key_delete(gone->key);
    while (gone->thread_ctxs != NULL) {
        struct sl_thread_ctx *thread_ctx = gone->thread_ctxs;
        gone->thread_ctxs = thread_ctx->next;
        while (thread_ctx->steps != NULL) {
            struct sl_step *step = thread_ctx->steps;
            thread_ctx->steps = step->next_of_thread_ctx;
            step_free(step);
        }
        thread_ctx_destroy(thread_ctx);
    }
    pthread_mutex_destroy(&gone->lock);
    free(gone);
}

static int thread_ctx_create(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    struct sl_thread_ctx *thread_ctx =
        calloc(1, sizeof *thread_ctx + set->reactor_count * sizeof *thread_ctx->lanes);
    if (thread_ctx == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    thread_ctx->set = set;
    thread_ctx->driven = set->driven;
    int err = 0;
    if (thread_ctx->driven != NULL) {
        thread_ctx->mailbox = sl_reactor_mailbox(thread_ctx->driven);
    } else {
        err = sl_mailbox_create(&thread_ctx->mailbox);
    }
    for (uint32_t i = 0; err == 0 && i < set->reactor_count; i++) {
        err = sl_mailbox_lane_open(sl_reactor_mailbox(set->reactors[i]), &thread_ctx->lanes[i].to);
        if (err == 0) {
            err = sl_mailbox_lane_open(thread_ctx->mailbox, &thread_ctx->lanes[i].from);
        }
    }
    if (err != 0) {
        thread_ctx_destroy(thread_ctx);
        return err;
    }
    *out = thread_ctx;
    return 0;
}

/* Returns a detached context or a new one. Under the lock. */
static int attach(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    for (struct sl_thread_ctx *thread_ctx = set->thread_ctxs; thread_ctx != NULL;
         thread_ctx = thread_ctx->next) {
        if (!thread_ctx->attached) {
            *out = thread_ctx;
            return 0;
        }
    }
    int err = thread_ctx_create(set, out);
    if (err == 0) {
        (*out)->next = set->thread_ctxs;
        set->thread_ctxs = *out;
    }
    return err;
}

int sl_thread_ctx_here(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    struct sl_thread_ctx *thread_ctx = pthread_getspecific(set->key);
    if (thread_ctx != NULL) {
        *out = thread_ctx;
        return 0;
    }
    if (set->driven != NULL && !sl_reactor_is_owner(set->driven)) {
        return SL_ERR_INVALID;
    }
    pthread_mutex_lock(&set->lock);
    int err = attach(set, &thread_ctx);
    if (err == 0 && pthread_setspecific(set->key, thread_ctx) != 0) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err == 0) {
        thread_ctx->attached = true;
        *out = thread_ctx;
    }
    pthread_mutex_unlock(&set->lock);
    return err;
}

void sl_thread_ctx_post(struct sl_thread_ctx *thread_ctx, uint32_t index, struct sl_mail mail)
{
    int err = sl_mailbox_post(thread_ctx->lanes[index].to, mail);
    sl_assert(err == 0);
}

void sl_thread_ctx_drain(struct sl_thread_ctx *thread_ctx)
{
    if (thread_ctx->driven != NULL) {
        sl_reactor_drive_once(thread_ctx->driven);
        return;
    }
    while (sl_mailbox_drain(thread_ctx->mailbox, DRAIN_BUDGET) == DRAIN_BUDGET) {
    }
}

/* Returns true from the second call on: a wait runs one turn, then sleeps if idle. */
static bool is_second_call(void *ctx)
{
    bool *asked = ctx;
    bool before = *asked;
    *asked = true;
    return before;
}

void sl_thread_ctx_wait(struct sl_thread_ctx *thread_ctx)
{
    if (thread_ctx->driven != NULL) {
        bool asked = false;
        sl_reactor_drive_until(thread_ctx->driven, is_second_call, &asked);
    } else if (sl_mailbox_drain(thread_ctx->mailbox, DRAIN_BUDGET) == 0) {
        sl_mailbox_wait(thread_ctx->mailbox, SL_THREAD_CTX_WAIT_NS);
        sl_thread_ctx_drain(thread_ctx);
    }
}

void sl_thread_ctx_wait_until(struct sl_thread_ctx *thread_ctx, bool (*done)(void *ctx), void *ctx)
{
    if (thread_ctx->driven != NULL) {
        sl_reactor_drive_until(thread_ctx->driven, done, ctx);
        return;
    }
    sl_thread_ctx_drain(thread_ctx);
    while (!done(ctx)) {
        sl_thread_ctx_wait(thread_ctx);
    }
}

void sl_thread_ctx_catch_up(struct sl_thread_ctx *thread_ctx, uint64_t now_ns)
{
    if (thread_ctx->driven == NULL ||
        now_ns < sl_reactor_now_ns(thread_ctx->driven) + UNDRIVEN_NS) {
        return;
    }
    for (uint32_t turn = 0; turn < CATCH_UP_TURNS && sl_reactor_drive_once(thread_ctx->driven) > 0;
         turn++) {
    }
}

void sl_thread_ctx_kick(struct sl_thread_ctx *thread_ctx)
{
    if (thread_ctx->driven != NULL) {
        sl_reactor_drive_once(thread_ctx->driven);
    }
}

void sl_thread_ctx_call(struct sl_thread_ctx *thread_ctx, struct sl_control_op *op)
{
    op->answers = thread_ctx->lanes[op->io->index].from;
    sl_thread_ctx_post(thread_ctx, op->io->index,
                       (struct sl_mail){.run = sl_control_op_deliver, .ctx = op});
}

void sl_thread_ctx_run(struct sl_thread_ctx *thread_ctx, struct sl_control_op *op)
{
    sl_thread_ctx_call(thread_ctx, op);
    while (!op->done) {
        sl_thread_ctx_wait(thread_ctx);
    }
}
