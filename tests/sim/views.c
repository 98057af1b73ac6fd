#include "tests/sim/views.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/coordinator/state.h"
#include "ps/replication/state.h"
#include "ps/server/state.h"
#include "reactor/view.h"
#include "tests/sim/cluster.h"

#define LOOK_NS             (37 * SL_CLOCK_NS_PER_MS)
#define TURNS_MAX           100 /* in which a view must be there */

#define BREACH(oracle, ...) sl_sim_fail(&(oracle)->breach, "views", __VA_ARGS__)

static struct sl_reactor *reactor_of(const struct sl_sim_ps *ps, const struct sl_sim_view *view)
{
    return view->hosted == NULL ? ps->process.reactors[0] : view->hosted->core->reactor;
}

static void make(struct sl_sim_view *view, struct sl_reactor *reactor, size_t bytes,
                 sl_view_fill_fn *fill, void *ctx)
{
    int err = sl_view_create(reactor, bytes, fill, ctx, &view->view);
    sl_assert(err == 0);
}

void sl_sim_views_init(struct sl_sim_ps *ps)
{
    make(&ps->views.coordinator, ps->process.reactors[0], sizeof(struct sl_coordinator_view),
         sl_coordinator_view_fill, &ps->wiring.coordinator);
}

static struct sl_sim_view *view_of(struct sl_sim_ps *ps, struct sl_process_hosted *hosted)
{
    struct sl_sim_view *view = ps->views.shards;
    while (view != NULL && view->hosted != hosted) {
        view = view->next;
    }
    if (view == NULL) {
        view = calloc(1, sizeof *view);
        sl_assert(view != NULL);
        *view = (struct sl_sim_view){.next = ps->views.shards, .hosted = hosted};
        ps->views.shards = view;
        make(view, hosted->core->reactor, sizeof(struct sl_server_view), sl_server_view_fill,
             &hosted->server);
    }
    return view;
}

void sl_sim_views_fini(struct sl_sim_ps *ps)
{
    sl_view_destroy(&ps->views.coordinator.view);
    while (ps->views.shards != NULL) {
        struct sl_sim_view *view = ps->views.shards;
        ps->views.shards = view->next;
        sl_view_destroy(&view->view);
        free(view);
    }
}

/* What a view shows */

static uint64_t digest_server(const void *read)
{
    const struct sl_server_view *view = read;
    const struct sl_shard_view *shard = &view->shard;
    if (view->stage == SL_SERVER_VIEW_NO_SHARD) {
        return 1;
    }
    return sl_hash_bytes(shard->tables, shard->table_count * sizeof shard->tables[0],
                         view->slow_count) ^
           sl_hash_bytes(shard->workers, shard->worker_count * sizeof shard->workers[0],
                         shard->clock_min);
}

static uint64_t digest_coordinator(const void *read)
{
    const struct sl_coordinator_view *view = read;
    if (!view->is_here) {
        return 1;
    }
    return sl_hash_bytes(view->servers, view->ps_count * sizeof view->servers[0], view->stage) ^
           sl_hash_bytes(view->workers, view->worker_end * sizeof view->workers[0], view->ps_count);
}

static void check_slow(struct sl_sim_oracle *oracle, const struct sl_server_slow_request *slow)
{
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < SL_REQUEST_PHASES; i++) {
        sum_ns += slow->ns[i];
    }
    const bool is_tick = slow->section.op == SL_REQUEST_TICK;
    if (sum_ns != slow->total_ns || sum_ns < SL_SIM_VIEWS_SLOW_NS ||
        (slow->table[0] == '\0') != is_tick) {
        BREACH(oracle,
               "a slow request, operation %u, table \"%s\", took %" PRIu64
               " us, its phases %" PRIu64 " us",
               slow->section.op, slow->table, sl_sim_us(slow->total_ns), sl_sim_us(sum_ns));
    }
}

