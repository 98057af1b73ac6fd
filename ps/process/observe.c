#include "ps/process/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/notify.h"
#include "ps/process/cluster.h"
#include "ps/process/leadership.h"
#include "ps/process/routes.h"

#define EXTEND_US 10000000U /* more time to start, for ten reports of health */

static uint64_t process_observe_now(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* ---- facts ---- */

/* Reactor 0. */
static void explain(const struct sl_process *process, char *why, size_t bytes)
{
    why[0] = '\0';
    if (process->options.kind == SL_PROCESS_SCHEDULER) {
        return;
    }
    if (process->agent == NULL) {
        (void)snprintf(why, bytes, "looks for checkpoints");
    } else if (!sl_agent_explain(process->agent, why, bytes) && !process->is_open) {
        (void)snprintf(why, bytes, "restoring checkpoint %" PRIu64,
                       sl_agent_restore(process->agent));
    }
}

/* Reactor 0. */
static void process_observe_visit(void *ctx)
{
    struct sl_process_observe *observe = ctx;
    const struct sl_process *process = observe->process;
    struct sl_process_facts *facts = &observe->visited;
    memcpy(facts->name, process->name, sizeof facts->name);
    facts->task_index = process->member.task_index;
    facts->hosts_coordinator = process->coordinator != NULL;
    facts->is_store_away = sl_process_leadership_store_is_away(process);
    (void)snprintf(facts->coordinator_http, sizeof facts->coordinator_http, "%s",
                   process->agent != NULL ? sl_agent_coordinator_http(process->agent) : "");
    explain(process, facts->why, sizeof facts->why);
}

/* On the observer's thread. */
static void process_observe_answered(void *ctx)
{
    struct sl_process_observe *observe = ctx;
    observe->facts = observe->visited;
}

/* Notifies the service manager that all reactors answer, and, before the process is ready, that it
 * needs more time: to restore, or for other servers. */
static void feed_watchdog(const struct sl_process_observe *observe, uint64_t now_ns)
{
    if (observe->process->options.embedding != NULL) {
        return;
    }
    for (uint32_t i = 0; i < observe->process->options.reactors.count; i++) {
        const struct sl_ping *ping = &observe->pings[i];
        if (ping->is_pending && now_ns >= ping->sent_ns + 2 * SL_PING_HANGING_NS) {
            return;
        }
    }
    (void)(observe->is_ready
               ? sl_notify_send("WATCHDOG=1")
               : sl_notify_send("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=%u\nSTATUS=starts%s%s", EXTEND_US,
                                observe->facts.why[0] != '\0' ? ": " : "", observe->facts.why));
}

static void process_observe_tick(void *ctx, uint64_t now_ns)
{
    struct sl_process_observe *observe = ctx;
    feed_watchdog(observe, now_ns);
    sl_process_cluster_tick(observe->process, now_ns);
    for (uint32_t i = 0; i < observe->process->options.reactors.count; i++) {
        sl_ping_send(&observe->pings[i], now_ns);
    }
}

/* ---- start and end ---- */

int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason)
{
    struct sl_process_observe *observe = calloc(1, sizeof *observe);
    uint32_t route_count = 0;
    if (observe == NULL ||
        (observe->pings = calloc(process->options.reactors.count, sizeof *observe->pings)) ==
            NULL ||
        (observe->routes = sl_process_routes_list(process, &route_count)) == NULL) {
        free(observe != NULL ? observe->pings : NULL);
        free(observe);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    process->observer.observe = observe;
    observe->process = process;
    (void)sem_init(&observe->ended, 0, 0);
    observe->begun_ns = process_observe_now();
    const struct sl_observer_options options = {
        .listen = process->options.http.listen,
        .routes = observe->routes,
        .route_count = route_count,
        .tick = process_observe_tick,
        .ctx = observe,
    };
    const int err = sl_observer_create(&options, &observe->observer, reason);
    if (err != 0) {
        sl_process_observe_close(process);
        return err;
    }
    const bool is_server = process->options.kind == SL_PROCESS_SERVER;
    sl_observer_address(observe->observer,
                        is_server ? process->options.endpoints.data.host
                                  : process->options.endpoints.control.host,
                        observe->address, sizeof observe->address);
    return 0;
}

int sl_process_observe_start(struct sl_process *process)
{
    struct sl_process_observe *observe = process->observer.observe;
    struct sl_mailbox *mailbox = sl_observer_mailbox(observe->observer);
    observe->pings[0].visit = process_observe_visit;
    observe->pings[0].answered = process_observe_answered;
    observe->pings[0].ctx = observe;
    int err = sl_mailbox_lane_open(mailbox, &observe->from_main);
    for (uint32_t i = 0; err == 0 && i < process->options.reactors.count; i++) {
        observe->pings[i].cells = &process->metrics.blocks[i].reactor;
        err = sl_ping_open(&observe->pings[i], process->reactors[i], mailbox);
    }
    return err != 0 ? err : sl_observer_start(observe->observer);
}

/* On the observer's thread, so that no older state is sent later. */
static void became_ready(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_observe *observe = ctx;
    observe->is_ready = true;
    const int err = observe->process->options.embedding != NULL
                        ? 0
                        : sl_notify_send("READY=1\nSTATUS=serves: %s", observe->serves);
    if (err != 0) {
        sl_log_warn("the service manager is not notified that this process is ready: "
                    "NOTIFY_SOCKET=%s: %s; accepts a path, or @ and an abstract name, of a socket "
                    "that is read",
                    getenv("NOTIFY_SOCKET"), sl_err_name(err));
    }
    process_observe_tick(observe, process_observe_now()); /* the facts are older */
}

void sl_process_observe_ready(const struct sl_process *process, const char *serves)
{
    struct sl_process_observe *observe = process->observer.observe;
    (void)snprintf(observe->serves, sizeof observe->serves, "%s", serves);
    const int err =
        sl_mailbox_post(observe->from_main, (struct sl_mail){.run = became_ready, .ctx = observe});
    sl_assert(err == 0); /* this lane has two mails in all */
}

static void observe_end(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_observe *observe = ctx;
    sl_process_cluster_end(observe->process, a != 0);
    (void)sem_post(&observe->ended);
}

void sl_process_observe_end(const struct sl_process *process, bool stays)
{
    struct sl_process_observe *observe = process->observer.observe;
    const struct sl_mail mail = {.run = observe_end, .ctx = observe, .a = stays};
    const int err = sl_mailbox_post(observe->from_main, mail);
    sl_assert(err == 0);
    while (sem_wait(&observe->ended) != 0) {
    }
}

void sl_process_observe_stop(struct sl_process *process)
{
    sl_observer_stop(process->observer.observe->observer);
}

void sl_process_observe_close(struct sl_process *process)
{
    struct sl_process_observe *observe = process->observer.observe;
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        sl_ping_close(&observe->pings[i]);
    }
    if (observe->from_main != NULL) {
        sl_mailbox_lane_close(&observe->from_main);
    }
    sl_observer_destroy(&observe->observer);
    (void)sem_destroy(&observe->ended);
    free(observe->pings);
    free(observe->routes);
    free(observe);
    process->observer.observe = NULL;
}
