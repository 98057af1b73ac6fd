#include "tests/sim/objects.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/assert.h"
#include "objects/host.h"
#include "objects/node.h"
#include "tests/sim/objects_app.h"
#include "tests/sim/objects_catalogue.h"
#include "tests/sim/random.h"

#define LIMIT_NS  (900 * SL_CLOCK_NS_PER_S)
#define SPREAD_NS (5 * SL_CLOCK_NS_PER_MS) /* processes start within this */
#define SETTLE_NS (25 * SL_CLOCK_NS_PER_S) /* after the faults: leases have ended */
#define REST_NS   (15 * SL_CLOCK_NS_PER_S) /* copies that are not reported are forgotten */

struct place {
    struct sl_sim_objects_app app;
    bool runs;
    uint64_t start_ns; /* when a process starts there next; SL_CLOCK_NEVER: none does */
};

struct world {
    const struct sl_sim_objects_plan *plan;
    bool verbose;
    uint64_t random, now_ns, trace, frames, turns;
    struct sl_sim_network *network;
    struct sl_sim_objects_oracle oracle;
    struct place places[SL_SIM_OBJECTS_NODES_MAX];
    uint64_t fault_begin_ns[SL_SIM_FAULTS_MAX], fault_end_ns[SL_SIM_FAULTS_MAX];
    bool faults_are_over, has_proved;
    uint64_t prove_ns, rest_ns;
};

static void note(struct world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(struct world *world, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    world->trace = sl_hash_bytes(text, (size_t)length, world->trace ^ world->now_ns);
    if (world->verbose) {
        printf("%9" PRIu64 " us  %s\n", sl_sim_us(world->now_ns), text);
    }
}

/* Events of the network */

static void watch_frame(void *ctx, const struct sl_sim_frame *frame)
{
    struct world *world = ctx;
    world->frames++;
    note(world, "%u %s %u: pair %" PRIu64 ", type %d, id %" PRIu64 ", status %d, %u bytes",
         frame->from, frame->delivered ? "<-" : "->", frame->to, frame->pair,
         (int)frame->header.type, frame->header.request_id, (int)frame->header.status,
         frame->header.payload_bytes);
}

static void watch_ended(void *ctx, uint32_t host, uint64_t pair, bool connector, int err)
{
    note(ctx, "%u: pair %" PRIu64 "%s has ended: %d", host, pair, connector ? "" : " (accepted)",
         err);
}

static void watch_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    struct world *world = ctx;
    sl_sim_process_wake(&world->places[host].app.process, at_ns);
}

static void watch_breach(void *ctx, const char *what)
{
    sl_sim_objects_oracle_fail(&((struct world *)ctx)->oracle, "transport", "%s", what);
}

/* Processes */

static void start(struct world *world, uint32_t host)
{
    struct place *place = &world->places[host];
    const struct sl_sim_objects_app_options options = {
        .network = world->network,
        .oracle = &world->oracle,
        .plan = world->plan,
        .host = host,
        .seed = sl_hash_random(&world->random),
        .verbose = world->verbose,
        .offset_ns = sl_hash_random(&world->random) % (1000 * SL_CLOCK_NS_PER_S),
    };
    sl_sim_network_revive(world->network, host);
    place->start_ns = SL_CLOCK_NEVER;
    place->runs = true;
    sl_sim_objects_app_start(&place->app, &options);
    note(world, "%u starts", host);
}

static void kill_process(struct world *world, uint32_t host, bool silent)
{
    note(world, "%u is killed", host);
    sl_sim_objects_app_kill(&world->places[host].app, silent);
    world->places[host].runs = false;
}

/* NULL: its process does not run, or starts. */
static const struct sl_objects_catalogue *catalogue_of(const struct world *world)
{
    const struct sl_objects *node = world->places[0].runs ? world->places[0].app.node : NULL;
    return node != NULL && node->host != NULL ? sl_objects_host_catalogue(node->host) : NULL;
}

static void run_place(struct world *world, uint32_t host)
{
    struct place *place = &world->places[host];
    if (place->runs && sl_sim_objects_app_due(&place->app) <= world->now_ns) {
        world->turns += sl_sim_objects_app_step(&place->app);
        if (catalogue_of(world) != NULL && host == 0) {
            sl_sim_objects_catalogue_judge_plans(catalogue_of(world), &world->oracle);
        }
        if (sl_sim_objects_app_ended(&place->app)) {
            note(world, "%u has ended", host);
            sl_sim_objects_app_fini(&place->app);
            place->runs = false;
        }
    } else if (!place->runs && place->start_ns <= world->now_ns) {
        start(world, host);
    }
}

