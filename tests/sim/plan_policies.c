/* Policies of a seed's tables, drawn apart from the rest. */
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

#define TABLE_SHARE  700
#define PROTECT_MAX  12
#define MEMORY_SHARE 200 /* of 1000 seeds with policies, those with little memory */
#define MEMORY_BYTES ((size_t)3600 << 10) /* 92 % leave room for a chunk of records */
#define MEMORY_DIM   120                  /* 6,000 rows */
#define MEMORY_KEYS  400                  /* of a push to each shard, that nobody looks at */
#define FEW          5                    /* workers */

static void draw_thresholds(struct sl_policy_spec *policy, uint64_t *random)
{
    policy->protect_steps = sl_sim_chance(random, 600) ? sl_sim_below(random, PROTECT_MAX) : 0;
    if (sl_sim_chance(random, 500)) {
        policy->ttl_steps = policy->protect_steps + 1 + sl_sim_below(random, 60);
    }
    if (policy->protect_steps > 0) {
        policy->count_below = sl_sim_chance(random, 300) ? 1 + sl_sim_below(random, 2) : 0;
        policy->l2_below = sl_sim_chance(random, 300) ? 0.5F : 0; /* rows that add up to 0 */
    }
}

/* Many keys share the counters of a small filter. */
static void draw_admission(struct sl_policy_spec *policy, uint64_t *random)
{
    policy->admit_count = 2 + sl_sim_below(random, 3);
    policy->admit_age_steps = sl_sim_chance(random, 500) ? 5 + sl_sim_below(random, 56) : 0;
    if (sl_sim_chance(random, 500)) {
        policy->admission = SL_ADMISSION_BLOOM;
        policy->keys_expected = sl_sim_between(random, 50, 3000);
    }
}

static void draw_policy(struct sl_sim_plan *plan, struct sl_table_spec *spec, uint64_t *random)
{
    struct sl_policy_spec *policy = &spec->policy;
    draw_thresholds(policy, random);
    if (sl_sim_chance(random, 600) && spec->consistency.mode != SL_CONSISTENCY_BSP) {
        policy->order = 1 + sl_sim_below(random, SL_POLICY_ORDER_COUNT - 1);
        policy->rows_max = sl_sim_between(random, 5, 60) * plan->shard_count;
    }
    if (policy->order == SL_POLICY_LFU && sl_sim_chance(random, 500)) {
        policy->half_life_steps = 1 + sl_sim_below(random, 40);
    }
    if (sl_sim_chance(random, 400) && spec->consistency.mode != SL_CONSISTENCY_BSP) {
        draw_admission(policy, random);
    }
}

/* One table, which takes all memory: a second one that begins later would find none. A push finds
 * more rows than it needs that are not protected. */
static void limit_memory(struct sl_sim_plan *plan, uint64_t *random)
{
    struct sl_table_spec *spec = &plan->tables[0];
    plan->memory_bytes_max = MEMORY_BYTES;
    plan->keys_aside = MEMORY_KEYS;
    plan->table_count = 1;
    spec->kind = SL_TABLE_SPARSE;
    spec->length = 0;
    spec->dim = MEMORY_DIM;
    spec->consistency = (struct sl_consistency_spec){.mode = SL_CONSISTENCY_ASP};
    spec->policy =
        (struct sl_policy_spec){.order = 1 + sl_sim_below(random, SL_POLICY_ORDER_COUNT - 1),
                                .protect_steps = sl_sim_below(random, 2)};
}

void sl_sim_plan_draw_policies(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0xf0e6e7);
    const bool is_drawn = plan->seed % 9 == 7; /* as of has_views */
    if (choice->link || plan->floods || !(is_drawn || choice->policies)) {
        return;
    }
    if (sl_sim_chance(&random, MEMORY_SHARE) && plan->worker_count <= FEW && !choice->packets) {
        limit_memory(plan, &random);
        return;
    }
    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct sl_table_spec *spec = &plan->tables[i];
        if (spec->kind == SL_TABLE_SPARSE && sl_sim_chance(&random, TABLE_SHARE)) {
            draw_policy(plan, spec, &random);
        }
    }
}
