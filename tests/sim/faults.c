/* Faults of the plan that the cluster itself carries out. world.c applies their effects on the
 * network and on processes. */

#include "core/clock.h"
#include "tests/sim/cluster.h"

/* A host that was cut off for the peer timeout comes back this much later: its back-off. */
#define COME_BACK_NS  (2 * SL_CLOCK_NS_PER_S)

/* How long the first death of a ps waits for a complete checkpoint: without one the job has lost
 * values, and writes no checkpoints any more. */
#define FIRST_WAIT_NS (5 * SL_CLOCK_NS_PER_S)

bool sl_sim_faults_taint(const struct sl_sim_cluster *cluster, uint32_t host)
{
    return cluster->hurt_ns[host] + cluster->hurt_all_ns >= cluster->plan->lease_ns / 2;
}

static void taint_if_lost(struct sl_sim_cluster *cluster)
{
    const struct sl_sim_worker *observer = cluster->observer.worker;
    if (observer != NULL &&
        sl_sim_faults_taint(cluster, sl_sim_plan_observer_host(cluster->plan))) {
        sl_sim_oracle_taint(&cluster->oracle, observer->instance);
    }
    for (uint32_t task = 0; task < sl_sim_plan_tasks(cluster->plan); task++) {
        const struct sl_sim_worker *worker = cluster->places[task].worker;
        if (worker != NULL &&
            sl_sim_faults_taint(cluster, sl_sim_plan_task_host(cluster->plan, task))) {
            sl_sim_oracle_taint(&cluster->oracle, worker->instance);
        }
    }
}

/* The host was out of reach for so long: of all, if it is a ps. */
static void hurt(struct sl_sim_cluster *cluster, uint32_t host, uint64_t for_ns)
{
    bool breaks = for_ns >= cluster->plan->peer_timeout_ms * SL_CLOCK_NS_PER_MS;
    for_ns += breaks ? COME_BACK_NS : 0;
    if (host < cluster->plan->ps_count || sl_sim_cluster_is_scheduler(cluster, host)) {
        cluster->hurt_all_ns += for_ns;
    } else {
        cluster->hurt_ns[host] += for_ns;
    }
    taint_if_lost(cluster);
}

/* The shards that were restored give everyone a lease from then on; who has waited for long comes
 * back late. */
void sl_sim_faults_restored(struct sl_sim_cluster *cluster)
{
    cluster->hurt_all_ns += COME_BACK_NS;
    taint_if_lost(cluster);
}

/* A worker and one ps: nobody else is cut off. */
static void hurt_pair(struct sl_sim_cluster *cluster, uint32_t a, uint32_t b, uint64_t for_ns)
{
    uint32_t ps_count = cluster->plan->ps_count;
    bool a_is_one_of_two = b == UINT32_MAX || a >= ps_count || b < ps_count;
    hurt(cluster, a_is_one_of_two ? a : b, for_ns);
}

static void kill_worker(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    struct sl_sim_place *place = &cluster->places[fault->a];
    if (place->worker != NULL) {
        sl_sim_cluster_kill_worker(cluster, place, fault->silent);
    }
}

static void join(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    struct sl_sim_place *place = &cluster->places[fault->a];
    if (place->worker == NULL && place->lives > 0) {
        cluster->member.places[place->host].start_ns = cluster->world->now_ns;
    }
}

static void leave(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    struct sl_sim_worker *worker = cluster->places[fault->a].worker;
    if (worker != NULL && worker->stage == SL_SIM_STAGE_TRAINING) {
        worker->wants_to_leave = worker->finished = true;
        sl_sim_worker_poll(worker);
    }
}

static void kill_ps(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    if (sl_sim_cluster_is_scheduler(cluster, fault->a)) {
        sl_sim_cluster_kill_scheduler(cluster, fault->silent, fault->duration_ns);
        hurt(cluster, fault->a, fault->duration_ns);
    } else if (cluster->ps[fault->a].running) {
        sl_sim_cluster_kill_ps(cluster, fault->a, fault->silent);
        cluster->member.places[fault->a].start_ns = cluster->world->now_ns + fault->duration_ns;
    }
}

void sl_sim_faults_change(struct sl_sim_member *member, const struct sl_sim_fault *fault,
                          bool begins, uint64_t broken_ns)
{
    struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    if (fault->kind == SL_SIM_FAULT_MEMORY) {
        cluster->is_without_memory[fault->a] = begins;
    }
    if (!begins) {
        if (fault->kind == SL_SIM_FAULT_DRAIN) {
            sl_sim_cluster_join_ps(cluster, fault->a);
        }
        return;
    }
    switch (fault->kind) {
    case SL_SIM_FAULT_BREAK:
        hurt(cluster, fault->a, broken_ns);
        break;
    case SL_SIM_FAULT_PARTITION:
        hurt_pair(cluster, fault->a, fault->b, fault->duration_ns);
        break;
    case SL_SIM_FAULT_PAUSE:
    case SL_SIM_FAULT_JUMP:
    case SL_SIM_FAULT_REFUSE:
        hurt(cluster, fault->a, fault->duration_ns);
        break;
    case SL_SIM_FAULT_KILL_WORKER:
        kill_worker(cluster, fault);
        break;
    case SL_SIM_FAULT_KILL_PS:
        kill_ps(cluster, fault);
        break;
    case SL_SIM_FAULT_JOIN:
        join(cluster, fault);
        break;
    case SL_SIM_FAULT_LEAVE:
        leave(cluster, fault);
        break;
    case SL_SIM_FAULT_SCALE:
        sl_sim_cluster_join_ps(cluster, fault->a);
        break;
    case SL_SIM_FAULT_MOVE:
    case SL_SIM_FAULT_BALANCE:
    case SL_SIM_FAULT_DRAIN:
        sl_sim_cluster_change_placement(cluster, fault);
        break;
    default:
        break;
    }
}

/* One seed in four does not wait. */
bool sl_sim_faults_delays(struct sl_sim_member *member, const struct sl_sim_fault *fault)
{
    const struct sl_sim_cluster *cluster = sl_sim_cluster_of(member);
    return fault->kind == SL_SIM_FAULT_KILL_PS && cluster->disks != NULL &&
           cluster->oracle.complete_count == 0 && cluster->plan->seed % 4 != 0 &&
           cluster->world->now_ns < fault->at_ns + FIRST_WAIT_NS;
}
