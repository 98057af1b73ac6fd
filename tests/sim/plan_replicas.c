/* What a seed says of clusters whose shards have backups, drawn apart from the rest. */
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

void sl_sim_plan_draw_replicas(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x2ba5e);
    plan->replica.is_there = choice->replicas && !choice->packets && !choice->disks;
    if (!plan->replica.is_there) {
        return;
    }
    plan->floods = false;
    plan->replica.apart = sl_sim_chance(&random, 700);
    plan->ps_count = 2 + sl_sim_below(&random, SL_SIM_PS_MAX - 1);
    plan->shard_count = plan->ps_count * plan->shards_of_ps;
}

void sl_sim_plan_draw_losses(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    (void)plan;
    (void)choice;
}
