/* The order in which reactors get cores, computed from any hwloc topology: in topology.c of this
 * host, in tests of hosts with other hardware. */
#ifndef SL_REACTOR_TOPOLOGY_PLAN_H
#define SL_REACTOR_TOPOLOGY_PLAN_H

#include <hwloc.h>
#include <stdint.h>

#include "core/err.h"

struct sl_topology_plan {
    int *cores; /* the operating system's numbers, in the order of assignment */
    uint32_t count;
};

/* Fills *out with the logical cores of a loaded topology: the first hyper-thread of every physical
 * core in hwloc's order (neighbours share caches and NUMA nodes), then the second ones, and so on.
 * The caller frees out->cores. Errors: NO_MEMORY, UNSUPPORTED (no cores). Any thread. */
int sl_topology_plan_build(hwloc_topology_t topology, struct sl_topology_plan *out);

#endif
