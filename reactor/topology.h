/* The host's cores from hwloc, restricted to those that this process may use. Before start; any
 * thread. */
#ifndef SL_REACTOR_TOPOLOGY_H
#define SL_REACTOR_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* Logical cores in the affinity mask of the process (not limited by cgroup quotas), >= 1. */
uint32_t sl_topology_core_count(void);

/* The operating system's number of the core for reactor `index`: one per physical core first,
 * nearby cores together, second hyper-threads last. from_last counts from the other end, so that
 * workers on the same host do not start on the servers' cores. Errors: INVALID if index >= core
 * count, UNSUPPORTED. */
int sl_topology_core_for(uint32_t index, bool from_last, int *out_core);

/* Pins the calling thread. Errors: INVALID, UNSUPPORTED. */
int sl_topology_pin_thread(int core);

#endif
