/* The metrics of the coordinator: its members by state, barriers, failed checkpoints. The cells
 * outlive the coordinators that a process hosts one after the other, and have series only while
 * there is one. Written by the owner reactor. */
#ifndef SL_PS_COORDINATOR_METRICS_H
#define SL_PS_COORDINATOR_METRICS_H

#include "core/metrics.h"

struct sl_coordinator;

enum sl_coordinator_gauge {
    SL_COORDINATOR_GAUGE_WORKERS_RUNNING,
    SL_COORDINATOR_GAUGE_WORKERS_DISCONNECTED,
    SL_COORDINATOR_GAUGE_WORKERS_EXPIRED,
    SL_COORDINATOR_GAUGE_WORKERS_LEFT,
    SL_COORDINATOR_GAUGE_SERVERS_MISSING, /* never registered */
    SL_COORDINATOR_GAUGE_SERVERS_STARTING,
    SL_COORDINATOR_GAUGE_SERVERS_SERVING,
    SL_COORDINATOR_GAUGE_SERVERS_DISCONNECTED,
    SL_COORDINATOR_GAUGE_SERVERS_EXPIRED,
    SL_COORDINATOR_GAUGE_SERVERS_LEFT,
    SL_COORDINATOR_GAUGE_CLIENTS,  /* connected */
    SL_COORDINATOR_GAUGE_BARRIERS, /* at which some member waits */
    SL_COORDINATOR_GAUGES
};

enum sl_coordinator_failure {
    SL_COORDINATOR_FAILURE_IO,
    SL_COORDINATOR_FAILURE_NO_MEMORY,
    SL_COORDINATOR_FAILURE_CLOSED,
    SL_COORDINATOR_FAILURE_DEADLINE,
    SL_COORDINATOR_FAILURE_OTHER,
    SL_COORDINATOR_FAILURES
};

struct sl_coordinator_cells {
    struct sl_cell is_active; /* 1: this process hosts the coordinator */
    struct sl_cell gauges[SL_COORDINATOR_GAUGES];
    struct sl_cell failures[SL_COORDINATOR_FAILURES]; /* of checkpoints */
};

/* Returns a source of the cells, without labels. */
struct sl_metrics_source sl_coordinator_metrics_source(const struct sl_coordinator_cells *cells);

/* Counts the members anew; with each tick. */
void sl_coordinator_metrics_update(const struct sl_coordinator *coordinator);

/* Counts a checkpoint that failed with err. */
void sl_coordinator_metrics_failed(const struct sl_coordinator *coordinator, int err);

#endif
