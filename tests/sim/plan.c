#include "tests/sim/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/partition.h"
#include "tests/sim/random.h"

#define FLOOD_LENGTH (17 * SL_PARTITION_BLOCK_ELEMENTS)

#define MS           SL_CLOCK_NS_PER_MS
#define S            SL_CLOCK_NS_PER_S

static void draw_size(struct sl_sim_plan *plan, uint64_t *random)
{
    uint32_t size = sl_sim_below(random, 1000);
    plan->ps_count = 1 + sl_sim_below(random, 3);
    plan->shards_of_ps = 1 + sl_sim_below(random, 3);
    plan->worker_count = 1 + sl_sim_below(random, 5);
    plan->iterations = 2 + sl_sim_below(random, 8);
    plan->hubs = 1 + sl_sim_below(random, 2);
    if (size < 20) { /* some are larger, a few large */
        plan->ps_count = 2 + sl_sim_below(random, SL_SIM_PS_MAX - 1);
        plan->worker_count = 8 + sl_sim_below(random, 24);
        plan->hubs = 1;
        plan->iterations = 3;
    }
    if (size < 1) {
        plan->worker_count = 150 + sl_sim_below(random, 150);
        plan->shards_of_ps = 1;
        plan->iterations = 2;
    }
    plan->joiner_count = sl_sim_chance(random, 200) ? 1 + sl_sim_below(random, 2) : 0;
    plan->shard_count = plan->ps_count * plan->shards_of_ps;
}

static void draw_manners(struct sl_sim_plan *plan, uint64_t *random)
{
    plan->protocol = sl_sim_below(random, 2) == 0 ? SL_PROTOCOL_PER_TABLE : SL_PROTOCOL_BATCHED;
    plan->shape = sl_sim_below(random, SL_SIM_SHAPE_COUNT);
    plan->mixed_shapes = sl_sim_chance(random, 200);
    plan->barriers = sl_sim_chance(random, 300);
    plan->checksum = sl_sim_chance(random, 200);
    plan->secret = sl_sim_chance(random, 200);
    plan->impatient = sl_sim_chance(random, 300);
    plan->floods = sl_sim_chance(random, 50);
    if (plan->floods) {
        plan->protocol = SL_PROTOCOL_PER_TABLE;
        plan->ps_count = 1;
        plan->shards_of_ps = 1 + sl_sim_below(random, 2);
        plan->shard_count = plan->shards_of_ps;
    }
    plan->leaves_early = sl_sim_chance(random, 300);
    plan->lives_max = 1 + sl_sim_below(random, 4);
    plan->keys_of_push = 1 + sl_sim_below(random, 12);
    plan->step_timeout_ms = 60000;
    plan->impatient_timeout_ms = 1 + sl_sim_below(random, 60);
    static const uint32_t lease_ms[] = {1000, 2000, 4000, 10000};
    static const uint32_t timeout_ms[] = {500, 2000, 10000};
    plan->lease_ns = lease_ms[sl_sim_below(random, 4)] * MS;
    plan->peer_timeout_ms = timeout_ms[sl_sim_below(random, 3)];
    plan->start_timeout_ns = 30 * S;
    static const uint32_t think_us[] = {1000, 5000, 30000, 100000};
    plan->think_us_max = think_us[sl_sim_below(random, 4)];
    plan->gap_ns = sl_sim_between(random, 1, 50) * SL_CLOCK_NS_PER_US;
    plan->offset_clocks = sl_sim_chance(random, 500);
}

static void draw_network(struct sl_sim_plan *plan, uint32_t faults, uint64_t *random)
{
    struct sl_sim_network_options *network = &plan->network;
    network->seed = sl_hash_random(random);
    network->delay_us_min = sl_sim_below(random, 50);
    network->delay_us_max = network->delay_us_min + sl_sim_below(random, 2000);
    network->late_permille = sl_sim_chance(random, 500) ? sl_sim_below(random, 50) : 0;
    network->late_us_max = 20000;
    network->bytes_per_us = 10U << sl_sim_below(random, 8);
    network->window_bytes = 4096U << sl_sim_below(random, 10);
    network->short_permille = sl_sim_below(random, 200);
    network->connect_fail_permille = sl_sim_chance(random, 300) ? sl_sim_below(random, 200) : 0;
    static const uint32_t breaks[] = {5, 20, 80, 200};
    uint32_t break_per_10000 = breaks[sl_sim_below(random, 4)];
    if (sl_sim_chance(random, 400) && (faults & 1U << SL_SIM_FAULT_BREAK) != 0) {
        network->break_per_10000 = break_per_10000;
        plan->lease_ns = 10 * S; /* nobody is lost for want of luck */
    }
    network->peer_timeout_ms = plan->peer_timeout_ms;
    network->host_count =
        sl_sim_plan_task_host(plan, sl_sim_plan_tasks(plan)) + (plan->replica.apart ? 1 : 0);
}

