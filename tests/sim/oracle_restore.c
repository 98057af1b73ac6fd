/* Checkpoints: what a ps that has restored one must have of all that was pushed before. */
#include <inttypes.h>

#include "core/clock.h"
#include "tests/sim/oracle.h"

struct sl_sim_checkpoint *sl_sim_oracle_find_checkpoint(struct sl_sim_oracle *oracle, uint32_t ps,
                                                        uint64_t number)
{
    for (uint32_t i = 0; i < oracle->checkpoint_count; i++) {
        if (oracle->checkpoints[i].ps == ps && oracle->checkpoints[i].number == number) {
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

void sl_sim_oracle_note_unanswered(struct sl_sim_oracle *oracle, uint32_t ps)
{
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        const uint32_t task = oracle->instances[unit->instance].task;
        if (unit->ended_ns == SL_CLOCK_NEVER &&
            sl_sim_oracle_ps_of(oracle->plan, unit->shard) == ps) {
            const uint32_t host = sl_sim_plan_task_host(oracle->plan, task);
            /* With backups, the one behind may have answered for it. */
            const uint32_t other =
                oracle->plan->replica.is_there ? (ps + 1) % oracle->plan->ps_count : ps;
            unit->unanswered = *replied_to(oracle, ps, host) < unit->begun_ns &&
                               *replied_to(oracle, other, host) < unit->begun_ns;
        }
    }
}

/* One that is begun again under its number was cut at one of its beginnings. */
void sl_sim_oracle_checkpoint_begins(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number)
{
    sl_sim_world_note(oracle->world, "ps/%u begins checkpoint %" PRIu64, ps, number);
    if (sl_sim_oracle_find_checkpoint(oracle, ps, number) == NULL) {
        *sl_sim_oracle_add_checkpoint(oracle) =
            (struct sl_sim_checkpoint){.ps = ps,
                                       .number = number,
                                       .begun_ns = oracle->world->now_ns,
                                       .cut_ns = SL_CLOCK_NEVER};
    }
}

void sl_sim_oracle_checkpoint_written(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number)
{
    struct sl_sim_checkpoint *checkpoint = sl_sim_oracle_find_checkpoint(oracle, ps, number);
    sl_sim_world_note(oracle->world, "ps/%u has its files of checkpoint %" PRIu64, ps, number);
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
    const uint32_t ps = sl_sim_oracle_ps_of(oracle->plan, unit->shard);
    const bool was_in_flight =
        unit->ended_ns == SL_CLOCK_NEVER || unit->epoch_ended == oracle->epochs[ps];
    if (was_in_flight) { /* who was not answered yet is answered by the next one only */
        return unit->unanswered ? unit->fate : SL_SIM_FATE_OPEN;
    }
    if (checkpoint == NULL) {
        return SL_SIM_FATE_GONE;
    }
    if (unit->fate == SL_SIM_FATE_GONE && checkpoint->begun_ns > oracle->restored_ns[ps]) {
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

void sl_sim_oracle_restores(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number)
{
    const struct sl_sim_checkpoint *checkpoint =
        number == 0 ? NULL : sl_sim_oracle_find_checkpoint(oracle, ps, number);
    sl_sim_world_note(oracle->world, "ps/%u begins from checkpoint %" PRIu64, ps, number);
    if (number != 0 && (checkpoint == NULL || checkpoint->cut_ns == SL_CLOCK_NEVER)) {
        sl_sim_fail(&oracle->breach, "damage",
                    "ps/%u begins from checkpoint %" PRIu64 ", which was never whole", ps, number);
        return;
    }
    if (number < oracle->complete && !oracle->was_damaged) {
        sl_sim_fail(&oracle->breach, "durability",
                    "checkpoint %" PRIu64 " was complete, and the shards of ps/%u begin "
                    "from %" PRIu64,
                    oracle->complete, ps, number);
        return;
    }
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        if (sl_sim_oracle_ps_of(oracle->plan, unit->shard) == ps &&
            unit->epoch_begun < oracle->epochs[ps]) {
            unit->fate = fate_after(oracle, unit, checkpoint);
        }
    }
    if (checkpoint != NULL) {
        forget_replacements(oracle, checkpoint);
    }
    oracle->restored_ns[ps] = oracle->world->now_ns;
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
