#include "tests/sim/serve_app.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "objects/node/node.h"
#include "tests/sim/publish.h"
#include "tests/sim/random.h"

#define LOOK_NS     (50 * SL_CLOCK_NS_PER_MS)
#define PUBLISH_MS  20000
#define LAST_MS     5000
#define TABLES_MS   700                        /* of one publication of tables; of the last one */
#define TRIES_MAX   60                         /* of a publication that may not fail */
#define SETTLE_NS   (30 * SL_CLOCK_NS_PER_S)   /* after faults: leases have ended */
#define LISTED_NS   (150 * SL_CLOCK_NS_PER_MS) /* a gateway lists at most so late */
#define ARENA_BYTES (64U << 10)

/* Seams */

struct in_turn {
    void (*run)(void *ctx);
    void *ctx;
    struct sl_completion completion;
};

static void run_in_turn(void *ctx, uint64_t a, uint64_t b)
{
    struct in_turn *turn = ctx;
    turn->run(turn->ctx);
    sl_completion_end(&turn->completion);
}

void sl_sim_serve_app_run(struct sl_sim_serve_app *app, void (*run)(void *ctx), void *ctx)
{
    struct in_turn turn = {.run = run, .ctx = ctx};
    sl_completion_begin(&turn.completion);
    const int err = sl_mailbox_post(app->lane, (struct sl_mail){.run = run_in_turn, .ctx = &turn});
    sl_assert(err == 0);
    sl_sim_app_wait(&app->base, &turn.completion);
}

static void post_of_gateway(void *ctx, struct sl_offload_job *job)
{
    sl_sim_jobs_post(&((struct sl_sim_serve_app *)ctx)->jobs[0], job);
}

static void post_of_worker(void *ctx, bool computes, struct sl_offload_job *job)
{
    sl_sim_jobs_post(&((struct sl_sim_serve_app *)ctx)->jobs[computes ? 1 : 0], job);
}

/* The thread `life` */

static void create_node(struct sl_sim_serve_app *app)
{
    char catalogue[SL_SIM_APP_NAME_BYTES], name[SL_SIM_APP_NAME_BYTES];
    sl_sim_app_name(app->options.plan->first_host, catalogue);
    sl_sim_app_name(app->options.plan->first_host + app->options.host, name);
    app->engine = sl_sim_app_engine(&app->base, name);
    const bool is_store = app->options.role == SL_SIM_SERVE_STORE;
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine = app->engine,
        .catalogue = catalogue,
        .host = name,
        .agent = "off",
        .pool_bytes = is_store ? 64U << 20 : app->options.plan->pool_bytes};
    struct sl_objects_setup setup = {.replicas = 0};
    sl_sim_app_setup(&app->base, &setup);
    int err = sl_objects_create_with(&options, &setup, &app->node);
    sl_assert(err == 0);
    err = sl_objects_copy_open_pool(app->node); /* it waits under a lock: other fibers would not */
    sl_assert(err == 0);
}

static void create_gateway(struct sl_sim_serve_app *app)
{
    const struct sl_sim_serve_plan *plan = app->options.plan;
    const struct sl_serve_gateway_options options = {.transfer = app->engine,
                                                     .objects = app->node,
                                                     .strategy = plan->is_basic ? SL_SERVE_BASIC
                                                                                : SL_SERVE_COST,
                                                     .memory_bytes = 1U << 20,
                                                     .post = post_of_gateway,
                                                     .post_ctx = app};
    struct sl_reason reason;
    const int err = sl_serve_gateway_create(&options, &app->gateway, &reason);
    sl_assert(err == 0);
}

static void create_worker(struct sl_sim_serve_app *app)
{
    const struct sl_sim_serve_plan *plan = app->options.plan;
    const struct sl_engine *engine =
        sl_sim_serve_engine(app->options.host - 1 - plan->gateway_count, app);
    static char names[SL_SIM_SERVE_GATEWAYS_MAX][SL_SIM_APP_NAME_BYTES];
    static const char *const gateways[SL_SIM_SERVE_GATEWAYS_MAX] = {names[0], names[1]};
    char host[SL_SERVE_LABEL_BYTES];
    (void)snprintf(host, sizeof host, "host %u", app->options.host);
    for (uint32_t i = 0; i < plan->gateway_count; i++) {
        sl_sim_app_name(plan->first_host + 1 + i, names[i]);
    }
    const struct sl_serve_worker_options options = {.transfer = app->engine,
                                                    .objects = app->node,
                                                    .gateways = gateways,
                                                    .gateway_count = plan->gateway_count,
                                                    .host = host,
                                                    .batch_max = plan->batch_max,
                                                    .engines = &engine,
                                                    .engine_count = 1,
                                                    .core = -1,
                                                    .arena_bytes = ARENA_BYTES,
                                                    .post = post_of_worker,
                                                    .post_ctx = app};
    struct sl_reason reason;
    const int err = sl_serve_worker_create(&options, &app->worker, &reason);
    sl_assert(err == 0);
}

