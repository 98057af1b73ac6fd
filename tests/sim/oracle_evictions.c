/* Rows that have gone: what is to be seen of a push whose witnesses were evicted. */
#include <inttypes.h>

#include "core/clock.h"
#include "ps/shard/evict.h"
#include "tests/sim/oracle.h"

bool sl_sim_oracle_forgets_rows(const struct sl_sim_oracle *oracle, uint32_t table)
{
    return sl_shard_eviction_has(&oracle->tables[table].spec);
}

static void note(struct sl_sim_oracle *oracle, struct sl_sim_unit *unit, uint32_t which,
                 bool is_sure)
{
    unit->evicted[which].is_sure = is_sure;
    unit->evicted[which].at_ns = oracle->world->now_ns;
}

void sl_sim_oracle_evicted(struct sl_sim_oracle *oracle, uint32_t table_index, uint32_t shard,
                           uint64_t key, bool is_sure)
{
    struct sl_sim_table *table = &oracle->tables[table_index];
    for (uint32_t i = 0; i < table->shared_count; i++) {
        table->shared_evicted[i] |= table->shared[i] == key;
    }
    for (uint32_t i = oracle->unit_count; i-- > 0;) {
        struct sl_sim_unit *unit = &oracle->units[i];
        if (unit->table != table_index || unit->shard != shard) {
            continue;
        }
        for (uint32_t which = 0; which < SL_SIM_OWN_KEYS; which++) {
            const uint64_t own = which == SL_SIM_BAIT ? unit->bait : unit->witness[which];
            if (own == key) {
                note(oracle, unit, which, is_sure);
                return;
            }
        }
    }
}

void sl_sim_oracle_undoes_evictions(struct sl_sim_oracle *oracle, uint32_t shard)
{
    for (uint32_t i = 0; i < oracle->unit_count; i++) {
        struct sl_sim_unit *unit = &oracle->units[i];
        for (uint32_t k = 0; k < SL_SIM_OWN_KEYS && unit->shard == shard; k++) {
            unit->evicted[k].is_sure = false;
        }
    }
}

bool sl_sim_oracle_may_lack(const struct sl_sim_unit *unit, uint32_t which)
{
    return unit->evicted[which].at_ns != 0;
}

bool sl_sim_oracle_must_lack(const struct sl_sim_unit *unit, uint32_t which, uint64_t before_ns)
{
    /* A key that another step assigns to may be there again. */
    const bool returns = which == SL_SIM_BAIT && unit->is_assigned;
    return unit->evicted[which].is_sure && !returns && unit->evicted[which].at_ns < before_ns;
}

void sl_sim_oracle_check_evicted(struct sl_sim_oracle *oracle, const struct sl_sim_unit *unit,
                                 uint32_t which, float value, uint64_t before_ns, const char *who)
{
    if (value != 0 && sl_sim_oracle_must_lack(unit, which, before_ns)) {
        sl_sim_fail(&oracle->breach, "evicted",
                    "%s: key %u of worker/%u's push of iteration %u to t%u on shard %u was "
                    "evicted at %" PRIu64 " us, and is %g",
                    who, which, oracle->instances[unit->instance].task, unit->clock, unit->table,
                    unit->shard, sl_sim_us(unit->evicted[which].at_ns), (double)value);
    }
}
