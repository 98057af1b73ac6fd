#include "tests/sim/app.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/hash.h"
#include "net/transfer/engine.h"
#include "objects/node/node.h"
#include "tests/sim/world.h"

#define UNIX_US 1700000000000000

void sl_sim_app_name(uint32_t host, char name[SL_SIM_APP_NAME_BYTES])
{
    char address[SL_LIMIT_ENDPOINT_BYTES];
    sl_sim_network_address(host, address, sizeof address);
    (void)snprintf(name, SL_SIM_APP_NAME_BYTES, "%s:%d", address, SL_SIM_PORT_BASE);
}

/* Engine and node */

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP ? &sl_sim_transport_ops : NULL;
}

static uint64_t draw(void *ctx)
{
    return sl_hash_random(&((struct sl_sim_app *)ctx)->random) | 1;
}

static uint64_t unix_us(void *ctx)
{
    const struct sl_sim_app *app = ctx;
    return UNIX_US + sl_sim_network_now(app->process.network) / SL_CLOCK_NS_PER_US;
}

static void pause_us(void *ctx, uint64_t us)
{
    sl_sim_app_sleep(ctx, us * SL_CLOCK_NS_PER_US);
}

struct sl_transfer *sl_sim_app_engine(struct sl_sim_app *app, const char *name)
{
    struct sl_sim_process *process = &app->process;
    char endpoint[SL_LIMIT_ENDPOINT_BYTES + 16], address[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_transfer *engine;
    sl_sim_network_rail_address(process->host, 0, address, sizeof address);
    (void)snprintf(endpoint, sizeof endpoint, "tcp://%s:0", address);
    const struct sl_transfer_options options = {
        .name = name, .endpoints = endpoint, .reactor_count = 1, .insecure = true};
    const struct sl_transfer_setup setup = {
        .reactors = process->reactors,
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(process->network, process->host, 0),
        .random = draw,
        .wait = sl_sim_app_wait,
        .ctx = app,
    };
    const int err = sl_transfer_create_with(&options, &setup, &engine);
    sl_assert(err == 0);
    return engine;
}

void sl_sim_app_setup(struct sl_sim_app *app, struct sl_objects_setup *setup)
{
    setup->unix_us = unix_us;
    setup->random = draw;
    setup->wait = sl_sim_app_wait;
    setup->pause = pause_us;
    setup->ctx = app;
}

void sl_sim_app_judge_pool(const struct sl_sim_app *app, const struct sl_objects *node,
                           struct sl_sim_breach *breach)
{
    const struct sl_objects_pool *pool = node != NULL ? &node->pool : NULL;
    uint32_t used = 0;
    if (pool == NULL || pool->base == NULL) {
        return;
    }
    for (uint32_t i = 0; i < pool->slot_count; i++) {
        used += pool->users[i] > 0;
    }
    if (used + pool->free_count != pool->slot_count) {
        sl_sim_fail(breach, "pool", "host %u: %u of %u slots, %u are free", app->process.host, used,
                    pool->slot_count, pool->free_count);
    }
}

/* Threads */

void sl_sim_app_thread(struct sl_sim_app *app, void (*run)(void *ctx), void *ctx)
{
    sl_assert(app->thread_count < SL_SIM_APP_THREADS_MAX);
    app->threads[app->thread_count++] =
        (struct sl_sim_thread){.app = app, .fiber = sl_sim_fiber_create(run, ctx)};
}

void sl_sim_app_wait(void *ctx, struct sl_completion *completion)
{
    struct sl_sim_app *app = ctx;
    while (!sl_completion_ended(completion)) {
        struct sl_sim_thread *thread = app->running;
        thread->completion = completion;
        sl_sim_fiber_yield(thread->fiber);
        thread->completion = NULL;
    }
}

void sl_sim_app_sleep(struct sl_sim_app *app, uint64_t ns)
{
    app->running->wake_ns = sl_sim_process_now(&app->process) + ns;
    sl_sim_fiber_yield(app->running->fiber);
}

bool sl_sim_app_others_ended(const struct sl_sim_app *app)
{
    bool have = true;
    for (uint32_t i = 1; i < app->thread_count; i++) {
        have = have && sl_sim_fiber_ended(app->threads[i].fiber);
    }
    return have;
}

static bool can_run(const struct sl_sim_thread *thread)
{
    return !sl_sim_fiber_ended(thread->fiber) &&
           (thread->completion != NULL
                ? sl_completion_ended(thread->completion)
                : thread->wake_ns <= sl_sim_process_now(&thread->app->process));
}

static void run_threads(struct sl_sim_app *app)
{
    bool ran;
    do {
        ran = false;
        if (app->actions->poll != NULL) {
            app->actions->poll(app);
        }
        for (uint32_t i = 0; i < app->thread_count; i++) {
            if (can_run(&app->threads[i])) {
                app->running = &app->threads[i];
                sl_sim_fiber_resume(app->threads[i].fiber);
                app->running = NULL;
                ran = true;
            }
        }
    } while (ran);
}

/* Outside of threads */

uint32_t sl_sim_app_step(struct sl_sim_app *app)
{
    const uint32_t turns = sl_sim_process_step(&app->process);
    run_threads(app);
    sl_sim_process_look(&app->process);
    return turns;
}

uint64_t sl_sim_app_due(const struct sl_sim_app *app)
{
    const struct sl_sim_process *process = &app->process;
    uint64_t due_ns = sl_sim_process_due(process);
    for (uint32_t i = 0; i < app->thread_count; i++) {
        const struct sl_sim_thread *thread = &app->threads[i];
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

bool sl_sim_app_ended(const struct sl_sim_app *app)
{
    return sl_sim_fiber_ended(app->threads[0].fiber);
}

void sl_sim_app_fini(struct sl_sim_app *app)
{
    for (uint32_t i = 0; i < app->thread_count; i++) {
        sl_sim_fiber_destroy(&app->threads[i].fiber);
    }
    app->actions->fini(app);
    sl_sim_process_fini(&app->process);
}

static bool is_drained(void *ctx)
{
    run_threads(ctx);
    return sl_sim_app_ended(ctx);
}

void sl_sim_app_kill(struct sl_sim_app *app, bool silent)
{
    app->dying = true;
    sl_sim_network_kill(app->process.network, app->process.host, silent);
    app->actions->ended(app);
    sl_sim_process_drain(&app->process, is_drained, app);
    sl_sim_app_fini(app);
}