static void start_here(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    struct sl_reason reason;
    const int err = app->gateway != NULL ? sl_serve_gateway_start(app->gateway, &reason)
                                         : sl_serve_worker_start(app->worker, &reason);
    sl_assert(err == 0);
}

static void on_ended(void *ctx)
{
    sl_completion_end(&((struct sl_sim_serve_app *)ctx)->ended);
}

static void drain_worker_here(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    sl_serve_worker_drain(app->worker, on_ended, app);
}

static void stop_gateway_here(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    sl_serve_gateway_stop(app->gateway, on_ended, app);
}

/* Ends gateway or worker, with the jobs that this takes. */
static void end_serving(struct sl_sim_serve_app *app)
{
    sl_completion_begin(&app->ended);
    sl_sim_serve_app_run(app, app->gateway != NULL ? stop_gateway_here : drain_worker_here, app);
    sl_sim_app_wait(&app->base, &app->ended);
    sl_sim_jobs_close(app->jobs, 2);
    if (app->gateway != NULL) {
        sl_serve_gateway_destroy(&app->gateway);
    } else {
        sl_serve_worker_destroy(&app->worker);
    }
}

static void judge_pins(struct sl_sim_serve_app *app)
{
    for (uint32_t i = 0; i < SL_OBJECTS_POOL_BUCKETS; i++) {
        for (const struct sl_objects_pool_version *version = app->node->pool.buckets[i];
             version != NULL; version = version->next) {
            const struct sl_objects_copy *copy = version->owner;
            const uint32_t children = copy != NULL && copy->children.pins ? 1 : 0;
            if (version->pins > children && app->options.role == SL_SIM_SERVE_WORKER) {
                sl_sim_fail(&app->options.oracle->breach, "rest", "worker %u: %s has %u pins",
                            app->options.host, version->name, version->pins);
            }
        }
    }
}

static bool clients_have_ended(const struct sl_sim_serve_app *app)
{
    bool have = true;
    for (uint32_t i = 3; i < app->base.thread_count; i++) { /* after life and jobs */
        have = have && sl_sim_fiber_ended(app->base.threads[i].fiber);
    }
    return have && (app->base.stage == SL_SIM_SERVE_LEAVING || app->base.dying);
}

static void life(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    const enum sl_sim_serve_role role = app->options.role;
    create_node(app);
    if (role != SL_SIM_SERVE_STORE) {
        (role == SL_SIM_SERVE_GATEWAY ? create_gateway : create_worker)(app);
        sl_sim_serve_app_run(app, start_here, app);
    }
    if (role == SL_SIM_SERVE_WORKER) {
        app->base.stage = SL_SIM_SERVE_DONE;
    }
    app->is_ready = true;
    while (!clients_have_ended(app)) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    if (role != SL_SIM_SERVE_STORE) {
        end_serving(app);
        judge_pins(app);
    } else {
        sl_sim_jobs_close(app->jobs, 2);
    }
    sl_objects_destroy(&app->node);
    sl_transfer_destroy(&app->engine);
    sl_mailbox_lane_close(&app->lane);
}

/* The publisher */

static void publish(struct sl_sim_serve_app *app, uint32_t model, uint64_t version)
{
    const uint64_t bytes = app->options.plan->model_bytes / 8 * 8;
    uint8_t *weights = malloc(bytes);
    const uint64_t head[2] = {model, version};
    char name[16];
    struct sl_publication *publication;
    uint64_t made;
    sl_assert(weights != NULL);
    sl_sim_serve_engine_fill(model, version, weights, bytes);
    (void)snprintf(name, sizeof name, "m%u", model);
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = name, .version = version};
    const struct sl_object_tensor tensors[2] = {{".stub", SL_OBJECT_U64, 1, {2}, head, sizeof head},
                                                {"w", SL_OBJECT_U8, 1, {bytes}, weights, bytes}};
    app->options.oracle->newest[model] = version;
    int err = sl_publish_begin(app->node, &options, PUBLISH_MS, &publication);
    for (uint32_t i = 0; i < 2 && err == 0; i++) {
        err = sl_publish_tensor(publication, &tensors[i]);
        sl_assert(err == 0);
    }
    if (err == 0) {
        err = sl_publish_commit(publication, PUBLISH_MS, &made);
        sl_publish_end(&publication);
    }
    if (err != 0 && !app->base.dying) {
        sl_sim_fail(&app->options.oracle->breach, "publish", "%s", sl_objects_last_error());
    }
    free(weights);
}

