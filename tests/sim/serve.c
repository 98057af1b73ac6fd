#include <stdio.h>

#include "tests/sim/random.h"
#include "tests/sim/serve_app.h"

#define SETTLE_NS (25 * SL_CLOCK_NS_PER_S) /* after the faults: leases have ended */

struct serving {
    struct sl_sim_member member;
    const struct sl_sim_serve_plan *plan;
    struct sl_sim_serve_oracle oracle;
    struct sl_sim_serve_app apps[SL_SIM_WORLD_HOSTS_MAX];
    bool has_proved;
};

static struct serving *serving_of(struct sl_sim_member *member)
{
    return SL_CONTAINER_OF(member, struct serving, member);
}

static struct sl_sim_app *start(struct sl_sim_member *member, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    struct serving *serving = serving_of(member);
    const struct sl_sim_serve_app_options options = {.network = member->world->network,
                                                     .oracle = &serving->oracle,
                                                     .plan = serving->plan,
                                                     .role = host == 0 ? SL_SIM_SERVE_STORE
                                                             : host <= serving->plan->gateway_count
                                                                 ? SL_SIM_SERVE_GATEWAY
                                                                 : SL_SIM_SERVE_WORKER,
                                                     .host = host,
                                                     .seed = seed,
                                                     .offset_ns = offset_ns,
                                                     .verbose = member->world->verbose};
    sl_sim_serve_app_start(&serving->apps[host], &options);
    return &serving->apps[host].base;
}

static void stepped(struct sl_sim_member *member, uint32_t host)
{
    const struct sl_sim_serve_app *app = &serving_of(member)->apps[host];
    sl_sim_app_judge_pool(&app->base, app->node, member->breach);
}

/* Only gateways prove and drain. */
static bool gateways_are_in(const struct serving *serving, uint32_t stage)
{
    bool are = true;
    for (uint32_t i = 1; i <= serving->plan->gateway_count; i++) {
        const struct sl_sim_app *app = serving->member.places[i].app;
        are = are && app != NULL && app->stage == stage;
    }
    return are;
}

static void enter(struct serving *serving, uint32_t stage)
{
    sl_sim_world_note(serving->member.world, "stage %u", stage);
    for (uint32_t i = 1; i <= serving->plan->gateway_count; i++) {
        serving->member.places[i].app->stage = stage;
    }
}

static void look(struct sl_sim_member *member)
{
    struct serving *serving = serving_of(member);
    if (member->world->faults_are_over && sl_sim_member_all_are_in(member, SL_SIM_SERVE_DONE) &&
        member->look_ns == SL_CLOCK_NEVER && !serving->has_proved) {
        sl_sim_network_calm(member->world->network);
        member->look_ns = member->world->now_ns + (member->fault_count > 0 ? SETTLE_NS : 0);
    } else if (member->look_ns <= member->world->now_ns) {
        member->look_ns = SL_CLOCK_NEVER;
        serving->has_proved = true;
        enter(serving, SL_SIM_SERVE_PROVING);
    } else if (gateways_are_in(serving, SL_SIM_SERVE_PROVED)) {
        enter(serving, SL_SIM_SERVE_ENDING);
    } else if (gateways_are_in(serving, SL_SIM_SERVE_EMPTY)) {
        sl_sim_member_enter(member, SL_SIM_SERVE_LEAVING);
    }
}

/* The processes of a run */

static struct sl_sim_serve_plan run_plan;
static struct serving run_serving;

static void make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .start = start, .stepped = stepped, .look = look};
    sl_sim_serve_plan_make(&run_plan, world->seed, choice);
    run_plan.calm = run_plan.calm && !world->is_mixed;
    if (world->verbose) {
        sl_sim_serve_plan_print(&run_plan);
    }
    run_serving = (struct serving){.member = {.actions = &actions,
                                              .breach = &run_serving.oracle.breach,
                                              .random = sl_hash_key(world->seed ^ 0x5e47e6),
                                              .options = &run_plan.network,
                                              .faults = run_plan.faults,
                                              .fault_count = run_plan.fault_count},
                                   .plan = &run_plan,
                                   .oracle = {.plan = &run_plan, .world = world}};
    sl_sim_world_add(world, &run_serving.member);
    run_plan.first_host = run_serving.member.first_host;
}

static void begin(void)
{
    sl_sim_world_start(&run_serving.member);
}

static void judge(void)
{
    if (run_serving.member.world->verbose) {
        printf("%u answered, %u refused, %u late\n", run_serving.oracle.answered,
               run_serving.oracle.refused, run_serving.oracle.late);
    }
}

static void fini(void)
{
}

const struct sl_sim_kind sl_sim_kind_serve = {
    .make = make, .begin = begin, .judge = judge, .fini = fini};
