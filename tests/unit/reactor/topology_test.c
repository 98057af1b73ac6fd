#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "reactor/topology.h"
#include "reactor/topology_plan.h"
#include "tests/support/unit.h"

/* The cores of a machine that hwloc describes so, in the order in which reactors get them. */
static void expect_cores(const char *synthetic, const int *cores, uint32_t count)
{
    hwloc_topology_t topology;
    struct sl_topology_plan plan;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, synthetic), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_int_equal(sl_topology_plan_build(topology, &plan), 0);
    hwloc_topology_destroy(topology);
    assert_int_equal(plan.count, count);
    assert_memory_equal(plan.cores, cores, count * sizeof *cores);
    free(plan.cores);
}

SL_CASE(plan_build__physical_cores_first)
{
    expect_cores("package:1 core:4 pu:2", (int[]){0, 2, 4, 6, 1, 3, 5, 7}, 8);
}

/* As on most servers: hyper-threads are numbered after all physical cores. */
SL_CASE(plan_build__system_numbers_not_positions)
{
    expect_cores("package:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)", (int[]){0, 1, 2, 3, 4, 5, 6, 7},
                 8);
}

SL_CASE(plan_build__nodes_one_after_the_other)
{
    expect_cores("package:2 [numa] core:2 pu:2", (int[]){0, 2, 4, 6, 1, 3, 5, 7}, 8);
}

SL_CASE(plan_build__without_core_objects)
{
    expect_cores("package:1 pu:3", (int[]){0, 1, 2}, 3);
}

SL_CASE(core_for__each_core_once_both_ways)
{
    cpu_set_t allowed, seen;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    uint32_t count = sl_topology_core_count();
    assert_int_equal(count, CPU_COUNT(&allowed));
    CPU_ZERO(&seen);
    for (uint32_t i = 0; i < count; i++) {
        int first, last;
        assert_int_equal(sl_topology_core_for(i, false, &first), 0);
        assert_int_equal(sl_topology_core_for(count - 1 - i, true, &last), 0);
        assert_int_equal(first, last);
        assert_true(CPU_ISSET((size_t)first, &allowed));
        assert_false(CPU_ISSET((size_t)first, &seen));
        CPU_SET((size_t)first, &seen);
    }
    int none;
    assert_int_equal(sl_topology_core_for(count, false, &none), SL_ERR_INVALID);
    assert_int_equal(sl_topology_core_for(count, true, &none), SL_ERR_INVALID);
}

static void *pin_and_look(void *arg)
{
    int core = *(int *)arg;
    if (sl_topology_pin_thread(core) != 0) {
        return "not pinned";
    }
    cpu_set_t now;
    CPU_ZERO(&now);
    sched_getaffinity(0, sizeof now, &now);
    return CPU_COUNT(&now) == 1 && CPU_ISSET((size_t)core, &now) ? NULL : "elsewhere";
}

SL_CASE(pin_thread__leaves_the_others_alone)
{
    cpu_set_t before, after;
    sched_getaffinity(0, sizeof before, &before);
    int core;
    assert_int_equal(sl_topology_core_for(0, true, &core), 0);
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, pin_and_look, &core), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    sched_getaffinity(0, sizeof after, &after);
    assert_true(CPU_EQUAL(&before, &after));
}

SL_CASE(pin_thread__no_such_core)
{
    assert_int_equal(sl_topology_pin_thread(-1), SL_ERR_INVALID);
    assert_int_equal(sl_topology_pin_thread(CPU_SETSIZE - 1), SL_ERR_INVALID);
    assert_int_equal(sl_topology_pin_thread(1 << 20), SL_ERR_INVALID);
}