static uint32_t draw_share(uint64_t *random, const uint16_t of[4])
{
    return sl_sim_chance(random, 500) ? of[sl_sim_below(random, 4)] : 0;
}

static void draw_troubles(struct sl_sim_ether_options *ether, uint64_t *random)
{
    ether->lost = draw_share(random, (const uint16_t[]){1, 5, 20, 100});
    ether->doubled = draw_share(random, (const uint16_t[]){1, 10, 50, 300});
    ether->overtaken = draw_share(random, (const uint16_t[]){5, 20, 100, 300});
    ether->corrupted = draw_share(random, (const uint16_t[]){1, 5, 20, 50});
    ether->ancient = draw_share(random, (const uint16_t[]){1, 2, 5, 20});
    ether->forged = draw_share(random, (const uint16_t[]){1, 5, 50, 200});
}

/* On a network that is no bottleneck: connections may end by themselves where there is one, and
 * then strangers would only change which. */
static void draw_strangers(struct sl_sim_plan *plan, uint64_t *random)
{
    static const uint32_t shares[] = {5, 20, 100, 300};
    struct sl_sim_network_options *network = &plan->network;
    network->ether.strangers = shares[sl_sim_below(random, 4)];
    network->ether.lost = network->ether.lost < 20 ? network->ether.lost : 20;
    network->bytes_per_us = network->bytes_per_us > 160 ? network->bytes_per_us : 160;
    network->window_bytes = network->window_bytes > 1U << 18 ? network->window_bytes : 1U << 18;
    plan->peer_timeout_ms = plan->peer_timeout_ms > 2000 ? plan->peer_timeout_ms : 2000;
    network->peer_timeout_ms = plan->peer_timeout_ms;
}

/* Drawn apart from the rest, which is the same for both transports. */
static void draw_ether(struct sl_sim_plan *plan, bool has_strangers)
{
    uint64_t random = sl_hash_key(plan->seed ^ 0xe7e4);
    struct sl_sim_ether_options *ether = &plan->network.ether;
    static const uint16_t frames[] = {622, 1514, 1514, SL_SIM_ETHER_FRAME_MAX};
    static const uint16_t queues[] = {16, 64, 256, 1024};
    ether->is_v6 = sl_sim_chance(&random, 300);
    ether->blocks = sl_sim_chance(&random, 500);
    ether->gathers = sl_sim_chance(&random, 500);
    ether->sums = sl_sim_chance(&random, 500);
    ether->gathers = ether->gathers && ether->sums;
    ether->wakes = !sl_sim_chance(&random, 30);
    ether->moves = sl_sim_chance(&random, 500);
    ether->steering = sl_sim_below(&random, SL_SIM_STEERING_COUNT);
    ether->queues_each = (uint16_t)(1 + sl_sim_below(&random, 2));
    ether->frame_max = frames[sl_sim_below(&random, 4)];
    ether->queue_packets = queues[sl_sim_below(&random, 4)];
    ether->send_packets = queues[sl_sim_below(&random, 4)];
    ether->packets = (uint16_t)(2 * queues[1 + sl_sim_below(&random, 3)]);
    if (!sl_sim_chance(&random, 200)) { /* else: all is well */
        draw_troubles(ether, &random);
    }
    if (sl_sim_chance(&random, 250) || has_strangers) {
        draw_strangers(plan, &random);
    }
    plan->network.has_packets = true;
}

