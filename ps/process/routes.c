#include "ps/process/routes.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/format.h"
#include "core/metrics_text.h"
#include "net/http/observer.h"
#include "net/http/process_info.h"
#include "ps/observe/web/web.h"
#include "ps/process/cluster.h"
#include "ps/process/observe.h"
#include "ps/process/views.h"

#define JSON "application/json"

static const char *role(const struct sl_process *process)
{
    return process->options.kind == SL_PROCESS_SCHEDULER ? "scheduler" : "ps";
}

/* ---- health ---- */

static void routes_read_health(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    sl_ping_reply_health(process->observer.observe->pings, process->options.reactors.count, reply);
}

/* Of a job with a scheduler that has not begun: the tasks that it waits for. False: none. */
static bool list_missing(const struct sl_process *process, char *text, size_t bytes)
{
    uint64_t age_ns;
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    const struct sl_coordinator_view *view = sl_process_views_coordinator(process, now_ns, &age_ns);
    text[0] = '\0';
    for (uint32_t i = 0; view != NULL && i < view->missing.missing_count; i++) {
        (void)sl_format_add(text, bytes, ", ", "%s%s", i == 0 ? "waits for " : "",
                            view->missing.missing[i]);
    }
    return text[0] != '\0';
}

static void routes_read_readiness(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    const struct sl_process_observe *observe = process->observer.observe;
    char missing[SL_PROCESS_OBSERVE_WHY_BYTES];
    const char *why = observe->facts.why;
    if (process->options.kind == SL_PROCESS_SCHEDULER &&
        list_missing(process, missing, sizeof missing)) {
        why = missing;
    }
    if (why[0] != '\0' || !observe->is_ready) {
        sl_reply_error(reply, 503, "%s", why[0] != '\0' ? why : "the process starts");
        return;
    }
    sl_reply_json(reply, json_pack("{s:s}", "status", "ready"));
}

/* ---- this process ---- */

static void routes_read_metrics(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    struct sl_process *process = ctx;
    const char *detail = sl_query_get(query, "detail");
    char *text = NULL;
    size_t bytes = 0;
    if (detail != NULL && strcmp(detail, "shard") != 0) {
        sl_reply_error(reply, 400, "parameter detail: shard is accepted");
        return;
    }
    (void)sl_metrics_text_create(&process->metrics.registry, detail != NULL, &text, &bytes);
    sl_reply_take(reply, text, bytes);
}

static void routes_read_process(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    const struct sl_process_observe *observe = process->observer.observe;
    const struct sl_process_info self = {
        .name = observe->facts.name,
        .role = role(process),
        .task_index = observe->facts.task_index,
        .http = observe->address,
        .begun_ns = observe->begun_ns,
        .memory_limit = process->options.memory_bytes_max,
        .reactors = sl_ping_describe(observe->pings, process->options.reactors.count),
        .options = &process->options.http.shown,
    };
    sl_process_info_reply(&self, reply);
}

/* ---- the job ---- */

bool sl_process_routes_at_coordinator(const struct sl_process *process, const char *path,
                                      struct sl_reply *reply)
{
    const struct sl_process_facts *facts = &process->observer.observe->facts;
    const bool is_secure = process->options.http.listen->key != NULL;
    if (!facts->hosts_coordinator && facts->coordinator_http[0] == '\0') {
        sl_reply_error(reply, 503, "the address of the coordinator's HTTP is not known");
    } else if (!facts->hosts_coordinator) {
        sl_reply_redirect(reply, "%s://%s%s", is_secure ? "https" : "http", facts->coordinator_http,
                          path);
    }
    return facts->hosts_coordinator;
}

static void read_page(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_web_file *file = ctx;
    reply->type = file->type;
    reply->etag = file->etag;
    sl_reply_static(reply, file->bytes, file->length, "gzip");
}

static void read_index(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process_facts *facts =
        &((const struct sl_process *)ctx)->observer.observe->facts;
    if (facts->coordinator_http[0] != '\0' && !sl_process_routes_at_coordinator(ctx, "/", reply)) {
        return;
    }
    for (size_t i = 0; i < sl_web_file_count; i++) {
        if (strcmp(sl_web_files[i].path, "/") == 0) {
            read_page((void *)(uintptr_t)&sl_web_files[i], query, reply);
        }
    }
}

/* ---- the table ---- */

/* Their ctx is the process. */
static const struct sl_observer_route routes[] = {
    {.path = "/healthz", .type = JSON, .read = routes_read_health},
    {.path = "/readyz", .type = JSON, .read = routes_read_readiness},
    {.path = "/metrics",
     .parameters = "detail",
     .type = SL_METRICS_TEXT_TYPE,
     .read = routes_read_metrics},
    {.path = "/api/process", .type = JSON, .read = routes_read_process},
    {.path = "/api/events", .type = JSON, .read = sl_process_info_read_events},
    {.path = "/api/cluster", .type = JSON, .read = sl_process_cluster_read},
    {.path = "/api/history",
     .parameters = "of|since",
     .type = JSON,
     .read = sl_process_cluster_read_history},
    {.path = "/api/slow", .type = JSON, .read = sl_process_cluster_read_slow},
    {.path = "/api/hot", .type = JSON, .read = sl_process_cluster_read_hot},
    {.path = "/sd", .type = JSON, .read = sl_process_cluster_read_targets},
};
#define ROUTES (sizeof routes / sizeof routes[0])

struct sl_observer_route *sl_process_routes_list(struct sl_process *process, uint32_t *count)
{
    struct sl_observer_route *list = calloc(ROUTES + sl_web_file_count, sizeof *list);
    if (list == NULL) {
        return NULL;
    }
    *count = (uint32_t)(ROUTES + sl_web_file_count);
    for (size_t i = 0; i < ROUTES; i++) {
        list[i] = routes[i];
        list[i].ctx = process;
    }
    for (size_t i = 0; i < sl_web_file_count; i++) {
        const struct sl_web_file *file = &sl_web_files[i];
        const bool is_index = strcmp(file->path, "/") == 0;
        list[ROUTES + i] = (struct sl_observer_route){
            .path = file->path,
            .read = is_index ? read_index : read_page,
            .ctx = is_index ? (void *)process : (void *)(uintptr_t)file,
            .is_public = true,
        };
    }
    return list;
}
