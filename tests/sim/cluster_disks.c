/* The disks of a cluster's ps hosts. */
#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/coordinator/state.h"
#include "tests/sim/cluster.h"
#include "tests/sim/inspect.h"

#define CALM_NS (4 * SL_CLOCK_NS_PER_S) /* between two checkpoints */

void sl_sim_cluster_make_disks(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_plan *plan = cluster->plan;
    if (!plan->disk.is_there) {
        return;
    }
    cluster->disks = calloc(plan->ps_count, sizeof *cluster->disks);
    sl_assert(cluster->disks != NULL);
    for (uint32_t i = 0; i < plan->ps_count; i++) {
        sl_sim_disk_init(&cluster->disks[i], &plan->disk, sl_hash_key(plan->seed ^ 0xd15c) + i);
        cluster->disks[i].is_shared = plan->replica.is_there || plan->moves;
    }
}

void sl_sim_cluster_free_disks(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->disks != NULL && i < cluster->plan->ps_count; i++) {
        sl_sim_disk_fini(&cluster->disks[i]);
    }
    free(cluster->disks);
}

void sl_sim_cluster_calm_disks(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; cluster->disks != NULL && i < cluster->plan->ps_count; i++) {
        sl_sim_disk_calm(&cluster->disks[i]);
        cluster->ps[i].process.aside_us_max = 0;
    }
    /* From now on it is only to be seen that there are some. */
    struct sl_coordinator *coordinator = sl_sim_cluster_coordinator(cluster);
    if (cluster->disks != NULL && coordinator != NULL) {
        coordinator->options.checkpoint_interval_ns = CALM_NS;
    }
}

static void note_requests(struct sl_sim_worker *worker)
{
    for (uint32_t i = 0; worker != NULL && i < SL_SIM_WORKS_MAX; i++) {
        if (worker->working[i]) {
            sl_sim_work_note_requests(&worker->works[i]);
        }
    }
}

void sl_sim_cluster_note_requests(struct sl_sim_cluster *cluster)
{
    note_requests(cluster->observer.worker);
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        note_requests(cluster->places[task].worker);
    }
}

/* The coordinator knows of it. */
static bool has_joined(const struct sl_sim_ps *ps)
{
    return ps->running && ps->wiring.shards.has_joined;
}

void sl_sim_cluster_begin_anew(struct sl_sim_cluster *cluster, uint32_t index)
{
    if (cluster->disks == NULL || !sl_sim_disk_is_hopeless(&cluster->disks[index])) {
        return;
    }
    for (uint32_t i = 0; i < cluster->plan->ps_count; i++) {
        struct sl_sim_ps *ps = &cluster->ps[i];
        if (i != index && !has_joined(ps) && sl_sim_disk_restores(&cluster->disks[i])) {
            sl_sim_world_note(cluster->world, "ps/%u is to begin with nothing, as ps/%u does", i,
                              index);
            sl_sim_disk_give_up(&cluster->disks[i]);
            ps->failed = true;
        }
    }
}

void sl_sim_cluster_look_at_complete(struct sl_sim_cluster *cluster)
{
    const struct sl_coordinator *coordinator =
        cluster->disks == NULL ? NULL : sl_sim_cluster_coordinator(cluster);
    const uint64_t complete = coordinator == NULL ? 0 : coordinator->checkpoint.incremental_base;
    /* Where its records are kept, it is complete when these say so: nobody is told before. */
    const bool is_kept = !sl_sim_records_lack(&cluster->records, SL_COORDINATOR_RECORD_JOB);
    if (coordinator != NULL && is_kept && complete != cluster->complete) {
        cluster->complete = complete;
        if (complete != 0 && coordinator->values_lost != 0) {
            sl_sim_fail(&cluster->oracle.breach, "values",
                        "checkpoint %u is complete, although the job has lost the values of "
                        "ps/%u",
                        (uint32_t)complete, coordinator->values_lost - 1);
        } else if (complete != 0) {
            sl_sim_oracle_complete(&cluster->oracle, complete);
            sl_sim_inspect(cluster, complete);
        }
    }
}

bool sl_sim_cluster_saves(const struct sl_sim_cluster *cluster)
{
    const struct sl_coordinator *coordinator =
        cluster->disks == NULL ? NULL : sl_sim_cluster_coordinator(cluster);
    return cluster->disks != NULL && (coordinator == NULL || coordinator->values_lost == 0);
}

bool sl_sim_cluster_look_at_disk(struct sl_sim_cluster *cluster, uint32_t index)
{
    return cluster->disks != NULL && sl_sim_disk_look(sl_sim_cluster_disk(cluster, index));
}
