#include "reactor/port.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/fork.h"
#include "core/list.h"
#include "core/reason.h"

#define DRAIN_BUDGET   256

/* After this time without driving, a driving thread catches up on events. */
#define UNDRIVEN_NS    (100 * SL_CLOCK_NS_PER_US)
#define CATCH_UP_TURNS 64

struct sl_port_set {
    pthread_mutex_t lock;
    pthread_key_t key; /* the thread's port */
    struct sl_reactor *const *reactors;
    uint32_t reactor_count;
    struct sl_reactor *driven;
    size_t port_bytes;
    uint32_t fork_count;
    struct sl_port *ports; /* all of them */
};

bool sl_port_set_is_forked(const struct sl_port_set *set)
{
    return set->fork_count != sl_fork_count_again();
}

int sl_port_set_check(const struct sl_port_set *set)
{
    return sl_port_set_is_forked(set)
               ? sl_reason_report(SL_ERR_FORKED,
                                  "the client belongs to the process that this one was forked "
                                  "from: create another in this process")
               : 0;
}

/* Thread exit: the port can be reused. */
static void reactor_port_detach(void *value)
{
    struct sl_port *port = value;
    struct sl_port_set *set = port->set;
    if (sl_port_set_is_forked(set)) {
        return;
    }
    pthread_mutex_lock(&set->lock);
    port->attached = false;
    pthread_mutex_unlock(&set->lock);
}

int sl_port_set_create(struct sl_reactor *const *reactors, uint32_t reactor_count,
                       struct sl_reactor *driven, size_t port_bytes, struct sl_port_set **out)
{
    sl_assert(port_bytes >= sizeof(struct sl_port));
    struct sl_port_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    set->reactors = reactors;
    set->reactor_count = reactor_count;
    set->driven = driven;
    set->port_bytes = port_bytes;
    set->fork_count = sl_fork_count();
    if (pthread_key_create(&set->key, reactor_port_detach) != 0) {
        free(set);
        return SL_ERR_NO_MEMORY;
    }
    pthread_mutex_init(&set->lock, NULL);
    *out = set;
    return 0;
}

void sl_port_set_lock(struct sl_port_set *set)
{
    pthread_mutex_lock(&set->lock);
}

void sl_port_set_unlock(struct sl_port_set *set)
{
    pthread_mutex_unlock(&set->lock);
}

static void port_destroy(struct sl_port *port)
{
    for (uint32_t i = 0; i < port->set->reactor_count; i++) {
        if (port->lanes[i].to != NULL) {
            sl_mailbox_lane_close(&port->lanes[i].to);
        }
        if (port->lanes[i].from != NULL) {
            sl_mailbox_lane_close(&port->lanes[i].from);
        }
    }
    if (port->has_mailbox) {
        sl_mailbox_destroy(&port->mailbox);
    }
    free(port);
}

void sl_port_set_destroy(struct sl_port_set **set, void (*port_fini)(struct sl_port *port))
{
    struct sl_port_set *gone = *set;
    *set = NULL;
    pthread_key_delete(gone->key);
    while (gone->ports != NULL) {
        struct sl_port *port = gone->ports;
        gone->ports = port->next;
        if (port_fini != NULL) {
            port_fini(port);
        }
        port_destroy(port);
    }
    pthread_mutex_destroy(&gone->lock);
    free(gone);
}