static void check_tables(struct sl_sim_oracle *oracle, struct sl_sim_view *held,
                         const struct sl_server_view *view)
{
    const struct sl_shard_view *shard = &view->shard;
    for (uint32_t i = 0; i < shard->table_count && i < SL_SIM_TABLES_MAX; i++) {
        const struct sl_message_table_stats *now = &shard->tables[i].stats;
        struct sl_message_table_stats *before = &held->tables[i];
        if (held->served && strcmp(now->name, before->name) == 0 &&
            (now->pulled_rows < before->pulled_rows || now->pushed_rows < before->pushed_rows ||
             now->steps < before->steps)) {
            BREACH(oracle, "counts of table %s on shard %u go backwards", now->name,
                   view->shard_index);
        }
        *before = *now;
    }
}

static void check_server(struct sl_sim_oracle *oracle, struct sl_sim_view *held,
                         const struct sl_server_view *view)
{
    const struct sl_server *server = held->hosted->server;
    const uint64_t epoch = server == NULL ? 0 : server->replica->config.epoch;
    held->looks = epoch == held->epoch ? held->looks + 1 : 0;
    held->epoch = epoch;
    if (view->stage == SL_SERVER_VIEW_NO_SHARD || held->looks < 2) {
        held->served = false;
        held->slow_count = view->slow_count;
        return;
    }
    if (view->slow_count < held->slow_count) {
        BREACH(oracle, "shard %u forgets slow requests", view->shard_index);
    }
    for (uint64_t i = held->slow_count; i < view->slow_count; i++) {
        if (i + SL_SERVER_SLOW_REQUESTS >= view->slow_count) {
            check_slow(oracle, &view->slow[i % SL_SERVER_SLOW_REQUESTS]);
        }
    }
    const bool serves = view->serves && view->stage == SL_SERVER_VIEW_OPEN;
    if (serves) {
        check_tables(oracle, held, view);
    }
    held->served = serves;
    held->slow_count = view->slow_count;
}

/* Every worker that was a member when the reader asked, and still is one, is shown as such. */
static void check_coordinator(struct sl_sim_oracle *oracle, const struct sl_sim_view *held,
                              const struct sl_coordinator_view *view,
                              const struct sl_coordinator *coordinator)
{
    for (uint32_t task = 0; view->is_here && task < 16; task++) {
        const bool is_member =
            held->members[task] &&
            sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_WORKER, task) != NULL;
        const enum sl_coordinator_view_state state = view->workers[task].state;
        if (is_member && (state == SL_COORDINATOR_VIEW_UNKNOWN || task >= view->worker_end)) {
            BREACH(oracle, "worker/%u is a member, and the coordinator's view does not show it",
                   task);
        }
    }
}

/* Looking */

static uint64_t turns_of(const struct sl_reactor *reactor)
{
    struct sl_reactor_stats stats;
    sl_reactor_get_stats(reactor, &stats);
    return stats.turns;
}

static void ask(struct sl_sim_ps *ps, struct sl_sim_view *held)
{
    const struct sl_coordinator *coordinator = ps->wiring.coordinator;
    for (uint32_t task = 0; coordinator != NULL && task < 16; task++) {
        held->members[task] =
            sl_coordinator_find(coordinator, SL_MESSAGE_ROLE_WORKER, task) != NULL;
    }
    held->is_asked = true;
    held->turns_asked = turns_of(reactor_of(ps, held));
    sl_view_request(held->view);
}

/* Looks at a view. True: it has come since the reader asked. */
static bool look(struct sl_sim_ps *ps, struct sl_sim_view *held,
                 uint64_t (*digest)(const void *read), const void **read)
{
    uint64_t age_ns;
    *read = sl_view_read(held->view, sl_sim_process_now(&ps->process), &age_ns);
    const uint64_t now = *read == NULL ? 0 : digest(*read);
    const bool is_new = held->is_asked && sl_view_is_answered(held->view);
    if (!is_new && now != held->digest) {
        BREACH(ps->options.oracle, "a view of %s changes while its reader holds it",
               sl_reactor_name(reactor_of(ps, held)));
    }
    if (held->is_asked && !is_new &&
        turns_of(reactor_of(ps, held)) > held->turns_asked + TURNS_MAX) {
        BREACH(ps->options.oracle, "%s had %u turns, and no view is there",
               sl_reactor_name(reactor_of(ps, held)), TURNS_MAX);
    }
    held->digest = now;
    return is_new;
}

