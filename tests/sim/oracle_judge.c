/* The end of a run: what every unit must have come to, and what pulls of BSP tables saw of them. */
#include <inttypes.h>

#include "core/clock.h"
#include "tests/sim/oracle.h"

static bool stages(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    return oracle->tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP &&
           oracle->instances[unit->instance].has_clock;
}

/* An acknowledged push of a BSP table is kept for sure once its iteration is ticked. */
static bool is_kept(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    const struct sl_sim_instance *instance = &oracle->instances[unit->instance];
    if (!stages(oracle, unit)) {
        return true;
    }
    /* Iterations may wait for workers that are gone for good, for ever. */
    return !instance->tainted && !oracle->forgot &&
           (unit->clock < instance->ticks_acked || instance->finish_acked);
}

/* The push of a worker that was lost before it had ticked. */
static bool is_dropped(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    const struct sl_sim_instance *instance = &oracle->instances[unit->instance];
    return stages(oracle, unit) && instance->killed && !instance->tainted &&
           unit->clock >= instance->ticks && unit->epoch_begun == oracle->shards[unit->shard].epoch;
}

static const char *fate_of(const struct sl_sim_unit *unit)
{
    return unit->acked ? "acknowledged" : "not acknowledged";
}

static void check_fate(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    const char *wrong = NULL;
    if (unit->fate == SL_SIM_FATE_GONE) {
        wrong = unit->seen != 0 ? "is there, though its ps crashed since" : NULL;
    } else if (unit->fate == SL_SIM_FATE_SURE && unit->acked && is_kept(oracle, unit)) {
        wrong = unit->seen != 1 ? "is not there" : NULL;
    }
    if (wrong == NULL && is_dropped(oracle, unit)) {
        wrong = unit->seen != 0 ? "is there, though its worker was lost in the middle of it" : NULL;
    }
    if (wrong != NULL) {
        sl_sim_fail(&oracle->breach, "exactly-once",
                    "worker/%u's push of iteration %u to t%u on shard %u, %s at %" PRIu64 " us, %s",
                    oracle->instances[unit->instance].task, unit->clock, unit->table, unit->shard,
                    fate_of(unit), sl_sim_us(unit->ended_ns), wrong);
    }
}

void sl_sim_oracle_final(struct sl_sim_oracle *oracle, uint32_t index, float first, float second)
{
    struct sl_sim_unit *unit = &oracle->units[index];
    float one = oracle->tables[unit->table].sign != 0 ? 1.0F : -1.0F;
    const float values[2] = {first, second};
    bool whole = true;
    unit->seen = -1;
    for (uint32_t i = 0; i < 2; i++) {
        sl_sim_oracle_check_evicted(oracle, unit, i, values[i], SL_CLOCK_NEVER, "the last pull");
        whole = whole && (values[i] == 0.0F || values[i] == one);
        if (values[i] != 0.0F || !sl_sim_oracle_may_lack(unit, i)) {
            whole = whole && (unit->seen == -1 || unit->seen == (values[i] != 0.0F));
            unit->seen = values[i] != 0.0F;
        }
    }
    if (!whole) {
        sl_sim_fail(&oracle->breach, "exactly-once",
                    "worker/%u's push of iteration %u to t%u on shard %u, %s, was carried "
                    "out %g and %g times",
                    oracle->instances[unit->instance].task, unit->clock, unit->table, unit->shard,
                    fate_of(unit), (double)(first / one), (double)(second / one));
    }
    if (whole && unit->seen >= 0) {
        check_fate(oracle, unit);
    }
}

