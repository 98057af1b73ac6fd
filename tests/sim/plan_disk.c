/* What a seed says of the ps hosts' disks, drawn apart from the rest. */
#include <inttypes.h>
#include <stdio.h>

#include "core/clock.h"
#include "tests/sim/plan.h"
#include "tests/sim/random.h"

#define MS               SL_CLOCK_NS_PER_MS
#define LEASE_NS         (10 * SL_CLOCK_NS_PER_S)
#define KILLS_MAX        3
#define SHARE            333 /* of three in four: the others have backups */
#define DEAF_CHECKPOINTS 4
#define BEGIN_NS         (200 * MS)
#define ITERATIONS_MORE  30
#define KILLED_MS        400
#define KILLS_SPREAD     2 /* horizons */

/* By this Adagrad values add up as by SGD, exactly, in whatever order: next to 2^40 the root of any
 * slot is nothing. And the slots are sums of squares. */
#define ADAGRAD_SCALE    0x1p40F

static uint32_t draw_every(uint64_t *random, uint32_t permille)
{
    static const uint32_t every[] = {20, 60, 200, 600};
    const bool is_drawn = sl_sim_chance(random, permille);
    const uint32_t of = every[sl_sim_below(random, 4)];
    return is_drawn ? of : 0;
}

static void draw_troubles(struct sl_sim_disk_plan *disk, uint64_t *random)
{
    static const uint32_t slow_us[] = {100, 3000, 50000, 1000000};
    const bool is_slow = sl_sim_chance(random, 300);
    disk->slow_us_max = slow_us[sl_sim_below(random, 4)];
    disk->slow_us_max = is_slow ? disk->slow_us_max : 0;
    disk->fail_every = draw_every(random, 250);
    disk->stop_every = draw_every(random, 250);
    disk->full_permille = sl_sim_chance(random, 150) ? 20 : 0;
    disk->flip_permille = sl_sim_chance(random, 250) ? 300 : 0;
    disk->crash_permille = sl_sim_chance(random, 500) ? 700 : 0;
}

/* It is none of their machines' own, and stays whole. */
static void share(struct sl_sim_disk_plan *disk)
{
    disk->stop_every = disk->flip_permille = disk->crash_permille = 0;
}

/* A worker is answered in vain for some checkpoints, and then the ps is killed: what has been done
 * for it is in one, and it will ask for it again. Returns for how long. */
static uint64_t draw_deaf(struct sl_sim_plan *plan, const struct sl_sim_fault *kill,
                          uint64_t *random)
{
    const uint64_t most_ns = DEAF_CHECKPOINTS * plan->disk.every_ns;
    const uint64_t for_ns = plan->disk.every_ns + sl_hash_random(random) % most_ns;
    const uint32_t task = sl_sim_below(random, plan->worker_count);
    plan->faults[plan->fault_count++] = (struct sl_sim_fault){
        .kind = SL_SIM_FAULT_PARTITION,
        .at_ns = kill->at_ns,
        .duration_ns = for_ns + MS,
        .a = kill->a,
        .b = sl_sim_plan_task_host(plan, task),
        .one_way = true,
    };
    return for_ns;
}

/* More ps than in other seeds are killed: that is what checkpoints are for. */
static void draw_kills(struct sl_sim_plan *plan, bool partitions, uint64_t *random)
{
    /* Until then, or about so long, workers are at work. */
    const uint64_t begin_ns =
        BEGIN_NS + (uint64_t)plan->iterations * plan->think_us_max * SL_CLOCK_NS_PER_US;
    const uint32_t count = sl_sim_below(random, KILLS_MAX + 1);
    for (uint32_t i = 0; i < count && plan->fault_count + 2 <= SL_SIM_FAULTS_MAX; i++) {
        struct sl_sim_fault kill = {
            .kind = SL_SIM_FAULT_KILL_PS,
            .at_ns = sl_hash_random(random) % (KILLS_SPREAD * plan->horizon_ns),
            .duration_ns = sl_sim_between(random, 1, KILLED_MS) * MS,
            .a = sl_sim_below(random, plan->ps_count),
            .silent = sl_sim_chance(random, 300),
        };
        if (partitions && sl_sim_chance(random, 600)) {
            kill.at_ns %= begin_ns;
            kill.at_ns += draw_deaf(plan, &kill, random);
        }
        plan->faults[plan->fault_count++] = kill;
    }
}

