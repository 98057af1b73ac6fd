/* The machine's cores, as hwloc sees them, restricted to those that this process may use. Before
 * start; any thread. */
#ifndef SL_REACTOR_TOPOLOGY_H
#define SL_REACTOR_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/err.h"

/* Logical cores available to this process (its affinity mask, cgroup limits not counted), >= 1. */
uint32_t sl_topology_core_count(void);

/* The operating system's number of the core for reactor `index`: one per physical core first, near
 * each other, hyper-threads last; from_last counts from the other end, so that workers on the same
 * machine start away from the ps. Errors: INVALID when index >= core count, UNSUPPORTED. */
int sl_topology_core_for(uint32_t index, bool from_last, int *out_core);

/* Pins the calling thread. Errors: INVALID, UNSUPPORTED. */
int sl_topology_pin_thread(int core);

/* The calling thread may run where the main thread may, which is not pinned. */
void sl_topology_unpin_thread(void);

/* The NUMA node of a core, or -1 where the machine has one node only. */
int sl_topology_numa_node(int core);

#endif
