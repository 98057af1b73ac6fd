/* The cluster as JSON. Names of members and tables are validated by sl_report_decode, and escaped
 * by jansson. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "core/table_names.h"
#include "ps/observe/cluster_state.h"

static json_t *cluster_describe_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *text_or_null(const char *text)
{
    return text == NULL || text[0] == '\0' ? json_null() : json_string(text);
}

static json_t *task_name(const char *role, uint32_t task)
{
    return json_sprintf("%s/%u", role, task);
}

static double age_s(uint64_t from_ns, uint64_t now_ns)
{
    return from_ns == 0        ? (double)NAN
           : now_ns <= from_ns ? 0
                               : (double)(now_ns - from_ns) / (double)SL_CLOCK_NS_PER_S;
}

static double member_age_s(const struct sl_cluster_member *member,
                           const struct sl_coordinator_view_member *seen, uint64_t now_ns)
{
    return age_s(member != NULL ? member->received_ns : seen->last_seen_ns, now_ns);
}

/* /api/cluster */

static json_t *describe_totals(const struct sl_cluster *cluster)
{
    json_t *totals = json_object();
    for (int i = 0; i < SL_HISTORY_SERIES; i++) {
        (void)json_object_set_new(totals, sl_history_names[i],
                                  sl_cluster_describe_number((double)cluster->totals.values[i]));
    }
    return totals;
}

static json_t *describe_shard(const struct sl_cluster *cluster,
                              const struct sl_coordinator_view *view, uint32_t index,
                              uint64_t now_ns)
{
    const struct sl_coordinator_view_shard *placed = &view->shards[index];
    const uint32_t primary = placed->primary;
    const bool has_backup = placed->backup != SL_COORDINATOR_NO_TASK;
    const bool moves = placed->moves_to != SL_COORDINATOR_NO_TASK;
    const bool is_served =
        cluster->end_ns != 0 || view->servers[primary].member.state == SL_COORDINATOR_VIEW_RUNNING;
    json_t *shard =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "shard", cluster_describe_count(index), "serving",
                  is_served ? task_name("ps", primary) : json_null(), "backup",
                  has_backup ? task_name("ps", placed->backup) : json_null(), "in_sync",
                  view->replicas == 0 && !has_backup ? json_null() : json_boolean(placed->in_sync),
                  "moves_to", moves ? task_name("ps", placed->moves_to) : json_null());
    const struct sl_cluster_shard found = sl_cluster_find_shard(cluster, primary, index, now_ns);
    const struct sl_report_shard none = {0};
    const struct sl_report_shard *now = found.now == NULL ? &none : found.now;
    const struct sl_report_shard *earlier = found.now == NULL ? &none : found.earlier;
    const double s = found.seconds;
    (void)json_object_update_new(
        shard,
        json_pack(
            "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "requests_s",
            sl_cluster_describe_number(sl_cluster_rate(now->requests, earlier->requests, s)),
            "keys_s", sl_cluster_describe_number(sl_cluster_rate(now->keys, earlier->keys, s)),
            "bytes_s", sl_cluster_describe_number(sl_cluster_rate(now->bytes, earlier->bytes, s)),
            "busy",
            sl_cluster_describe_number(sl_cluster_rate(now->busy_us, earlier->busy_us, s) / 1e6),
            "stalls_s",
            sl_cluster_describe_number(sl_cluster_rate(now->stalls, earlier->stalls, s)), "p99_us",
            now->p99_us == 0 ? json_null() : cluster_describe_count(now->p99_us), "rows",
            cluster_describe_count(now->rows), "memory", cluster_describe_count(now->memory),
            "lag_entries", cluster_describe_count(now->lag_entries), "clock",
            cluster_describe_count(now->clock)));
    return shard;
}

static const char *server_state(const struct sl_cluster_member *member,
                                enum sl_coordinator_view_state state, bool drains)
{
    static const char *const names[] = {
        [SL_COORDINATOR_VIEW_UNKNOWN] = "starting",
        [SL_COORDINATOR_VIEW_STARTING] = "starting",
        [SL_COORDINATOR_VIEW_RUNNING] = "serving",
        [SL_COORDINATOR_VIEW_DISCONNECTED] = "disconnected",
        [SL_COORDINATOR_VIEW_EXPIRED] = "expired",
        [SL_COORDINATOR_VIEW_LEFT] = "left",
    };
    const bool restores =
        state == SL_COORDINATOR_VIEW_RUNNING && member != NULL && member->report.is_restoring;
    return restores                                         ? "restoring"
           : drains && state == SL_COORDINATOR_VIEW_RUNNING ? "draining"
                                                            : names[state];
}

