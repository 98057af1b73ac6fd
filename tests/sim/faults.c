/* The plan's faults, when their time has come. */

#include "core/clock.h"
#include "tests/sim/cluster.h"

/* Who is cut off for longer may take so long to come back: back-off. */
#define COME_BACK_NS  (2 * SL_CLOCK_NS_PER_S)

/* How long the first death of a ps waits for a complete checkpoint, in steps of: without one the
 * job has lost values, and writes no checkpoints any more. */
#define FIRST_WAIT_NS (5 * SL_CLOCK_NS_PER_S)
#define FIRST_STEP_NS (50 * SL_CLOCK_NS_PER_MS)

void sl_sim_faults_schedule(struct sl_sim_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->plan->fault_count; i++) {
        cluster->fault_begin_ns[i] = cluster->now_ns + cluster->plan->faults[i].at_ns;
        cluster->fault_end_ns[i] = SL_CLOCK_NEVER;
    }
}

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

static void block_pair(struct sl_sim_cluster *cluster, uint32_t a, uint32_t b, bool one_way,
                       bool begins)
{
    void (*change)(struct sl_sim_network * network, uint32_t from, uint32_t to, uint32_t rail) =
        begins ? sl_sim_network_block : sl_sim_network_heal;
    if (a != b) {
        change(cluster->network, a, b, SL_SIM_RAILS_MAX);
    }
    if (a != b && !one_way) {
        change(cluster->network, b, a, SL_SIM_RAILS_MAX);
    }
}

/* A worker and one ps: nobody else is cut off. */
static void hurt_pair(struct sl_sim_cluster *cluster, uint32_t a, uint32_t b, uint64_t for_ns)
{
    uint32_t ps_count = cluster->plan->ps_count;
    bool a_is_one_of_two = b == UINT32_MAX || a >= ps_count || b < ps_count;
    hurt(cluster, a_is_one_of_two ? a : b, for_ns);
}

static void partition(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault, bool begins)
{
    uint32_t hosts = cluster->plan->network.host_count;
    if (fault->b != UINT32_MAX) {
        block_pair(cluster, fault->a, fault->b, fault->one_way, begins);
    }
    for (uint32_t host = 0; host < hosts && fault->b == UINT32_MAX; host++) {
        block_pair(cluster, fault->a, host, fault->one_way, begins);
    }
    if (begins) {
        hurt_pair(cluster, fault->a, fault->b, fault->duration_ns);
    }
}

static void pause_process(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    struct sl_sim_process *process = sl_sim_cluster_process(cluster, fault->a);
    hurt(cluster, fault->a, fault->duration_ns);
    if (process != NULL) {
        uint64_t until_ns = cluster->now_ns + fault->duration_ns;
        uint64_t from_ns =
            process->paused_until_ns > cluster->now_ns ? process->paused_until_ns : cluster->now_ns;
        process->paused_ns += until_ns > from_ns ? until_ns - from_ns : 0;
        process->paused_until_ns = until_ns > from_ns ? until_ns : from_ns;
    }
}

static void slow(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault, bool begins)
{
    struct sl_sim_process *process = sl_sim_cluster_process(cluster, fault->a);
    if (process != NULL) {
        process->gap_ns = begins ? fault->amount * SL_CLOCK_NS_PER_US : cluster->plan->gap_ns;
    }
}

static void jump(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    struct sl_sim_process *process = sl_sim_cluster_process(cluster, fault->a);
    hurt(cluster, fault->a, fault->duration_ns);
    if (process != NULL) {
        process->offset_ns += fault->duration_ns;
        sl_sim_process_look(process);
    }
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
        place->start_ns = cluster->now_ns;
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
        cluster->ps_start_ns[fault->a] = cluster->now_ns + fault->duration_ns;
    }
}

static void begin(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    switch (fault->kind) {
    case SL_SIM_FAULT_BREAK:
        hurt(cluster, fault->a,
             sl_sim_network_break(cluster->network, fault->a, fault->all, fault->amount));
        break;
    case SL_SIM_FAULT_PARTITION:
        partition(cluster, fault, true);
        break;
    case SL_SIM_FAULT_PAUSE:
        pause_process(cluster, fault);
        break;
    case SL_SIM_FAULT_SLOW:
        slow(cluster, fault, true);
        break;
    case SL_SIM_FAULT_JUMP:
        jump(cluster, fault);
        break;
    case SL_SIM_FAULT_REFUSE:
        sl_sim_network_refuse(cluster->network, fault->a, true);
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
    case SL_SIM_FAULT_MEMORY:
        cluster->is_without_memory[fault->a] = true;
        break;
    default:
        leave(cluster, fault);
        break;
    }
}

static void end(struct sl_sim_cluster *cluster, const struct sl_sim_fault *fault)
{
    if (fault->kind == SL_SIM_FAULT_PARTITION) {
        partition(cluster, fault, false);
    } else if (fault->kind == SL_SIM_FAULT_SLOW) {
        slow(cluster, fault, false);
    } else if (fault->kind == SL_SIM_FAULT_REFUSE) {
        sl_sim_network_refuse(cluster->network, fault->a, false);
    } else if (fault->kind == SL_SIM_FAULT_MEMORY) {
        cluster->is_without_memory[fault->a] = false;
    }
}

/* One seed in four does not wait. */
static bool waits_for_checkpoint(const struct sl_sim_cluster *cluster,
                                 const struct sl_sim_fault *fault)
{
    return fault->kind == SL_SIM_FAULT_KILL_PS && cluster->disks != NULL &&
           cluster->oracle.complete_count == 0 && cluster->plan->seed % 4 != 0 &&
           cluster->now_ns < fault->at_ns + FIRST_WAIT_NS;
}

uint64_t sl_sim_faults_run(struct sl_sim_cluster *cluster)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    cluster->faults_are_over = true;
    for (uint32_t i = 0; i < cluster->plan->fault_count; i++) {
        const struct sl_sim_fault *fault = &cluster->plan->faults[i];
        if (cluster->fault_begin_ns[i] <= cluster->now_ns && waits_for_checkpoint(cluster, fault)) {
            cluster->fault_begin_ns[i] = cluster->now_ns + FIRST_STEP_NS;
        } else if (cluster->fault_begin_ns[i] <= cluster->now_ns) {
            cluster->fault_begin_ns[i] = SL_CLOCK_NEVER;
            cluster->fault_end_ns[i] = cluster->now_ns + fault->duration_ns;
            sl_sim_cluster_trace(cluster, "fault %u begins: kind %d", i, (int)fault->kind);
            begin(cluster, fault);
        } else if (cluster->fault_end_ns[i] <= cluster->now_ns) {
            cluster->fault_end_ns[i] = SL_CLOCK_NEVER;
            sl_sim_cluster_trace(cluster, "fault %u ends", i);
            end(cluster, fault);
        }
        uint64_t at_ns = cluster->fault_begin_ns[i] < cluster->fault_end_ns[i]
                             ? cluster->fault_begin_ns[i]
                             : cluster->fault_end_ns[i];
        next_ns = at_ns < next_ns ? at_ns : next_ns;
        cluster->faults_are_over = cluster->faults_are_over && at_ns == SL_CLOCK_NEVER;
    }
    return next_ns;
}
