#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/node/host.h"
#include "objects/node/node.h"
#include "tests/sim/objects_app.h"
#include "tests/sim/objects_catalogue.h"
#include "tests/sim/objects_old.h"
#include "tests/sim/random.h"
#include "tests/sim/world.h"

#define SETTLE_NS (25 * SL_CLOCK_NS_PER_S) /* after the faults: leases have ended */
#define UNSEEN_NS (45 * SL_CLOCK_NS_PER_S) /* keepers drop what was not committed */
#define STOP_NS   (2 * SL_CLOCK_NS_PER_S)  /* a machine that stopped runs again, at most */
#define REST_NS   (15 * SL_CLOCK_NS_PER_S) /* copies that are not reported are forgotten */

struct nodes {
    struct sl_sim_member member;
    const struct sl_sim_objects_plan *plan;
    struct sl_sim_objects_oracle oracle;
    struct sl_sim_objects_app apps[SL_SIM_OBJECTS_NODES_MAX];
    struct sl_sim_disk disks[SL_SIM_OBJECTS_KEEPERS_MAX]; /* of nodes 1, 2, ... */
    struct sl_sim_old old;                                /* versions of node 1 */
    bool is_armed[SL_SIM_OBJECTS_KEEPERS_MAX];            /* the disk of a process that is ready */
    bool has_proved;
    uint32_t committed; /* versions when power was cut last */
};

static struct nodes *nodes_of(struct sl_sim_member *member)
{
    return SL_CONTAINER_OF(member, struct nodes, member);
}

/* NULL: the node has none. */
static struct sl_sim_disk *disk_of(struct nodes *nodes, uint32_t host)
{
    return nodes->plan->has_disks && host - 1 < nodes->plan->keeper_count ? &nodes->disks[host - 1]
                                                                          : NULL;
}

static struct sl_sim_app *start(struct sl_sim_member *member, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    struct nodes *nodes = nodes_of(member);
    struct sl_sim_disk *disk = disk_of(nodes, host);
    if (disk != NULL) {
        sl_sim_disk_crashed(disk, disk->memory.stopped); /* the machine went down, too */
        nodes->is_armed[host - 1] = false;
        sl_sim_objects_oracle_judge_files(&nodes->oracle, host, &disk->memory);
        sl_sim_objects_oracle_restart(&nodes->oracle, host);
    }
    nodes->oracle.known_count = host == 0 ? 0 : nodes->oracle.known_count;
    const struct sl_sim_objects_app_options options = {
        .disk = disk == NULL ? NULL
                : host == 1  ? &nodes->old.disk
                             : &disk->memory.disk,
        .network = member->world->network,
        .oracle = &nodes->oracle,
        .plan = nodes->plan,
        .host = host,
        .seed = seed,
        .verbose = member->world->verbose,
        .offset_ns = offset_ns,
    };
    sl_sim_objects_app_start(&nodes->apps[host], &options);
    return &nodes->apps[host].base;
}

/* NULL: its process does not run, or starts. */
static const struct sl_objects_catalogue *catalogue_of(const struct nodes *nodes)
{
    const struct sl_objects *node =
        nodes->member.places[0].app != NULL ? nodes->apps[0].node : NULL;
    return node != NULL && node->host != NULL ? sl_objects_host_catalogue(node->host) : NULL;
}

/* What the disk would have if the power were cut now. */
static void judge_power_cut(struct nodes *nodes, uint32_t host)
{
    static struct memory_disk cut;
    struct sl_sim_disk *disk = disk_of(nodes, host);
    if (disk == NULL) {
        return;
    }
    cut = disk->memory;
    for (uint32_t i = 0; i < cut.node_count; i++) {
        struct memory_disk_node *node = &cut.nodes[i];
        node->bytes = malloc(node->capacity + 1);
        sl_assert(node->bytes != NULL);
        if (node->count > 0) {
            memcpy(node->bytes, disk->memory.nodes[i].bytes, node->count);
        }
    }
    memory_disk_restart(&cut, nodes->oracle.committed);
    sl_sim_objects_oracle_judge_files(&nodes->oracle, host, &cut);
    memory_disk_fini(&cut);
}

static void stepped(struct sl_sim_member *member, uint32_t host)
{
    struct nodes *nodes = nodes_of(member);
    if (host == 0 && catalogue_of(nodes) != NULL) {
        sl_sim_objects_catalogue_judge(catalogue_of(nodes), &nodes->oracle);
    }
    if (nodes->committed != nodes->oracle.committed) {
        nodes->committed = nodes->oracle.committed;
        for (uint32_t i = 0; i < nodes->plan->node_count; i++) {
            judge_power_cut(nodes, i);
        }
    }
    sl_sim_app_judge_pool(&nodes->apps[host].base, nodes->apps[host].node, &nodes->oracle.breach);
}

static bool stops(struct sl_sim_member *member, uint32_t host)
{
    struct nodes *nodes = nodes_of(member);
    struct sl_sim_disk *disk = disk_of(nodes, host);
    if (disk == NULL || !nodes->apps[host].is_ready) {
        return false;
    }
    if (!nodes->is_armed[host - 1]) {
        nodes->is_armed[host - 1] = true;
        for (uint32_t i = 0; i < 3 && disk->memory.fail_at == MEMORY_DISK_NEVER; i++) {
            sl_sim_disk_start(disk); /* arms it in half of the calls */
        }
    }
    if (sl_sim_disk_look(disk)) {
        sl_sim_objects_oracle_touch(&nodes->oracle, host, member->world->now_ns + STOP_NS);
        return true;
    }
    return false;
}

