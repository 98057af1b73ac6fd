#include "ps/table/policy.h"

#include <string.h>

#include "core/hash.h"
#include "core/limits.h"

/* Steps since the row's last push or assign. last_step counts modulo 2^32. */
static uint32_t age_of(const struct sl_row *row, uint64_t step)
{
    return (uint32_t)step - row->last_step;
}

static float square_sum(const struct sl_row_layout *layout, const struct sl_row *row)
{
    float wide[SL_LIMIT_DIM];
    const float *values = row->values;
    float sum = 0;
    if (layout->values != SL_PRECISION_F32) {
        sl_precision_kernels(SL_PRECISION_SIMD_BEST)
            ->widen(layout->values, row->values, layout->dim, wide);
        values = wide;
    }
    for (uint32_t i = 0; i < layout->dim; i++) {
        sum += values[i] * values[i];
    }
    return sum;
}

bool sl_policy_has_admission(const struct sl_policy_spec *policy)
{
    bool has = policy->admission != SL_ADMISSION_COUNT || policy->admit_count > 1;
    for (uint32_t i = 0; i < policy->slot_count; i++) {
        has |= policy->slots[i].admit_count > 1;
    }
    return has;
}

bool sl_policy_draws(const struct sl_policy_spec *policy, uint64_t seed, uint64_t key,
                     uint64_t step)
{
    const uint64_t hash = sl_hash_key(sl_hash_key(seed ^ step) ^ key);
    return (float)(hash >> 40) < policy->admit_probability * (float)(1U << 24);
}

bool sl_policy_protects(const struct sl_policy_spec *policy, const struct sl_row *row,
                        uint64_t step)
{
    return age_of(row, step) < policy->protect_steps;
}

enum sl_eviction_reason sl_policy_judge(const struct sl_policy_spec *policy,
                                        const struct sl_row_layout *layout,
                                        const struct sl_row *row, uint64_t step,
                                        uint64_t seconds_age)
{
    if (sl_policy_protects(policy, row, step)) {
        return SL_EVICTION_NONE;
    }
    const uint32_t ttl_steps = sl_policy_ttl_steps(policy, row->key);
    if ((ttl_steps > 0 && age_of(row, step) >= ttl_steps) || age_of(row, step) >= seconds_age) {
        return SL_EVICTION_TTL;
    }
    if (row->count < policy->count_below) {
        return SL_EVICTION_COUNT;
    }
    const float least = policy->l2_below * policy->l2_below;
    return least > 0 && square_sum(layout, row) < least ? SL_EVICTION_L2 : SL_EVICTION_NONE;
}

uint64_t sl_policy_worth(const struct sl_policy_spec *policy, const struct sl_row_layout *layout,
                         const struct sl_row *row, uint64_t step)
{
    const uint32_t age = age_of(row, step);
    if (policy->order == SL_POLICY_L2) {
        const float sum = square_sum(layout, row);
        uint32_t bits; /* of floats that are not negative: in the order of the floats, NaN last */
        memcpy(&bits, &sum, sizeof bits);
        return bits & 0x7fffffff;
    }
    const uint64_t youth = UINT32_MAX - age;
    if (policy->order == SL_POLICY_LRU) {
        return youth;
    }
    const uint32_t halvings = policy->half_life_steps == 0 ? 0 : age / policy->half_life_steps;
    return (uint64_t)(halvings < 32 ? row->count >> halvings : 0) << 32 | youth;
}