static void draw_table(struct sl_sim_plan *plan, uint32_t index, uint64_t *random)
{
    struct sl_table_spec *spec = &plan->tables[index];
    *spec = (struct sl_table_spec){.kind = SL_TABLE_SPARSE};
    (void)snprintf(spec->name, sizeof spec->name, "t%u", index);
    if (sl_sim_chance(random, 300)) {
        static const uint32_t long_blocks[] = {16, 50, 150};
        uint64_t blocks = sl_sim_chance(random, 200) ? long_blocks[sl_sim_below(random, 3)] : 1;
        spec->kind = SL_TABLE_DENSE;
        spec->length =
            plan->shard_count * blocks * SL_PARTITION_BLOCK_ELEMENTS - sl_sim_below(random, 100);
    } else {
        spec->dim = 1 + sl_sim_below(random, 4);
    }
    if (plan->floods && index == 0) {
        *spec = (struct sl_table_spec){.kind = SL_TABLE_DENSE, .length = FLOOD_LENGTH};
        spec->length *= plan->shard_count;
        (void)snprintf(spec->name, sizeof spec->name, "t%u", index);
    }
    bool sum = sl_sim_chance(random, 600);
    spec->optimizer = sl_optimizer_defaults(sum ? SL_OPTIMIZER_SUM : SL_OPTIMIZER_SGD);
    spec->optimizer.lr = 1;
    spec->initializer.kind = SL_INITIALIZER_ZEROS;
    spec->consistency.mode = sl_sim_below(random, SL_CONSISTENCY_MODE_COUNT);
    if (spec->consistency.mode != SL_CONSISTENCY_ASP) {
        spec->consistency.worker_count = plan->worker_count;
    }
    if (spec->consistency.mode == SL_CONSISTENCY_SSP) {
        spec->consistency.staleness = sl_sim_below(random, 4);
    }
}

static uint64_t draw_duration(const struct sl_sim_plan *plan, uint64_t *random)
{
    switch (sl_sim_below(random, 4)) {
    case 0: /* longer than a lease */
        return plan->lease_ns + sl_hash_random(random) % plan->lease_ns;
    case 1: /* about as long as the peers' patience */
        return sl_sim_between(random, 1, 2ULL * plan->peer_timeout_ms) * MS;
    default:
        return sl_sim_between(random, 1, 200) * MS;
    }
}

static void draw_fault(const struct sl_sim_plan *plan, struct sl_sim_fault *fault, uint64_t *random)
{
    uint32_t hosts = plan->network.host_count;
    fault->at_ns = sl_hash_random(random) % plan->horizon_ns;
    fault->duration_ns = draw_duration(plan, random);
    fault->a = sl_sim_below(random, hosts);
    fault->b = sl_sim_below(random, hosts);
    fault->one_way = sl_sim_chance(random, 300);
    fault->all = sl_sim_chance(random, 300);
    fault->silent = sl_sim_chance(random, 300);
    fault->amount = 1 + sl_sim_below(random, 50000);
    switch (fault->kind) {
    case SL_SIM_FAULT_PARTITION:
        fault->b = sl_sim_chance(random, 300) ? UINT32_MAX : sl_sim_below(random, plan->ps_count);
        if (fault->b != UINT32_MAX && sl_sim_chance(random, 500)) {
            uint32_t ps = fault->b; /* one way: answers are lost, requests are not */
            fault->b = fault->a;
            fault->a = ps;
        }
        break;
    case SL_SIM_FAULT_SLOW:
        fault->amount = 100 + sl_sim_below(random, 5000);
        break;
    case SL_SIM_FAULT_REFUSE:
    case SL_SIM_FAULT_KILL_PS:
        fault->a = sl_sim_below(random, plan->ps_count);
        break;
    case SL_SIM_FAULT_KILL_WORKER:
    case SL_SIM_FAULT_LEAVE:
        fault->a = sl_sim_below(random, plan->worker_count);
        break;
    case SL_SIM_FAULT_JOIN:
        fault->a = plan->worker_count + sl_sim_below(random, plan->joiner_count + 1ULL);
        break;
    default:
        break;
    }
}

/* Most seeds have faults of a few kinds only: then more of what happens comes of each. */
static void draw_faults(struct sl_sim_plan *plan, uint32_t allowed, uint64_t *random)
{
    static const uint32_t counts[] = {0, 1, 2, 4, 8, 16};
    uint32_t count = counts[sl_sim_below(random, 6)];
    uint32_t mask = (uint32_t)sl_hash_random(random) | (uint32_t)sl_hash_random(random);
    /* Most faults shall meet workers at work. */
    uint64_t steps = 2ULL * plan->iterations;
    uint64_t work_ns = 250 * MS + steps * plan->think_us_max * SL_CLOCK_NS_PER_US / 2;
    plan->horizon_ns =
        sl_sim_between(random, 10 * MS, sl_sim_chance(random, 200) ? 3 * S : work_ns);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_sim_fault *fault = &plan->faults[plan->fault_count];
        *fault = (struct sl_sim_fault){.kind = sl_sim_below(random, SL_SIM_FAULT_KIND_COUNT)};
        draw_fault(plan, fault, random);
        bool joiner = fault->kind != SL_SIM_FAULT_JOIN || fault->a < sl_sim_plan_tasks(plan);
        if ((mask & allowed & 1U << fault->kind) != 0 && joiner) {
            plan->fault_count++;
        }
    }
}