void sl_sim_oracle_final_bait(struct sl_sim_oracle *oracle, uint32_t index, float value)
{
    const struct sl_sim_unit *unit = &oracle->units[index];
    const float one = oracle->tables[unit->table].sign != 0 ? 1.0F : -1.0F;
    const float pushed = unit->seen == 0 || (unit->seen == -1 && value == 0.0F) ? 0.0F : one;
    const float left = unit->is_assigned ? SL_SIM_ASSIGNED * one : 0.0F;
    const bool erased = sl_sim_oracle_is_erased(oracle, unit, SL_CLOCK_NEVER);
    const bool may_be_erased = unit->eraser != SL_SIM_NO_UNIT;
    /* In BSP the push may follow an assign. */
    const bool is_left = value == left || (stages(oracle, unit) && value == left + pushed);
    sl_sim_oracle_check_evicted(oracle, unit, SL_SIM_BAIT, value, SL_CLOCK_NEVER, "the last pull");
    if (value == 0.0F && sl_sim_oracle_may_lack(unit, SL_SIM_BAIT)) {
        return;
    }
    if (erased ? value != left : value != pushed && !(may_be_erased && is_left)) {
        sl_sim_fail(&oracle->breach, "erase",
                    "a key that worker/%u pushed once to t%u on shard %u is %g, though %s",
                    oracle->instances[unit->instance].task, unit->table, unit->shard, (double)value,
                    erased          ? "its erase or assign was acknowledged"
                    : may_be_erased ? "its push was carried out once at most"
                                    : "no one erased it");
    }
}

/* Each time that a push has the key counts. Of pushes whose witnesses were evicted nobody knows. */
static void check_admitted(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shared,
                           bool has_row)
{
    const struct sl_policy_spec *policy = &oracle->tables[table].spec.policy;
    uint32_t sure = 0, most = 0;
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        for (uint32_t k = 0; unit->table == table && k < unit->part_count; k++) {
            const bool is_it = oracle->parts[unit->part_first + k].shared == shared;
            sure += is_it && unit->seen == 1;
            most += is_it && unit->seen != 0;
        }
    }
    const bool must = policy->admit_age_steps == 0 && sure >= policy->admit_count;
    const bool must_not = policy->admission == SL_ADMISSION_COUNT && most < policy->admit_count;
    if (has_row ? must_not : must) {
        sl_sim_fail(&oracle->breach, "admitted",
                    "shared key %u of t%u has %s row; it was in %u to %u of the pushes that are "
                    "there, of which it needs %u",
                    shared, table, has_row ? "a" : "no", sure, most, policy->admit_count);
    }
}

void sl_sim_oracle_sum(struct sl_sim_oracle *oracle, uint32_t table, uint32_t shared, float value,
                       const uint8_t *found)
{
    int64_t sum = 0;
    if (oracle->tables[table].shared_evicted[shared]) {
        return;
    }
    if (oracle->tables[table].spec.policy.admit_count > 1) {
        check_admitted(oracle, table, shared, *found != 0);
        return;
    }
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->table == table && unit->seen == -1) {
            return; /* nobody knows whether it is there */
        }
        for (uint32_t k = 0; unit->table == table && unit->seen == 1 && k < unit->part_count; k++) {
            const struct sl_sim_part *part = &oracle->parts[unit->part_first + k];
            sum += part->shared == shared ? part->gradient : 0;
        }
    }
    sum = oracle->tables[table].sign != 0 ? sum : -sum;
    if (value != (float)sum) {
        sl_sim_fail(&oracle->breach, "exactly-once",
                    "shared key %u of t%u (shard %u) is %g; the pushes that were carried "
                    "out add up to %" PRId64,
                    shared, table, oracle->tables[table].shared_shard[shared], (double)value, sum);
    }
}

/* Acknowledged pushes of one worker, iteration and shard are there together or not at all. */
static void judge_group(struct sl_sim_oracle *oracle, uint32_t first)
{
    const struct sl_sim_unit *unit = &oracle->units[first];
    uint32_t epoch = oracle->shards[unit->shard].epoch;
    for (uint32_t i = first + 1; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *other = &oracle->units[i];
        if (other->instance != unit->instance || other->clock != unit->clock ||
            other->shard != unit->shard || !stages(oracle, other) || !other->acked ||
            other->epoch_begun != epoch || other->epoch_ended != epoch) {
            continue;
        }
        if (other->seen != unit->seen && other->seen >= 0 && unit->seen >= 0) {
            sl_sim_fail(&oracle->breach, "whole steps",
                        "of worker/%u's pushes of iteration %u on shard %u one is there "
                        "and one is not, in the end",
                        oracle->instances[unit->instance].task, unit->clock, unit->shard);
        }
        return; /* the others are compared from there */
    }
}

