/* What a seed means for the simulation of objects. Pure. */
#ifndef SL_TESTS_SIM_OBJECTS_PLAN_H
#define SL_TESTS_SIM_OBJECTS_PLAN_H

#include "tests/sim/disks.h"
#include "tests/sim/plan.h"

#define SL_SIM_OBJECTS_NODES_MAX   16
#define SL_SIM_OBJECTS_NAMES_MAX   4 /* with the one of the proof, the last in use */
#define SL_SIM_OBJECTS_PARTS_MAX   3
#define SL_SIM_OBJECTS_KEEPERS_MAX 3
#define SL_SIM_OBJECTS_THREADS_MAX 3 /* of a node's application, besides `life` */

struct sl_sim_objects_plan {
    uint64_t seed;
    uint32_t first_host; /* in the world */
    uint32_t node_count; /* node 0 hosts the catalogue */
    uint32_t name_count;
    uint32_t part_counts[SL_SIM_OBJECTS_NAMES_MAX]; /* of a version of each name */
    uint32_t bytes_max;                             /* of one part's image */
    uint32_t thread_count, action_count;            /* of a node; of each thread */
    uint32_t think_us_max;
    uint32_t timeout_ms, impatient_ms;
    uint32_t pool_bytes;
    uint32_t keeper_count; /* nodes 1 to this one are keepers */
    uint32_t replicas;
    uint32_t machine_nodes; /* so many nodes have one machine */
    uint32_t agent_at;      /* that one of each machine is its agent; machine_nodes: none is */
    uint32_t old_count;     /* versions that the directory of node 1 has before (objects_old.h) */
    bool has_disks;         /* keepers have */
    struct sl_sim_disk_plan disk; /* that of each: what befalls it */
    uint64_t gap_ns;              /* of a turn */
    bool has_host;                /* some publish with SL_ORIGIN_HOST */
    bool impatient;               /* some deadlines pass */
    bool removes;                 /* some versions are removed */
    bool takes_over;              /* names change their publisher */
    bool resets;                  /* a process that starts again has another --keep-versions */
    bool calm;                    /* nothing fails */
    struct sl_sim_network_options network;
    struct sl_sim_fault faults[SL_SIM_FAULTS_MAX]; /* a, b: nodes; KILL_PS: a node */
    uint32_t fault_count;
};

/* faults: bit k allows those of kind k. */
void sl_sim_objects_plan_make(struct sl_sim_objects_plan *plan, uint64_t seed, uint32_t faults);

bool sl_sim_objects_plan_is_agent(const struct sl_sim_objects_plan *plan, uint32_t host);

void sl_sim_objects_plan_print(const struct sl_sim_objects_plan *plan);

#endif
