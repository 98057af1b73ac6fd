#include "worker/thread_ctx.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/assert.h"
#include "worker/client_io.h"
#include "worker/control_op.h"
#include "worker/step_internal.h"

#define DRAIN_BUDGET   256

/* A driving thread that was elsewhere for so long may have missed something. */
#define AWAY_NS        (100 * SL_CLOCK_NS_PER_US)
#define CATCH_UP_TURNS 64

/* Only a bound for a lost wake-up's damage; every wait ends by a mail. */
#define WAIT_NS        SL_CLOCK_NS_PER_S

static_assert(2 * SL_THREAD_CTX_STEPS_MAX + 64 <= SL_LIMIT_LANE_MAILS, "a lane is never full");

struct sl_thread_ctx_set {
    pthread_mutex_t lock;
    pthread_key_t key; /* the thread's port */
    struct sl_reactor *const *reactors;
    uint32_t reactor_count;
    struct sl_reactor *driven;
    struct sl_thread_ctx *ports; /* all of them */
};

/* The thread has ended: its port waits for another. */
static void detach(void *value)
{
    struct sl_thread_ctx *port = value;
    struct sl_thread_ctx_set *set = port->set;
    pthread_mutex_lock(&set->lock);
    port->attached = false;
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

int sl_thread_ctx_set_locked(struct sl_thread_ctx_set *set, int (*run)(void *ctx), void *ctx)
{
    pthread_mutex_lock(&set->lock);
    int result = run(ctx);
    pthread_mutex_unlock(&set->lock);
    return result;
}

static void port_destroy(struct sl_thread_ctx *port)
{
    for (uint32_t i = 0; i < port->set->reactor_count; i++) {
        if (port->lanes[i].to != NULL) {
            sl_mailbox_lane_close(&port->lanes[i].to);
        }
        if (port->lanes[i].from != NULL) {
            sl_mailbox_lane_close(&port->lanes[i].from);
        }
    }
    if (port->mailbox != NULL && port->driven == NULL) {
        sl_mailbox_destroy(&port->mailbox);
    }
    free(port);
}

void sl_thread_ctx_set_destroy(struct sl_thread_ctx_set **set,
                               void (*step_free)(struct sl_step *step))
{
    struct sl_thread_ctx_set *gone = *set;
    *set = NULL;
    pthread_key_delete(gone->key);
    while (gone->ports != NULL) {
        struct sl_thread_ctx *port = gone->ports;
        gone->ports = port->next;
        while (port->steps != NULL) {
            struct sl_step *step = port->steps;
            port->steps = step->next_of_port;
            step_free(step);
        }
        port_destroy(port);
    }
    pthread_mutex_destroy(&gone->lock);
    free(gone);
}

static int port_create(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    struct sl_thread_ctx *port = calloc(1, sizeof *port + set->reactor_count * sizeof *port->lanes);
    if (port == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    port->set = set;
    port->driven = set->driven;
    int err = 0;
    if (port->driven != NULL) {
        port->mailbox = sl_reactor_mailbox(port->driven);
    } else {
        err = sl_mailbox_create(&port->mailbox);
    }
    for (uint32_t i = 0; err == 0 && i < set->reactor_count; i++) {
        err = sl_mailbox_lane_open(sl_reactor_mailbox(set->reactors[i]), &port->lanes[i].to);
        if (err == 0) {
            err = sl_mailbox_lane_open(port->mailbox, &port->lanes[i].from);
        }
    }
    if (err != 0) {
        port_destroy(port);
        return err;
    }
    *out = port;
    return 0;
}

/* One that an ended thread has left, or a new one. Under the lock. */
static int attach(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    for (struct sl_thread_ctx *port = set->ports; port != NULL; port = port->next) {
        if (!port->attached) {
            *out = port;
            return 0;
        }
    }
    int err = port_create(set, out);
    if (err == 0) {
        (*out)->next = set->ports;
        set->ports = *out;
    }
    return err;
}

int sl_thread_ctx_here(struct sl_thread_ctx_set *set, struct sl_thread_ctx **out)
{
    struct sl_thread_ctx *port = pthread_getspecific(set->key);
    if (port != NULL) {
        *out = port;
        return 0;
    }
    if (set->driven != NULL && !sl_reactor_is_owner(set->driven)) {
        return SL_ERR_INVALID;
    }
    pthread_mutex_lock(&set->lock);
    int err = attach(set, &port);
    if (err == 0 && pthread_setspecific(set->key, port) != 0) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err == 0) {
        port->attached = true;
        *out = port;
    }
    pthread_mutex_unlock(&set->lock);
    return err;
}

void sl_thread_ctx_post(struct sl_thread_ctx *port, uint32_t index, struct sl_mail mail)
{
    int err = sl_mailbox_post(port->lanes[index].to, mail);
    sl_assert(err == 0);
}

void sl_thread_ctx_drain(struct sl_thread_ctx *port)
{
    if (port->driven != NULL) {
        sl_reactor_drive_once(port->driven);
        return;
    }
    while (sl_mailbox_drain(port->mailbox, DRAIN_BUDGET) == DRAIN_BUDGET) {
    }
}

/* Says that it is done when it is asked again: after one turn, and what rest comes behind it. */
static bool was_asked(void *ctx)
{
    bool *asked = ctx;
    bool before = *asked;
    *asked = true;
    return before;
}

void sl_thread_ctx_wait(struct sl_thread_ctx *port)
{
    if (port->driven != NULL) {
        bool asked = false;
        sl_reactor_drive_until(port->driven, was_asked, &asked);
    } else if (sl_mailbox_drain(port->mailbox, DRAIN_BUDGET) == 0) {
        sl_mailbox_wait(port->mailbox, WAIT_NS);
        sl_thread_ctx_drain(port);
    }
}

void sl_thread_ctx_wait_until(struct sl_thread_ctx *port, bool (*done)(void *ctx), void *ctx)
{
    if (port->driven != NULL) {
        sl_reactor_drive_until(port->driven, done, ctx);
        return;
    }
    sl_thread_ctx_drain(port);
    while (!done(ctx)) {
        sl_thread_ctx_wait(port);
    }
}

void sl_thread_ctx_catch_up(struct sl_thread_ctx *port, uint64_t now_ns)
{
    if (port->driven == NULL || now_ns < sl_reactor_now_ns(port->driven) + AWAY_NS) {
        return;
    }
    for (uint32_t turn = 0; turn < CATCH_UP_TURNS && sl_reactor_drive_once(port->driven) > 0;
         turn++) {
    }
}

void sl_thread_ctx_kick(struct sl_thread_ctx *port)
{
    if (port->driven != NULL) {
        sl_reactor_drive_once(port->driven);
    }
}

void sl_thread_ctx_call(struct sl_thread_ctx *port, struct sl_control_op *call)
{
    call->answers = port->lanes[call->hub->index].from;
    sl_thread_ctx_post(port, call->hub->index,
                       (struct sl_mail){.run = sl_control_op_deliver, .ctx = call});
}
