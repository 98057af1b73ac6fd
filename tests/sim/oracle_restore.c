/* Checkpoints: what a ps that has restored one must have of all that was pushed before. */
#include <inttypes.h>

#include "core/clock.h"
#include "tests/sim/oracle.h"

struct sl_sim_checkpoint *sl_sim_oracle_find_checkpoint(struct sl_sim_oracle *oracle,
                                                        uint32_t shard, uint64_t number)
{
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        if (oracle->checkpoints[i].shard == shard && oracle->checkpoints[i].number == number) {
            return &oracle->checkpoints[i];
        }
    }
    return NULL;
}

static uint64_t *replied_to(const struct sl_sim_oracle *oracle, uint32_t ps, uint32_t host)
{
    return &oracle->replied_ns[(size_t)ps * oracle->plan->network.host_count + host];
}

void sl_sim_oracle_replies(struct sl_sim_oracle *oracle, uint32_t ps, uint32_t host)
{
    *replied_to(oracle, ps, host) = oracle->world->now_ns;
}

/* Any of those that have been the primary of its shard may have answered a unit. */
static bool is_unanswered(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit)
{
    const uint32_t task = oracle->instances[unit->instance].task;
    const uint32_t host = sl_sim_plan_task_host(oracle->plan, task);
    bool is_unanswered = true;
    for (uint32_t ps = 0; ps < oracle->plan->ps_count; ps++) {
        const bool may = (oracle->shards[unit->shard].primaries & 1U << ps) != 0;
        is_unanswered = is_unanswered && (!may || *replied_to(oracle, ps, host) < unit->begun_ns);
    }
    return is_unanswered;
}

/* Those who had the shard are gone. */
static void lose(struct sl_sim_oracle *oracle, uint32_t shard)
{
    sl_sim_world_note(oracle->world, "shard %u is lost", shard);
    oracle->shards[shard].epoch++;
    sl_sim_oracle_undoes_evictions(oracle, shard);
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->ended_ns == SL_CLOCK_NEVER && unit->shard == shard) {
            unit->unanswered = is_unanswered(oracle, unit);
        }
    }
}

/* One that is begun again under its number was cut at one of its beginnings. */
void sl_sim_oracle_checkpoint_begins(struct sl_sim_oracle *oracle, uint32_t shard, uint64_t number)
{
    sl_sim_world_note(oracle->world, "shard %u: checkpoint %" PRIu64 " begins", shard, number);
    if (sl_sim_oracle_find_checkpoint(oracle, shard, number) == NULL) {
        *sl_sim_oracle_add_checkpoint(oracle) =
            (struct sl_sim_checkpoint){.shard = shard,
                                       .number = number,
                                       .begun_ns = oracle->world->now_ns,
                                       .cut_ns = SL_CLOCK_NEVER};
    }
}

void sl_sim_oracle_checkpoint_written(struct sl_sim_oracle *oracle, uint32_t shard, uint64_t number)
{
    struct sl_sim_checkpoint *checkpoint = sl_sim_oracle_find_checkpoint(oracle, shard, number);
    sl_sim_world_note(oracle->world, "shard %u has its file of checkpoint %" PRIu64, shard, number);
    if (checkpoint != NULL) {
        checkpoint->cut_ns = oracle->world->now_ns;
    }
}

void sl_sim_oracle_complete(struct sl_sim_oracle *oracle, uint64_t number)
{
    sl_sim_world_note(oracle->world, "checkpoint %" PRIu64 " is complete", number);
    oracle->complete = number > oracle->complete ? number : oracle->complete;
    oracle->complete_count++;
}

void sl_sim_oracle_finds(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number, bool damaged)
{
    sl_sim_world_note(oracle->world, "ps/%u finds checkpoint %" PRIu64, ps, number);
    damaged =
        damaged || (number == 0 && oracle->was_damaged); /* somebody else's, for which it gave up */
    if (!damaged && number < oracle->complete) {
        sl_sim_fail(&oracle->breach, "durability",
                    "checkpoint %" PRIu64 " was complete, and ps/%u, whose disk is whole, "
                    "finds none after %" PRIu64,
                    oracle->complete, ps, number);
    }
}

