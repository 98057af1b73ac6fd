/* The order in which cores are given to reactors, worked out from any hwloc topology: what
 * topology.c does once for this machine, and what the tests do for machines that they have not. */
#ifndef SL_REACTOR_TOPOLOGY_PLAN_H
#define SL_REACTOR_TOPOLOGY_PLAN_H

#include <hwloc.h>
#include <stdint.h>

#include "core/err.h"

struct sl_topology_place {
    int core;      /* the operating system's number */
    int numa_node; /* the operating system's number, or -1 where there is one node only */
};

struct sl_topology_plan {
    struct sl_topology_place *places; /* in the order of giving */
    uint32_t count;
};

/* Fills *out with the logical cores of a loaded topology: the first hyper-thread of every physical
 * core, in hwloc's order (neighbours share caches and NUMA nodes), then every second one, and so
 * on. The caller frees out->places. Errors: NO_MEMORY, UNSUPPORTED (there is none). Any thread. */
int sl_topology_plan_build(hwloc_topology_t topology, struct sl_topology_plan *out);

#endif