/* Faults */

static void block(struct world *world, const struct sl_sim_fault *fault, bool begins)
{
    void (*change)(struct sl_sim_network * network, uint32_t from, uint32_t to, uint32_t rail) =
        begins ? sl_sim_network_block : sl_sim_network_heal;
    if (fault->a != fault->b) {
        change(world->network, fault->a, fault->b, fault->rail);
    }
    if (fault->a != fault->b && !fault->one_way) {
        change(world->network, fault->b, fault->a, fault->rail);
    }
}

static void pause_process(struct world *world, const struct sl_sim_fault *fault)
{
    struct sl_sim_process *process = &world->places[fault->a].app.process;
    const uint64_t until_ns = world->now_ns + fault->duration_ns;
    const uint64_t from_ns =
        process->paused_until_ns > world->now_ns ? process->paused_until_ns : world->now_ns;
    process->paused_ns += until_ns > from_ns ? until_ns - from_ns : 0;
    process->paused_until_ns = until_ns > from_ns ? until_ns : from_ns;
}

static void begin(struct world *world, const struct sl_sim_fault *fault)
{
    struct place *place = &world->places[fault->a];
    note(world, "fault begins: kind %d", (int)fault->kind);
    sl_sim_objects_oracle_touch(&world->oracle, fault->a, world->now_ns + fault->duration_ns);
    sl_sim_objects_oracle_touch(&world->oracle, fault->b, world->now_ns + fault->duration_ns);
    if (fault->kind == SL_SIM_FAULT_BREAK) {
        (void)sl_sim_network_break(world->network, fault->a, fault->all, fault->amount);
    } else if (fault->kind == SL_SIM_FAULT_PARTITION) {
        block(world, fault, true);
    } else if (fault->kind == SL_SIM_FAULT_REFUSE) {
        sl_sim_network_refuse(world->network, fault->a, true);
    } else if (fault->kind == SL_SIM_FAULT_PAUSE && place->runs) {
        pause_process(world, fault);
    } else if (fault->kind == SL_SIM_FAULT_KILL_PS && place->runs) {
        kill_process(world, fault->a, fault->silent);
        place->start_ns = world->now_ns + fault->duration_ns;
    }
}

static void end(struct world *world, const struct sl_sim_fault *fault)
{
    note(world, "fault ends: kind %d", (int)fault->kind);
    if (fault->kind == SL_SIM_FAULT_PARTITION) {
        block(world, fault, false);
    } else if (fault->kind == SL_SIM_FAULT_REFUSE) {
        sl_sim_network_refuse(world->network, fault->a, false);
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t run_faults(struct world *world)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    world->faults_are_over = true;
    for (uint32_t i = 0; i < world->plan->fault_count; i++) {
        const struct sl_sim_fault *fault = &world->plan->faults[i];
        if (world->fault_begin_ns[i] <= world->now_ns) {
            world->fault_begin_ns[i] = SL_CLOCK_NEVER;
            world->fault_end_ns[i] = world->now_ns + fault->duration_ns;
            begin(world, fault);
        } else if (world->fault_end_ns[i] <= world->now_ns) {
            world->fault_end_ns[i] = SL_CLOCK_NEVER;
            end(world, fault);
        }
        const uint64_t at_ns = sooner(world->fault_begin_ns[i], world->fault_end_ns[i]);
        next_ns = sooner(next_ns, at_ns);
        world->faults_are_over = world->faults_are_over && at_ns == SL_CLOCK_NEVER;
    }
    return next_ns;
}

/* The order of stages */

static bool all_are_in(const struct world *world, enum sl_sim_objects_stage stage)
{
    bool are = true;
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        are = are && world->places[i].runs && world->places[i].app.stage == stage;
    }
    return are;
}

static void enter_all(struct world *world, enum sl_sim_objects_stage stage)
{
    note(world, "stage %d", (int)stage);
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        world->places[i].app.stage = stage;
    }
}

