#include "tests/sim/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "net/transport_rma.h"
#include "tests/sim/random.h"

#define LIMIT_NS  (900 * SL_CLOCK_NS_PER_S)
#define SPREAD_NS (5 * SL_CLOCK_NS_PER_MS) /* processes start within this */

void sl_sim_fail(struct sl_sim_breach *breach, const char *of, const char *format, ...)
{
    if (breach->what[0] != '\0') {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)snprintf(breach->of, sizeof breach->of, "%s", of);
    (void)vsnprintf(breach->what, sizeof breach->what, format, args);
    va_end(args);
}

void sl_sim_world_note(struct sl_sim_world *world, const char *format, ...)
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

static void count_sent(struct sl_sim_world *world, uint32_t host, uint32_t bytes)
{
    if (world->actions->sent != NULL) {
        world->actions->sent(world, host, bytes);
    }
}

static void watch_frame(void *ctx, const struct sl_sim_frame *frame)
{
    struct sl_sim_world *world = ctx;
    world->frames++;
    if (!frame->delivered &&
        (frame->header.type == SL_FRAME_DATA || frame->header.type == SL_FRAME_REPLY)) {
        count_sent(world, frame->from, frame->header.payload_bytes);
    }
    sl_sim_world_note(world,
                      "%u %s %u: pair %" PRIu64 ", type %d, id %" PRIu64 ", status %d, %u bytes",
                      frame->from, frame->delivered ? "<-" : "->", frame->to, frame->pair,
                      (int)frame->header.type, frame->header.request_id, (int)frame->header.status,
                      frame->header.payload_bytes);
}

static void watch_operation(void *ctx, uint32_t from, uint32_t to, int kind, uint32_t bytes)
{
    struct sl_sim_world *world = ctx;
    world->operations++;
    if (kind == SL_TRANSPORT_RMA_WRITE) {
        count_sent(world, from, bytes);
    }
    sl_sim_world_note(world, "%u => %u: operation %d, %u bytes", from, to, kind, bytes);
}

static void watch_ended(void *ctx, uint32_t host, uint64_t pair, bool connector, int err)
{
    sl_sim_world_note(ctx, "%u: pair %" PRIu64 "%s has ended: %d", host, pair,
                      connector ? "" : " (accepted)", err);
}

static void watch_wake(void *ctx, uint32_t host, uint64_t at_ns)
{
    struct sl_sim_app *app = ((struct sl_sim_world *)ctx)->places[host].app;
    if (app != NULL) {
        sl_sim_process_wake(&app->process, at_ns);
    }
}

static void watch_breach(void *ctx, const char *what)
{
    sl_sim_fail(((struct sl_sim_world *)ctx)->breach, "transport", "%s", what);
}

/* Processes */

static void start(struct sl_sim_world *world, uint32_t host)
{
    const uint64_t seed = sl_hash_random(&world->random);
    const uint64_t offset_ns = sl_hash_random(&world->random) % (1000 * SL_CLOCK_NS_PER_S);
    sl_sim_network_revive(world->network, host);
    world->places[host].start_ns = SL_CLOCK_NEVER;
    world->places[host].app = world->actions->start(world, host, seed, offset_ns);
    sl_sim_process_look(&world->places[host].app->process);
    sl_sim_world_note(world, "%u starts", host);
}

static void kill_process(struct sl_sim_world *world, uint32_t host, bool silent)
{
    sl_sim_world_note(world, "%u is killed", host);
    sl_sim_app_kill(world->places[host].app, silent);
    world->places[host].app = NULL;
}

static void run_place(struct sl_sim_world *world, uint32_t host)
{
    struct sl_sim_app *app = world->places[host].app;
    if (app == NULL && world->places[host].start_ns <= world->now_ns) {
        start(world, host);
    } else if (app != NULL && sl_sim_app_due(app) <= world->now_ns) {
        world->turns += sl_sim_app_step(app);
        if (world->actions->stepped != NULL) {
            world->actions->stepped(world, host);
        }
        if (sl_sim_app_ended(app)) {
            sl_sim_world_note(world, "%u has ended", host);
            app->actions->ended(app);
            sl_sim_app_fini(app);
            world->places[host].app = NULL;
        } else if (world->actions->stops != NULL && world->actions->stops(world, host)) {
            kill_process(world, host, true);
            world->places[host].start_ns =
                world->now_ns + sl_hash_random(&world->random) % (2 * SL_CLOCK_NS_PER_S);
        }
    }
}

/* Faults */

static void block(struct sl_sim_world *world, const struct sl_sim_fault *fault, bool begins)
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

static void pause_process(struct sl_sim_world *world, const struct sl_sim_fault *fault)
{
    struct sl_sim_process *process = &world->places[fault->a].app->process;
    const uint64_t until_ns = world->now_ns + fault->duration_ns;
    const uint64_t from_ns =
        process->paused_until_ns > world->now_ns ? process->paused_until_ns : world->now_ns;
    process->paused_ns += until_ns > from_ns ? until_ns - from_ns : 0;
    process->paused_until_ns = until_ns > from_ns ? until_ns : from_ns;
}

