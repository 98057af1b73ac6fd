#include "ps/process/observe.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"
#include "observe/http/observer.h"
#include "observe/web/web.h"

#define HANGING_NS (SL_CLOCK_NS_PER_S) /* a ping without an answer */
#define WHY_BYTES  256
#define JSON       "application/json"

/* What the observer needs of reactor 0. */
struct facts {
    char name[sizeof((struct sl_process *)0)->name];
    uint32_t task_index;
    char why[WHY_BYTES]; /* why the process is not a member that serves; "": it is one */
};

/* Of one reactor. Used by the observer's thread; by the reactor between a ping and its answer. */
struct ping {
    struct sl_process_core *core;
    struct sl_mailbox_lane *to, *from; /* to the reactor, by the observer; back, by the reactor */
    bool is_pending;
    uint64_t sent_ns, answered_ns;
    struct facts facts; /* of reactor 0 only */
};

struct sl_process_observe {
    struct sl_process *process;
    struct sl_observer *observer;
    struct sl_observer_route *routes;
    struct sl_mailbox_lane *from_main;
    struct ping *pings;
    uint64_t begun_ns;
    /* The observer's. */
    bool is_ready;      /* or was once */
    struct facts facts; /* as of the last answer of reactor 0 */
};

static uint64_t now(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* ---- pings ---- */

/* On the observer's thread. */
static void answered(void *ctx, uint64_t a, uint64_t b)
{
    struct ping *ping = ctx;
    struct sl_process_observe *observe = ping->core->process->observe;
    ping->is_pending = false;
    ping->answered_ns = now();
    if (ping->core->index == 0) {
        observe->facts = ping->facts;
    }
}

/* Reactor 0. */
static void explain(const struct sl_process *process, struct facts *facts)
{
    char *why = facts->why;
    why[0] = '\0';
    memcpy(facts->name, process->name, sizeof facts->name);
    facts->task_index = process->task_index;
    if (process->options.kind == SL_PROCESS_SCHEDULER) {
        return;
    }
    if (process->agent == NULL) {
        (void)snprintf(why, WHY_BYTES, "looks for checkpoints");
    } else if (!sl_agent_explain(process->agent, why, WHY_BYTES) && !process->is_open) {
        (void)snprintf(why, WHY_BYTES, "restoring checkpoint %" PRIu64,
                       sl_agent_restore(process->agent));
    }
}

/* The core's reactor. */
static void pinged(void *ctx, uint64_t a, uint64_t b)
{
    struct ping *ping = ctx;
    if (ping->core->index == 0) {
        explain(ping->core->process, &ping->facts);
    }
    const int err = sl_mailbox_post(ping->from, (struct sl_mail){.run = answered, .ctx = ping});
    sl_assert(err == 0); /* one at a time */
}

static void tick(void *ctx, uint64_t now_ns)
{
    struct sl_process_observe *observe = ctx;
    for (uint32_t i = 0; i < observe->process->options.reactor_count; i++) {
        struct ping *ping = &observe->pings[i];
        if (!ping->is_pending &&
            sl_mailbox_post(ping->to, (struct sl_mail){.run = pinged, .ctx = ping}) == 0) {
            ping->is_pending = true;
            ping->sent_ns = now_ns;
        }
    }
}

static uint64_t age_ns(const struct ping *ping, uint64_t now_ns)
{
    return ping->is_pending && now_ns > ping->sent_ns ? now_ns - ping->sent_ns : 0;
}

/* ---- routes ---- */

static void read_health(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    struct sl_process_observe *observe = ctx;
    const struct sl_process *process = observe->process;
    const uint64_t now_ns = now();
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        const uint64_t age = age_ns(&observe->pings[i], now_ns);
        if (age >= HANGING_NS) {
            sl_reply_error(reply, 503, "reactor %s has not answered for %.1f s",
                           sl_reactor_name(process->reactors[i]),
                           (double)age / (double)SL_CLOCK_NS_PER_S);
            return;
        }
    }
    sl_reply_json(reply, json_pack("{s:s}", "status", "ok"));
}

static void read_readiness(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process_observe *observe = ctx;
    const char *why = observe->facts.why;
    if (why[0] != '\0' || !observe->is_ready) {
        sl_reply_error(reply, 503, "%s", why[0] != '\0' ? why : "the process starts");
        return;
    }
    sl_reply_json(reply, json_pack("{s:s}", "status", "ready"));
}

static size_t resident_bytes(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu %lu", &pages, &resident) != 2) {
            resident = 0;
        }
        (void)fclose(file);
    }
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

