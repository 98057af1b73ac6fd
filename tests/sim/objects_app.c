#include "tests/sim/objects_app.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "objects/node.h"
#include "objects/withdraw.h"
#include "tests/sim/objects_actions.h"
#include "tests/sim/random.h"
#include "transfer/engine.h"

#define LOOK_NS    (50 * SL_CLOCK_NS_PER_MS) /* a thread looks for what others have done */
#define UNIX_US    1700000000000000
#define NAME_BYTES (SL_LIMIT_ENDPOINT_BYTES + 8)
#define ENGINE     0 /* reactors of the process */
#define NODE       1
#define REACTORS   2

/* Seams */

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP ? &sl_sim_transport_ops : NULL;
}

static uint64_t draw(void *ctx)
{
    return sl_hash_random(&((struct sl_sim_objects_app *)ctx)->random) | 1;
}

static uint64_t unix_us(void *ctx)
{
    const struct sl_sim_objects_app *app = ctx;
    return UNIX_US + sl_sim_network_now(app->options.network) / SL_CLOCK_NS_PER_US;
}

static void wait_for(void *ctx, struct sl_completion *completion)
{
    struct sl_sim_objects_app *app = ctx;
    while (!sl_completion_ended(completion)) {
        struct sl_sim_objects_thread *thread = app->running;
        thread->completion = completion;
        sl_sim_fiber_yield(thread->fiber);
        thread->completion = NULL;
    }
}

void sl_sim_objects_app_sleep(struct sl_sim_objects_app *app, uint64_t ns)
{
    app->running->wake_ns = sl_sim_process_now(&app->process) + ns;
    sl_sim_fiber_yield(app->running->fiber);
}

/* The thread `life` */

static void name_of(uint32_t host, char name[NAME_BYTES])
{
    char address[SL_LIMIT_ENDPOINT_BYTES];
    sl_sim_network_address(host, address, sizeof address);
    (void)snprintf(name, NAME_BYTES, "%s:%d", address, SL_SIM_PORT_BASE);
}

static void create_engine(struct sl_sim_objects_app *app)
{
    char name[NAME_BYTES], endpoint[SL_LIMIT_ENDPOINT_BYTES + 16], address[SL_LIMIT_ENDPOINT_BYTES];
    name_of(app->options.host, name);
    sl_sim_network_rail_address(app->options.host, 0, address, sizeof address);
    (void)snprintf(endpoint, sizeof endpoint, "tcp://%s:0", address);
    const struct sl_transfer_options options = {
        .name = name, .endpoints = endpoint, .reactor_count = 1, .insecure = true};
    const struct sl_transfer_setup setup = {
        .reactors = &app->process.reactors[ENGINE],
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(app->options.network, app->options.host, 0),
        .random = draw,
        .wait = wait_for,
        .ctx = app,
    };
    int err = sl_transfer_create_with(&options, &setup, &app->engine);
    sl_assert(err == 0);
}

static void create_node(struct sl_sim_objects_app *app)
{
    char catalogue[NAME_BYTES];
    name_of(0, catalogue);
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = app->engine,
                                               .catalogue = catalogue,
                                               .pool_bytes = app->options.plan->pool_bytes};
    const struct sl_objects_setup setup = {.reactor = app->process.reactors[NODE],
                                           .unix_us = unix_us,
                                           .random = draw,
                                           .wait = wait_for,
                                           .ctx = app};
    int err = sl_objects_create_with(&options, &setup, &app->node);
    sl_assert(err == 0);
}

static bool others_have_ended(const struct sl_sim_objects_app *app)
{
    bool have = true;
    for (uint32_t i = 1; i < app->thread_count; i++) {
        have = have && sl_sim_fiber_ended(app->threads[i].fiber);
    }
    return have;
}

static void life(void *ctx)
{
    struct sl_sim_objects_app *app = ctx;
    int err;
    create_engine(app);
    create_node(app);
    err = sl_objects_copy_open_pool(app->node); /* it waits under a lock: other fibers would not */
    sl_assert(err == 0);
    app->is_ready = true;
    while (!others_have_ended(app)) {
        sl_sim_objects_app_sleep(app, LOOK_NS);
    }
    sl_objects_destroy(&app->node);
    sl_transfer_destroy(&app->engine);
}

/* The other threads */

static bool all_are_done(const struct sl_sim_objects_app *app)
{
    bool are = true;
    for (uint32_t i = 1; i < app->thread_count; i++) {
        are = are && app->threads[i].is_done;
    }
    return are;
}

static void work(struct sl_sim_objects_app *app, struct sl_sim_objects_thread *thread)
{
    if (thread->actions_left > 0) {
        thread->actions_left--;
        sl_sim_objects_act(app);
        sl_sim_objects_app_sleep(
            app, SL_CLOCK_NS_PER_US * sl_sim_below(&app->random, app->options.plan->think_us_max));
        return;
    }
    thread->is_done = true;
    if (thread == &app->threads[1] && all_are_done(app)) {
        app->stage = SL_SIM_OBJECTS_DONE;
        return;
    }
    sl_sim_objects_app_sleep(app, LOOK_NS);
}

/* The first of them has more to do, at the end. */
static void lead(struct sl_sim_objects_app *app)
{
    if (app->stage == SL_SIM_OBJECTS_PROVING) {
        if (app->options.host == app->options.plan->node_count - 1) {
            sl_sim_objects_prove_publish(app);
        } else {
            sl_sim_objects_prove_get(app);
        }
        app->stage = SL_SIM_OBJECTS_PROVED;
    } else if (app->stage == SL_SIM_OBJECTS_ENDING) {
        sl_sim_objects_withdraw_all(app);
        sl_objects_withdraw_retired(app->node, app->options.plan->timeout_ms);
        app->stage = SL_SIM_OBJECTS_EMPTY;
    } else {
        sl_sim_objects_app_sleep(app, LOOK_NS);
    }
}