static void fault(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins,
                  uint64_t broken_ns)
{
    /* A node that ends cleanly loses nothing of others, unless it hosts the catalogue, or keeps, or
     * is an agent. */
    if (begins &&
        (fault->kind != SL_SIM_FAULT_LEAVE || fault->a <= nodes_of(member)->plan->keeper_count ||
         sl_sim_objects_plan_is_agent(nodes_of(member)->plan, fault->a))) {
        const uint64_t until_ns = member->world->now_ns + fault->duration_ns;
        sl_sim_objects_oracle_touch(&nodes_of(member)->oracle, fault->a, until_ns);
        sl_sim_objects_oracle_touch(&nodes_of(member)->oracle, fault->b, until_ns);
    }
}

static void look(struct sl_sim_member *member)
{
    struct nodes *nodes = nodes_of(member);
    const bool is_due = member->look_ns <= member->world->now_ns;
    if (member->world->faults_are_over && sl_sim_member_all_are_in(member, SL_SIM_OBJECTS_DONE) &&
        member->look_ns == SL_CLOCK_NEVER && !nodes->has_proved) {
        sl_sim_network_calm(member->world->network);
        for (uint32_t i = 0; i < SL_SIM_OBJECTS_KEEPERS_MAX; i++) {
            sl_sim_disk_calm(&nodes->disks[i]);
        }
        member->look_ns = member->world->now_ns + (nodes->plan->calm ? 0 : SETTLE_NS);
    } else if (is_due && !nodes->has_proved) {
        member->look_ns = SL_CLOCK_NEVER;
        nodes->has_proved = true;
        sl_sim_objects_catalogue_judge_old(catalogue_of(nodes), &nodes->oracle);
        sl_sim_member_enter(member, SL_SIM_OBJECTS_PROVING);
    } else if (sl_sim_member_all_are_in(member, SL_SIM_OBJECTS_PROVED)) {
        sl_sim_member_enter(member, SL_SIM_OBJECTS_ENDING);
    } else if (sl_sim_member_all_are_in(member, SL_SIM_OBJECTS_EMPTY) &&
               member->look_ns == SL_CLOCK_NEVER) {
        member->look_ns =
            member->world->now_ns +
            (nodes->plan->keeper_count > 0 || nodes->plan->machine_nodes > 1 ? UNSEEN_NS : REST_NS);
    } else if (is_due) {
        member->look_ns = SL_CLOCK_NEVER;
        for (uint32_t i = 0; i < nodes->plan->node_count; i++) {
            sl_sim_objects_app_judge_rest(&nodes->apps[i]);
        }
        sl_sim_objects_catalogue_judge_rest(catalogue_of(nodes), &nodes->oracle,
                                            nodes->plan->node_count);
        sl_sim_member_enter(member, SL_SIM_OBJECTS_LEAVING);
    }
}

/* The nodes of a run */

static struct sl_sim_objects_plan run_plan;
static struct nodes run_nodes;

static void make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .start = start, .stepped = stepped, .stops = stops, .look = look, .fault = fault};
    sl_sim_objects_plan_make(&run_plan, world->seed, choice->faults);
    run_plan.calm = run_plan.calm && !world->is_mixed;
    if (world->verbose) {
        sl_sim_objects_plan_print(&run_plan);
    }
    run_nodes = (struct nodes){.member = {.actions = &actions,
                                          .breach = &run_nodes.oracle.breach,
                                          .random = sl_hash_key(world->seed ^ 0x0b1ec8),
                                          .options = &run_plan.network,
                                          .faults = run_plan.faults,
                                          .fault_count = run_plan.fault_count},
                               .plan = &run_plan};
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_KEEPERS_MAX; i++) {
        sl_sim_disk_init(&run_nodes.disks[i], &run_plan.disk,
                         sl_hash_key(world->seed ^ (0x0b1ed2 + i)));
    }
    sl_sim_old_init(&run_nodes.old, &run_nodes.disks[0].memory, run_plan.old_count,
                    &run_nodes.oracle.breach);
    sl_sim_world_add(world, &run_nodes.member);
    run_plan.first_host = run_nodes.member.first_host;
}

static void begin(void)
{
    sl_sim_objects_oracle_init(&run_nodes.oracle, &run_plan, run_nodes.member.world->network);
    sl_sim_world_start(&run_nodes.member);
}

static void judge(void)
{
    if (run_nodes.member.world->verbose) {
        printf("%u published, %u fetched\n", run_nodes.oracle.committed, run_nodes.oracle.fetched);
    }
}

static void fini(void)
{
    sl_sim_objects_oracle_fini(&run_nodes.oracle);
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_KEEPERS_MAX; i++) {
        sl_sim_disk_fini(&run_nodes.disks[i]);
    }
}

const struct sl_sim_kind sl_sim_kind_objects = {
    .make = make, .begin = begin, .judge = judge, .fini = fini};