static int port_create(struct sl_port_set *set, struct sl_port **out)
{
    struct sl_port *port = calloc(1, set->port_bytes + set->reactor_count * sizeof *port->lanes);
    if (port == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    port->set = set;
    port->lanes = (struct sl_port_lanes *)(void *)((uint8_t *)port + set->port_bytes);
    port->driven = set->driven;
    port->mailbox = port->driven != NULL ? sl_reactor_mailbox(port->driven) : NULL;
    int err = port->mailbox == NULL ? sl_mailbox_create(&port->mailbox) : 0;
    port->has_mailbox = port->driven == NULL && err == 0;
    for (uint32_t i = 0; err == 0 && i < set->reactor_count; i++) {
        err = sl_mailbox_lane_open(sl_reactor_mailbox(set->reactors[i]), &port->lanes[i].to);
        err = err != 0 ? err : sl_mailbox_lane_open(port->mailbox, &port->lanes[i].from);
    }
    if (err != 0) {
        port_destroy(port);
        return err;
    }
    *out = port;
    return 0;
}

/* Returns a detached port or a new one. Under the lock. */
static int attach(struct sl_port_set *set, struct sl_port **out)
{
    for (struct sl_port *port = set->ports; port != NULL; port = port->next) {
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

int sl_port_here(struct sl_port_set *set, struct sl_port **out)
{
    int err = sl_port_set_check(set);
    if (err != 0) {
        return err;
    }
    struct sl_port *port = pthread_getspecific(set->key);
    if (port != NULL) {
        *out = port;
        return 0;
    }
    if (set->driven != NULL && !sl_reactor_is_owner(set->driven)) {
        return sl_reason_report(SL_ERR_INVALID,
                                "manual_progress: another thread than the client's calls it");
    }
    pthread_mutex_lock(&set->lock);
    err = attach(set, &port);
    if (err == 0 && pthread_setspecific(set->key, port) != 0) {
        err = SL_ERR_NO_MEMORY;
    }
    if (err == 0) {
        port->attached = true;
        *out = port;
    }
    pthread_mutex_unlock(&set->lock);
    return err == 0 ? 0 : sl_reason_report(err, "client: no memory for another thread");
}

void sl_port_post(struct sl_port *port, uint32_t index, struct sl_mail mail)
{
    int err = sl_mailbox_post(port->lanes[index].to, mail);
    sl_assert(err == 0);
}

bool sl_port_enter(struct sl_port *port, uint32_t index, uint64_t now_ns)
{
    return port->driven != NULL && port->set->reactors[index] == port->driven &&
           sl_reactor_enter(port->driven, now_ns);
}

uint64_t sl_port_now_ns(const struct sl_port *port, const struct sl_clock *clock)
{
    return port->driven != NULL ? sl_reactor_driven_ns(port->driven) : sl_clock_now_ns(clock);
}

void sl_port_drain(struct sl_port *port)
{
    if (port->driven != NULL) {
        sl_reactor_drive_once(port->driven);
        return;
    }
    while (sl_mailbox_drain(port->mailbox, DRAIN_BUDGET) == DRAIN_BUDGET) {
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

static void wait_for_mail(struct sl_port *port, uint64_t timeout_ns)
{
    if (sl_mailbox_drain(port->mailbox, DRAIN_BUDGET) == 0) {
        sl_mailbox_wait(port->mailbox, timeout_ns < SL_PORT_WAIT_NS ? timeout_ns : SL_PORT_WAIT_NS);
        sl_port_drain(port);
    }
}

/* The wait of a driving thread. */
struct driven_wait {
    struct sl_timer timer;
    bool is_over;
    bool (*done)(void *ctx);
    void *ctx;
};

static void time_is_over(struct sl_timer *timer, uint64_t now_ns)
{
    SL_CONTAINER_OF(timer, struct driven_wait, timer)->is_over = true;
}

static bool is_done_or_over(void *ctx)
{
    const struct driven_wait *wait = ctx;
    return wait->done(wait->ctx) || wait->is_over;
}

static bool drive_until(struct sl_reactor *reactor, uint64_t timeout_ns, bool (*done)(void *ctx),
                        void *ctx)
{
    if (timeout_ns == SL_CLOCK_NEVER) {
        sl_reactor_drive_until(reactor, done, ctx);
        return true;
    }
    struct driven_wait wait = {.timer = {.run = time_is_over}, .done = done, .ctx = ctx};
    sl_timer_arm(sl_reactor_timers(reactor), &wait.timer,
                 sl_clock_now_ns(sl_reactor_clock(reactor)) + timeout_ns);
    sl_reactor_drive_until(reactor, is_done_or_over, &wait);
    sl_reactor_disarm(reactor, &wait.timer);
    return done(ctx);
}

void sl_port_wait(struct sl_port *port)
{
    if (port->driven != NULL) {
        bool asked = false;
        sl_reactor_drive_until(port->driven, is_second_call, &asked);
    } else {
        wait_for_mail(port, SL_PORT_WAIT_NS);
    }
}

bool sl_port_wait_until(struct sl_port *port, uint64_t timeout_ns, bool (*done)(void *ctx),
                        void *ctx)
{
    if (port->driven != NULL) {
        return drive_until(port->driven, timeout_ns, done, ctx);
    }
    sl_port_drain(port);
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t until_ns =
        timeout_ns == SL_CLOCK_NEVER ? SL_CLOCK_NEVER : sl_clock_now_ns(clock) + timeout_ns;
    while (!done(ctx)) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (now_ns >= until_ns) {
            return false;
        }
        wait_for_mail(port, until_ns - now_ns);
    }
    return true;
}

void sl_port_catch_up(struct sl_port *port, uint64_t now_ns)
{
    if (port->driven == NULL || now_ns < sl_reactor_driven_ns(port->driven) + UNDRIVEN_NS) {
        return;
    }
    for (uint32_t turn = 0; turn < CATCH_UP_TURNS && sl_reactor_drive_once(port->driven) > 0;
         turn++) {
    }
}

void sl_port_kick(struct sl_port *port)
{
    if (port->driven != NULL) {
        sl_reactor_drive_once(port->driven);
    }
}
