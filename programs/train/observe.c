#include "programs/train/observe.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/metrics_text.h"
#include "net/http/ping.h"
#include "reactor/mailbox.h"
#include "worker/client/client_internal.h"
#include "worker/client/client_report.h"

#define JSON   "application/json"
#define ROUTES 5

struct sl_observe {
    struct sl_observe_options options;
    struct sl_observer *observer;
    struct sl_mailbox_lane *from_main;
    struct sl_observer_route routes[ROUTES];
    uint64_t begun_ns;
    char address[SL_LIMIT_ENDPOINT_BYTES];
    /* Of the main thread until `connected`, then of the observer's. */
    struct sl_client *client; /* NULL: not connected yet */
    struct sl_ping *pings;
    uint32_t ping_count;
    bool is_connected; /* the observer's */
};

/* The pings, once the worker is connected. */
static const struct sl_ping *pings(const struct sl_observe *observe, uint32_t *count)
{
    *count = observe->is_connected ? observe->ping_count : 0;
    return observe->is_connected ? observe->pings : NULL;
}

/* ---- routes ---- */

static void train_observe_read_health(void *ctx, const struct sl_query *query,
                                      struct sl_reply *reply)
{
    const struct sl_observe *observe = ctx;
    uint32_t count;
    const struct sl_ping *list = pings(observe, &count);
    sl_ping_reply_health(list, count, reply);
}

static void train_observe_read_readiness(void *ctx, const struct sl_query *query,
                                         struct sl_reply *reply)
{
    const struct sl_observe *observe = ctx;
    if (!observe->is_connected) {
        sl_reply_error(reply, 503, "the worker waits for the servers");
        return;
    }
    sl_reply_json(reply, json_pack("{s:s}", "status", "ready"));
}

static void train_observe_read_metrics(void *ctx, const struct sl_query *query,
                                       struct sl_reply *reply)
{
    const struct sl_observe *observe = ctx;
    char *text = NULL;
    size_t bytes = 0;
    (void)sl_train_metrics_create(observe->options.metrics,
                                  observe->is_connected ? observe->client : NULL, &text, &bytes);
    sl_reply_take(reply, text, bytes);
}

static void train_observe_read_process(void *ctx, const struct sl_query *query,
                                       struct sl_reply *reply)
{
    const struct sl_observe *observe = ctx;
    char name[32] = "worker";
    uint32_t count;
    const struct sl_ping *list = pings(observe, &count);
    const int32_t task = observe->is_connected ? observe->client->task_index : -1;
    if (task >= 0) {
        (void)snprintf(name, sizeof name, "worker/%d", task);
    }
    const struct sl_process_info self = {
        .name = name,
        .role = "worker",
        .task_index = task >= 0 ? (uint32_t)task : 0,
        .http = observe->address,
        .begun_ns = observe->begun_ns,
        .reactors = sl_ping_describe(list, count),
        .options = &observe->options.shown,
    };
    sl_process_info_reply(&self, reply);
}

static void train_observe_tick(void *ctx, uint64_t now_ns)
{
    struct sl_observe *observe = ctx;
    for (uint32_t i = 0; observe->is_connected && i < observe->ping_count; i++) {
        sl_ping_send(&observe->pings[i], now_ns);
    }
}

/* ---- start and end ---- */

int sl_observe_open(const struct sl_observe_options *options, struct sl_observe **out,
                    struct sl_reason *reason)
{
    struct sl_observe *observe = calloc(1, sizeof *observe);
    if (observe == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    observe->options = *options;
    observe->begun_ns = sl_clock_now_ns(sl_clock_system());
    const struct sl_observer_route routes[ROUTES] = {
        {.path = "/healthz", .type = JSON, .read = train_observe_read_health, .ctx = observe},
        {.path = "/readyz", .type = JSON, .read = train_observe_read_readiness, .ctx = observe},
        {.path = "/metrics",
         .type = SL_METRICS_TEXT_TYPE,
         .read = train_observe_read_metrics,
         .ctx = observe},
        {.path = "/api/process", .type = JSON, .read = train_observe_read_process, .ctx = observe},
        {.path = "/api/events", .type = JSON, .read = sl_process_info_read_events},
    };
    memcpy(observe->routes, routes, sizeof routes);
    const struct sl_observer_options observer = {
        .listen = options->listen,
        .routes = observe->routes,
        .route_count = ROUTES,
        .tick = train_observe_tick,
        .ctx = observe,
    };
    int err = sl_observer_create(&observer, &observe->observer, reason);
    if (err == 0) {
        sl_observer_address(observe->observer, NULL, observe->address, sizeof observe->address);
        err = sl_mailbox_lane_open(sl_observer_mailbox(observe->observer), &observe->from_main);
        err = err != 0 ? err : sl_observer_start(observe->observer);
        if (err != 0) {
            sl_reason_set(reason, "HTTP cannot be started: %s", sl_err_name(err));
        }
    }
    if (err != 0) {
        sl_observe_close(&observe);
        return err;
    }
    *out = observe;
    return 0;
}

const char *sl_observe_address(const struct sl_observe *observe)
{
    return observe->address;
}

/* On the observer's thread. */
static void train_observe_on_connected(void *ctx, uint64_t a, uint64_t b)
{
    ((struct sl_observe *)ctx)->is_connected = true;
}

int sl_observe_connected(struct sl_observe *observe, struct sl_client *client, bool is_driven)
{
    const uint32_t count = is_driven ? 0 : client->own_reactor_count;
    struct sl_mailbox *mailbox = sl_observer_mailbox(observe->observer);
    if (strcmp(observe->address, "off") != 0) {
        sl_client_report_http(client, observe->address);
    }
    observe->client = client;
    observe->pings = calloc(count + 1, sizeof *observe->pings);
    int err = observe->pings == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = sl_ping_open(&observe->pings[i], client->own_reactors[i], mailbox);
        observe->ping_count += err == 0;
    }
    if (err == 0) {
        err = sl_mailbox_post(observe->from_main,
                              (struct sl_mail){.run = train_observe_on_connected, .ctx = observe});
        sl_assert(err == 0); /* the only mail of this lane */
    }
    return err;
}

void sl_observe_stop(struct sl_observe *observe)
{
    sl_observer_stop(observe->observer);
}

void sl_observe_close(struct sl_observe **to_close)
{
    struct sl_observe *observe = *to_close;
    if (observe == NULL) {
        return;
    }
    if (observe->observer != NULL) {
        sl_observer_stop(observe->observer);
    }
    for (uint32_t i = 0; i < observe->ping_count; i++) {
        sl_ping_close(&observe->pings[i]);
    }
    if (observe->from_main != NULL) {
        sl_mailbox_lane_close(&observe->from_main);
    }
    sl_observer_destroy(&observe->observer);
    free(observe->pings);
    free(observe);
    *to_close = NULL;
}
