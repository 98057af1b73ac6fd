#include "ps/coordinator/metrics.h"

#include "ps/coordinator/state.h"

#define FAILURES(reason, failure)                                                                  \
    {                                                                                              \
        "checkpoint_failures_total", "reason=\"" reason "\"", SL_METRICS_COUNTER,                  \
            SL_METRICS_PLAIN,                                                                      \
            offsetof(struct sl_coordinator_cells, failures[SL_COORDINATOR_FAILURE_##failure]),     \
            "Checkpoints of the job that were aborted."                                            \
    }

static const struct sl_metrics_row rows[] = {
    FAILURES("io", IO),         FAILURES("no_memory", NO_MEMORY),
    FAILURES("closed", CLOSED), FAILURES("deadline", DEADLINE),
    FAILURES("other", OTHER),
};

struct sl_metrics_source sl_coordinator_metrics_source(const struct sl_coordinator_cells *cells)
{
    return (struct sl_metrics_source){.rows = rows,
                                      .row_count = sizeof rows / sizeof *rows,
                                      .cells = cells,
                                      .is_active = &cells->is_active};
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