static void change(struct sl_sim_world *world, const struct sl_sim_fault *fault, bool begins)
{
    const bool runs = world->places[fault->a].app != NULL;
    sl_sim_world_note(world, "fault %s: kind %d", begins ? "begins" : "ends", (int)fault->kind);
    if (world->actions->fault != NULL) {
        world->actions->fault(world, fault, begins);
    }
    if (fault->kind == SL_SIM_FAULT_PARTITION) {
        block(world, fault, begins);
    } else if (fault->kind == SL_SIM_FAULT_REFUSE) {
        sl_sim_network_refuse(world->network, fault->a, begins);
    } else if (fault->kind == SL_SIM_FAULT_BREAK && begins) {
        (void)sl_sim_network_break(world->network, fault->a, fault->all, fault->amount);
    } else if (fault->kind == SL_SIM_FAULT_PAUSE && begins && runs) {
        pause_process(world, fault);
    } else if (fault->kind == SL_SIM_FAULT_KILL_PS && begins && runs) {
        kill_process(world, fault->a, fault->silent);
        world->places[fault->a].start_ns = world->now_ns + fault->duration_ns;
    } else if (fault->kind == SL_SIM_FAULT_LEAVE && begins && runs) {
        world->places[fault->a].app->stage = SL_SIM_APP_LEAVING;
        world->places[fault->a].start_ns = world->now_ns + fault->duration_ns;
    }
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t run_faults(struct sl_sim_world *world)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    world->faults_are_over = true;
    for (uint32_t i = 0; i < world->fault_count; i++) {
        const struct sl_sim_fault *fault = &world->faults[i];
        if (world->fault_begin_ns[i] <= world->now_ns) {
            world->fault_begin_ns[i] = SL_CLOCK_NEVER;
            world->fault_end_ns[i] = world->now_ns + fault->duration_ns;
            change(world, fault, true);
        } else if (world->fault_end_ns[i] <= world->now_ns) {
            world->fault_end_ns[i] = SL_CLOCK_NEVER;
            change(world, fault, false);
        }
        const uint64_t at_ns = sooner(world->fault_begin_ns[i], world->fault_end_ns[i]);
        next_ns = sooner(next_ns, at_ns);
        world->faults_are_over = world->faults_are_over && at_ns == SL_CLOCK_NEVER;
    }
    return next_ns;
}

/* Stages */

bool sl_sim_world_all_are_in(const struct sl_sim_world *world, uint32_t stage)
{
    bool are = true;
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        const struct sl_sim_app *app = world->places[i].app;
        are = are && app != NULL && app->stage == stage;
    }
    return are;
}

void sl_sim_world_enter(struct sl_sim_world *world, uint32_t stage)
{
    sl_sim_world_note(world, "stage %u", stage);
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        world->places[i].app->stage = stage;
    }
}

/* Run */

static bool goes_on(const struct sl_sim_world *world)
{
    bool some = false;
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        some = some || world->places[i].app != NULL || world->places[i].start_ns != SL_CLOCK_NEVER;
    }
    return some && world->breach->what[0] == '\0';
}

/* Does all that is due now, and moves on to the next moment at which something is. */
static void moment(struct sl_sim_world *world)
{
    uint64_t next_ns = sooner(run_faults(world), world->look_ns);
    if (world->actions->moment != NULL) {
        world->actions->moment(world);
    }
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        run_place(world, i);
    }
    world->actions->look(world);
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        const struct sl_sim_app *app = world->places[i].app;
        next_ns = sooner(next_ns, app != NULL ? sl_sim_app_due(app) : world->places[i].start_ns);
    }
    if (next_ns == SL_CLOCK_NEVER ? goes_on(world) : next_ns > LIMIT_NS) {
        sl_sim_fail(world->breach, "progress", "nothing more happens, and the run is not over");
        return;
    }
    world->now_ns =
        next_ns > world->now_ns && next_ns != SL_CLOCK_NEVER ? next_ns : world->now_ns + 1;
    sl_sim_network_advance(world->network, world->now_ns);
}

void sl_sim_world_create(struct sl_sim_world *world)
{
    const struct sl_sim_watch watch = {.frame = watch_frame,
                                       .operation = watch_operation,
                                       .ended = watch_ended,
                                       .wake = watch_wake,
                                       .breach = watch_breach,
                                       .ctx = world};
    world->network = sl_sim_network_create(world->options, &watch);
    world->now_ns = sl_sim_network_now(world->network);
    world->look_ns = SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        world->places[i].start_ns = world->now_ns + sl_hash_random(&world->random) % SPREAD_NS;
    }
    for (uint32_t i = 0; i < world->fault_count; i++) {
        world->fault_begin_ns[i] = world->now_ns + SPREAD_NS + world->faults[i].at_ns;
        world->fault_end_ns[i] = SL_CLOCK_NEVER;
    }
}

void sl_sim_world_run(struct sl_sim_world *world)
{
    do {
        moment(world);
    } while (goes_on(world));
}

bool sl_sim_world_fini(struct sl_sim_world *world)
{
    const bool good = world->breach->what[0] == '\0';
    if (!good) {
        printf("seed %" PRIu64 ": %s: %s\n", world->seed, world->breach->of, world->breach->what);
    } else if (world->verbose) {
        printf("seed %" PRIu64 ": well after %" PRIu64 " ms, %" PRIu64 " frames, %" PRIu64
               " operations, %" PRIu64 " turns; trace %016" PRIx64 "\n",
               world->seed, sl_sim_ms(world->now_ns), world->frames, world->operations,
               world->turns, world->trace);
    }
    for (uint32_t i = 0; i < world->options->host_count; i++) {
        if (world->places[i].app != NULL) {
            kill_process(world, i, false);
        }
    }
    sl_sim_network_destroy(&world->network);
    return good;
}
