/* Shards that move, and the ps that come and go with them. */
#include "ps/coordinator/state.h"
#include "ps/server/state.h"
#include "tests/sim/cluster.h"

static struct sl_sim_ps *host_of_coordinator(struct sl_sim_cluster *cluster)
{
    return cluster->plan->replica.apart ? &cluster->scheduler : &cluster->ps[0];
}

void sl_sim_cluster_change_placement(struct sl_sim_cluster *cluster,
                                     const struct sl_sim_fault *fault)
{
    struct sl_sim_ps *ps = host_of_coordinator(cluster);
    struct sl_message_placement_change change = {.verb = SL_MESSAGE_PLACEMENT_BALANCE};
    if (fault->kind == SL_SIM_FAULT_MOVE) {
        change = (struct sl_message_placement_change){
            .verb = SL_MESSAGE_PLACEMENT_MOVE, .shard = fault->b, .task = fault->a};
    } else if (fault->kind == SL_SIM_FAULT_DRAIN) {
        change = (struct sl_message_placement_change){.verb = SL_MESSAGE_PLACEMENT_DRAIN,
                                                      .task = fault->a};
    }
    if (ps->running) {
        sl_sim_ps_change_placement(ps, &change);
    }
}

void sl_sim_cluster_look_at_members(struct sl_sim_cluster *cluster)
{
    const bool is_anew = cluster->forgotten != cluster->records.forgotten;
    cluster->forgotten = cluster->records.forgotten;
    for (uint32_t i = 0; is_anew && i < cluster->plan->ps_at_start; i++) {
        if (cluster->memberships[i] == SL_SIM_PS_NONE) {
            cluster->member.places[i].start_ns = cluster->world->now_ns;
        }
        cluster->memberships[i] = SL_SIM_PS_AT_START;
    }
}

void sl_sim_cluster_join_ps(struct sl_sim_cluster *cluster, uint32_t index)
{
    if (cluster->memberships[index] == SL_SIM_PS_NONE) {
        cluster->memberships[index] = SL_SIM_PS_JOINS;
        cluster->member.places[index].start_ns = cluster->world->now_ns;
    }
}

bool sl_sim_cluster_look_at_drained(struct sl_sim_cluster *cluster, uint32_t index)
{
    struct sl_sim_ps *ps = &cluster->ps[index];
    const struct sl_coordinator *coordinator = sl_sim_cluster_coordinator(cluster);
    const bool is_known = coordinator != NULL &&
                          coordinator->ps[index].place == SL_COORDINATOR_DRAINED &&
                          cluster->memberships[index] == SL_SIM_PS_AT_START;
    if (ps->running ? !ps->is_over : !is_known) {
        return false;
    }
    sl_sim_world_note(cluster->world, "ps/%u was drained", index);
    if (ps->running) {
        sl_sim_ps_kill(ps, false);
        cluster->member.places[index].process = NULL;
    }
    cluster->memberships[index] = SL_SIM_PS_NONE;
    cluster->member.places[index].start_ns = SL_CLOCK_NEVER;
    return true;
}

static void check_shard(struct sl_sim_cluster *cluster, const struct sl_coordinator *coordinator,
                        uint32_t shard)
{
    const struct sl_coordinator_shard *told = &coordinator->placement.shards[shard];
    struct sl_sim_breach *breach = &cluster->oracle.breach;
    uint32_t primaries = 0;
    if (told->moves_to != SL_COORDINATOR_NO_TASK) {
        sl_sim_fail(breach, "moves", "all is healed, and shard %u still moves from ps/%u to ps/%u",
                    shard, told->primary, told->moves_to);
    }
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        SL_PROCESS_FOREACH (hosted, &cluster->ps[i].wiring) {
            if (hosted->shard != shard || hosted->server == NULL) {
                continue;
            }
            primaries += i == told->primary && hosted->server->role.serves;
            if (i != told->primary && i != told->backup) {
                sl_sim_fail(breach, "moves",
                            "all is healed, and ps/%u keeps shard %u, which ps/%u has", i, shard,
                            told->primary);
            }
        }
    }
    if (primaries != 1) {
        sl_sim_fail(breach, "moves", "all is healed, and ps/%u does not serve shard %u",
                    told->primary, shard);
    }
}

void sl_sim_cluster_check_places(struct sl_sim_cluster *cluster)
{
    const struct sl_coordinator *coordinator = sl_sim_cluster_coordinator(cluster);
    for (uint32_t i = 0; i < cluster->plan->shard_count; i++) {
        check_shard(cluster, coordinator, i);
    }
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        if (coordinator->ps[i].place == SL_COORDINATOR_DRAINING) {
            sl_sim_fail(&cluster->oracle.breach, "moves", "all is healed, and ps/%u still drains",
                        i);
        }
    }
    if (coordinator->placement.balances) {
        sl_sim_fail(&cluster->oracle.breach, "moves", "all is healed, and shards are not balanced");
    }
}