static json_t *describe_servers(const struct sl_cluster *cluster,
                                const struct sl_coordinator_view *view, uint64_t now_ns)
{
    json_t *list = json_array();
    for (uint32_t task = 0; task < view->ps_count; task++) {
        const struct sl_cluster_member *member = cluster->servers[task];
        const struct sl_coordinator_view_member *seen = &view->servers[task].member;
        if (!view->servers[task].is_part) {
            continue;
        }
        json_t *shards = json_array();
        uint32_t backups = 0;
        for (uint32_t shard = 0; shard < view->shard_count; shard++) {
            backups += view->shards[shard].backup == task ? 1 : 0;
            if (view->shards[shard].primary == task) {
                (void)json_array_append_new(shards, describe_shard(cluster, view, shard, now_ns));
            }
        }
        (void)json_array_append_new(
            list,
            json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o}", "name",
                      task_name("ps", task), "task", cluster_describe_count(task), "state",
                      server_state(member, seen->state, view->servers[task].drains), "age_s",
                      sl_cluster_describe_number(member_age_s(member, seen, now_ns)), "http",
                      text_or_null(member == NULL ? NULL : member->report.http), "data",
                      text_or_null(view->servers[task].data_endpoint), "memory",
                      cluster_describe_count(member == NULL ? 0 : member->report.memory),
                      "memory_limit",
                      cluster_describe_count(member == NULL ? 0 : member->report.memory_limit),
                      "ordinary_pages",
                      cluster_describe_count(member == NULL ? 0 : member->report.ordinary_pages),
                      "primaries", (json_int_t)json_array_size(shards), "backups",
                      (json_int_t)backups, "shards", shards));
    }
    return list;
}

static const char *worker_state(enum sl_coordinator_view_state state)
{
    return state == SL_COORDINATOR_VIEW_DISCONNECTED ? "disconnected"
           : state == SL_COORDINATOR_VIEW_EXPIRED    ? "expired"
           : state == SL_COORDINATOR_VIEW_LEFT       ? "left"
                                                     : "running";
}

static uint32_t fastest_clock(const struct sl_cluster *cluster,
                              const struct sl_coordinator_view *view)
{
    uint32_t fastest = 0;
    for (uint32_t task = 0; task < view->worker_end; task++) {
        const struct sl_cluster_member *member = cluster->workers[task];
        if (member != NULL && sl_cluster_is_running(view, task) &&
            member->report.client.clock > fastest) {
            fastest = member->report.client.clock;
        }
    }
    return fastest;
}

static json_t *describe_worker(const struct sl_cluster_member *member,
                               const struct sl_coordinator_view *view, uint32_t task,
                               uint32_t fastest, uint64_t now_ns)
{
    const struct sl_coordinator_view_member *seen = &view->workers[task];
    json_t *worker =
        json_pack("{s:o, s:o, s:s, s:o}", "name", task_name("worker", task), "task",
                  cluster_describe_count(task), "state", worker_state(seen->state), "age_s",
                  sl_cluster_describe_number(member_age_s(member, seen, now_ns)));
    static const struct sl_report none = {0};
    const struct sl_report_client *now = member == NULL ? &none.client : &member->report.client;
    const struct sl_report_client *earlier =
        member == NULL ? &none.client : &member->earlier.client;
    const bool is_fresh = sl_cluster_fresh(member, now_ns) != NULL;
    const double s = is_fresh ? sl_cluster_seconds(member) : 0;
    const bool has_lag = member != NULL && sl_cluster_is_running(view, task);
    const uint32_t lag = fastest > now->clock ? fastest - now->clock : 0;
    (void)json_object_update_new(
        worker,
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "http",
                  text_or_null(member == NULL ? NULL : member->report.http), "clock",
                  member == NULL ? json_null() : cluster_describe_count(now->clock), "lag",
                  has_lag ? cluster_describe_count(lag) : json_null(), "steps_s",
                  sl_cluster_describe_number(sl_cluster_rate(now->steps, earlier->steps, s)),
                  "step_p99_us",
                  !is_fresh || now->step_p99_us == 0 ? json_null()
                                                     : cluster_describe_count(now->step_p99_us),
                  "requests_s",
                  sl_cluster_describe_number(sl_cluster_rate(now->requests, earlier->requests, s)),
                  "in_flight", is_fresh ? cluster_describe_count(now->in_flight) : json_null(),
                  "reconnects", cluster_describe_count(now->reconnects)));
    return worker;
}

static json_t *describe_workers(const struct sl_cluster *cluster,
                                const struct sl_coordinator_view *view, uint64_t now_ns)
{
    json_t *list = json_array();
    const uint32_t fastest = fastest_clock(cluster, view);
    for (uint32_t task = 0; task < view->worker_end; task++) {
        if (view->workers[task].state != SL_COORDINATOR_VIEW_UNKNOWN) {
            (void)json_array_append_new(
                list, describe_worker(cluster->workers[task], view, task, fastest, now_ns));
        }
    }
    return list;
}

