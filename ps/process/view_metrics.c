#include "ps/process/view_metrics.h"

#include <stdio.h>

#include "ps/process/views.h"

enum row {
    ROWS,
    BYTES,
    PARTS,
    CREATED,
    ERASED,
    EVICTED,
    ADMITTED,
    REFUSED,
    WAITING,
    KEYS,
    HOT,
    FLOOR,
    STALENESS,
    BOUND,
    WORKER,
    SERVERS,
    WORKERS
};

#define STATES (SL_COORDINATOR_VIEW_LEFT + 1)

#define PLAIN(name, kind, help)                                                                    \
    {                                                                                              \
        name, NULL, SL_METRICS_##kind, SL_METRICS_PLAIN, 0, help                                   \
    }

static const struct sl_metrics_row rows[] = {
    [ROWS] = PLAIN("table_rows", GAUGE, "Rows of a table; elements of a dense one."),
    [BYTES] = PLAIN("table_bytes", GAUGE, "Memory of a table's rows, optimizer slots and index."),
    [PARTS] = PLAIN("table_part_bytes", GAUGE, "Memory of a sparse table, by part."),
    [CREATED] = PLAIN("table_rows_created_total", COUNTER, "Rows of a sparse table created."),
    [ERASED] =
        PLAIN("table_rows_erased_total", COUNTER, "Rows of a sparse table erased by clients."),
    [EVICTED] = PLAIN("table_rows_evicted_total", COUNTER, "Rows evicted by a table's policy."),
    [ADMITTED] = PLAIN("table_keys_admitted_total", COUNTER, "Keys that got a row after a wait."),
    [REFUSED] = PLAIN("table_pushes_refused_total", COUNTER, "Pushes of keys that got no row."),
    [WAITING] = PLAIN("table_keys_waiting", GAUGE, "Keys that wait for a row."),
    [KEYS] = PLAIN("keys_total", COUNTER, "Keys pulled and pushed; a push_pull counts twice."),
    [HOT] = {"hot_share", NULL, SL_METRICS_GAUGE_MAX, SL_METRICS_PPM, 0,
             "Share of the hottest key among the keys of a table on its shard, by samples."},
    [FLOOR] = PLAIN("clock_floor", GAUGE_MIN, "Iterations that every active worker has ended."),
    [STALENESS] = PLAIN("staleness_steps", GAUGE_MAX,
                        "Iterations by which the fastest active worker leads the slowest."),
    [BOUND] = PLAIN("staleness_bound_steps", GAUGE_MAX,
                    "Largest lead that a table with SSP permits; no series without one."),
    [WORKER] = PLAIN("worker_clock", GAUGE_MIN, "Iterations that an active worker has ended."),
    [SERVERS] = PLAIN("servers", GAUGE, "Servers of the job, by state."),
    [WORKERS] = PLAIN("workers", GAUGE, "Workers of the job, by state."),
};

/* By sl_coordinator_view_state. */
static const char *const states[STATES] = {
    "state=\"missing\"",      "state=\"starting\"", "state=\"running\"",
    "state=\"disconnected\"", "state=\"expired\"",  "state=\"left\"",
};

static void visit_members(const struct sl_coordinator_view *view,
                          struct sl_metrics_visitor *visitor)
{
    uint64_t servers[STATES] = {0}, workers[STATES] = {0};
    for (uint32_t task = 0; task < view->ps_count; task++) {
        servers[view->servers[task].member.state]++;
    }
    for (uint32_t task = 0; task < view->worker_end; task++) {
        workers[view->workers[task].state]++;
    }
    for (uint32_t state = 0; state < STATES; state++) {
        const bool serves = state == SL_COORDINATOR_VIEW_RUNNING;
        sl_metrics_visit(visitor, &rows[SERVERS], serves ? "state=\"serving\"" : states[state],
                         servers[state]);
        sl_metrics_visit(visitor, &rows[WORKERS], states[state], workers[state]);
    }
}

struct by_label {
    const char *value;
    uint64_t number;
};

/* Visits a metric of the table with a second label. */
static void visit_by(struct sl_metrics_visitor *visitor, enum row row, const char *table,
                     const char *label, const struct by_label *items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char labels[SL_METRICS_LABELS_BYTES] = "";
        sl_metrics_label(labels, "table", table);
        sl_metrics_label(labels, label, items[i].value);
        sl_metrics_visit(visitor, &rows[row], labels, items[i].number);
    }
}

/* Returns true when the table has ever lost a row, or refused one. Others need none of these
 * series, which are many. */
