/* What a seed says of clusters whose shards have backups, drawn apart from the rest. */
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

#define MS           SL_CLOCK_NS_PER_MS
#define LEASE_NS     (10 * SL_CLOCK_NS_PER_S)
#define KILLS_MAX    3
#define CUTS_MAX     3
#define SHORT_MS     400
#define LONG_MS      30000
#define SPREAD       3 /* horizons */
#define SHARE        250
/* Of 1000 seeds with backups, those in which one breaks; and how long before or after the loss. */
#define BROKEN_SHARE 300
#define BROKEN_MS    20
#define CROWD        100 /* workers; and the most breaks of 10000 frames with them */
#define CROWD_BREAKS 5

void sl_sim_plan_draw_replicas(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x2ba5e);
    const bool is_drawn = sl_sim_chance(&random, SHARE);
    const bool is_alone = !choice->packets && !choice->disks && !choice->link;
    plan->replica.is_there = choice->replicas ? !choice->packets : is_drawn && is_alone;
    if (!plan->replica.is_there) {
        return;
    }
    plan->floods = false;
    static const uint32_t snapshot_keys[] = {0, 1, 4, 16};
    plan->replica.snapshot_keys = snapshot_keys[sl_sim_below(&random, 4)];
    plan->replica.apart = sl_sim_chance(&random, 700) || choice->disks;
    plan->ps_count = 2 + sl_sim_below(&random, SL_SIM_PS_MAX - 1);
    plan->shard_count = plan->ps_count * plan->shards_of_ps;
}

/* How long a ps is gone or cut off: nobody notices, somebody takes its place at once, or its lease
 * ends first. */
static uint64_t draw_absence(const struct sl_sim_plan *plan, uint64_t *random)
{
    const uint32_t kind = sl_sim_below(random, 16);
    const uint64_t short_ns = sl_sim_between(random, 1, SHORT_MS) * MS;
    if (kind < 5) {
        return short_ns;
    }
    if (kind < 8) {
        return sl_sim_between(random, 1, 2 * sl_sim_ms(plan->lease_ns)) * MS;
    }
    if (kind < 15) {
        return (kind < 12 ? 1 : 2) * plan->lease_ns + short_ns;
    }
    return sl_sim_between(random, LONG_MS, 2 * LONG_MS) * MS; /* as if it did not come back */
}

static struct sl_sim_fault *add_fault(struct sl_sim_plan *plan, enum sl_sim_fault_kind kind,
                                      uint64_t *random)
{
    struct sl_sim_fault *fault = &plan->faults[plan->fault_count++];
    *fault = (struct sl_sim_fault){
        .kind = kind,
        .at_ns = sl_hash_random(random) % (SPREAD * plan->horizon_ns),
        .duration_ns = draw_absence(plan, random),
        .a = sl_sim_below(random, plan->ps_count),
        .silent = sl_sim_chance(random, 300),
        .one_way = sl_sim_chance(random, 300),
    };
    return fault;
}

/* A primary from its backup, or a ps from the coordinator, but not from the workers. */
static void draw_cut(struct sl_sim_plan *plan, uint64_t *random)
{
    struct sl_sim_fault *fault = add_fault(plan, SL_SIM_FAULT_PARTITION, random);
    fault->b = sl_sim_chance(random, 500) ? (fault->a + 1) % plan->ps_count
                                          : sl_sim_plan_coordinator_host(plan);
    if (fault->one_way && sl_sim_chance(random, 500)) {
        const uint32_t a = fault->a;
        fault->a = fault->b;
        fault->b = a;
    }
}

/* A backup fails an entry, and the coordinator does not hear of it before it declares the primary
 * dead: the primary is cut off from it, or killed. There are no other faults then, which would
 * break the pair in other ways. */
static void draw_broken_backup(struct sl_sim_plan *plan)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0xb20ce);
    if (!sl_sim_chance(&random, BROKEN_SHARE)) {
        return;
    }
    plan->fault_count = 0;
    const bool is_cut = sl_sim_chance(&random, 700);
    struct sl_sim_fault *loss =
        add_fault(plan, is_cut ? SL_SIM_FAULT_PARTITION : SL_SIM_FAULT_KILL_PS, &random);
    struct sl_sim_fault *memory = add_fault(plan, SL_SIM_FAULT_MEMORY, &random);
    const uint64_t apart_ns = sl_sim_below(&random, BROKEN_MS) * MS;
    loss->a = loss->a == sl_sim_plan_coordinator_host(plan) ? 1 : loss->a;
    memory->a = (loss->a + 1) % plan->ps_count;
    memory->duration_ns = plan->lease_ns / 2; /* it stays broken */
    loss->duration_ns = 2 * plan->lease_ns + sl_sim_between(&random, 1, SHORT_MS) * MS;
    loss->at_ns = memory->at_ns = sl_hash_random(&random) % plan->horizon_ns;
    loss->one_way = false;
    if (is_cut) { /* first */
        loss->b = sl_sim_plan_coordinator_host(plan);
        memory->at_ns = loss->at_ns + apart_ns;
    } else {
        loss->at_ns = memory->at_ns + apart_ns;
    }
}

/* The log has an entry for each process of a worker that joins or expires. A break loses the frames
 * that are in flight: when a crowd's log has become long, more breaks would let less of it arrive
 * than is added, and no worker could start again. */
static void limit_breaks(struct sl_sim_plan *plan)
{
    struct sl_sim_network_options *network = &plan->network;
    if (plan->worker_count > CROWD && network->break_per_10000 > CROWD_BREAKS) {
        network->break_per_10000 = CROWD_BREAKS;
    }
}

/* While the coordinator's process is no part of what may be lost. */
static void spare_coordinator(struct sl_sim_plan *plan)
{
    for (uint32_t i = 0; i < plan->fault_count && !plan->replica.apart; i++) {
        struct sl_sim_fault *fault = &plan->faults[i];
        if (fault->kind == SL_SIM_FAULT_KILL_PS && fault->a == 0) {
            fault->a = 1;
        }
    }
}

void sl_sim_plan_draw_losses(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x1057);
    if (!plan->replica.is_there) {
        return;
    }
    limit_breaks(plan);
    if (sl_sim_chance(&random, 500)) {
        plan->lease_ns = LEASE_NS; /* workers are not lost for a take-over */
    }
    const uint32_t kills = sl_sim_below(&random, KILLS_MAX + 1);
    const uint32_t cuts = sl_sim_chance(&random, 500) ? sl_sim_below(&random, CUTS_MAX + 1) : 0;
    const uint32_t most = SL_SIM_FAULTS_MAX;
    const bool kill = (choice->faults & 1U << SL_SIM_FAULT_KILL_PS) != 0;
    const bool cut = (choice->faults & 1U << SL_SIM_FAULT_PARTITION) != 0;
    for (uint32_t i = 0; kill && i < kills && plan->fault_count < most; i++) {
        (void)add_fault(plan, SL_SIM_FAULT_KILL_PS, &random);
    }
    if (kill && plan->replica.apart && plan->fault_count < most && sl_sim_chance(&random, 300)) {
        add_fault(plan, SL_SIM_FAULT_KILL_PS, &random)->a = sl_sim_plan_coordinator_host(plan);
    }
    for (uint32_t i = 0; cut && i < cuts && plan->fault_count < most; i++) {
        draw_cut(plan, &random);
    }
    if (kill && cut && (choice->faults & 1U << SL_SIM_FAULT_MEMORY) != 0) {
        draw_broken_backup(plan);
    }
    spare_coordinator(plan);
}
