#include "reactor/topology.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "reactor/topology_plan.h"

/* The plan of this host, built at the first call and kept until the process ends. */
static struct sl_topology_plan machine;
static pthread_once_t machine_once = PTHREAD_ONCE_INIT;

/* Appends hyper-thread `rank` of every physical core that has it. */
static void append_rank(hwloc_topology_t topology, uint32_t rank, struct sl_topology_plan *plan)
{
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL) {
        hwloc_obj_t unit =
            hwloc_get_obj_inside_cpuset_by_type(topology, core->cpuset, HWLOC_OBJ_PU, rank);
        if (unit != NULL) {
            plan->cores[plan->count++] = (int)unit->os_index;
        }
    }
}

/* For hosts that do not report which logical cores share a physical one. */
static void append_units(hwloc_topology_t topology, struct sl_topology_plan *plan)
{
    hwloc_obj_t unit = NULL;
    while ((unit = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, unit)) != NULL) {
        plan->cores[plan->count++] = (int)unit->os_index;
    }
}

int sl_topology_plan_build(hwloc_topology_t topology, struct sl_topology_plan *out)
{
    int unit_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    if (unit_count <= 0) {
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_topology_plan plan = {.cores = calloc((size_t)unit_count, sizeof *plan.cores)};
    if (plan.cores == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    uint32_t placed_before;
    uint32_t rank = 0;
    do {
        placed_before = plan.count;
        append_rank(topology, rank++, &plan);
    } while (plan.count > placed_before);
    if (plan.count == 0) {
        append_units(topology, &plan);
    }
    sl_assert(plan.count <= (uint32_t)unit_count);
    *out = plan;
    return 0;
}

/* Loads the part of the host that the process may use. */
static int topology_load(hwloc_topology_t topology)
{
    /* Keeps caches, by which hwloc numbers cores so that neighbours share them. */
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    int err = SL_ERR_UNSUPPORTED;
    if (allowed != NULL && hwloc_topology_load(topology) == 0 &&
        hwloc_get_proc_cpubind(topology, getpid(), allowed, 0) == 0 &&
        hwloc_topology_restrict(topology, allowed, HWLOC_RESTRICT_FLAG_REMOVE_CPULESS) == 0) {
        err = 0;
    }
    hwloc_bitmap_free(allowed);
    return err;
}

static int plan_from_hwloc(struct sl_topology_plan *out)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        return SL_ERR_UNSUPPORTED;
    }
    int err = topology_load(topology);
    err = err != 0 ? err : sl_topology_plan_build(topology, out);
    hwloc_topology_destroy(topology);
    return err;
}

/* Fallback: the affinity mask in numeric order. */
static int plan_from_affinity(struct sl_topology_plan *out)
{
    cpu_set_t allowed;
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed) != 0) {
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_topology_plan plan = {
        .cores = calloc((size_t)CPU_COUNT(&allowed), sizeof *plan.cores),
    };
    if (plan.cores == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed)) {
            plan.cores[plan.count++] = (int)core;
        }
    }
    *out = plan;
    return 0;
}

static void machine_load(void)
{
    if (plan_from_hwloc(&machine) != 0) {
        sl_log_warn("hwloc cannot read this machine's topology: cores are taken in the order of "
                    "their numbers");
        if (plan_from_affinity(&machine) != 0) {
            sl_log_warn("the affinity mask cannot be read: reactors cannot be pinned");
        }
    }
}

static const struct sl_topology_plan *machine_plan(void)
{
    pthread_once(&machine_once, machine_load);
    return &machine;
}

uint32_t sl_topology_core_count(void)
{
    uint32_t count = machine_plan()->count;
    return count > 0 ? count : 1;
}

int sl_topology_core_for(uint32_t index, bool from_last, int *out_core)
{
    const struct sl_topology_plan *plan = machine_plan();
    if (plan->count == 0) {
        return SL_ERR_UNSUPPORTED;
    }
    if (index >= plan->count) {
        return SL_ERR_INVALID;
    }
    *out_core = plan->cores[from_last ? plan->count - 1 - index : index];
    return 0;
}

int sl_topology_pin_thread(int core)
{
    if (core < 0 || core >= CPU_SETSIZE) {
        return SL_ERR_INVALID;
    }
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((size_t)core, &only);
    int err = pthread_setaffinity_np(pthread_self(), sizeof only, &only);
    if (err == 0) {
        return 0;
    }
    return err == EINVAL ? SL_ERR_INVALID : SL_ERR_UNSUPPORTED;
}
