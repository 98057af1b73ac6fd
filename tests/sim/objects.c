#include "tests/sim/objects.h"

#include <inttypes.h>
#include <stdio.h>

#include "objects/host.h"
#include "objects/node.h"
#include "tests/sim/objects_app.h"
#include "tests/sim/objects_catalogue.h"
#include "tests/sim/random.h"
#include "tests/sim/world.h"
#include "tests/support/memory_disk.h"

#define SETTLE_NS (25 * SL_CLOCK_NS_PER_S) /* after the faults: leases have ended */
#define UNSEEN_NS (45 * SL_CLOCK_NS_PER_S) /* keepers drop what was not committed */
#define REST_NS   (15 * SL_CLOCK_NS_PER_S) /* copies that are not reported are forgotten */

struct nodes {
    struct sl_sim_world world;
    const struct sl_sim_objects_plan *plan;
    struct sl_sim_objects_oracle oracle;
    struct sl_sim_objects_app apps[SL_SIM_OBJECTS_NODES_MAX];
    struct memory_disk disks[SL_SIM_OBJECTS_KEEPERS_MAX]; /* of nodes 1, 2, ... */
    bool has_proved;
};

static struct nodes *nodes_of(struct sl_sim_world *world)
{
    return SL_CONTAINER_OF(world, struct nodes, world);
}

static bool has_disk(const struct nodes *nodes, uint32_t host)
{
    return nodes->plan->has_disks && host - 1 < nodes->plan->keeper_count;
}

static struct sl_sim_app *start(struct sl_sim_world *world, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    struct nodes *nodes = nodes_of(world);
    struct memory_disk *disk = has_disk(nodes, host) ? &nodes->disks[host - 1] : NULL;
    if (disk != NULL && seed % 2 == 0) {
        memory_disk_restart(disk, seed); /* the machine went down, too */
    } else if (disk != NULL) {
        memory_disk_reopen(disk);
    }
    if (disk != NULL) {
        sl_sim_objects_oracle_restart(&nodes->oracle, host);
    }
    const struct sl_sim_objects_app_options options = {
        .disk = disk != NULL ? &disk->disk : NULL,
        .network = world->network,
        .oracle = &nodes->oracle,
        .plan = nodes->plan,
        .host = host,
        .seed = seed,
        .verbose = world->verbose,
        .offset_ns = offset_ns,
    };
    sl_sim_objects_app_start(&nodes->apps[host], &options);
    return &nodes->apps[host].base;
}

/* NULL: its process does not run, or starts. */
static const struct sl_objects_catalogue *catalogue_of(const struct nodes *nodes)
{
    const struct sl_objects *node = nodes->world.places[0].app != NULL ? nodes->apps[0].node : NULL;
    return node != NULL && node->host != NULL ? sl_objects_host_catalogue(node->host) : NULL;
}

static void stepped(struct sl_sim_world *world, uint32_t host)
{
    struct nodes *nodes = nodes_of(world);
    sl_sim_objects_app_judge_pool(&nodes->apps[host]);
    if (host == 0 && catalogue_of(nodes) != NULL) {
        sl_sim_objects_catalogue_judge_plans(catalogue_of(nodes), &nodes->oracle);
    }
}

static void fault(struct sl_sim_world *world, const struct sl_sim_fault *fault, bool begins)
{
    /* A node that ends cleanly loses nothing of others, unless it hosts the catalogue, or keeps. */
    if (begins &&
        (fault->kind != SL_SIM_FAULT_LEAVE || fault->a <= nodes_of(world)->plan->keeper_count)) {
        const uint64_t until_ns = world->now_ns + fault->duration_ns;
        sl_sim_objects_oracle_touch(&nodes_of(world)->oracle, fault->a, until_ns);
        sl_sim_objects_oracle_touch(&nodes_of(world)->oracle, fault->b, until_ns);
    }
}

static void look(struct sl_sim_world *world)
{
    struct nodes *nodes = nodes_of(world);
    const bool is_due = world->look_ns <= world->now_ns;
    if (world->faults_are_over && sl_sim_world_all_are_in(world, SL_SIM_OBJECTS_DONE) &&
        world->look_ns == SL_CLOCK_NEVER && !nodes->has_proved) {
        sl_sim_network_calm(world->network);
        world->look_ns = world->now_ns + (world->fault_count > 0 ? SETTLE_NS : 0);
    } else if (is_due && !nodes->has_proved) {
        world->look_ns = SL_CLOCK_NEVER;
        nodes->has_proved = true;
        sl_sim_world_enter(world, SL_SIM_OBJECTS_PROVING);
    } else if (sl_sim_world_all_are_in(world, SL_SIM_OBJECTS_PROVED)) {
        sl_sim_world_enter(world, SL_SIM_OBJECTS_ENDING);
    } else if (sl_sim_world_all_are_in(world, SL_SIM_OBJECTS_EMPTY) &&
               world->look_ns == SL_CLOCK_NEVER) {
        world->look_ns = world->now_ns + (nodes->plan->keeper_count > 0 ? UNSEEN_NS : REST_NS);
    } else if (is_due) {
        world->look_ns = SL_CLOCK_NEVER;
        for (uint32_t i = 0; i < nodes->plan->node_count; i++) {
            sl_sim_objects_app_judge_rest(&nodes->apps[i]);
        }
        sl_sim_objects_catalogue_judge_rest(catalogue_of(nodes), &nodes->oracle,
                                            nodes->plan->node_count);
        sl_sim_world_enter(world, SL_SIM_OBJECTS_LEAVING);
    }
}

bool sl_sim_objects_run(const struct sl_sim_objects_plan *plan, bool verbose, uint64_t *trace)
{
    static const struct sl_sim_world_actions actions = {
        .start = start, .stepped = stepped, .look = look, .fault = fault};
    static struct nodes nodes;
    nodes = (struct nodes){.world = {.actions = &actions,
                                     .breach = &nodes.oracle.breach,
                                     .seed = plan->seed,
                                     .random = sl_hash_key(plan->seed ^ 0x0b1ec8),
                                     .options = &plan->network,
                                     .faults = plan->faults,
                                     .fault_count = plan->fault_count,
                                     .verbose = verbose},
                           .plan = plan};
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_KEEPERS_MAX; i++) {
        memory_disk_init(&nodes.disks[i]);
    }
    sl_sim_world_create(&nodes.world);
    sl_sim_objects_oracle_init(&nodes.oracle, plan, nodes.world.network);
    sl_sim_world_run(&nodes.world);
    if (verbose) {
        printf("%u published, %u fetched\n", nodes.oracle.committed, nodes.oracle.fetched);
    }
    const bool good = sl_sim_world_fini(&nodes.world);
    sl_sim_objects_oracle_fini(&nodes.oracle);
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_KEEPERS_MAX; i++) {
        memory_disk_fini(&nodes.disks[i]);
    }
    *trace = nodes.world.trace;
    return good;
}
