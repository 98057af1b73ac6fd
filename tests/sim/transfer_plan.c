#include "tests/sim/transfer_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "tests/sim/random.h"

#define MS           SL_CLOCK_NS_PER_MS
#define CUTS_MAX     2
#define SLICES_PER_S 20 /* of each reactor, at least, if its bytes are limited */

static void draw_size(struct sl_sim_transfer_plan *plan, uint64_t *random)
{
    static const uint32_t slices[] = {4096, 8192, 20480, 65536, 262144};
    static const uint32_t stalls[] = {50, 200, 2000};
    static const uint32_t words[] = {16, 512, 4096, 12288};
    static const uint32_t thinks[] = {100, 1000, 10000};
    plan->process_count = 2 + sl_sim_below(random, SL_SIM_TRANSFER_PROCESSES_MAX - 1);
    plan->reactor_count = 1 + sl_sim_below(random, 2);
    plan->lanes = 1 + sl_sim_below(random, 3);
    plan->slice_bytes = slices[sl_sim_below(random, 5)];
    plan->stall_ms = stalls[sl_sim_below(random, 3)];
    plan->buffer_count = 1 + sl_sim_below(random, SL_SIM_TRANSFER_BUFFERS_MAX);
    plan->buffer_words = sl_sim_chance(random, 500) ? 512 : 12288;
    plan->batch_count = 10 + sl_sim_below(random, 40);
    plan->slots = 1 + sl_sim_below(random, 4);
    plan->requests_max = sl_sim_chance(random, 300) ? 40 : 6;
    plan->request_words_max = words[sl_sim_below(random, 4)];
    if (plan->request_words_max > plan->buffer_words) {
        plan->request_words_max = plan->buffer_words;
    }
    plan->timeout_ms = 10000;
    plan->impatient_ms = 1 + sl_sim_below(random, 80);
    plan->think_us_max = thinks[sl_sim_below(random, 3)];
    plan->gap_ns = sl_sim_between(random, 1, 50) * SL_CLOCK_NS_PER_US;
    plan->secret = sl_sim_chance(random, 200);
    plan->hot = sl_sim_chance(random, 500);
    plan->checksum = plan->seed % 4 == 0;
    plan->impatient = sl_sim_chance(random, 400);
    plan->unregisters = sl_sim_chance(random, 400);
}

/* Nothing fails but the second network, a few times: all goes over the first one then. */
static void cut_second_rail(struct sl_sim_transfer_plan *plan)
{
    plan->network.connect_fail_permille = plan->network.break_per_10000 = 0;
    plan->fault_count = plan->fault_count < CUTS_MAX ? plan->fault_count : CUTS_MAX;
    plan->is_one_rail_cut = plan->fault_count > 0;
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        plan->faults[i].kind = SL_SIM_FAULT_PARTITION;
        plan->faults[i].rail = 1;
    }
    if (plan->is_one_rail_cut) { /* longer than a batch may take */
        plan->faults[0].duration_ns = 1500 * MS * plan->timeout_ms / 1000;
    }
}

/* Drawn apart: the rest of a seed stays as it is. */
static void draw_more(struct sl_sim_transfer_plan *plan, uint32_t faults)
{
    static const uint64_t limits[] = {500000, 3000000, 50000000};
    static const uint32_t delays[] = {2000, 50000, 500000};
    static const uint32_t places[] = {0, 100, 5000, 20000};
    uint64_t random = sl_hash_key(plan->seed ^ 0x7f2e);
    const uint64_t work_ns = 20 * MS + plan->batch_count * plan->think_us_max * 1000ULL;
    plan->tcp_rails = sl_sim_chance(&random, 300) ? SL_SIM_RAILS_MAX : 1;
    plan->rdma_rails =
        sl_sim_chance(&random, 400) ? 1 + sl_sim_below(&random, SL_SIM_RAILS_MAX) : 0;
    plan->network.place_us_max = places[sl_sim_below(&random, 4)];
    for (uint32_t i = 0; i < plan->fault_count; i++) {
        const bool has_rails = plan->tcp_rails + plan->rdma_rails > 1;
        plan->faults[i].rail = has_rails && sl_sim_chance(&random, 600)
                                   ? sl_sim_below(&random, SL_SIM_RAILS_MAX)
                                   : SL_SIM_RAILS_MAX;
    }
    if (plan->tcp_rails + plan->rdma_rails > 1 && sl_sim_chance(&random, 250)) {
        cut_second_rail(plan);
    }
    plan->handles = sl_sim_chance(&random, 300) ? 2 : 1;
    if (sl_sim_chance(&random, 150)) { /* an answer that waits for the limit is no stall */
        const uint64_t least = (uint64_t)SLICES_PER_S * plan->slice_bytes * plan->reactor_count;
        const uint64_t drawn = limits[sl_sim_below(&random, 3)];
        plan->bytes_per_s_max = drawn > least ? drawn : least;
        plan->stall_ms = 2000;
    }
    plan->has_reader = plan->seed % 4 == 3;
    plan->naps = sl_sim_chance(&random, 80);
    plan->has_store = sl_sim_chance(&random, 250);
    plan->store_delay_us = delays[sl_sim_below(&random, 3)];
    plan->store_late_permille = sl_sim_chance(&random, 500) ? sl_sim_below(&random, 300) : 0;
    plan->network.region_fail_permille = sl_sim_chance(&random, 150) ? 300 : 0;
    plan->store_late_us = 1000U * (100 + sl_sim_below(&random, 12000));
    if (plan->has_store && (faults & 1U << SL_SIM_FAULT_STORE) != 0 &&
        sl_sim_chance(&random, 500)) {
        plan->faults[plan->fault_count++] =
            (struct sl_sim_fault){.kind = SL_SIM_FAULT_STORE,
                                  .at_ns = sl_hash_random(&random) % work_ns,
                                  .duration_ns = sl_sim_between(&random, 200, 15000) * MS};
    }
}