static bool forgets(const struct sl_message_table_stats *stats)
{
    return stats->rows_created > stats->rows || stats->refused > 0;
}

static void visit_forgetting(const struct sl_message_table_stats *stats, const char *labels,
                             struct sl_metrics_visitor *visitor)
{
    const struct by_label parts[] = {{"rows", stats->bytes_rows},
                                     {"index", stats->bytes_index},
                                     {"admission", stats->bytes_admission}};
    const struct by_label reasons[] = {{"ttl", stats->evicted_ttl},
                                       {"count", stats->evicted_count},
                                       {"l2", stats->evicted_l2},
                                       {"room", stats->evicted_room}};
    visit_by(visitor, PARTS, stats->name, "part", parts, sizeof parts / sizeof parts[0]);
    visit_by(visitor, EVICTED, stats->name, "reason", reasons, sizeof reasons / sizeof reasons[0]);
    sl_metrics_visit(visitor, &rows[CREATED], labels, stats->rows_created);
    sl_metrics_visit(visitor, &rows[ERASED], labels, stats->rows_erased);
    sl_metrics_visit(visitor, &rows[ADMITTED], labels, stats->admitted);
    sl_metrics_visit(visitor, &rows[REFUSED], labels, stats->refused);
    sl_metrics_visit(visitor, &rows[WAITING], labels, stats->waiting);
}

static void visit_table(const struct sl_shard_table_view *table, struct sl_metrics_visitor *visitor)
{
    char labels[SL_METRICS_LABELS_BYTES] = "";
    sl_metrics_label(labels, "table", table->stats.name);
    sl_metrics_visit(visitor, &rows[ROWS], labels, table->stats.rows);
    sl_metrics_visit(visitor, &rows[BYTES], labels, table->stats.bytes);
    if (forgets(&table->stats)) {
        visit_forgetting(&table->stats, labels, visitor);
    }
    if (table->hot.sampled > 0 && table->hot.count > 0) {
        const uint32_t most = table->hot.keys[0].count - table->hot.keys[0].error;
        sl_metrics_visit(visitor, &rows[HOT], labels,
                         most * UINT64_C(1000000) / table->hot.sampled);
    }
    const struct by_label ops[] = {{"pull", table->stats.pulled_rows},
                                   {"push", table->stats.pushed_rows}};
    visit_by(visitor, KEYS, table->stats.name, "op", ops, sizeof ops / sizeof ops[0]);
}

/* Without an active worker there is no floor. */
static void visit_clocks(const struct sl_shard_view *view, struct sl_metrics_visitor *visitor)
{
    bool has_active = false;
    for (uint32_t i = 0; i < view->worker_count; i++) {
        char label[SL_METRICS_LABELS_BYTES];
        if (view->workers[i].is_active && i < SL_VIEW_METRICS_WORKERS) {
            (void)snprintf(label, sizeof label, "worker=\"%u\"", i);
            sl_metrics_visit(visitor, &rows[WORKER], label, view->workers[i].clock);
        }
        has_active = has_active || view->workers[i].is_active;
    }
    const bool leads = has_active && view->clock_max > view->clock_min;
    if (has_active) {
        sl_metrics_visit(visitor, &rows[FLOOR], "", view->clock_min);
    }
    sl_metrics_visit(visitor, &rows[STALENESS], "", leads ? view->clock_max - view->clock_min : 0);
    if (view->staleness_bound > 0) {
        sl_metrics_visit(visitor, &rows[BOUND], "", view->staleness_bound);
    }
}

static void view_metrics_collect(void *ctx, struct sl_metrics_visitor *visitor)
{
    const struct sl_process *process = ctx;
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    uint64_t age_ns;
    if (process->observer.views == NULL) {
        return;
    }
    const struct sl_coordinator_view *members =
        sl_process_views_coordinator(process, now_ns, &age_ns);
    if (members != NULL) {
        visit_members(members, visitor);
    }
    SL_PROCESS_FOREACH (hosted, process) {
        const struct sl_server_view *view = sl_process_views_shard(hosted, now_ns);
        for (uint32_t t = 0; view != NULL && view->serves && t < view->shard.table_count; t++) {
            visit_table(&view->shard.tables[t], visitor);
        }
        if (view != NULL && view->serves) {
            visit_clocks(&view->shard, visitor);
        }
    }
}

struct sl_metrics_source sl_view_metrics_source(struct sl_process *process)
{
    return (struct sl_metrics_source){.collect = view_metrics_collect, .ctx = process};
}