static void act(void *ctx)
{
    struct sl_sim_objects_thread *thread = ctx;
    struct sl_sim_objects_app *app = thread->app;
    while (!app->is_ready && !app->dying) {
        sl_sim_objects_app_sleep(app, LOOK_NS);
    }
    while (app->stage != SL_SIM_OBJECTS_LEAVING && !app->dying) {
        if (app->stage == SL_SIM_OBJECTS_WORKING) {
            work(app, thread);
        } else if (thread == &app->threads[1]) {
            lead(app);
        } else {
            sl_sim_objects_app_sleep(app, LOOK_NS);
        }
    }
}

/* Outside of threads */

void sl_sim_objects_app_start(struct sl_sim_objects_app *app,
                              const struct sl_sim_objects_app_options *options)
{
    *app = (struct sl_sim_objects_app){.options = *options, .random = options->seed};
    char name[16];
    (void)snprintf(name, sizeof name, "o%u", options->host % 100);
    sl_sim_process_init(&app->process, options->network, options->host, name, REACTORS,
                        sl_hash_random(&app->random), options->offset_ns, options->plan->gap_ns);
    app->thread_count = 1 + options->plan->thread_count;
    for (uint32_t i = 0; i < app->thread_count; i++) {
        struct sl_sim_objects_thread *thread = &app->threads[i];
        *thread =
            (struct sl_sim_objects_thread){.app = app, .actions_left = options->plan->action_count};
        thread->fiber = i == 0 ? sl_sim_fiber_create(life, app) : sl_sim_fiber_create(act, thread);
    }
    sl_sim_process_look(&app->process);
}

static bool can_run(const struct sl_sim_objects_thread *thread)
{
    return !sl_sim_fiber_ended(thread->fiber) &&
           (thread->completion != NULL
                ? sl_completion_ended(thread->completion)
                : thread->wake_ns <= sl_sim_process_now(&thread->app->process));
}

static bool run_threads(struct sl_sim_objects_app *app)
{
    bool ran = false;
    for (uint32_t i = 0; i < app->thread_count; i++) {
        if (can_run(&app->threads[i])) {
            app->running = &app->threads[i];
            sl_sim_fiber_resume(app->threads[i].fiber);
            app->running = NULL;
            ran = true;
        }
    }
    return ran;
}

uint32_t sl_sim_objects_app_step(struct sl_sim_objects_app *app)
{
    const uint32_t turns = sl_sim_process_step(&app->process);
    while (run_threads(app)) {
    }
    sl_sim_process_look(&app->process);
    return turns;
}

uint64_t sl_sim_objects_app_due(const struct sl_sim_objects_app *app)
{
    const struct sl_sim_process *process = &app->process;
    uint64_t due_ns = sl_sim_process_due(process);
    for (uint32_t i = 0; i < app->thread_count; i++) {
        const struct sl_sim_objects_thread *thread = &app->threads[i];
        uint64_t at_ns = thread->completion != NULL ? SL_CLOCK_NEVER : thread->wake_ns;
        if (sl_sim_fiber_ended(thread->fiber) || at_ns == SL_CLOCK_NEVER) {
            continue;
        }
        at_ns = at_ns > process->offset_ns ? at_ns - process->offset_ns : 0;
        at_ns = at_ns > process->paused_until_ns ? at_ns : process->paused_until_ns;
        due_ns = at_ns < due_ns ? at_ns : due_ns;
    }
    return due_ns;
}

bool sl_sim_objects_app_ended(const struct sl_sim_objects_app *app)
{
    return sl_sim_fiber_ended(app->threads[0].fiber); /* it waits for the others */
}

void sl_sim_objects_app_fini(struct sl_sim_objects_app *app)
{
    for (uint32_t i = 0; i < app->thread_count; i++) {
        sl_sim_fiber_destroy(&app->threads[i].fiber);
    }
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++) {
        free(app->held[i].memory);
    }
    sl_sim_process_fini(&app->process);
}

static bool is_drained(void *ctx)
{
    struct sl_sim_objects_app *app = ctx;
    while (run_threads(app)) {
    }
    return sl_sim_objects_app_ended(app);
}

void sl_sim_objects_app_kill(struct sl_sim_objects_app *app, bool silent)
{
    app->dying = true;
    sl_sim_network_kill(app->options.network, app->options.host, silent);
    sl_sim_objects_oracle_end(app->options.oracle, app->options.host);
    sl_sim_process_drain(&app->process, is_drained, app);
    sl_sim_objects_app_fini(app);
}

void sl_sim_objects_app_judge_rest(struct sl_sim_objects_app *app)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    SL_LIST_FOREACH (link, &app->node->copies) {
        const struct sl_objects_copy *copy = SL_CONTAINER_OF(link, struct sl_objects_copy, link);
        sl_sim_objects_oracle_fail(oracle, "rest", "node %u still has %s@%" PRIu64,
                                   app->options.host, copy->name, copy->version);
    }
    const struct sl_objects_pool *pool = &app->node->pool;
    if (pool->free_count != pool->slot_count) {
        sl_sim_objects_oracle_fail(oracle, "rest", "node %u: %u of %u slots are free",
                                   app->options.host, pool->free_count, pool->slot_count);
    }
    if (app->engine->ios[ENGINE].table->count != 1) {
        sl_sim_objects_oracle_fail(oracle, "rest", "node %u: %u ranges are registered",
                                   app->options.host, app->engine->ios[ENGINE].table->count);
    }
    if (!sl_list_empty(&app->node->membership.asks)) {
        sl_sim_objects_oracle_fail(oracle, "rest", "node %u: requests are left", app->options.host);
    }
}