static json_t *describe_tables(const struct sl_cluster *cluster)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < cluster->table_count; i++) {
        const struct sl_cluster_table *table = &cluster->tables[i];
        if (table->second == cluster->second) {
            (void)json_array_append_new(
                list, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", table->name, "rows",
                                cluster_describe_count(table->rows), "memory",
                                cluster_describe_count(table->memory), "pulled_keys_s",
                                sl_cluster_describe_number(table->pulled_s), "pushed_keys_s",
                                sl_cluster_describe_number(table->pushed_s), "evicted_keys_s",
                                sl_cluster_describe_number(table->evicted_s), "waiting_keys",
                                cluster_describe_count(table->waiting_keys)));
        }
    }
    return list;
}

/* The newest checkpoint that a server knows. */
static json_t *describe_checkpoint(const struct sl_cluster *cluster, uint32_t server_count)
{
    struct sl_report_checkpoint newest = {0};
    uint64_t failures = 0;
    bool is_enabled = false;
    for (uint32_t task = 0; task < server_count; task++) {
        const struct sl_cluster_member *member = cluster->servers[task];
        if (member != NULL && member->report.has_checkpoint) {
            const struct sl_report_checkpoint *checkpoint = &member->report.checkpoint;
            is_enabled = true;
            failures = checkpoint->failures > failures ? checkpoint->failures : failures;
            newest = checkpoint->number > newest.number ? *checkpoint : newest;
        }
    }
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "enabled", is_enabled, "last",
                     newest.time_ms == 0
                         ? json_null()
                         : sl_cluster_describe_number((double)newest.time_ms / 1000),
                     "number", cluster_describe_count(newest.number), "duration_s",
                     sl_cluster_describe_number((double)newest.duration_ms / 1000), "failures",
                     cluster_describe_count(failures));
}

/* "asp", "bsp", "ssp:2". */
static json_t *describe_mode(const struct sl_coordinator_view *view)
{
    const struct sl_consistency_spec *consistency = &view->consistency;
    const char *name = sl_table_names_consistency[consistency->mode];
    return !view->has_tables ? json_null()
           : consistency->mode == SL_CONSISTENCY_SSP
               ? json_sprintf("%s:%u", name, consistency->staleness)
               : json_string(name);
}

/* As old as its oldest server. */
static double uptime_s(const struct sl_cluster *cluster, const struct sl_coordinator_view *view,
                       uint64_t now_ns)
{
    double oldest = NAN;
    for (uint32_t task = 0; task < view->ps_count; task++) {
        const struct sl_cluster_member *member = sl_cluster_fresh(cluster->servers[task], now_ns);
        if (member != NULL) {
            oldest = fmax(oldest, (double)member->report.uptime_ms / 1000 +
                                      age_s(member->received_ns, now_ns));
        }
    }
    return oldest;
}

json_t *sl_cluster_describe(const struct sl_cluster *cluster,
                            const struct sl_coordinator_view *view,
                            const struct sl_cluster_host *host, uint64_t now_ns)
{
    const bool is_over = cluster->end_ns != 0;
    const bool is_ending = is_over || view->stage >= SL_COORDINATOR_ENDING; /* servers leave */
    now_ns = is_over ? cluster->end_ns : now_ns;
    static const char *const stages[] = {
        [SL_COORDINATOR_WAITING_FOR_MEMBERS] = "waiting",
        [SL_COORDINATOR_RUNNING] = "running",
        [SL_COORDINATOR_ENDING] = "ending",
        [SL_COORDINATOR_OVER] = "over",
    };
    json_t *missing = json_array();
    for (uint32_t i = 0; i < view->missing.missing_count && !is_ending; i++) {
        (void)json_array_append_new(missing, json_string(view->missing.missing[i]));
    }
    return json_pack(
        "{s:o, s:f, s:o, s:s, s:o, s:o, s:o, s:o, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "age_s",
        sl_cluster_describe_number((double)host->view_age_ns / (double)SL_CLOCK_NS_PER_S), "time",
        host->unix_s, "title", text_or_null(host->title), "job",
        stages[is_over ? SL_COORDINATOR_OVER : view->stage], "mode", describe_mode(view),
        "uptime_s", sl_cluster_describe_number(uptime_s(cluster, view, now_ns)), "missing", missing,
        "trouble", is_over ? json_array() : sl_cluster_describe_trouble(view, host->is_store_away),
        "waits", view->consistency.mode != SL_CONSISTENCY_ASP, "coordinator", host->coordinator,
        "training", sl_cluster_describe_training(cluster), "totals", describe_totals(cluster),
        "servers", describe_servers(cluster, view, now_ns), "workers",
        describe_workers(cluster, view, now_ns), "tables", describe_tables(cluster), "checkpoint",
        describe_checkpoint(cluster, view->ps_count));
}
