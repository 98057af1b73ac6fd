#include <inttypes.h>

#include "core/list.h"
#include "tests/sim/random.h"
#include "tests/sim/transfer_app.h"
#include "tests/sim/world.h"

#define BURST_NS   (20 * SL_CLOCK_NS_PER_MS) /* that a limit on sent bytes allows at once */
#define REST_NS    (500 * SL_CLOCK_NS_PER_MS)
#define SCAN_NS    (20 * SL_CLOCK_NS_PER_MS)
#define RENEWED_NS (25 * SL_CLOCK_NS_PER_S) /* until records are in the store again */

struct engines {
    struct sl_sim_member member;
    const struct sl_sim_transfer_plan *plan;
    struct sl_sim_transfer_oracle oracle;
    struct sl_sim_transfer_store store;
    struct {
        struct sl_sim_transfer_app app;
        uint64_t began_ns, sent_bytes; /* of the process that runs; bytes of memory */
    } places[SL_SIM_TRANSFER_PROCESSES_MAX];
    uint64_t scan_ns, scanned; /* scanned: how many frames and operations there were */
};

static struct engines *engines_of(struct sl_sim_member *member)
{
    return SL_CONTAINER_OF(member, struct engines, member);
}

/* Counts what a process sends of memory, and judges its limit. */
static void sent(struct sl_sim_member *member, uint32_t host, uint32_t bytes)
{
    struct engines *engines = engines_of(member);
    const struct sl_sim_transfer_plan *plan = engines->plan;
    const uint64_t sent_bytes = engines->places[host].sent_bytes += bytes;
    if (plan->bytes_per_s_max == 0 || member->places[host].app == NULL) {
        return;
    }
    const double passed_s =
        (double)(member->world->now_ns - engines->places[host].began_ns + BURST_NS) /
        SL_CLOCK_NS_PER_S;
    const double most =
        passed_s * (double)plan->bytes_per_s_max + 2.0 * plan->reactor_count * plan->slice_bytes;
    if ((double)sent_bytes > most) {
        sl_sim_fail(member->breach, "limit", "process %u has sent %" PRIu64 " bytes in %.3f s",
                    host, sent_bytes, passed_s);
    }
}

static struct sl_sim_app *start(struct sl_sim_member *member, uint32_t host, uint64_t seed,
                                uint64_t offset_ns)
{
    struct engines *engines = engines_of(member);
    const struct sl_sim_transfer_app_options options = {
        .network = member->world->network,
        .oracle = &engines->oracle,
        .store = &engines->store,
        .plan = engines->plan,
        .host = host,
        .seed = seed,
        .offset_ns = offset_ns,
    };
    engines->places[host].began_ns = member->world->now_ns;
    engines->places[host].sent_bytes = 0;
    sl_sim_transfer_app_start(&engines->places[host].app, &options);
    return &engines->places[host].app.base;
}

static void fault(struct sl_sim_member *member, const struct sl_sim_fault *fault, bool begins,
                  uint64_t broken_ns)
{
    if (fault->kind == SL_SIM_FAULT_STORE) {
        engines_of(member)->store.outages += begins ? 1 : UINT32_MAX;
    }
}

static void moment(struct sl_sim_member *member)
{
    sl_sim_transfer_store_advance(&engines_of(member)->store);
}

/* The store names each process by its present incarnation. */
static void judge_records(struct engines *engines)
{
    for (uint32_t i = 0; engines->plan->has_store && i < engines->plan->process_count; i++) {
        char name[SL_SIM_APP_NAME_BYTES];
        sl_sim_app_name(engines->plan->first_host + i, name);
        const uint64_t found = sl_sim_transfer_store_incarnation(&engines->store, name);
        if (found != engines->places[i].app.incarnation) {
            sl_sim_fail(&engines->oracle.breach, "names",
                        "the record of process %u has incarnation %" PRIx64, i, found);
        }
    }
}

static void look(struct sl_sim_member *member)
{
    struct engines *engines = engines_of(member);
    if (member->world->faults_are_over && sl_sim_member_all_are_in(member, SL_SIM_TRANSFER_DONE)) {
        sl_sim_network_calm(member->world->network);
        engines->store.is_calm = true;
        sl_sim_member_enter(member, SL_SIM_TRANSFER_PROVING);
    } else if (sl_sim_member_all_are_in(member, SL_SIM_TRANSFER_PROVED) &&
               member->look_ns == SL_CLOCK_NEVER) {
        member->look_ns = member->world->now_ns + (engines->plan->has_store ? RENEWED_NS : REST_NS);
    } else if (member->look_ns <= member->world->now_ns) {
        member->look_ns = SL_CLOCK_NEVER;
        for (uint32_t i = 0; i < engines->plan->process_count; i++) {
            sl_sim_transfer_app_judge_rest(&engines->places[i].app);
        }
        judge_records(engines);
        sl_sim_member_enter(member, SL_SIM_TRANSFER_ENDING);
    }
    if (engines->scan_ns <= member->world->now_ns &&
        engines->scanned != member->world->frames + member->world->operations) {
        engines->scan_ns = member->world->now_ns + SCAN_NS;
        engines->scanned = member->world->frames + member->world->operations;
        for (uint32_t i = 0; i < engines->plan->process_count; i++) {
            sl_sim_transfer_oracle_scan(&engines->oracle, i);
        }
    }
}

/* The engines of a run */

static struct sl_sim_transfer_plan run_plan;
static struct engines run_engines;

static void make(const struct sl_sim_choice *choice, struct sl_sim_world *world)
{
    static const struct sl_sim_member_actions actions = {
        .start = start, .moment = moment, .look = look, .fault = fault, .sent = sent};
    sl_sim_transfer_plan_make(&run_plan, world->seed, choice->faults);
    run_plan.calm = run_plan.calm && !world->is_mixed;
    if (world->verbose) {
        sl_sim_transfer_plan_print(&run_plan);
    }
    run_engines = (struct engines){.member = {.actions = &actions,
                                              .breach = &run_engines.oracle.breach,
                                              .random = sl_hash_key(world->seed ^ 0x7f2b),
                                              .options = &run_plan.network,
                                              .faults = run_plan.faults,
                                              .fault_count = run_plan.fault_count},
                                   .plan = &run_plan};
    sl_sim_world_add(world, &run_engines.member);
    run_plan.first_host = run_engines.member.first_host;
}

static void begin(void)
{
    sl_sim_transfer_oracle_init(&run_engines.oracle, &run_plan);
    sl_sim_transfer_store_init(&run_engines.store, &run_plan, run_engines.member.world->network);
    sl_sim_world_start(&run_engines.member);
}

static void judge(void)
{
    if (run_plan.has_store && sl_sim_transfer_store_count(&run_engines.store) > 0) {
        sl_sim_fail(&run_engines.oracle.breach, "names", "a record stays, but all have ended");
    }
}

static void fini(void)
{
    sl_sim_transfer_store_fini(&run_engines.store);
    sl_sim_transfer_oracle_fini(&run_engines.oracle);
}

const struct sl_sim_kind sl_sim_kind_transfer = {
    .make = make, .begin = begin, .judge = judge, .fini = fini};