static void judge_groups(struct sl_sim_oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        const struct sl_sim_unit *unit = &oracle->units[i];
        uint32_t epoch = oracle->shards[unit->shard].epoch;
        if (stages(oracle, unit) && unit->acked && unit->epoch_begun == epoch &&
            unit->epoch_ended == epoch && !oracle->instances[unit->instance].tainted) {
            judge_group(oracle, i);
        }
    }
}

static void breach(struct sl_sim_oracle *oracle, const struct sl_sim_sight *sight, const char *what)
{
    const struct sl_sim_unit *unit = &oracle->units[sight->unit];
    const struct sl_sim_look *look = &oracle->looks[sight->look];
    sl_sim_fail(&oracle->breach, "whole steps",
                "worker/%u's pull of iteration %u from t%u, begun at %" PRIu64 " us, %s of "
                "worker/%u's push of iteration %u on shard %u (%s)",
                oracle->instances[look->instance].task, look->clock, look->table,
                sl_sim_us(look->begun_ns), what, oracle->instances[unit->instance].task,
                unit->clock, unit->shard, fate_of(unit));
}

static void judge_sight(struct sl_sim_oracle *oracle, const struct sl_sim_sight *sight)
{
    const struct sl_sim_unit *unit = &oracle->units[sight->unit];
    const struct sl_sim_look *look = &oracle->looks[sight->look];
    const struct sl_sim_instance *puller = &oracle->instances[look->instance];
    const struct sl_sim_instance *pusher = &oracle->instances[unit->instance];
    if (unit->epoch_begun != oracle->shards[unit->shard].epoch || pusher->tainted) {
        return;
    }
    if (sight->seen[0] != sight->seen[1]) {
        breach(oracle, sight, "shows a part");
    }
    /* Pulls do not wait for backups: a take-over undoes what was not acknowledged. */
    bool was_undone = !unit->acked && look->begun_ns <= oracle->shards[unit->shard].moved_ns;
    if (sight->seen[0] && unit->seen == 0 && !was_undone) {
        breach(oracle, sight, "shows what is gone later");
    }
    if (puller->tainted || !puller->has_clock) {
        return;
    }
    uint32_t seen_before = look->clock + (look->undisturbed ? 0 : 1);
    if (sight->seen[0] && unit->clock >= seen_before) {
        breach(oracle, sight, "shows what is yet to come");
    }
    bool settled = unit->acked && unit->clock < pusher->ticks_acked;
    if (!sight->seen[0] && settled && unit->clock < look->clock) {
        breach(oracle, sight, "lacks what must be there");
    }
}

static bool same_group(const struct sl_sim_unit *a, const struct sl_sim_unit *b)
{
    return a->instance == b->instance && a->clock == b->clock && a->shard == b->shard;
}

/* Within one look, what one worker did in one iteration on one shard is seen whole. */
static void judge_look(struct sl_sim_oracle *oracle, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const struct sl_sim_unit *unit = &oracle->units[oracle->sights[i].unit];
        for (uint32_t k = i + 1; k < end; k++) {
            const struct sl_sim_unit *other = &oracle->units[oracle->sights[k].unit];
            if (same_group(unit, other) && unit->seen == 1 && other->seen == 1 &&
                unit->epoch_begun == oracle->shards[unit->shard].epoch &&
                other->epoch_begun == unit->epoch_begun &&
                !oracle->instances[unit->instance].tainted &&
                oracle->sights[i].seen[0] != oracle->sights[k].seen[0]) {
                breach(oracle, &oracle->sights[i], "shows a part of the iteration");
            }
        }
    }
}

void sl_sim_oracle_judge(struct sl_sim_oracle *oracle)
{
    judge_groups(oracle);
    uint32_t first = 0;
    for (uint32_t i = 0; i < oracle->sight_count; i++) {
        judge_sight(oracle, &oracle->sights[i]);
        if (i + 1 == oracle->sight_count || oracle->sights[i + 1].look != oracle->sights[i].look) {
            judge_look(oracle, first, i + 1);
            first = i + 1;
        }
    }
}
