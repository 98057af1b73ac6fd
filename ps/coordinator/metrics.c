#include "ps/coordinator/metrics.h"

#include "ps/coordinator/state.h"

#define GAUGE(name, labels, gauge, help)                                                           \
    {                                                                                              \
        name, labels, SL_METRICS_GAUGE, SL_METRICS_PLAIN,                                          \
            offsetof(struct sl_coordinator_cells, gauges[SL_COORDINATOR_GAUGE_##gauge]), help      \
    }
#define WORKERS(state, gauge) GAUGE("workers", "state=\"" state "\"", WORKERS_##gauge, WORKERS_HELP)
#define SERVERS(state, gauge) GAUGE("servers", "state=\"" state "\"", SERVERS_##gauge, SERVERS_HELP)
#define FAILURES(reason, failure)                                                                  \
    {                                                                                              \
        "checkpoint_failures_total", "reason=\"" reason "\"", SL_METRICS_COUNTER,                  \
            SL_METRICS_PLAIN,                                                                      \
            offsetof(struct sl_coordinator_cells, failures[SL_COORDINATOR_FAILURE_##failure]),     \
            "Checkpoints of the job that were aborted."                                            \
    }

#define WORKERS_HELP "Workers of the job, by state."
#define SERVERS_HELP "Servers of the job, by state."

static const struct sl_metrics_row rows[] = {
    WORKERS("running", RUNNING),
    WORKERS("disconnected", DISCONNECTED),
    WORKERS("expired", EXPIRED),
    WORKERS("left", LEFT),
    SERVERS("missing", MISSING),
    SERVERS("starting", STARTING),
    SERVERS("serving", SERVING),
    SERVERS("disconnected", DISCONNECTED),
    SERVERS("expired", EXPIRED),
    SERVERS("left", LEFT),
    GAUGE("clients", NULL, CLIENTS, "Connected clients that are no workers."),
    GAUGE("barriers", NULL, BARRIERS, "Barriers at which some member waits."),
    FAILURES("io", IO),
    FAILURES("no_memory", NO_MEMORY),
    FAILURES("closed", CLOSED),
    FAILURES("deadline", DEADLINE),
    FAILURES("other", OTHER),
};

struct sl_metrics_source sl_coordinator_metrics_source(const struct sl_coordinator_cells *cells)
{
    return (struct sl_metrics_source){.rows = rows,
                                      .row_count = sizeof rows / sizeof *rows,
                                      .cells = cells,
                                      .is_active = &cells->is_active};
}

static enum sl_coordinator_gauge state_of(const struct sl_coordinator_member *member)
{
    if (sl_coordinator_is_worker(member)) {
        return member->connected ? SL_COORDINATOR_GAUGE_WORKERS_RUNNING
                                 : SL_COORDINATOR_GAUGE_WORKERS_DISCONNECTED;
    }
    return !member->connected   ? SL_COORDINATOR_GAUGE_SERVERS_DISCONNECTED
           : member->registered ? SL_COORDINATOR_GAUGE_SERVERS_SERVING
                                : SL_COORDINATOR_GAUGE_SERVERS_STARTING;
}

/* Members; *has_server: by task. */
static void count_members(const struct sl_coordinator *coordinator, uint64_t *counts,
                          bool *has_server)
{
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        const struct sl_coordinator_member *member = coordinator->members[i];
        if (member->hello.role == SL_MESSAGE_ROLE_CLIENT) {
            counts[SL_COORDINATOR_GAUGE_CLIENTS] += member->connected;
            continue;
        }
        counts[state_of(member)]++;
        if (sl_coordinator_is_ps(member)) {
            has_server[member->hello.task_index] = true;
        }
    }
}

/* Tasks without a member. */
static void count_others(const struct sl_coordinator *coordinator, uint64_t *counts,
                         const bool *has_server)
{
    for (uint32_t task = 0; task < coordinator->worker_end; task++) {
        const struct sl_coordinator_worker *worker = &coordinator->workers[task];
        const bool has_left = worker->end == SL_COORDINATOR_END_LEFT;
        counts[has_left ? SL_COORDINATOR_GAUGE_WORKERS_LEFT
                        : SL_COORDINATOR_GAUGE_WORKERS_EXPIRED] += worker->left_job;
    }
    for (uint32_t task = 0; task < coordinator->options.ps_count; task++) {
        const struct sl_coordinator_ps *ps = &coordinator->ps[task];
        counts[ps->gone == SL_COORDINATOR_END_EXPIRED ? SL_COORDINATOR_GAUGE_SERVERS_EXPIRED
               : ps->shard_count != 0                 ? SL_COORDINATOR_GAUGE_SERVERS_LEFT
                                      : SL_COORDINATOR_GAUGE_SERVERS_MISSING] += !has_server[task];
    }
}

void sl_coordinator_metrics_update(const struct sl_coordinator *coordinator)
{
    struct sl_coordinator_cells *cells = coordinator->options.cells;
    uint64_t counts[SL_COORDINATOR_GAUGES] = {0};
    bool has_server[SL_LIMIT_PS] = {false};
    if (cells == NULL) {
        return;
    }
    count_members(coordinator, counts, has_server);
    count_others(coordinator, counts, has_server);
    counts[SL_COORDINATOR_GAUGE_BARRIERS] = coordinator->barriers.count;
    for (uint32_t i = 0; i < SL_COORDINATOR_GAUGES; i++) {
        sl_cell_set(&cells->gauges[i], counts[i]);
    }
    sl_cell_set(&cells->is_active, 1);
}

static enum sl_coordinator_failure failure_of(int err)
{
    switch (err) {
    case SL_ERR_IO:
        return SL_COORDINATOR_FAILURE_IO;
    case SL_ERR_NO_MEMORY:
        return SL_COORDINATOR_FAILURE_NO_MEMORY;
    case SL_ERR_CLOSED:
        return SL_COORDINATOR_FAILURE_CLOSED;
    case SL_ERR_DEADLINE:
        return SL_COORDINATOR_FAILURE_DEADLINE;
    default:
        return SL_COORDINATOR_FAILURE_OTHER;
    }
}

void sl_coordinator_metrics_failed(const struct sl_coordinator *coordinator, int err)
{
    if (coordinator->options.cells != NULL) {
        sl_cell_add(&coordinator->options.cells->failures[failure_of(err)], 1);
    }
}
