/* Backups: what becomes of pushes when shards are lost, and when they are not. */

#include "tests/sim/oracle.h"

bool sl_sim_oracle_forgets(const struct sl_sim_oracle *oracle)
{
    return oracle->plan->replica.is_there ? oracle->forgot : oracle->epochs[0] > 0;
}

void sl_sim_oracle_loses(struct sl_sim_oracle *oracle, uint32_t ps, uint64_t number)
{
    sl_sim_world_note(oracle->world, "the shards of ps/%u are lost", ps);
    sl_sim_oracle_crashed(oracle, ps);
    sl_sim_oracle_restores(oracle, ps, number);
}
