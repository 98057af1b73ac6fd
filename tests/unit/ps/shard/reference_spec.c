#include "reference_spec.h"

#include "snapshot_fixture.h"

static uint32_t draw(uint64_t *random, uint64_t below)
{
    return (uint32_t)(sl_hash_random(random) % below);
}

static void draw_admission(uint64_t *random, struct sl_policy_spec *policy, uint32_t parts)
{
    if ((parts & BIT(ADMIT_CHANCE)) != 0) {
        policy->admission = SL_ADMISSION_PROBABILITY;
        policy->admit_probability = 0.5F;
        return;
    }
    policy->admit_count = 2 + draw(random, 3);
    policy->admit_age_steps = draw(random, 2) == 0 ? 0 : 4 + draw(random, 30);
    if ((parts & BIT(ADMIT_BLOOM)) != 0) {
        const bool is_many = (parts & BIT(MEMORY)) != 0;
        policy->admission = SL_ADMISSION_BLOOM;
        policy->keys_expected = is_many ? REFERENCE_KEYS_MANY : REFERENCE_KEYS_FEW * 4;
        policy->false_positives = is_many ? 0.01F : 1e-6F;
    }
}

static struct sl_policy_spec policy_of(uint64_t *random, uint32_t parts)
{
    struct sl_policy_spec policy = {0};
    const bool has_order = (parts & ORDERED) != 0;
    const bool is_young = (parts & (1U << COUNT | 1U << L2 | 1U << PROTECT)) != 0;
    policy.protect_steps = is_young ? 1 + draw(random, 8) : 0;
    policy.ttl_steps = (parts & 1U << TTL) != 0 ? policy.protect_steps + 1 + draw(random, 20) : 0;
    policy.count_below = (parts & 1U << COUNT) != 0 ? 1 + draw(random, 3) : 0;
    policy.l2_below = (parts & 1U << L2) != 0 ? 0.5F : 0;
    policy.rows_max =
        (parts & (1U << ROWS_MAX | 1U << HALF_LIFE)) != 0 ? 20 + draw(random, 150) : 0;
    policy.order = has_order ? 1 + draw(random, SL_POLICY_ORDER_COUNT - 1) : SL_POLICY_NONE;
    if ((parts & 1U << HALF_LIFE) != 0) {
        policy.order = SL_POLICY_LFU;
        policy.half_life_steps = 1 + draw(random, 20);
    }
    if ((parts & ADMITS) != 0) {
        draw_admission(random, &policy, parts);
    }
    return policy;
}

struct sl_table_spec reference_spec(uint64_t *random, enum sl_optimizer_kind kind, uint32_t parts)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(kind),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1, .high = 1, .seed = 7},
        .policy = policy_of(random, parts),
    };
    spec.optimizer.lr = 0.25F;
    spec.optimizer.decay_steps = 5;
    if ((parts & BIT(IN_BSP)) != 0) {
        spec.consistency =
            (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = WORKERS};
    }
    spec.values = draw(random, 2) == 0 ? SL_PRECISION_F32 : draw(random, SL_PRECISION_COUNT);
    spec.slots = draw(random, 2) == 0 ? SL_PRECISION_F32 : draw(random, SL_PRECISION_INT8);
    if (draw(random, 3) == 0) {
        spec.update = (struct sl_update_spec){.clip_norm = 1.5F, .value_bound = 3};
    }
    return spec;
}
