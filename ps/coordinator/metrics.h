/* The metrics of the coordinator that its view does not have: failed checkpoints. The cells outlive
 * the coordinators that a process hosts one after the other, and have series only while there is
 * one. Written by the owner reactor. */
#ifndef SL_PS_COORDINATOR_METRICS_H
#define SL_PS_COORDINATOR_METRICS_H

#include "core/metrics.h"

struct sl_coordinator;

enum sl_coordinator_failure {
    SL_COORDINATOR_FAILURE_IO,
    SL_COORDINATOR_FAILURE_NO_MEMORY,
    SL_COORDINATOR_FAILURE_CLOSED,
    SL_COORDINATOR_FAILURE_DEADLINE,
    SL_COORDINATOR_FAILURE_OTHER,
    SL_COORDINATOR_FAILURES
};

struct sl_coordinator_cells {
    struct sl_cell is_active;                         /* 1: this process hosts the coordinator */
    struct sl_cell failures[SL_COORDINATOR_FAILURES]; /* of checkpoints */
};

/* Returns a source of the cells, without labels. */
struct sl_metrics_source sl_coordinator_metrics_source(const struct sl_coordinator_cells *cells);

/* Counts a checkpoint that failed with err. */
void sl_coordinator_metrics_failed(const struct sl_coordinator *coordinator, int err);

#endif
