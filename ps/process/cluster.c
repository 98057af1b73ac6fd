#include "ps/process/cluster.h"

#include <jansson.h>
#include <stdlib.h>
#include <time.h>

#include "core/clock.h"
#include "ps/observe/cluster.h"
#include "ps/process/observe.h"
#include "ps/process/own_report.h"
#include "ps/process/routes.h"
#include "ps/process/views.h"

/* Of the coordinator, and those that the observer's thread dropped. */
struct cells {
    struct sl_coordinator_report_cells coordinator;
    struct sl_cell invalid;
};

struct sl_process_cluster {
    struct sl_cluster_inbox inbox; /* from reactor 0 */
    struct cells cells;
    struct sl_metrics_source source;
    struct sl_cluster *job;
    struct sl_process_own_report *own; /* NULL: a scheduler */
    bool is_over;                      /* the job has ended: its last state is shown */
};

#define ROW(text, labelled, member, described)                                                     \
    {                                                                                              \
        .name = text, .labels = labelled, .kind = SL_METRICS_COUNTER, .unit = SL_METRICS_PLAIN,    \
        .offset = offsetof(struct cells, member), .help = described                                \
    }

static const struct sl_metrics_row rows[] = {
    ROW("reports_total", NULL, coordinator.received, "Reports of members at the coordinator."),
    ROW("reports_dropped_total", "reason=\"too_long\"", coordinator.too_long,
        "Reports that the coordinator dropped."),
    ROW("reports_dropped_total", "reason=\"too_frequent\"", coordinator.too_frequent, NULL),
    ROW("reports_dropped_total", "reason=\"no_room\"", coordinator.no_room, NULL),
    ROW("reports_dropped_total", "reason=\"invalid\"", invalid, NULL),
};

static bool process_cluster_is_scheduler(const struct sl_process *process)
{
    return process->options.kind == SL_PROCESS_SCHEDULER;
}

static double unix_time(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / (double)SL_CLOCK_NS_PER_S;
}

