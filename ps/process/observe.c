#include "ps/process/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "ps/process/cluster.h"
#include "ps/process/routes.h"

static uint64_t now(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* ---- pings ---- */

/* On the observer's thread. */
static void answered(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_ping *ping = ctx;
    ping->is_pending = false;
    ping->answered_ns = now();
    if (ping->core->index == 0) {
        ping->core->process->observe->facts = ping->facts;
    }
}

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
static void collect(const struct sl_process *process, struct sl_process_facts *facts)
{
    memcpy(facts->name, process->name, sizeof facts->name);
    facts->task_index = process->task_index;
    facts->hosts_coordinator = process->coordinator != NULL;
    (void)snprintf(facts->coordinator_http, sizeof facts->coordinator_http, "%s",
                   process->agent != NULL ? sl_agent_coordinator_http(process->agent) : "");
    explain(process, facts->why, sizeof facts->why);
}

/* The core's reactor. */
static void pinged(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_ping *ping = ctx;
    if (ping->core->index == 0) {
        collect(ping->core->process, &ping->facts);
    }
    const int err = sl_mailbox_post(ping->from, (struct sl_mail){.run = answered, .ctx = ping});
    sl_assert(err == 0); /* one at a time */
}

static void measure(struct sl_process_ping *ping, const struct sl_reactor_cells *cells,
                    uint64_t now_ns)
{
    const uint64_t busy_ns = sl_cell_get(&cells->busy_ns);
    if (ping->busy_at_ns != 0 && now_ns > ping->busy_at_ns) {
        ping->busy = (double)(busy_ns - ping->busy_ns) / (double)(now_ns - ping->busy_at_ns);
    }
    ping->busy_ns = busy_ns;
    ping->busy_at_ns = now_ns;
}

static void tick(void *ctx, uint64_t now_ns)
{
    struct sl_process_observe *observe = ctx;
    sl_process_cluster_tick(observe->process, now_ns);
    for (uint32_t i = 0; i < observe->process->options.reactor_count; i++) {
        struct sl_process_ping *ping = &observe->pings[i];
        measure(ping, &observe->process->metrics.blocks[i].reactor, now_ns);
        if (!ping->is_pending &&
            sl_mailbox_post(ping->to, (struct sl_mail){.run = pinged, .ctx = ping}) == 0) {
            ping->is_pending = true;
            ping->sent_ns = now_ns;
        }
    }
}

/* ---- start and end ---- */

/* Where other machines reach HTTP: a wildcard address stands for that of the servers. */
static void set_address(struct sl_process_observe *observe)
{
    const struct sl_process_options *options = &observe->process->options;
    struct sl_endpoint endpoint;
    if (!sl_observer_endpoint(observe->observer, &endpoint)) {
        (void)snprintf(observe->address, sizeof observe->address, "off");
        return;
    }
    if (sl_endpoint_is_any(&endpoint)) {
        const bool is_server = options->kind == SL_PROCESS_SERVER;
        memcpy(endpoint.host, is_server ? options->data.host : options->control.host,
               sizeof endpoint.host);
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&endpoint, text, sizeof text);
    (void)snprintf(observe->address, sizeof observe->address, "%s", text + strlen("tcp://"));
}

int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason)
{
    struct sl_process_observe *observe = calloc(1, sizeof *observe);
    uint32_t route_count = 0;
    if (observe == NULL ||
        (observe->pings = calloc(process->options.reactor_count, sizeof *observe->pings)) == NULL ||
        (observe->routes = sl_process_routes_list(process, &route_count)) == NULL) {
        free(observe != NULL ? observe->pings : NULL);
        free(observe);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    process->observe = observe;
    observe->process = process;
    observe->begun_ns = now();
    const struct sl_observer_options options = {
        .listen = process->options.http,
        .routes = observe->routes,
        .route_count = route_count,
        .tick = tick,
        .ctx = observe,
    };
    const int err = sl_observer_create(&options, &observe->observer, reason);
    if (err != 0) {
        sl_process_observe_close(process);
        return err;
    }
    set_address(observe);
    return 0;
}

int sl_process_observe_start(struct sl_process *process)
{
    struct sl_process_observe *observe = process->observe;
    struct sl_mailbox *mailbox = sl_observer_mailbox(observe->observer);
    int err = sl_mailbox_lane_open(mailbox, &observe->from_main);
    for (uint32_t i = 0; err == 0 && i < process->options.reactor_count; i++) {
        struct sl_process_ping *ping = &observe->pings[i];
        ping->core = &process->cores[i];
        err = sl_mailbox_lane_open(sl_reactor_mailbox(process->reactors[i]), &ping->to);
        err = err != 0 ? err : sl_mailbox_lane_open(mailbox, &ping->from);
    }
    return err != 0 ? err : sl_observer_start(observe->observer);
}

/* On the observer's thread. */
static void became_ready(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_observe *observe = ctx;
    observe->is_ready = true;
    tick(observe, now()); /* the facts are older */
}

void sl_process_observe_ready(struct sl_process *process)
{
    const int err = sl_mailbox_post(process->observe->from_main,
                                    (struct sl_mail){.run = became_ready, .ctx = process->observe});
    sl_assert(err == 0); /* the only mail of this lane */
}

void sl_process_observe_stop(struct sl_process *process)
{
    sl_observer_stop(process->observe->observer);
}

static void close_lane(struct sl_mailbox_lane **lane)
{
    if (*lane != NULL) {
        sl_mailbox_lane_close(lane);
    }
}

void sl_process_observe_close(struct sl_process *process)
{
    struct sl_process_observe *observe = process->observe;
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        close_lane(&observe->pings[i].to);
        close_lane(&observe->pings[i].from);
    }
    close_lane(&observe->from_main);
    sl_observer_destroy(&observe->observer);
    free(observe->pings);
    free(observe->routes);
    free(observe);
    process->observe = NULL;
}
