/* Plans of clusters whose hosts share one slow link: many clients push and pull megabytes at once,
 * so that each long frame takes far longer than a peer may be silent, and all get on. */
#include "core/partition.h"
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

#define LONG_BLOCKS 1000 /* of a shard's range of the long table: nearly 4 MiB */
#define LEASE_NS    (10 * SL_CLOCK_NS_PER_S)

struct size {
    uint32_t ps_count, shards_of_ps, worker_count;
};

static void draw_size(struct sl_sim_plan *plan, uint64_t *random)
{
    /* Two steps of 12 workers in BSP, with two pushes each, stay below the 256 MiB that a shard has
     * for them. */
    static const struct size sizes[] = {{1, 1, 12}, {1, 2, 12}, {2, 2, 10}, {2, 3, 7}, {4, 4, 3}};
    const struct size *size = &sizes[sl_sim_below(random, 5)];
    plan->ps_count = plan->ps_at_start = size->ps_count;
    plan->shards_of_ps = size->shards_of_ps;
    plan->shard_count = size->ps_count * size->shards_of_ps;
    plan->worker_count = size->worker_count;
    plan->joiner_count = 0;
    plan->iterations = 2;
    plan->hubs = 1;
}

/* One push of all workers to all shards takes from 50 to 150 s. With 3 workers and 16 reactors, and
 * 12 Mbit/s, it takes 129 s, as that of 24 workers does with 100 Mbit/s. */
static void draw_speed(struct sl_sim_plan *plan, uint64_t *random)
{
    const uint64_t frame_bytes = LONG_BLOCKS * SL_PARTITION_BLOCK_ELEMENTS * sizeof(float);
    const uint64_t bytes = frame_bytes * plan->shard_count * plan->worker_count;
    const uint64_t took_ms = 1000 * sl_sim_between(random, 50, 150);
    plan->network.link_bytes_per_ms = (uint32_t)(bytes / took_ms);
}

static void draw_stalls(struct sl_sim_plan *plan)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        struct sl_sim_fault *fault = &plan->faults[i];
        if (fault->kind == SL_SIM_FAULT_PAUSE || fault->kind == SL_SIM_FAULT_SLOW) {
            fault->duration_ns %= LEASE_NS / 4; /* nobody is lost for it */
            fault->a %= plan->network.host_count;
            fault->at_ns *= 100; /* while frames are on their way */
            plan->faults[kept++] = *fault;
        }
    }
    plan->fault_count = kept;
}

void sl_sim_plan_draw_link(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    if (!choice->link) {
        return;
    }
    uint64_t random = sl_hash_key(plan->seed ^ 0x51ce);
    draw_size(plan, &random);
    plan->impatient = plan->floods = plan->leaves_early = false;
    plan->lives_max = 1;
    plan->lease_ns = LEASE_NS;
    plan->peer_timeout_ms = plan->network.peer_timeout_ms = 10000;
    plan->step_timeout_ms = 900 * 1000;
    plan->network.bytes_per_us = 10000;
    plan->network.window_bytes = 8U << 20;
    plan->network.break_per_10000 = plan->network.connect_fail_permille = 0;
    plan->network.host_count = sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan));
    plan->table_count = plan->table_count > 2 ? 2 : plan->table_count;
    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct sl_table_spec *spec = &plan->tables[i];
        if (spec->consistency.mode != SL_CONSISTENCY_ASP) {
            spec->consistency.worker_count = plan->worker_count;
        }
        if (i == 0) {
            spec->kind = SL_TABLE_DENSE;
            spec->dim = 0;
            spec->length = (uint64_t)LONG_BLOCKS * SL_PARTITION_BLOCK_ELEMENTS * plan->shard_count;
        } else {
            spec->kind = SL_TABLE_SPARSE;
            spec->dim = 2;
            spec->length = 0;
        }
    }
    draw_speed(plan, &random);
    draw_stalls(plan);
}
