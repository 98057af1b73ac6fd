#include "tests/sim/objects_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "objects/catalogue/manifest.h"
#include "tests/sim/objects_old.h"
#include "tests/sim/random.h"

#define MS          SL_CLOCK_NS_PER_MS
#define LONG_US     20000000
#define SHORT_BYTES 70000

static void draw_size(struct sl_sim_objects_plan *plan, uint64_t *random)
{
    static const uint32_t bytes[] = {100, SHORT_BYTES, 600000, 1500000};
    static const uint32_t thinks[] = {1000, 20000, 500000};
    plan->node_count = 2 + sl_sim_below(random, sl_sim_chance(random, 100) ? 15 : 7);
    plan->name_count = 1 + sl_sim_below(random, SL_SIM_OBJECTS_NAMES_MAX - 1);
    for (uint32_t i = 0; i < plan->name_count; i++) {
        const uint32_t parts = sl_sim_chance(random, 200) ? 2 + sl_sim_below(random, 2) : 1;
        plan->part_counts[i] = parts < plan->node_count ? parts : plan->node_count;
    }
    plan->part_counts[plan->name_count] = 1;
    plan->bytes_max = bytes[sl_sim_below(random, 4)];
    plan->thread_count = 1 + sl_sim_below(random, SL_SIM_OBJECTS_THREADS_MAX);
    plan->action_count = 2 + sl_sim_below(random, 12);
    plan->think_us_max = thinks[sl_sim_below(random, 3)];
    plan->timeout_ms = 20000;
    plan->impatient_ms = 1 + sl_sim_below(random, 300);
    plan->pool_bytes = (8U + sl_sim_below(random, 32)) * SL_OBJECTS_BLOCK_BYTES;
    plan->gap_ns = sl_sim_between(random, 1, 50) * SL_CLOCK_NS_PER_US;
    plan->has_host = sl_sim_chance(random, 600);
    plan->impatient = sl_sim_chance(random, 300);
    plan->removes = sl_sim_chance(random, 300);
    plan->takes_over = sl_sim_chance(random, 500);
}

static void draw_network(struct sl_sim_objects_plan *plan, uint32_t faults, uint64_t *random)
{
    struct sl_sim_network_options *network = &plan->network;
    static const uint32_t timeouts[] = {500, 2000, 10000};
    network->is_one_sided = true;
    network->seed = sl_hash_random(random);
    network->delay_us_min = sl_sim_below(random, 50);
    network->delay_us_max = network->delay_us_min + sl_sim_below(random, 2000);
    network->late_permille = sl_sim_chance(random, 300) ? sl_sim_below(random, 50) : 0;
    network->late_us_max = 40000;
    network->bytes_per_us = 20U << sl_sim_below(random, 8);
    network->window_bytes = 65536U << sl_sim_below(random, 6);
    network->short_permille = sl_sim_below(random, 200);
    const bool refuses = sl_sim_chance(random, 200), breaks = sl_sim_chance(random, 300);
    const uint32_t refused = sl_sim_below(random, 200), broken = 1 + sl_sim_below(random, 30);
    if ((faults & 1U << SL_SIM_FAULT_BREAK) != 0) {
        network->connect_fail_permille = refuses ? refused : 0;
        network->break_per_10000 = breaks ? broken : 0;
    }
    network->peer_timeout_ms = timeouts[sl_sim_below(random, 3)];
    network->host_count = plan->node_count;
}

static void draw_faults(struct sl_sim_objects_plan *plan, uint32_t allowed, uint64_t *random)
{
    static const uint32_t counts[] = {0, 0, 1, 3, 8};
    const uint32_t count = counts[sl_sim_below(random, 5)];
    const uint64_t work_ns = 50 * MS + plan->action_count * (plan->think_us_max * 500ULL + 5 * MS);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_sim_fault *fault = &plan->faults[plan->fault_count];
        sl_sim_plan_draw_fault(fault, plan->node_count, work_ns, 400, 16000, random);
        plan->fault_count += (allowed & 1U << fault->kind) != 0;
    }
}

static bool has_disk_faults(const struct sl_sim_objects_plan *plan)
{
    return plan->disk.fail_every + plan->disk.stop_every + plan->disk.full_permille > 0;
}

static void draw_disk(struct sl_sim_objects_plan *plan, uint32_t allowed)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x0b1ed1);
    plan->disk.crash_permille = 500;
    if (plan->has_disks && allowed != 0 && sl_sim_chance(&random, 700)) {
        plan->disk.fail_every = sl_sim_chance(&random, 700) ? 1 + sl_sim_below(&random, 40) : 0;
        plan->disk.stop_every = sl_sim_chance(&random, 500) ? 1 + sl_sim_below(&random, 80) : 0;
        plan->disk.full_permille = sl_sim_chance(&random, 300) ? 1 + sl_sim_below(&random, 10) : 0;
    }
    if (plan->think_us_max >= LONG_US) { /* a process that starts again begins with its actions */
        plan->disk.stop_every = 0;
    }
}

/* Drawn apart: the rest of a seed stays as it is. In some seeds the pool is too small for most; in
 * some nothing fails, but processes end. */