void sl_sim_oracle_abandons(struct sl_sim_oracle *oracle, uint64_t above, uint64_t to)
{
    if (oracle->complete > above && oracle->complete <= to) {
        sl_sim_world_note(oracle->world, "checkpoint %" PRIu64 " is abandoned", oracle->complete);
        oracle->complete = above;
    }
}

/* Acknowledged before that time, for good: of a BSP table with its iteration's tick. */
static bool is_done_before(const struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit,
                           uint64_t at_ns)
{
    const bool stages = oracle->tables[unit->table].spec.consistency.mode == SL_CONSISTENCY_BSP &&
                        oracle->instances[unit->instance].has_clock;
    return unit->acked && (stages ? unit->ticked_ns : unit->ended_ns) < at_ns;
}

/* Its fate, after its shard has begun anew from the checkpoint. */
static enum sl_sim_fate fate_after(const struct sl_sim_oracle *oracle,
                                   const struct sl_sim_unit *unit,
                                   const struct sl_sim_checkpoint *checkpoint)
{
    const struct sl_sim_oracle_shard *shard = &oracle->shards[unit->shard];
    if (unit->ended_ns == SL_CLOCK_NEVER) { /* unanswered: the next one answers it only */
        return unit->unanswered ? unit->fate : SL_SIM_FATE_OPEN;
    }
    if (checkpoint == NULL) {
        return SL_SIM_FATE_GONE;
    }
    if (unit->fate == SL_SIM_FATE_GONE && checkpoint->begun_ns > shard->restored_ns) {
        return SL_SIM_FATE_GONE;
    }
    if (unit->begun_ns > checkpoint->cut_ns) {
        return SL_SIM_FATE_GONE;
    }
    const bool is_sure =
        unit->fate == SL_SIM_FATE_SURE && is_done_before(oracle, unit, checkpoint->begun_ns);
    return is_sure ? SL_SIM_FATE_SURE : SL_SIM_FATE_OPEN;
}

/* A worker that expired before the checkpoint stays so after a restore, and no shard waits for it
 * (docs/checkpoints.md). The process in its place, if it joined later, is unknown to the shards: it
 * counts again when it has joined again, if the others have not continued without it. The first
 * process of a task needs no such allowance: shards wait for its task from the beginning. */
static void forget_replacements(struct sl_sim_oracle *oracle,
                                const struct sl_sim_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < oracle->instance_count; i++) {
        struct sl_sim_instance *instance = &oracle->instances[i];
        if (instance->replaces && instance->started_ns >= checkpoint->begun_ns) {
            instance->forgotten = true;
            instance->counts = false;
        }
    }
}

void sl_sim_oracle_begins(struct sl_sim_oracle *oracle, uint32_t index, uint32_t ps,
                          uint64_t number)
{
    struct sl_sim_oracle_shard *shard = &oracle->shards[index];
    const struct sl_sim_checkpoint *checkpoint =
        number == 0 ? NULL : sl_sim_oracle_find_checkpoint(oracle, index, number);
    if (shard->primaries != 0) {
        lose(oracle, index);
    }
    shard->primaries |= 1U << ps;
    sl_sim_world_note(oracle->world, "shard %u begins on ps/%u, from checkpoint %" PRIu64, index,
                      ps, number);
    if (number != 0 && (checkpoint == NULL || checkpoint->cut_ns == SL_CLOCK_NEVER)) {
        sl_sim_fail(&oracle->breach, "damage",
                    "ps/%u begins from checkpoint %" PRIu64 ", which was never whole", ps, number);
        return;
    }
    if (number < oracle->complete && !oracle->was_damaged) {
        sl_sim_fail(&oracle->breach, "durability",
                    "checkpoint %" PRIu64 " was complete, and shard %u begins from %" PRIu64,
                    oracle->complete, index, number);
        return;
    }
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->shard == index && unit->epoch_begun < shard->epoch) {
            unit->fate = fate_after(oracle, unit, checkpoint);
        }
    }
    if (checkpoint != NULL) {
        forget_replacements(oracle, checkpoint);
    }
    shard->restored_ns = oracle->world->now_ns;
}

void sl_sim_oracle_ticked(struct sl_sim_oracle *oracle, uint32_t instance, uint32_t clock)
{
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->instance == instance && unit->clock == clock &&
            unit->ticked_ns == SL_CLOCK_NEVER) {
            unit->ticked_ns = oracle->world->now_ns;
        }
    }
}