/* Looks at all views of the ps, and asks for more. */
static void look_at(struct sl_sim_ps *ps)
{
    struct sl_sim_view *coordinator = &ps->views.coordinator;
    const void *read;
    if (!ps->running) {
        return;
    }
    if (look(ps, coordinator, digest_coordinator, &read)) {
        check_coordinator(ps->options.oracle, coordinator, read, ps->wiring.coordinator);
    }
    if (sl_view_is_answered(coordinator->view)) {
        ask(ps, coordinator);
    }
    SL_PROCESS_FOREACH (hosted, &ps->wiring) {
        struct sl_sim_view *shard = view_of(ps, hosted);
        if (look(ps, shard, digest_server, &read)) {
            check_server(ps->options.oracle, shard, read);
        }
        if (sl_view_is_answered(shard->view)) {
            ask(ps, shard);
        }
    }
    sl_sim_process_look(&ps->process);
}

uint64_t sl_sim_views_look(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        look_at(&cluster->ps[i]);
    }
    if (cluster->scheduler.running) {
        look_at(&cluster->scheduler);
    }
    return cluster->world->now_ns + LOOK_NS;
}

/* The end */

/* The view shows the shard as it is. */
static void compare(struct sl_sim_oracle *oracle, const struct sl_server_view *view,
                    const struct sl_server *server)
{
    struct sl_message now = {.kind = SL_MESSAGE_STATS};
    if (server->shard == NULL) {
        return;
    }
    int err = sl_shard_stats(server->shard, &now.stats);
    sl_assert(err == 0);
    bool agrees = view->stage != SL_SERVER_VIEW_NO_SHARD &&
                  view->shard.table_count == now.stats.table_count &&
                  view->shard.clock_min == sl_shard_clock_min(server->shard) &&
                  view->slow_count == server->slow.count;
    for (uint32_t i = 0; agrees && i < now.stats.table_count; i++) {
        agrees = memcmp(&view->shard.tables[i].stats, &now.stats.tables[i],
                        sizeof now.stats.tables[i]) == 0;
    }
    sl_message_fini(&now);
    if (!agrees) {
        BREACH(oracle, "nothing goes on, and the view of shard %u does not show the shard as it is",
               server->options.shard.index);
    }
}

void sl_sim_views_final(struct sl_sim_cluster *cluster)
{
    uint64_t age_ns;
    if (cluster->views_ns == SL_CLOCK_NEVER) {
        return;
    }
    /* Those that are on their way, and the next ones. */
    const uint64_t end_ns = cluster->world->now_ns + 10 * SL_CLOCK_NS_PER_S;
    while (sl_sim_world_is_good(cluster->world) && cluster->world->now_ns < end_ns) {
        sl_sim_world_moment(cluster->world);
    }
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        struct sl_sim_ps *ps = &cluster->ps[i];
        SL_PROCESS_FOREACH (hosted, &ps->wiring) {
            const struct sl_server_view *view =
                sl_view_read(view_of(ps, hosted)->view, sl_sim_process_now(&ps->process), &age_ns);
            if (view == NULL || age_ns > 5 * SL_CLOCK_NS_PER_S) {
                BREACH(&cluster->oracle, "nothing goes on, and a view of ps/%u is old", i);
            } else if (hosted->server != NULL) {
                compare(&cluster->oracle, view, hosted->server);
            }
        }
    }
    cluster->views_ns = SL_CLOCK_NEVER;
}