static void draw_more(struct sl_sim_objects_plan *plan)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x0b1eca);
    if (sl_sim_chance(&random, 200)) {
        plan->pool_bytes = (1U + sl_sim_below(&random, 8)) * SL_OBJECTS_BLOCK_BYTES;
    }
    if (sl_sim_chance(&random, 350)) {
        plan->keeper_count = 1 + sl_sim_below(&random, plan->node_count > 3 ? 3 : 1);
        plan->replicas = sl_sim_below(&random, 2);
        plan->has_disks = sl_sim_chance(&random, 800);
    }
    if (sl_sim_chance(&random, 250)) {
        plan->network.connect_fail_permille = plan->network.break_per_10000 = 0;
        for (uint32_t i = 0; i < plan->fault_count; i++) {
            plan->faults[i].kind = SL_SIM_FAULT_LEAVE;
        }
    }
}

static void draw_absence(struct sl_sim_objects_plan *plan, uint32_t host, uint64_t at_ms,
                         uint64_t duration_ms)
{
    plan->faults[plan->fault_count++] = (struct sl_sim_fault){.kind = SL_SIM_FAULT_KILL_PS,
                                                              .at_ns = at_ms * MS,
                                                              .duration_ns = duration_ms * MS,
                                                              .a = host,
                                                              .b = host,
                                                              .rail = SL_SIM_RAILS_MAX};
}

/* Drawn apart. In some seeds the first keeper has thousands of versions. In some, keepers are away
 * for longer than any lease, while others publish and the catalogue starts again. */
static void draw_long(struct sl_sim_objects_plan *plan, uint32_t allowed)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x0b1ecc);
    if (plan->has_disks && sl_sim_chance(&random, 120)) {
        plan->old_count = SL_SIM_OLD_OF_NAME * (1 + sl_sim_below(&random, 40));
    }
    if (!plan->has_disks || !sl_sim_chance(&random, 400) ||
        (allowed & 1U << SL_SIM_FAULT_KILL_PS) == 0) {
        return;
    }
    plan->think_us_max = LONG_US;
    for (uint32_t host = 1; host <= plan->keeper_count; host++) {
        if (host == 1 || sl_sim_chance(&random, 300)) {
            draw_absence(plan, host, sl_sim_between(&random, 1000, 60000),
                         sl_sim_between(&random, 30000, 200000));
        }
    }
    for (uint32_t i = sl_sim_below(&random, 3); i > 0; i--) {
        draw_absence(plan, 0, sl_sim_between(&random, 20000, 200000),
                     sl_sim_between(&random, 200, 12000));
    }
}

/* Drawn apart. In some seeds several nodes share a machine, and one of them is its agent: most of
 * these publish what is short enough for messages. */
static void draw_agents(struct sl_sim_objects_plan *plan)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x0b1ed0);
    plan->machine_nodes = plan->agent_at = 1;
    if (sl_sim_chance(&random, 500)) {
        plan->machine_nodes = 2 + sl_sim_below(&random, 3);
        plan->agent_at = sl_sim_below(&random, plan->machine_nodes);
        plan->has_host = true;
        if (plan->bytes_max > SHORT_BYTES && sl_sim_chance(&random, 700)) {
            plan->bytes_max = SHORT_BYTES;
        }
    }
}

bool sl_sim_objects_plan_is_agent(const struct sl_sim_objects_plan *plan, uint32_t host)
{
    return host % plan->machine_nodes == plan->agent_at;
}

void sl_sim_objects_plan_make(struct sl_sim_objects_plan *plan, uint64_t seed, uint32_t faults)
{
    uint64_t random = sl_hash_key(seed ^ 0x0b1ec7);
    *plan = (struct sl_sim_objects_plan){.seed = seed};
    draw_size(plan, &random);
    draw_network(plan, faults, &random);
    draw_faults(plan, faults, &random);
    draw_more(plan);
    draw_long(plan, faults);
    draw_agents(plan);
    plan->resets = sl_hash_key(seed ^ 0x0b1ecb) % 3 == 0; /* drawn apart, too */
    draw_disk(plan, faults);
    plan->calm = plan->fault_count == 0 && !has_disk_faults(plan) &&
                 plan->network.connect_fail_permille == 0 && plan->network.break_per_10000 == 0;
}

void sl_sim_objects_plan_print(const struct sl_sim_objects_plan *plan)
{
    printf("seed %" PRIu64 ": %u nodes, %u names of %u, %u, %u parts, up to %u bytes; %u threads "
           "of %u actions, think %u us, impatient %u ms, pool %u bytes, %u keepers, %u replicas, "
           "%u old versions, agent %u of each %u nodes%s%s%s%s%s\n",
           plan->seed, plan->node_count, plan->name_count, plan->part_counts[0],
           plan->part_counts[1], plan->part_counts[2], plan->bytes_max, plan->thread_count,
           plan->action_count, plan->think_us_max, plan->impatient_ms, plan->pool_bytes,
           plan->keeper_count, plan->replicas, plan->old_count, plan->agent_at, plan->machine_nodes,
           plan->has_disks ? ", disks" : "", plan->has_host ? ", origin HOST" : "",
           plan->impatient ? ", impatient" : "", plan->removes ? ", removes" : "",
           plan->takes_over ? ", takes over" : "");
    sl_sim_plan_print_network(&plan->network);
    if (has_disk_faults(plan)) {
        printf("disks: one of %u operations fails, one of %u is the last, full %u/1000\n",
               plan->disk.fail_every, plan->disk.stop_every, plan->disk.full_permille);
    }
    sl_sim_plan_print_faults(plan->faults, plan->fault_count);
}
