#include "tests/sim/objects_app.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "objects/node/node.h"
#include "tests/sim/objects_actions.h"
#include "tests/sim/objects_old.h"
#include "tests/sim/random.h"

#define LOOK_NS (50 * SL_CLOCK_NS_PER_MS) /* a thread looks for what others have done */

/* The thread `life` */

static void create_node(struct sl_sim_objects_app *app)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    char catalogue[SL_SIM_APP_NAME_BYTES], name[SL_SIM_APP_NAME_BYTES],
        machine[SL_SIM_APP_NAME_BYTES];
    sl_sim_app_name(plan->first_host, catalogue);
    sl_sim_app_name(plan->first_host + app->options.host, name);
    sl_sim_app_name(plan->first_host + app->options.host - app->options.host % plan->machine_nodes,
                    machine);
    app->engine = sl_sim_app_engine(&app->base, name);
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = app->engine,
                                               .catalogue = catalogue,
                                               .host = machine,
                                               .pool_bytes = plan->pool_bytes};
    const bool is_keeper = app->options.host - 1 < plan->keeper_count;
    const bool is_agent = sl_sim_objects_plan_is_agent(plan, app->options.host);
    struct sl_objects_setup setup = {
        .is_keeper = is_keeper,
        .agent = is_agent ? "sim" : NULL,
        .no_sockets = true,
        .directory = app->options.disk != NULL ? "/c" : NULL,
        .disk = app->options.disk,
        .replicas = plan->replicas,
        .keep_versions = plan->resets ? 2 + (uint32_t)(app->options.seed % 4) : 0,
    };
    sl_sim_app_setup(&app->base, &setup);
    int err = sl_objects_create_with(&options, &setup, &app->node);
    sl_assert(err == 0);
    app->options.oracle->node_ids[app->options.host] = app->node->id;
    for (uint32_t i = 0; is_agent && i < SL_SIM_OBJECTS_NAMES_MAX; i++) { /* it may store any */
        app->options.oracle->attempted[app->options.host][i] = true;
    }
}

static void life(void *ctx)
{
    struct sl_sim_objects_app *app = ctx;
    int err;
    create_node(app);
    err = sl_objects_copy_open_pool(app->node); /* it waits under a lock: other fibers would not */
    sl_assert(err == 0);
    app->is_ready = true;
    while (!sl_sim_app_others_ended(&app->base)) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    sl_sim_objects_oracle_drop(app->options.oracle, 0, app->options.host);
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++) {
        sl_get_close(&app->held[i].got);
    }
    sl_objects_destroy(&app->node);
    sl_transfer_destroy(&app->engine);
}

/* The other threads */

static bool all_are_done(const struct sl_sim_objects_app *app)
{
    bool are = true;
    for (uint32_t i = 0; i < app->options.plan->thread_count; i++) {
        are = are && app->workers[i].is_done;
    }
    return are;
}

static void work(struct sl_sim_objects_app *app, struct sl_sim_objects_worker *worker)
{
    if (worker->actions_left > 0) {
        worker->actions_left--;
        sl_sim_objects_act(app);
        sl_sim_app_sleep(&app->base,
                         SL_CLOCK_NS_PER_US *
                             sl_sim_below(&app->base.random, app->options.plan->think_us_max));
        return;
    }
    worker->is_done = true;
    if (worker == &app->workers[0] && all_are_done(app)) {
        app->base.stage = SL_SIM_OBJECTS_DONE;
        return;
    }
    sl_sim_app_sleep(&app->base, LOOK_NS);
}