/* Publishes the next version of each model from the tables of the job. is_last: nothing may fail.
 */
static void publish_tables(struct sl_sim_serve_app *app, bool is_last)
{
    struct sl_sim_serve_oracle *oracle = app->options.oracle;
    bool have_all = true;
    for (uint32_t model = 0; model < app->options.plan->model_count; model++) {
        const uint32_t tries = is_last && !sl_sim_publish_may_fail() ? TRIES_MAX : 1;
        int err = SL_ERR_AGAIN;
        for (uint32_t i = 0; err != 0 && i < tries && !app->base.dying; i++) {
            err = sl_sim_publish_version(app->node, model, ++oracle->newest[model],
                                         is_last ? LAST_MS : TABLES_MS);
            if (err != 0) {
                sl_sim_app_sleep(&app->base, LISTED_NS);
            }
        }
        have_all = have_all && err == 0;
        if (err != 0 && is_last && !app->base.dying && !sl_sim_publish_may_fail()) {
            sl_sim_fail(&oracle->breach, "publish", "m%u: %s", model, sl_err_name(err));
        }
    }
    sl_sim_app_sleep(&app->base, LISTED_NS);
    oracle->is_published = oracle->is_published || have_all || is_last;
}

/* While the job trains, and once more when all faults are over. */
static void publish_job(struct sl_sim_serve_app *app)
{
    const struct sl_sim_serve_oracle *oracle = app->options.oracle;
    for (uint32_t round = 0;
         (!oracle->world->faults_are_over || round < app->options.plan->version_count) &&
         !app->base.dying;
         round++) {
        publish_tables(app, false);
        sl_sim_app_sleep(&app->base, sl_sim_below(&app->base.random, 200) * SL_CLOCK_NS_PER_MS);
    }
    sl_sim_app_sleep(&app->base, SETTLE_NS);
    if (!app->base.dying) {
        sl_sim_publish_judge_kept(app->node);
        publish_tables(app, true);
    }
}

static void publisher(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    const struct sl_sim_serve_plan *plan = app->options.plan;
    while (!app->is_ready && !app->base.dying) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    if (plan->has_tables) {
        publish_job(app);
        app->base.stage = SL_SIM_SERVE_DONE;
        return;
    }
    for (uint64_t version = 1; version <= 1 + plan->version_count; version++) {
        for (uint32_t model = 0; model < plan->model_count && !app->base.dying; model++) {
            publish(app, model, version);
            if (version > 1) {
                sl_sim_app_sleep(&app->base,
                                 sl_sim_below(&app->base.random, 200) * SL_CLOCK_NS_PER_MS);
            }
        }
        sl_sim_app_sleep(&app->base, LISTED_NS);
        app->options.oracle->is_published = true;
    }
    app->base.stage = SL_SIM_SERVE_DONE;
}

/* Outside of threads */

static void ended(struct sl_sim_app *base)
{
}

static void fini(struct sl_sim_app *base)
{
}

void sl_sim_serve_app_start(struct sl_sim_serve_app *app,
                            const struct sl_sim_serve_app_options *options)
{
    static const struct sl_sim_app_actions actions = {.ended = ended, .fini = fini};
    struct sl_sim_process *process = &app->base.process;
    *app = (struct sl_sim_serve_app){.base = {.actions = &actions, .random = options->seed},
                                     .options = *options};
    char name[16];
    (void)snprintf(name, sizeof name, "s%u", options->host % 100);
    sl_sim_process_init(process, options->network, options->plan->first_host + options->host, name,
                        1, sl_hash_random(&app->base.random), options->offset_ns,
                        options->plan->gap_ns);
    const int err = sl_mailbox_lane_open(sl_reactor_mailbox(process->reactors[0]), &app->lane);
    sl_assert(err == 0);
    sl_sim_app_thread(&app->base, life, app);
    for (uint32_t i = 0; i < 2; i++) {
        sl_sim_jobs_init(&app->jobs[i], &app->base, app->lane);
    }
    if (options->role == SL_SIM_SERVE_STORE) {
        sl_sim_app_thread(&app->base, publisher, app);
    }
    for (uint32_t i = 0; options->role == SL_SIM_SERVE_GATEWAY && i < options->plan->client_count;
         i++) {
        app->clients[i] =
            (struct sl_sim_serve_client){.app = app, .requests_left = options->plan->request_count};
        sl_sim_app_thread(&app->base, sl_sim_serve_client_run, &app->clients[i]);
    }
}