static void draw_network(struct sl_sim_transfer_plan *plan, uint32_t faults, uint64_t *random)
{
    struct sl_sim_network_options *network = &plan->network;
    static const uint32_t breaks[] = {5, 20, 80, 200};
    static const uint32_t timeouts[] = {500, 2000, 10000};
    network->is_one_sided = true;
    network->seed = sl_hash_random(random);
    network->delay_us_min = sl_sim_below(random, 50);
    network->delay_us_max = network->delay_us_min + sl_sim_below(random, 2000);
    network->late_permille = sl_sim_chance(random, 500) ? sl_sim_below(random, 50) : 0;
    network->late_us_max = 40000;
    if (sl_sim_chance(random, 300)) { /* what is late arrives after its batch, and after others */
        network->late_permille = 1 + sl_sim_below(random, 200);
        network->late_us_max = 300000;
        plan->lanes += plan->lanes == 1;
        plan->impatient = true;
        plan->hot = sl_sim_chance(random, 800);
    }
    network->bytes_per_us = 20U << sl_sim_below(random, 8);
    network->window_bytes = 4096U << sl_sim_below(random, 10);
    network->short_permille = sl_sim_below(random, 200);
    const bool refuses = sl_sim_chance(random, 300), breaks_often = sl_sim_chance(random, 400);
    const uint32_t refused = sl_sim_below(random, 200), broken = breaks[sl_sim_below(random, 4)];
    if ((faults & 1U << SL_SIM_FAULT_BREAK) != 0) {
        network->connect_fail_permille = refuses ? refused : 0;
        network->break_per_10000 = breaks_often ? broken : 0;
    }
    network->peer_timeout_ms = timeouts[sl_sim_below(random, 3)];
    network->host_count = plan->process_count;
}

static void draw_faults(struct sl_sim_transfer_plan *plan, uint32_t allowed, uint64_t *random)
{
    static const uint32_t counts[] = {0, 1, 3, 8, 16};
    const uint32_t count = counts[sl_sim_below(random, 5)];
    const uint64_t work_ns = 20 * MS + plan->batch_count * plan->think_us_max * 1000ULL;
    for (uint32_t i = 0; i < count; i++) {
        struct sl_sim_fault *fault = &plan->faults[plan->fault_count];
        sl_sim_plan_draw_fault(fault, plan->process_count, work_ns, 300, 8000, random);
        plan->fault_count += (allowed & 1U << fault->kind) != 0;
    }
}

void sl_sim_transfer_plan_make(struct sl_sim_transfer_plan *plan, uint64_t seed, uint32_t faults)
{
    uint64_t random = sl_hash_key(seed ^ 0x7f2a);
    *plan = (struct sl_sim_transfer_plan){.seed = seed};
    draw_size(plan, &random);
    draw_network(plan, faults, &random);
    draw_faults(plan, faults, &random);
    draw_more(plan, faults);
    const bool stalls = plan->network.late_permille > 0 && plan->stall_ms < 2000;
    const bool is_limited = plan->bytes_per_s_max != 0; /* a lane may seem to stall */
    const bool may_fail = plan->fault_count > 0 && !plan->is_one_rail_cut;
    plan->calm = !stalls && !is_limited && !may_fail && plan->network.connect_fail_permille == 0 &&
                 plan->network.break_per_10000 == 0;
}

void sl_sim_transfer_plan_print(const struct sl_sim_transfer_plan *plan)
{
    printf("seed %" PRIu64 ": %u processes of %u reactors, %u lanes, slices of %u bytes, stall "
           "%u ms; %u buffers of %u words; %u batches, %u at a time, of %u requests of %u words%s%s"
           "%s%s\n",
           plan->seed, plan->process_count, plan->reactor_count, plan->lanes, plan->slice_bytes,
           plan->stall_ms, plan->buffer_count, plan->buffer_words, plan->batch_count, plan->slots,
           plan->requests_max, plan->request_words_max,
           plan->checksum ? ", checksum"
           : plan->secret ? ", secret"
                          : "",
           plan->impatient ? ", impatient" : "", plan->unregisters ? ", unregisters" : "",
           plan->hot ? ", hot" : "");
    printf("rails: %u tcp, %u rdma, placed within %u us; %u handles, %" PRIu64
           " B/s at most%s%s%s\n",
           plan->tcp_rails, plan->rdma_rails, plan->network.place_us_max, plan->handles,
           plan->bytes_per_s_max, plan->has_reader ? ", a reader of notices" : "",
           plan->naps ? ", naps" : "", plan->has_store ? ", metadata store" : "");
    if (plan->has_store) {
        printf("metadata store: %u us, late %u/1000, %u us\n", plan->store_delay_us,
               plan->store_late_permille, plan->store_late_us);
    }
    sl_sim_plan_print_network(&plan->network);
    sl_sim_plan_print_faults(plan->faults, plan->fault_count);
}