void sl_sim_plan_make(struct sl_sim_plan *plan, uint64_t seed, const struct sl_sim_choice *choice)
{
    *plan = (struct sl_sim_plan){.seed = seed};
    uint64_t random = sl_hash_key(seed + 1);
    draw_size(plan, &random);
    draw_manners(plan, &random);
    if (choice->publish) { /* while the workers train */
        plan->think_us_max = 200000;
        plan->iterations += 8;
    }
    sl_sim_plan_draw_replicas(plan, choice);
    sl_sim_plan_draw_moves(plan, choice);
    draw_network(plan, choice->faults, &random);
    plan->table_count = 1 + sl_sim_below(&random, SL_SIM_TABLES_MAX);
    for (uint32_t i = 0; i < plan->table_count; i++) {
        draw_table(plan, i, &random);
    }
    draw_faults(plan, choice->faults, &random);
    if (choice->packets) {
        draw_ether(plan, choice->strangers);
    }
    sl_sim_plan_draw_disk(plan, choice);
    sl_sim_plan_draw_losses(plan, choice);
    sl_sim_plan_draw_policies(plan, choice);
    sl_sim_plan_draw_changes(plan, choice);
    sl_sim_plan_draw_link(plan, choice);
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        plan->faults[i].rail = SL_SIM_RAILS_MAX;
    }
    plan->reactors_of_ps =
        seed % 2 == 0 ? plan->shards_of_ps : 1 + (uint32_t)(sl_hash_key(seed) % plan->shards_of_ps);
    /* None of the seeds in CMakeLists.txt that once found a defect. */
    plan->has_views = seed % 8 == 7;
}

void sl_sim_plan_draw_fault(struct sl_sim_fault *fault, uint32_t hosts, uint64_t horizon_ns,
                            uint32_t long_permille, uint64_t long_ms, uint64_t *random)
{
    static const enum sl_sim_fault_kind kinds[] = {SL_SIM_FAULT_BREAK, SL_SIM_FAULT_PARTITION,
                                                   SL_SIM_FAULT_PAUSE, SL_SIM_FAULT_REFUSE,
                                                   SL_SIM_FAULT_KILL_PS};
    *fault =
        (struct sl_sim_fault){.kind = kinds[sl_sim_below(random, 5)], .rail = SL_SIM_RAILS_MAX};
    fault->at_ns = sl_hash_random(random) % horizon_ns;
    fault->duration_ns = SL_CLOCK_NS_PER_MS * (sl_sim_chance(random, long_permille)
                                                   ? sl_sim_between(random, 200, long_ms)
                                                   : sl_sim_between(random, 1, 200));
    fault->a = sl_sim_below(random, hosts);
    fault->b = sl_sim_below(random, hosts);
    fault->one_way = sl_sim_chance(random, 300);
    fault->all = sl_sim_chance(random, 300);
    fault->silent = sl_sim_chance(random, 300);
    fault->amount = 1 + sl_sim_below(random, 50000);
}

void sl_sim_plan_print_faults(const struct sl_sim_fault *faults, uint32_t count)
{
    static const char *const names[] = {"break",  "partition",   "pause",   "slow", "jump",
                                        "refuse", "kill-worker", "kill-ps", "join", "leave",
                                        "disks",  "memory",      "store",   "move", "balance",
                                        "drain",  "scale"};
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_sim_fault *fault = &faults[i];
        printf("fault at +%" PRIu64 " us: %s a=%u b=%d rail=%u for %" PRIu64
               " us%s%s%s amount=%u\n",
               sl_sim_us(fault->at_ns), names[fault->kind], fault->a, (int)fault->b, fault->rail,
               sl_sim_us(fault->duration_ns), fault->one_way ? " one-way" : "",
               fault->all ? " all" : "", fault->silent ? " silent" : "", fault->amount);
    }
}

