#include "tests/sim/serve_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include <starling_objects.h>

#include "tests/sim/publish.h"
#include "tests/sim/random.h"

#define MS          SL_CLOCK_NS_PER_MS
#define NUMBERS_MAX 300 /* a row fits into a message, two do not */

static void draw_size(struct sl_sim_serve_plan *plan, uint64_t *random)
{
    static const uint32_t bytes[] = {1000, 200000, 600000};
    static const uint32_t thinks[] = {500, 5000, 100000};
    static const uint32_t timeouts[] = {50, 500, 3000};
    plan->gateway_count = 1 + sl_sim_below(random, SL_SIM_SERVE_GATEWAYS_MAX);
    plan->worker_count = 1 + sl_sim_below(random, SL_SIM_SERVE_WORKERS_MAX);
    plan->model_count = 1 + sl_sim_below(random, SL_SIM_SERVE_MODELS_MAX);
    plan->model_bytes = bytes[sl_sim_below(random, 3)];
    const uint32_t blocks = plan->model_bytes / SL_OBJECTS_BLOCK_BYTES + 2; /* with its manifest */
    /* Two versions may be open at one time. */
    plan->pool_bytes =
        (2 + sl_sim_below(random, plan->model_count + 1)) * blocks * SL_OBJECTS_BLOCK_BYTES;
    plan->client_count = 1 + sl_sim_below(random, SL_SIM_SERVE_CLIENTS_MAX);
    plan->request_count = 5 + sl_sim_below(random, 40);
    plan->think_us_max = thinks[sl_sim_below(random, 3)];
    plan->timeout_ms_max = timeouts[sl_sim_below(random, 3)];
    plan->compute_us_max = 1 + sl_sim_below(random, 4000);
    plan->version_count = sl_sim_below(random, 4);
    plan->batch_max = 1 + sl_sim_below(random, 8);
    plan->is_basic = sl_sim_chance(random, 300);
    plan->gap_ns = sl_sim_between(random, 1, 50) * SL_CLOCK_NS_PER_US;
}

static void draw_network(struct sl_sim_serve_plan *plan, uint32_t faults, uint64_t *random)
{
    struct sl_sim_network_options *network = &plan->network;
    network->is_one_sided = true;
    network->seed = sl_hash_random(random);
    network->delay_us_min = sl_sim_below(random, 50);
    network->delay_us_max = network->delay_us_min + sl_sim_below(random, 1000);
    network->bytes_per_us = 100U << sl_sim_below(random, 6);
    network->window_bytes = 65536U << sl_sim_below(random, 6);
    network->short_permille = sl_sim_below(random, 200);
    const bool breaks = sl_sim_chance(random, 300);
    const uint32_t broken = 1 + sl_sim_below(random, 30);
    network->break_per_10000 = (faults & 1U << SL_SIM_FAULT_BREAK) != 0 && breaks ? broken : 0;
    network->peer_timeout_ms = 2000;
    network->host_count = 1 + plan->gateway_count + plan->worker_count;
}

/* The process of the catalogue is not killed if it has the only copies. */
static void draw_faults(struct sl_sim_serve_plan *plan, uint32_t allowed, uint64_t *random)
{
    static const uint32_t counts[] = {0, 0, 1, 3, 8};
    const uint32_t count = counts[sl_sim_below(random, 5)];
    const uint64_t work_ns =
        100 * MS + plan->request_count * (plan->think_us_max * 500ULL + 20 * MS);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_sim_fault *fault = &plan->faults[plan->fault_count];
        sl_sim_plan_draw_fault(fault, plan->network.host_count, work_ns, 300, 12000, random);
        const bool fits = fault->kind != SL_SIM_FAULT_KILL_PS || fault->a > 0 || plan->has_tables;
        plan->fault_count += fits && (allowed & 1U << fault->kind) != 0;
    }
}

/* Models and their number are those of the job, and training and requests are to overlap. */
static void draw_tables(struct sl_sim_serve_plan *plan)
{
    plan->has_tables = true;
    plan->model_count = sl_sim_publish_models();
    plan->pool_bytes = 64U << 20;
    plan->version_count += 4;
}

void sl_sim_serve_plan_make(struct sl_sim_serve_plan *plan, uint64_t seed,
                            const struct sl_sim_choice *choice)
{
    uint64_t random = sl_hash_key(seed ^ 0x5e47e5);
    *plan = (struct sl_sim_serve_plan){.seed = seed};
    draw_size(plan, &random);
    if (choice->publish) {
        draw_tables(plan);
    }
    draw_network(plan, choice->faults, &random);
    draw_faults(plan, choice->faults, &random);
    plan->input_numbers = sl_sim_chance(&random, 400) ? NUMBERS_MAX : 1;
    plan->output_numbers = sl_sim_chance(&random, 400) ? NUMBERS_MAX : SL_SIM_SERVE_OUT;
    plan->calm = plan->fault_count == 0 && plan->network.break_per_10000 == 0;
}

void sl_sim_serve_plan_print(const struct sl_sim_serve_plan *plan)
{
    printf("seed %" PRIu64 ": %u gateways of %u clients of %u requests, think %u us, up to %u ms; "
           "%u workers, batches of %u, pool %u bytes; %u models of %u bytes, %u more versions, "
           "layers of %u us; rows of %u and %u numbers; %s\n",
           plan->seed, plan->gateway_count, plan->client_count, plan->request_count,
           plan->think_us_max, plan->timeout_ms_max, plan->worker_count, plan->batch_max,
           plan->pool_bytes, plan->model_count, plan->model_bytes, plan->version_count,
           plan->compute_us_max, plan->input_numbers, plan->output_numbers,
           plan->is_basic ? "basic" : "cost");
    sl_sim_plan_print_network(&plan->network);
    sl_sim_plan_print_faults(plan->faults, plan->fault_count);
}
