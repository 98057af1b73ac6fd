/* Which rows of a sparse table are forgotten, and which keys get one: pure judgements of a record
 * or a key. Nothing is erased or created.
 * Any thread. Nothing allocates. */
#ifndef SL_PS_TABLE_POLICY_H
#define SL_PS_TABLE_POLICY_H

#include <starling.h>
#include <stdbool.h>
#include <stdint.h>

#include "ps/optimizer/row.h"

enum sl_eviction_reason {
    SL_EVICTION_NONE,
    SL_EVICTION_TTL,   /* older than ttl_steps */
    SL_EVICTION_COUNT, /* pushed less than count_below times */
    SL_EVICTION_L2,    /* a norm below l2_below */
    SL_EVICTION_ROOM,  /* to make room: never by sl_policy_judge */
};
#define SL_EVICTION_REASON_COUNT 5

/* Returns true when rows may go for their age, count or norm. */
static inline bool sl_policy_has_thresholds(const struct sl_policy_spec *policy)
{
    return policy->ttl_steps > 0 || policy->count_below > 0 || policy->l2_below > 0 ||
           policy->ttl_seconds > 0 || policy->slot_count > 0;
}

/* Returns the thresholds of a key's slot; NULL: it has none. */
static inline const struct sl_policy_slot *sl_policy_slot_of(const struct sl_policy_spec *policy,
                                                             uint64_t key)
{
    const uint64_t slot = key >> policy->slot_shift & ((1U << policy->slot_bits) - 1);
    return slot < policy->slot_count ? &policy->slots[slot] : NULL;
}

/* Returns the age, in steps, at which the row of this key is evicted; 0: at no age. */
static inline uint32_t sl_policy_ttl_steps(const struct sl_policy_spec *policy, uint64_t key)
{
    const struct sl_policy_slot *slot = sl_policy_slot_of(policy, key);
    return slot != NULL && slot->ttl_steps > 0 ? slot->ttl_steps : policy->ttl_steps;
}

/* Returns the number of the push with which the key gets a row; 0 and 1: the first. */
static inline uint32_t sl_policy_admit_count(const struct sl_policy_spec *policy, uint64_t key)
{
    const struct sl_policy_slot *slot = sl_policy_slot_of(policy, key);
    return slot != NULL && slot->admit_count > 0 ? slot->admit_count : policy->admit_count;
}

/* Returns true when a key may not get a row at its first push. */
bool sl_policy_has_admission(const struct sl_policy_spec *policy);

/* Returns true when the draw of a key lets it in. step: of the push. */
bool sl_policy_draws(const struct sl_policy_spec *policy, uint64_t seed, uint64_t key,
                     uint64_t step);

/* Returns true when the row may not go, whatever its values. step: of the table. */
bool sl_policy_protects(const struct sl_policy_spec *policy, const struct sl_row *row,
                        uint64_t step);

/* Returns why a row in use goes at this step; NONE: it stays. seconds_age: the age in steps of rows
 * that are older than ttl_seconds. */
enum sl_eviction_reason sl_policy_judge(const struct sl_policy_spec *policy,
                                        const struct sl_row_layout *layout,
                                        const struct sl_row *row, uint64_t step,
                                        uint64_t seconds_age);

/* Returns what a row is worth in the policy's order: of two rows the one that is worth less goes
 * first. A row with NaN is worth most. */
uint64_t sl_policy_worth(const struct sl_policy_spec *policy, const struct sl_row_layout *layout,
                         const struct sl_row *row, uint64_t step);

#endif