void sl_sim_plan_print_network(const struct sl_sim_network_options *network)
{
    printf("delay %u-%u us, late %u/1000, %u B/us, window %u, short %u/1000, refused %u/1000, "
           "broken %u/10000, peer timeout %u ms\n",
           network->delay_us_min, network->delay_us_max, network->late_permille,
           network->bytes_per_us, network->window_bytes, network->short_permille,
           network->connect_fail_permille, network->break_per_10000, network->peer_timeout_ms);
}

static void print_ether(const struct sl_sim_ether_options *ether)
{
    static const char *const steerings[] = {"straight", "scattered", "to the first"};
    printf("packets: %u bytes, over IPv%d, %u queues each%s, %s; lends %u, queues of %u and "
           "%u%s%s%s%s\n",
           ether->frame_max, ether->is_v6 ? 6 : 4, ether->queues_each,
           ether->blocks ? " in blocks" : "", steerings[ether->steering], ether->packets,
           ether->queue_packets, ether->send_packets, ether->gathers ? ", gathers" : "",
           ether->sums ? ", sums" : "", ether->wakes ? "" : ", sleeps",
           ether->moves ? ", moves" : "");
    printf("of 1000: %u lost, %u doubled, %u overtaken, %u corrupted, %u ancient, %u forged, "
           "%u of strangers\n",
           ether->lost, ether->doubled, ether->overtaken, ether->corrupted, ether->ancient,
           ether->forged, ether->strangers);
}

static void print_policy(const struct sl_policy_spec *policy)
{
    printf("    policy: order %d, rows %" PRIu64 ", ttl %u, count %u, l2 %g, protect %u, half life "
           "%u\n",
           (int)policy->order, policy->rows_max, policy->ttl_steps, policy->count_below,
           (double)policy->l2_below, policy->protect_steps, policy->half_life_steps);
}

void sl_sim_plan_print(const struct sl_sim_plan *plan)
{
    static const char *const modes[] = {"asp", "bsp", "ssp"};
    printf("seed %" PRIu64
           ": %u ps of %u shards on %u reactors, %u workers (+%u), %u iterations, %u hubs, "
           "shape %d%s, %s, lives %u\n",
           plan->seed, plan->ps_count, plan->shards_of_ps, plan->reactors_of_ps, plan->worker_count,
           plan->joiner_count, plan->iterations, plan->hubs, (int)plan->shape,
           plan->mixed_shapes ? " mixed" : "",
           plan->protocol == SL_PROTOCOL_BATCHED ? "lite" : "star", plan->lives_max);
    printf("lease %" PRIu64 " ms, peer timeout %u ms, turn %" PRIu64 " us,%s%s%s%s%s%s\n",
           sl_sim_ms(plan->lease_ns), plan->peer_timeout_ms, sl_sim_us(plan->gap_ns),
           plan->barriers ? " barriers" : "", plan->checksum ? " checksum" : "",
           plan->secret ? " secret" : "", plan->impatient ? " impatient" : "",
           plan->floods ? " floods" : "", plan->leaves_early ? " leaves-early" : "");
    if (plan->has_views) {
        printf("views are read\n");
    }
    sl_sim_plan_print_network(&plan->network);
    if (plan->network.link_bytes_per_ms != 0) {
        printf("all share a link of %u kB/s\n", plan->network.link_bytes_per_ms);
    }
    if (plan->network.has_packets) {
        print_ether(&plan->network.ether);
    }
    if (plan->replica.is_there) {
        printf(
            "each shard has a backup, whose image is made by %u keys a turn; the coordinator is on "
            "%s\n",
            plan->replica.snapshot_keys, plan->replica.apart ? "a host of its own" : "ps/0");
    }
    if (plan->moves) {
        printf("shards move; %u ps are there from the start\n", plan->ps_at_start);
    }
    if (plan->disk.is_there) {
        sl_sim_plan_print_disk(&plan->disk);
    }
    for (uint32_t i = 0; i < plan->table_count; i++) {
        const struct sl_table_spec *spec = &plan->tables[i];
        printf("table %s: %s, dim %u, length %" PRIu64 ", %s %u, optimizer %d\n", spec->name,
               spec->kind == SL_TABLE_SPARSE ? "sparse" : "dense", spec->dim, spec->length,
               modes[spec->consistency.mode], spec->consistency.staleness,
               (int)spec->optimizer.kind);
        print_policy(&spec->policy);
    }
    if (plan->memory_bytes_max > 0) {
        printf("each shard has %zu bytes for tables; %u more keys of each push\n",
               plan->memory_bytes_max, plan->keys_aside);
    }
    sl_sim_plan_print_faults(plan->faults, plan->fault_count);
}
