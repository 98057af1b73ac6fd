#include "reactor/metrics.h"

#define ROW(kind, unit, member, name, help)                                                        \
    {                                                                                              \
        name, NULL, SL_METRICS_##kind, SL_METRICS_##unit,                                          \
            offsetof(struct sl_reactor_cells, member), help                                        \
    }

static const struct sl_metrics_row rows[] = {
    ROW(COUNTER, NS, busy_ns, "reactor_busy_seconds_total", "Time of loop iterations with work."),
    ROW(COUNTER, PLAIN, turns, "reactor_iterations_total", "Loop iterations, idle ones included."),
    ROW(COUNTER, PLAIN, idle_turns, "reactor_idle_iterations_total",
        "Loop iterations without work."),
    ROW(COUNTER, PLAIN, sleeps, "reactor_sleeps_total", "Times that an idle loop slept."),
    ROW(COUNTER, PLAIN, stalls, "reactor_stalls_total",
        "Loop iterations over 1 ms that computed or blocked so long."),
    ROW(COUNTER, PLAIN, preempted, "reactor_preempted_total",
        "Loop iterations over 1 ms that waited for a processor."),
    ROW(GAUGE_MAX, NS, turn_ns_max, "reactor_longest_iteration_seconds",
        "Longest loop iteration since the start."),
};

struct sl_metrics_source sl_reactor_metrics_source(const struct sl_reactor_cells *cells,
                                                   const char *detail)
{
    return (struct sl_metrics_source){
        .rows = rows, .row_count = sizeof rows / sizeof rows[0], .cells = cells, .detail = detail};
}