static json_t *describe_reactors(const struct sl_process_observe *observe, uint64_t now_ns)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < observe->process->options.reactor_count; i++) {
        const struct ping *ping = &observe->pings[i];
        const uint64_t since_ns = ping->answered_ns != 0 ? now_ns - ping->answered_ns : 0;
        json_array_append_new(list, json_pack("{s:I, s:f}", "index", (json_int_t)i, "age_s",
                                              (double)since_ns / (double)SL_CLOCK_NS_PER_S));
    }
    return list;
}

static void read_process(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process_observe *observe = ctx;
    const struct sl_process *process = observe->process;
    const uint64_t now_ns = now();
    char http[SL_LIMIT_ENDPOINT_BYTES];
    sl_process_observe_address(process, http, sizeof http);
    sl_reply_json(reply,
                  json_pack("{s:s, s:s, s:I, s:s, s:I, s:f, s:s, s:o, s:I, s:I}", "name",
                            observe->facts.name, "role",
                            process->options.kind == SL_PROCESS_SCHEDULER ? "scheduler" : "ps",
                            "task", (json_int_t)observe->facts.task_index, "version",
                            STARLING_VERSION, "pid", (json_int_t)getpid(), "uptime_s",
                            (double)(now_ns - observe->begun_ns) / (double)SL_CLOCK_NS_PER_S,
                            "http", http, "reactors", describe_reactors(observe, now_ns), "memory",
                            (json_int_t)resident_bytes(), "memory_limit",
                            (json_int_t)process->options.memory_bytes_max));
}

static const struct sl_observer_route routes[] = {
    {.path = "/healthz", .type = JSON, .read = read_health},
    {.path = "/readyz", .type = JSON, .read = read_readiness},
    {.path = "/api/process", .type = JSON, .read = read_process},
};
#define ROUTES (sizeof routes / sizeof routes[0])

static void read_page(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_web_file *file = ctx;
    reply->type = file->type;
    reply->etag = file->etag;
    sl_reply_static(reply, file->bytes, file->length, "gzip");
}

/* Writes [ROUTES + sl_web_file_count] routes: those above, and the files of the live page. */
static void make_routes(struct sl_process_observe *observe)
{
    memcpy(observe->routes, routes, sizeof routes);
    for (size_t i = 0; i < ROUTES; i++) {
        observe->routes[i].ctx = observe;
    }
    for (size_t i = 0; i < sl_web_file_count; i++) {
        observe->routes[ROUTES + i] =
            (struct sl_observer_route){.path = sl_web_files[i].path,
                                       .read = read_page,
                                       .ctx = (void *)(uintptr_t)&sl_web_files[i],
                                       .is_public = true};
    }
}

/* ---- start and end ---- */

int sl_process_observe_open(struct sl_process *process, struct sl_reason *reason)
{
    struct sl_process_observe *observe = calloc(1, sizeof *observe);
    const uint32_t count = process->options.reactor_count;
    if (observe == NULL ||
        (observe->routes = calloc(ROUTES + sl_web_file_count, sizeof *observe->routes)) == NULL ||
        (observe->pings = calloc(count, sizeof *observe->pings)) == NULL) {
        free(observe != NULL ? observe->routes : NULL);
        free(observe);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the observer");
    }
    process->observe = observe;
    observe->process = process;
    observe->begun_ns = now();
    make_routes(observe);
    const struct sl_observer_options options = {
        .listen = process->options.http,
        .routes = observe->routes,
        .route_count = (uint32_t)(ROUTES + sl_web_file_count),
        .tick = tick,
        .ctx = observe,
    };
    const int err = sl_observer_create(&options, &observe->observer, reason);
    if (err != 0) {
        sl_process_observe_close(process);
    }
    return err;
}

int sl_process_observe_start(struct sl_process *process)
{
    struct sl_process_observe *observe = process->observe;
    struct sl_mailbox *mailbox = sl_observer_mailbox(observe->observer);
    int err = sl_mailbox_lane_open(mailbox, &observe->from_main);
    for (uint32_t i = 0; err == 0 && i < process->options.reactor_count; i++) {
        struct ping *ping = &observe->pings[i];
        ping->core = &process->cores[i];
        err = sl_mailbox_lane_open(sl_reactor_mailbox(process->reactors[i]), &ping->to);
        err = err != 0 ? err : sl_mailbox_lane_open(mailbox, &ping->from);
    }
    return err != 0 ? err : sl_observer_start(observe->observer);
}

/* On the observer's thread. */
static void became_ready(void *ctx, uint64_t a, uint64_t b)
{
    ((struct sl_process_observe *)ctx)->is_ready = true;
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

void sl_process_observe_address(const struct sl_process *process, char *text, size_t text_bytes)
{
    sl_observer_address(process->observe->observer, text, text_bytes);
}
