#include "ps/coordinator/view.h"

#include <string.h>

#include "ps/coordinator/cluster.h"
#include "ps/coordinator/state.h"

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The staleness of BSP is 0. */
static struct sl_consistency_spec stricter(struct sl_consistency_spec a,
                                           struct sl_consistency_spec b)
{
    const bool is_b = b.mode != SL_CONSISTENCY_ASP &&
                      (a.mode == SL_CONSISTENCY_ASP || b.mode == SL_CONSISTENCY_BSP ||
                       (a.mode == SL_CONSISTENCY_SSP && b.staleness < a.staleness));
    return is_b ? b : a;
}

static void fill_job(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view)
{
    const bool has_stages = coordinator->options.stage_changed != NULL;
    view->stage = !has_stages && coordinator->cluster.is_ready ? SL_COORDINATOR_RUNNING
                                                               : coordinator->job.stage;
    view->missing.missing_count = 0;
    (void)sl_coordinator_cluster_missing(coordinator, &view->missing);
    view->has_tables = false;
    view->consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_ASP};
    for (uint32_t id = 0; id < coordinator->tables.count; id++) {
        const struct sl_table_spec *spec = &coordinator->tables.specs[id];
        if (spec->name[0] != '\0') {
            view->has_tables = true;
            view->consistency = stricter(view->consistency, spec->consistency);
        }
    }
    view->ps_count = coordinator->placement.ps_end;
    view->replicas = coordinator->placement.replicas;
    view->shard_count = coordinator->placement.shard_count;
    view->task_end = larger(view->task_end, view->shard_count);
    view->task_end = larger(view->task_end, view->worker_end);
    view->task_end = larger(view->task_end, larger(view->ps_count, coordinator->job.worker_count));
    view->task_end = larger(view->task_end, coordinator->job.worker_end);
    view->worker_end = view->next_task = view->next_member = 0;
}

static enum sl_coordinator_view_state state_of_end(enum sl_coordinator_end end)
{
    return end == SL_COORDINATOR_END_NONE   ? SL_COORDINATOR_VIEW_UNKNOWN
           : end == SL_COORDINATOR_END_LEFT ? SL_COORDINATOR_VIEW_LEFT
                                            : SL_COORDINATOR_VIEW_EXPIRED;
}

static void fill_server(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view,
                        uint32_t task)
{
    const struct sl_coordinator_ps *ps = &coordinator->ps[task];
    view->servers[task].member = (struct sl_coordinator_view_member){
        .state = ps->gone != SL_COORDINATOR_END_NONE ? state_of_end(ps->gone)
                 : sl_coordinator_is_known(ps)       ? SL_COORDINATOR_VIEW_LEFT
                                                     : SL_COORDINATOR_VIEW_UNKNOWN,
        .last_seen_ns = ps->last_seen_ns,
    };
    view->servers[task].is_part = sl_coordinator_has_ps(coordinator, task);
    view->servers[task].drains = ps->place == SL_COORDINATOR_DRAINING;
    view->servers[task].shard_count = ps->shard_count;
    memcpy(view->servers[task].data_endpoint, ps->data_endpoint, sizeof ps->data_endpoint);
}

static void fill_shard(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view,
                       uint32_t index)
{
    const struct sl_coordinator_shard *shard = &coordinator->placement.shards[index];
    view->shards[index] = (struct sl_coordinator_view_shard){
        .primary = shard->primary,
        .backup = shard->backup,
        .in_sync = shard->in_sync,
        .moves_to = shard->moves_to,
    };
}

static void fill_worker(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view,
                        uint32_t task)
{
    const struct sl_coordinator_worker *worker = &coordinator->workers[task];
    struct sl_coordinator_view_member *shown = &view->workers[task];
    *shown = (struct sl_coordinator_view_member){
        .state = state_of_end(worker->end),
        .last_seen_ns = worker->end_ns,
    };
    if (worker->end != SL_COORDINATOR_END_NONE || task < coordinator->job.worker_count) {
        view->worker_end = task + 1;
    }
}

/* Fills in the tasks as if they had no member. */
static void fill_tasks(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view)
{
    const uint32_t end = view->next_task + SL_COORDINATOR_VIEW_SLICE;
    view->departures = view->next_task == 0 ? coordinator->departures : view->departures;
    for (; view->next_task < view->task_end && view->next_task < end; view->next_task++) {
        if (view->next_task < view->ps_count) {
            fill_server(coordinator, view, view->next_task);
        }
        if (view->next_task < view->shard_count &&
            view->next_task < coordinator->placement.shard_count) {
            fill_shard(coordinator, view, view->next_task);
        }
        fill_worker(coordinator, view, view->next_task);
    }
}

static void fill_member(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view,
                        const struct sl_coordinator_member *member)
{
    const bool runs = member->registered && coordinator->cluster.is_ready;
    const struct sl_coordinator_view_member shown = {
        .state = !member->connected ? SL_COORDINATOR_VIEW_DISCONNECTED
                 : runs             ? SL_COORDINATOR_VIEW_RUNNING
                                    : SL_COORDINATOR_VIEW_STARTING,
        .last_seen_ns = member->last_seen_ns,
    };
    const uint32_t task = member->hello.task_index;
    if (sl_coordinator_is_ps(member)) {
        view->servers[task].member = shown;
    } else if (sl_coordinator_is_worker(member)) {
        view->workers[task] = shown;
        view->worker_end = task < view->worker_end ? view->worker_end : task + 1;
    }
}

/* Fills in the members. A departure changes their order and its task, and leads to a new walk. */
static bool fill_members(const struct sl_coordinator *coordinator, struct sl_coordinator_view *view)
{
    if (view->departures != coordinator->departures) {
        view->next_task = view->next_member = 0;
        return false;
    }
    const uint32_t end = view->next_member + SL_COORDINATOR_VIEW_SLICE;
    for (; view->next_member < coordinator->member_count && view->next_member < end;
         view->next_member++) {
        fill_member(coordinator, view, coordinator->members[view->next_member]);
    }
    return view->next_member >= coordinator->member_count;
}

bool sl_coordinator_view_fill(void *ctx, void *into, uint32_t slice)
{
    const struct sl_coordinator *coordinator = *(struct sl_coordinator **)ctx;
    struct sl_coordinator_view *view = into;
    view->is_here = coordinator != NULL;
    if (!view->is_here) {
        return true;
    }
    if (slice == 0) {
        fill_job(coordinator, view);
    }
    if (view->next_task < view->task_end) {
        fill_tasks(coordinator, view);
        return false;
    }
    return fill_members(coordinator, view);
}