int sl_process_cluster_create(struct sl_process *process)
{
    struct sl_process_cluster *cluster = calloc(1, sizeof *cluster);
    if (cluster == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    process->observer.cluster = cluster;
    sl_cluster_inbox_init(&cluster->inbox);
    cluster->source = (struct sl_metrics_source){
        .rows = rows, .row_count = sizeof rows / sizeof rows[0], .cells = &cluster->cells};
    sl_metrics_add(&process->metrics.registry, &cluster->source);
    int err = sl_cluster_create(&cluster->job);
    err = err != 0 ? err : sl_process_views_create(process);
    return err != 0 || process_cluster_is_scheduler(process)
               ? err
               : sl_process_own_report_create(process, &cluster->own);
}

void sl_process_cluster_destroy(struct sl_process *process)
{
    struct sl_process_cluster *cluster = process->observer.cluster;
    if (cluster == NULL) {
        return;
    }
    sl_process_views_destroy(process);
    sl_process_own_report_destroy(&cluster->own);
    if (cluster->job != NULL) {
        sl_cluster_destroy(&cluster->job);
    }
    sl_metrics_remove(&process->metrics.registry, &cluster->source);
    sl_cluster_inbox_fini(&cluster->inbox);
    free(cluster);
    process->observer.cluster = NULL;
}

/* Reports */

/* Reactor 0. */
static bool process_cluster_on_report(void *ctx, const struct sl_message_hello *member,
                                      const struct sl_message_report *report)
{
    struct sl_process *process = ctx;
    const struct sl_cluster_sender sender = {
        .role = member->role, .task_index = member->task_index, .client_id = member->client_id};
    return sl_cluster_inbox_push(&process->observer.cluster->inbox, &sender, report->bytes,
                                 report->byte_count);
}

void sl_process_cluster_options(struct sl_process *process, struct sl_coordinator_options *options)
{
    if (process->observer.cluster != NULL) {
        options->report = process_cluster_on_report;
        options->report_cells = &process->observer.cluster->cells.coordinator;
    }
}

static void take_reports(struct sl_process_cluster *cluster, uint64_t now_ns)
{
    struct sl_cluster_mail *mail;
    while ((mail = sl_cluster_inbox_pop(&cluster->inbox)) != NULL) {
        if (sl_cluster_take(cluster->job, &mail->sender, mail->bytes, mail->byte_count, now_ns) !=
            0) {
            sl_cell_add(&cluster->cells.invalid, 1);
        }
        free(mail);
    }
}

struct outgoing {
    struct sl_process *process;
    struct sl_message_report report;
};

static void drop_report(void *ctx)
{
    struct outgoing *outgoing = ctx;
    free(outgoing->report.bytes);
    free(outgoing);
}

/* Reactor 0. */
static void process_cluster_send_report(void *ctx, uint64_t a, uint64_t b)
{
    struct outgoing *outgoing = ctx;
    if (outgoing->process->agent != NULL) {
        sl_agent_send_report(outgoing->process->agent, &outgoing->report);
    }
    drop_report(outgoing);
}

static struct sl_message_report build_report(const struct sl_process *process, uint64_t now_ns)
{
    return sl_process_own_report_build(
        process->observer.cluster->own, sl_process_observe_http(process),
        (now_ns - process->observer.observe->begun_ns) / SL_CLOCK_NS_PER_MS, now_ns,
        (uint64_t)(unix_time() * 1000));
}

/* Reports this process to its coordinator, unless reactor 0 is late. */
static void report_self(struct sl_process *process, uint64_t now_ns)
{
    const struct sl_ping *ping = &process->observer.observe->pings[0];
    struct outgoing *outgoing = ping->is_pending ? NULL : malloc(sizeof *outgoing);
    if (outgoing == NULL) {
        return;
    }
    outgoing->process = process;
    outgoing->report = build_report(process, now_ns);
    const struct sl_mail mail = {
        .run = process_cluster_send_report, .ctx = outgoing, .drop = drop_report};
    if (outgoing->report.bytes == NULL || sl_mailbox_post(ping->to, mail) != 0) {
        drop_report(outgoing);
    }
}

void sl_process_cluster_tick(struct sl_process *process, uint64_t now_ns)
{
    struct sl_process_cluster *cluster = process->observer.cluster;
    uint64_t age_ns;
    const struct sl_coordinator_view *view = sl_process_views_coordinator(process, now_ns, &age_ns);
    take_reports(cluster, now_ns);
    if (view != NULL) {
        sl_cluster_tick(cluster->job, view, now_ns, (uint64_t)unix_time());
    }
    if (cluster->is_over) {
        return; /* newer views would show that this process leaves */
    }
    if (cluster->own != NULL) {
        report_self(process, now_ns);
    }
    sl_process_views_request(process);
}

void sl_process_cluster_end(struct sl_process *process, bool stays)
{
    struct sl_process_cluster *cluster = process->observer.cluster;
    sl_process_views_renew(process);
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    if (cluster->own != NULL && !stays) {
        report_self(process, now_ns);
    } else if (cluster->own != NULL) { /* the coordinator is here */
        struct sl_message_report report = build_report(process, now_ns);
        const struct sl_cluster_sender self = {.role = SL_MESSAGE_ROLE_PS,
                                               .task_index = process->member.task_index};
        take_reports(cluster, now_ns); /* older ones */
        (void)sl_cluster_take(cluster->job, &self, report.bytes, report.byte_count, now_ns);
        free(report.bytes);
    }
    if (stays) {
        cluster->is_over = true;
        sl_process_cluster_tick(process, now_ns);
        sl_cluster_end(cluster->job, now_ns);
    }
}

/* Routes */

static uint64_t now(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

void sl_process_cluster_read(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    struct sl_process *process = ctx;
    const uint64_t now_ns = now();
    uint64_t age_ns;
    const struct sl_coordinator_view *view = sl_process_views_coordinator(process, now_ns, &age_ns);
    if (!sl_process_routes_at_coordinator(process, "/api/cluster", reply)) {
        return;
    }
    if (view == NULL) {
        sl_reply_error(reply, 503, "the coordinator has just started here");
        return;
    }
    const struct sl_cluster_host host = {
        .coordinator = process->observer.observe->facts.name,
        .title = process->options.http.title,
        .is_store_away = process->observer.observe->facts.is_store_away,
        .view_age_ns = process->observer.cluster->is_over ? 0 : age_ns,
        .unix_s = unix_time(),
    };
    sl_reply_json(reply, sl_cluster_describe(process->observer.cluster->job, view, &host, now_ns));
}

void sl_process_cluster_read_history(void *ctx, const struct sl_query *query,
                                     struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    const char *of = sl_query_get(query, "of");
    const char *since = sl_query_get(query, "since");
    json_t *json = NULL;
    char *end = NULL;
    const double from = since == NULL ? 0 : strtod(since, &end);
    if (!sl_process_routes_at_coordinator(process, "/api/history", reply)) {
        return;
    }
    if (since != NULL && (end == since || *end != '\0' || !(from >= 0 && from < 1e12))) {
        sl_reply_error(reply, 400, "parameter since: a Unix time in seconds is accepted");
        return;
    }
    const int err = sl_cluster_describe_history(process->observer.cluster->job,
                                                of == NULL ? "job" : of, (uint64_t)from, &json);
    if (err == SL_ERR_NOT_FOUND) {
        sl_reply_error(reply, 404,
                       "parameter of: job, shard:N or table:NAME is accepted, of this job");
        return;
    }
    sl_reply_json(reply, json);
}

void sl_process_cluster_read_slow(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    if (sl_process_routes_at_coordinator(process, "/api/slow", reply)) {
        sl_reply_json(reply, sl_cluster_describe_slow(process->observer.cluster->job));
    }
}

void sl_process_cluster_read_hot(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    if (sl_process_routes_at_coordinator(process, "/api/hot", reply)) {
        sl_reply_json(reply, sl_cluster_describe_hot(process->observer.cluster->job, now()));
    }
}

void sl_process_cluster_read_targets(void *ctx, const struct sl_query *query,
                                     struct sl_reply *reply)
{
    const struct sl_process *process = ctx;
    if (!sl_process_routes_at_coordinator(process, "/sd", reply)) {
        return;
    }
    json_t *list = sl_cluster_describe_targets(process->observer.cluster->job, now());
    if (list != NULL && process_cluster_is_scheduler(process) &&
        sl_process_observe_http(process)[0] != '\0') {
        (void)json_array_append_new(list, json_pack("{s:[s], s:{s:s, s:s}}", "targets",
                                                    sl_process_observe_http(process), "labels",
                                                    "role", "scheduler", "task", "0"));
    }
    sl_reply_json(reply, list);
}