/* The first of them has more to do, at the end. */
static void lead(struct sl_sim_objects_app *app)
{
    if (app->base.stage == SL_SIM_OBJECTS_PROVING) {
        if (app->options.host == app->options.plan->node_count - 1) {
            sl_sim_objects_prove_publish(app);
        } else {
            sl_sim_objects_prove_get(app);
        }
        app->base.stage = SL_SIM_OBJECTS_PROVED;
    } else if (app->base.stage == SL_SIM_OBJECTS_ENDING) {
        if (app->options.host == 0) {
            sl_sim_objects_remove_all(app);
        }
        sl_sim_objects_withdraw_all(app);
        app->base.stage = SL_SIM_OBJECTS_EMPTY;
    } else {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
}

static void act(void *ctx)
{
    struct sl_sim_objects_worker *worker = ctx;
    struct sl_sim_objects_app *app = worker->app;
    while (!app->is_ready && !app->base.dying) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    while (app->base.stage != SL_SIM_OBJECTS_LEAVING && !app->base.dying) {
        if (app->base.stage == SL_SIM_OBJECTS_WORKING) {
            work(app, worker);
        } else if (worker == &app->workers[0]) {
            lead(app);
        } else {
            sl_sim_app_sleep(&app->base, LOOK_NS);
        }
    }
}

/* Outside of threads */

static void ended(struct sl_sim_app *base)
{
    const struct sl_sim_objects_app *app = SL_CONTAINER_OF(base, struct sl_sim_objects_app, base);
    sl_sim_objects_oracle_end(app->options.oracle, app->options.host, base->dying);
}

static void fini(struct sl_sim_app *base)
{
    const struct sl_sim_objects_app *app = SL_CONTAINER_OF(base, struct sl_sim_objects_app, base);
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++) {
        free(app->held[i].memory);
    }
}

void sl_sim_objects_app_start(struct sl_sim_objects_app *app,
                              const struct sl_sim_objects_app_options *options)
{
    static const struct sl_sim_app_actions actions = {.ended = ended, .fini = fini};
    *app = (struct sl_sim_objects_app){.base = {.actions = &actions, .random = options->seed},
                                       .options = *options};
    char name[16];
    (void)snprintf(name, sizeof name, "o%u", options->host % 100);
    sl_sim_process_init(
        &app->base.process, options->network, options->plan->first_host + options->host, name, 1,
        sl_hash_random(&app->base.random), options->offset_ns, options->plan->gap_ns);
    sl_sim_app_thread(&app->base, life, app);
    for (uint32_t i = 0; i < options->plan->thread_count; i++) {
        app->workers[i] =
            (struct sl_sim_objects_worker){.app = app, .actions_left = options->plan->action_count};
        sl_sim_app_thread(&app->base, act, &app->workers[i]);
    }
}

void sl_sim_objects_app_judge_rest(struct sl_sim_objects_app *app)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    SL_LIST_FOREACH (link, &app->node->stored) {
        const struct sl_objects_stored *stored =
            SL_CONTAINER_OF(link, struct sl_objects_stored, link);
        if (strncmp(stored->key.name, SL_SIM_OLD_NAME, strlen(SL_SIM_OLD_NAME)) != 0) {
            sl_sim_fail(&oracle->breach, "rest", "node %u: %s@%" PRIu64 " is stored still",
                        app->options.host, stored->key.name, stored->key.version);
        }
    }
    SL_LIST_FOREACH (link, &app->node->copies) {
        const struct sl_objects_copy *copy = SL_CONTAINER_OF(link, struct sl_objects_copy, link);
        sl_sim_fail(
            &oracle->breach, "rest", "node %u still has %s@%" PRIu64 " part %u, %u uses%s%s",
            app->options.host, copy->name, copy->version, copy->part, copy->uses,
            copy->is_withdrawn ? ", withdrawn" : "", copy->is_uncommitted ? ", uncommitted" : "");
    }
    const struct sl_objects_pool *pool = &app->node->pool;
    if (pool->free_count != pool->slot_count) {
        sl_sim_fail(&oracle->breach, "rest", "node %u: %u of %u slots are free", app->options.host,
                    pool->free_count, pool->slot_count);
    }
    if (app->engine->ios[0].table->count != 1) {
        sl_sim_fail(&oracle->breach, "rest", "node %u: %u ranges are registered", app->options.host,
                    app->engine->ios[0].table->count);
    }
    if (!sl_list_empty(&app->node->membership.asks)) {
        sl_sim_fail(&oracle->breach, "rest", "node %u: requests are left", app->options.host);
    }
}