/* More than in other seeds: so that there are checkpoints on the way. */
static void draw_iterations(struct sl_sim_plan *plan, uint64_t *random)
{
    const bool is_small = plan->worker_count <= 5;
    if (sl_sim_chance(random, 500) && is_small) {
        plan->iterations += sl_sim_below(random, ITERATIONS_MORE);
    }
}

static void draw_slots(struct sl_sim_plan *plan, uint64_t *random)
{
    for (uint32_t i = 0; i < plan->table_count; i++) {
        struct sl_optimizer_spec *optimizer = &plan->tables[i].optimizer;
        if (sl_sim_chance(random, 400)) {
            *optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD);
            optimizer->lr = optimizer->epsilon = ADAGRAD_SCALE;
            optimizer->initial_accumulator = 0;
        }
    }
}

/* Some of the seeds of which nobody asks it have them too, where there are no backups. */
static bool has_disks(const struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0xd15c05);
    const bool is_drawn = sl_sim_chance(&random, SHARE);
    const bool is_alone = !plan->replica.is_there && !choice->packets && !choice->link;
    return choice->disks || (is_drawn && is_alone);
}

void sl_sim_plan_draw_disk(struct sl_sim_plan *plan, const struct sl_sim_choice *choice)
{
    struct sl_sim_disk_plan *disk = &plan->disk;
    uint64_t random = sl_hash_key(plan->seed ^ 0xd15c0);
    static const uint64_t every_ms[] = {10, 30, 100, 300};
    static const uint32_t cut_keys[] = {0, 1, 4, 16};
    disk->is_there = has_disks(plan, choice);
    if (!disk->is_there) {
        return;
    }
    disk->every_ns = every_ms[sl_sim_below(&random, 4)] * MS;
    disk->adds = sl_sim_chance(&random, 600) ? 1 + sl_sim_below(&random, 4) : 0;
    disk->keep = 1 + sl_sim_below(&random, 3);
    disk->level = sl_sim_below(&random, 3);
    disk->falls_back = sl_sim_chance(&random, 700);
    if (sl_sim_chance(&random, 500)) {
        plan->lease_ns = LEASE_NS; /* nobody is lost for a crash */
    }
    disk->cut_keys = cut_keys[sl_sim_below(&random, 4)];
    draw_iterations(plan, &random);
    draw_slots(plan, &random);
    if ((choice->faults & SL_SIM_FAULTS_OF_DISKS) != 0) {
        draw_troubles(disk, &random);
    }
    if (plan->replica.is_there || plan->moves) {
        share(disk);
    }
    if ((choice->faults & 1U << SL_SIM_FAULT_KILL_PS) != 0) {
        draw_kills(plan, (choice->faults & 1U << SL_SIM_FAULT_PARTITION) != 0, &random);
    }
}

void sl_sim_plan_print_disk(const struct sl_sim_disk_plan *disk)
{
    printf("disks: a checkpoint every %" PRIu64
           " ms, %u add, %u are kept, level %u%s, %u keys a turn; slow by %u "
           "us, one of %u fails, of %u crashes; of 1000: %u full, %u damaged, %u crash\n",
           sl_sim_ms(disk->every_ns), disk->adds, disk->keep, disk->level,
           disk->falls_back ? ", falls back" : "", disk->cut_keys, disk->slow_us_max,
           disk->fail_every, disk->stop_every, disk->full_permille, disk->flip_permille,
           disk->crash_permille);
}
