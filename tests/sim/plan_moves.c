/* What a seed says of shards that move, drawn apart from the rest. */
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

#define MS          SL_CLOCK_NS_PER_MS
#define SHARE       200
#define CHANGES_MAX 6
#define SPREAD      2 /* horizons */
#define GONE_MS     400
#define JOIN_MS     3000
#define ITERATIONS  20 /* more than in other seeds, for some */

void sl_sim_plan_draw_moves(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x30f3);
    const bool is_drawn = sl_sim_chance(&random, SHARE) || choice->moves;
    const bool can = !choice->packets && !choice->link && !plan->floods;
    const bool may_be_apart = !plan->replica.is_there && sl_sim_chance(&random, 500);
    const bool has_joiner = plan->ps_count < SL_SIM_PS_MAX && sl_sim_chance(&random, 400);
    plan->ps_at_start = plan->ps_count;
    plan->moves = is_drawn && can && plan->ps_count + has_joiner > 1;
    if (!plan->moves) {
        return;
    }
    plan->ps_count += has_joiner;
    plan->replica.apart = plan->replica.apart || may_be_apart;
    if (plan->worker_count <= 5 && sl_sim_chance(&random, 500)) {
        plan->iterations += sl_sim_below(&random, ITERATIONS);
    }
}

static struct sl_sim_fault *add_fault(struct sl_sim_plan *plan, enum sl_sim_fault_kind kind,
                                      uint32_t a, uint64_t at_ns, uint64_t *random)
{
    struct sl_sim_fault *fault = &plan->faults[plan->fault_count++];
    *fault = (struct sl_sim_fault){.kind = kind,
                                   .at_ns = at_ns,
                                   .duration_ns = sl_sim_between(random, 1, GONE_MS) * MS,
                                   .a = a,
                                   .b = UINT32_MAX,
                                   .silent = sl_sim_chance(random, 300),
                                   .one_way = sl_sim_chance(random, 300)};
    return fault;
}

/* The source, the target or the coordinator is killed or cut off while a shard moves, or about
 * then.
 */
static void draw_harm(struct sl_sim_plan *plan, const struct sl_sim_choice *choice,
                      const struct sl_sim_fault *move, uint64_t *random)
{
    static const uint32_t within_ms[] = {2, 10, 50, 400};
    const uint64_t most_ns = within_ms[sl_sim_below(random, 4)] * MS;
    const uint64_t at_ns = move->at_ns + sl_hash_random(random) % most_ns;
    const uint32_t source = move->b / plan->shards_of_ps;
    const uint32_t hosts[] = {source, move->a, sl_sim_plan_coordinator_host(plan)};
    const uint32_t host = hosts[sl_sim_below(random, 3)];
    const uint32_t other = hosts[sl_sim_below(random, 3)];
    const bool is_kill = sl_sim_chance(random, 600);
    const bool is_long = sl_sim_chance(random, 300);
    const enum sl_sim_fault_kind kind = is_kill ? SL_SIM_FAULT_KILL_PS : SL_SIM_FAULT_PARTITION;
    if ((choice->faults & 1U << kind) == 0 || (!is_kill && host == other)) {
        return;
    }
    struct sl_sim_fault *fault = add_fault(plan, kind, host, at_ns, random);
    fault->b = is_kill ? UINT32_MAX : other;
    fault->duration_ns += is_long ? plan->lease_ns : 0;
}

static void draw_change(struct sl_sim_plan *plan, const struct sl_sim_choice *choice,
                        uint64_t *random)
{
    const uint64_t at_ns = sl_hash_random(random) % (SPREAD * plan->horizon_ns);
    const uint32_t ps = sl_sim_below(random, plan->ps_count);
    const uint32_t kind = sl_sim_below(random, 10);
    struct sl_sim_fault *change;
    if (kind == 0) {
        (void)add_fault(plan, SL_SIM_FAULT_BALANCE, 0, at_ns, random);
    } else if (kind < 3 && (ps != 0 || plan->replica.apart)) {
        change = add_fault(plan, SL_SIM_FAULT_DRAIN, ps, at_ns, random);
        change->duration_ns = sl_sim_between(random, 1, JOIN_MS) * MS;
    } else {
        change = add_fault(plan, SL_SIM_FAULT_MOVE, ps, at_ns, random);
        change->b = sl_sim_below(random, plan->shard_count);
        if (sl_sim_chance(random, 400)) {
            draw_harm(plan, choice, change, random);
        }
    }
}

/* Another coordinator without records does not know which ps have come and gone. */
static void spare_coordinator(struct sl_sim_plan *plan)
{
    bool must = plan->replica.is_there || plan->ps_count > plan->ps_at_start;
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        must = must || plan->faults[i].kind == SL_SIM_FAULT_DRAIN;
    }
    for (uint32_t i = 0; i < plan->fault_count && must && !plan->replica.apart; i++) {
        struct sl_sim_fault *fault = &plan->faults[i];
        if (fault->kind == SL_SIM_FAULT_KILL_PS && fault->a == 0) {
            fault->a = 1;
        }
    }
}

void sl_sim_plan_draw_changes(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0x30f35);
    /* A server that receives a shard has less memory for each. */
    if (!plan->moves || plan->memory_bytes_max != 0) {
        return;
    }
    if (sl_sim_chance(&random, 200)) { /* nothing else happens */
        plan->fault_count = 0;
    }
    const uint32_t count = 1 + sl_sim_below(&random, CHANGES_MAX);
    for (uint32_t i = plan->ps_at_start; i < plan->ps_count; i++) {
        const uint64_t at_ns = sl_hash_random(&random) % plan->horizon_ns;
        plan->fault_count -= plan->fault_count + 2 * CHANGES_MAX + 1 > SL_SIM_FAULTS_MAX;
        (void)add_fault(plan, SL_SIM_FAULT_SCALE, i, at_ns, &random);
    }
    for (uint32_t i = 0; i < count && plan->fault_count + 2 <= SL_SIM_FAULTS_MAX; i++) {
        draw_change(plan, choice, &random);
    }
    spare_coordinator(plan);
}
