/* The cells of a reactor: what its turns did. Written by the reactor, read by any thread. */
#ifndef SL_REACTOR_METRICS_H
#define SL_REACTOR_METRICS_H

#include "core/metrics.h"

struct sl_reactor_cells {
    struct sl_cell turns, idle_turns, sleeps, mails, timers, events;
    struct sl_cell busy_ns;                        /* of turns that did work */
    struct sl_cell stalls, preempted, turn_ns_max; /* as in struct sl_reactor_stats */
};

/* detail: such as reactor="3"; NULL: none. Any thread. */
struct sl_metrics_source sl_reactor_metrics_source(const struct sl_reactor_cells *cells,
                                                   const char *detail);

#endif