static void look_at_stages(struct world *world)
{
    if (world->faults_are_over && all_are_in(world, SL_SIM_OBJECTS_DONE) &&
        world->prove_ns == SL_CLOCK_NEVER && !world->has_proved) {
        sl_sim_network_calm(world->network);
        world->prove_ns = world->now_ns + (world->plan->fault_count > 0 ? SETTLE_NS : 0);
    } else if (world->prove_ns <= world->now_ns) {
        world->prove_ns = SL_CLOCK_NEVER;
        world->has_proved = true;
        enter_all(world, SL_SIM_OBJECTS_PROVING);
    } else if (all_are_in(world, SL_SIM_OBJECTS_PROVED)) {
        enter_all(world, SL_SIM_OBJECTS_ENDING);
    } else if (all_are_in(world, SL_SIM_OBJECTS_EMPTY) && world->rest_ns == SL_CLOCK_NEVER) {
        world->rest_ns = world->now_ns + REST_NS;
    } else if (world->rest_ns <= world->now_ns) {
        world->rest_ns = SL_CLOCK_NEVER;
        for (uint32_t i = 0; i < world->plan->node_count; i++) {
            sl_sim_objects_app_judge_rest(&world->places[i].app);
        }
        sl_sim_objects_catalogue_judge_rest(catalogue_of(world), &world->oracle,
                                            world->plan->node_count);
        enter_all(world, SL_SIM_OBJECTS_LEAVING);
    }
}

static bool goes_on(const struct world *world)
{
    bool some = false;
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        some = some || world->places[i].runs || world->places[i].start_ns != SL_CLOCK_NEVER;
    }
    return some && world->oracle.breach[0] == '\0';
}

/* Does all that is due now, and moves on to the next moment at which something is. */
static void moment(struct world *world)
{
    uint64_t next_ns = sooner(run_faults(world), sooner(world->prove_ns, world->rest_ns));
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        run_place(world, i);
    }
    look_at_stages(world);
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        const struct place *place = &world->places[i];
        next_ns =
            sooner(next_ns, place->runs ? sl_sim_objects_app_due(&place->app) : place->start_ns);
    }
    if (next_ns == SL_CLOCK_NEVER ? goes_on(world) : next_ns > LIMIT_NS) {
        sl_sim_objects_oracle_fail(&world->oracle, "progress",
                                   "nothing more happens, and the run is not over");
        return;
    }
    world->now_ns =
        next_ns > world->now_ns && next_ns != SL_CLOCK_NEVER ? next_ns : world->now_ns + 1;
    sl_sim_network_advance(world->network, world->now_ns);
}

static void create(struct world *world)
{
    const struct sl_sim_watch watch = {.frame = watch_frame,
                                       .ended = watch_ended,
                                       .wake = watch_wake,
                                       .breach = watch_breach,
                                       .ctx = world};
    world->network = sl_sim_network_create(&world->plan->network, &watch);
    world->now_ns = sl_sim_network_now(world->network);
    world->rest_ns = world->prove_ns = SL_CLOCK_NEVER;
    sl_sim_objects_oracle_init(&world->oracle, world->plan, world->network);
    for (uint32_t i = 0; i < world->plan->node_count; i++) {
        world->places[i].start_ns = world->now_ns + sl_hash_random(&world->random) % SPREAD_NS;
    }
    for (uint32_t i = 0; i < world->plan->fault_count; i++) {
        world->fault_begin_ns[i] = world->now_ns + SPREAD_NS + world->plan->faults[i].at_ns;
        world->fault_end_ns[i] = SL_CLOCK_NEVER;
    }
}

bool sl_sim_objects_run(const struct sl_sim_objects_plan *plan, bool verbose, uint64_t *trace)
{
    static struct world world;
    world = (struct world){
        .plan = plan, .verbose = verbose, .random = sl_hash_key(plan->seed ^ 0x0b1ec8)};
    create(&world);
    do {
        moment(&world);
    } while (goes_on(&world));
    const bool good = world.oracle.breach[0] == '\0';
    if (!good) {
        printf("seed %" PRIu64 ": %s: %s\n", plan->seed, world.oracle.breach_of,
               world.oracle.breach);
    } else if (verbose) {
        printf("seed %" PRIu64 ": well after %" PRIu64 " ms, %" PRIu64 " frames, %" PRIu64
               " turns, %u published, %u fetched; trace %016" PRIx64 "\n",
               plan->seed, sl_sim_ms(world.now_ns), world.frames, world.turns,
               world.oracle.published, world.oracle.fetched, world.trace);
    }
    for (uint32_t i = 0; i < plan->node_count; i++) {
        if (world.places[i].runs) {
            kill_process(&world, i, false);
        }
    }
    sl_sim_network_destroy(&world.network);
    sl_sim_objects_oracle_fini(&world.oracle);
    *trace = world.trace;
    return good;
}
