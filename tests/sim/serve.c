#include "tests/sim/serve.h"

#include <stdio.h>

#include "tests/sim/random.h"
#include "tests/sim/serve_app.h"

#define SETTLE_NS (25 * SL_CLOCK_NS_PER_S) /* after the faults: leases have ended */

struct serving {
    struct sl_sim_world world;
    const struct sl_sim_serve_plan *plan;
    struct sl_sim_serve_oracle oracle;
    struct sl_sim_serve_app apps[SL_SIM_WORLD_HOSTS_MAX];
    bool has_proved;
};

static struct serving *serving_of(struct sl_sim_world *world)
{
    return SL_CONTAINER_OF(world, struct serving, world);
}

static struct sl_sim_app *start(struct sl_sim_world *world, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    struct serving *serving = serving_of(world);
    const struct sl_sim_serve_app_options options = {.network = world->network,
                                                     .oracle = &serving->oracle,
                                                     .plan = serving->plan,
                                                     .role = host == 0 ? SL_SIM_SERVE_STORE
                                                             : host <= serving->plan->gateway_count
                                                                 ? SL_SIM_SERVE_GATEWAY
                                                                 : SL_SIM_SERVE_WORKER,
                                                     .host = host,
                                                     .seed = seed,
                                                     .offset_ns = offset_ns,
                                                     .verbose = world->verbose};
    sl_sim_serve_app_start(&serving->apps[host], &options);
    return &serving->apps[host].base;
}

static void stepped(struct sl_sim_world *world, uint32_t host)
{
    sl_sim_serve_app_judge_pool(&serving_of(world)->apps[host]);
}

/* Only gateways prove and drain. */
static bool gateways_are_in(const struct serving *serving, uint32_t stage)
{
    bool are = true;
    for (uint32_t i = 1; i <= serving->plan->gateway_count; i++) {
        const struct sl_sim_app *app = serving->world.places[i].app;
        are = are && app != NULL && app->stage == stage;
    }
    return are;
}

static void enter(struct serving *serving, uint32_t stage)
{
    sl_sim_world_note(&serving->world, "stage %u", stage);
    for (uint32_t i = 1; i <= serving->plan->gateway_count; i++) {
        serving->world.places[i].app->stage = stage;
    }
}

static void look(struct sl_sim_world *world)
{
    struct serving *serving = serving_of(world);
    if (world->faults_are_over && sl_sim_world_all_are_in(world, SL_SIM_SERVE_DONE) &&
        world->look_ns == SL_CLOCK_NEVER && !serving->has_proved) {
        sl_sim_network_calm(world->network);
        world->look_ns = world->now_ns + (world->fault_count > 0 ? SETTLE_NS : 0);
    } else if (world->look_ns <= world->now_ns) {
        world->look_ns = SL_CLOCK_NEVER;
        serving->has_proved = true;
        enter(serving, SL_SIM_SERVE_PROVING);
    } else if (gateways_are_in(serving, SL_SIM_SERVE_PROVED)) {
        enter(serving, SL_SIM_SERVE_ENDING);
    } else if (gateways_are_in(serving, SL_SIM_SERVE_EMPTY)) {
        sl_sim_world_enter(world, SL_SIM_SERVE_LEAVING);
    }
}

bool sl_sim_serve_run(const struct sl_sim_choice *choice, uint64_t seed, bool verbose,
                      uint64_t *trace)
{
    static struct sl_sim_serve_plan made;
    const struct sl_sim_serve_plan *plan = &made;
    static const struct sl_sim_world_actions actions = {
        .start = start, .stepped = stepped, .look = look};
    static struct serving serving;
    sl_sim_serve_plan_make(&made, seed, choice->faults);
    if (verbose) {
        sl_sim_serve_plan_print(&made);
    }
    serving = (struct serving){.world = {.actions = &actions,
                                         .breach = &serving.oracle.breach,
                                         .seed = plan->seed,
                                         .random = sl_hash_key(plan->seed ^ 0x5e47e6),
                                         .options = &plan->network,
                                         .faults = plan->faults,
                                         .fault_count = plan->fault_count,
                                         .verbose = verbose},
                               .plan = plan,
                               .oracle = {.plan = plan}};
    sl_sim_world_create(&serving.world);
    sl_sim_world_run(&serving.world);
    if (verbose) {
        printf("%u answered, %u refused, %u late\n", serving.oracle.answered,
               serving.oracle.refused, serving.oracle.late);
    }
    const bool good = sl_sim_world_report(&serving.world);
    sl_sim_world_fini(&serving.world);
    *trace = serving.world.trace;
    return good;
}
