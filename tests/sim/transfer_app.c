#include "tests/sim/transfer_app.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/rma/target.h"
#include "net/transfer/async.h"
#include "net/transfer/memory.h"
#include "net/transfer/segment.h"
#include "tests/sim/random.h"

#define OPEN_MS        2000
#define UNREGISTER_MS  2000
#define PROOF_ATTEMPTS 60
#define CREATE_TRIES   100
#define NAP_NS         (70 * SL_CLOCK_NS_PER_S)
#define LOOKS_MAX      200 /* for the buffers of a peer */
#define TAKE_MS        100
#define BACK_OFF_NS    (300 * SL_CLOCK_NS_PER_MS)
#define LOOK_NS        (2 * SL_CLOCK_NS_PER_MS) /* a thread looks for what others have done */
/* Credit is returned with answers, or when this much is due. */
#define CREDIT_DUE_MAX (SL_LIMIT_TRANSFER_SLICES / 4)

/* Seams of the engine */

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP    ? &sl_sim_transport_ops
           : scheme == SL_ENDPOINT_RDMA ? &sl_sim_device_ops
                                        : NULL;
}

static uint64_t draw(void *ctx)
{
    struct sl_sim_transfer_app *app = ctx;
    if (!app->incarnation_drawn) {
        app->incarnation_drawn = true;
        return app->incarnation;
    }
    return sl_hash_random(&app->base.random);
}

/* The thread `life` */

/* "tcp://10.0.0.1:0,tcp://10.1.0.1:0,rdma://10.1.0.1:0,rdma://10.0.0.1:0": with one RDMA device,
 * the second network may fail, and TCP is left. */
static void list_endpoints(const struct sl_sim_transfer_app *app, char *text, size_t text_bytes)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    size_t used = 0;
    for (uint32_t i = 0; i < plan->tcp_rails + plan->rdma_rails; i++) {
        char address[SL_LIMIT_ENDPOINT_BYTES];
        const bool is_tcp = i < plan->tcp_rails;
        sl_sim_network_rail_address(app->options.plan->first_host + app->options.host,
                                    is_tcp ? i : (i - plan->tcp_rails + 1) % SL_SIM_RAILS_MAX,
                                    address, sizeof address);
        (void)snprintf(text + used, text_bytes - used, "%s%s://%s:0", used > 0 ? "," : "",
                       is_tcp ? "tcp" : "rdma", address);
        used = strlen(text);
    }
}

/* False: the metadata store did not take its record. */
static bool create(struct sl_sim_transfer_app *app)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    static const char secret[] = "as long as it has to be";
    char name[SL_SIM_APP_NAME_BYTES], endpoints[2048];
    sl_sim_app_name(app->options.plan->first_host + app->options.host, name);
    list_endpoints(app, endpoints, sizeof endpoints);
    const struct sl_transfer_options options = {
        .name = name,
        .endpoints = endpoints,
        .metadata = plan->has_store ? "etcd://10.9.9.9:2379" : NULL,
        .bytes_per_s_max = plan->bytes_per_s_max,
        .reactor_count = plan->reactor_count,
        .secret = plan->secret ? secret : NULL,
        .secret_bytes = plan->secret ? sizeof secret : 0,
        .insecure = !plan->secret,
        .checksum = plan->checksum,
        .lanes = plan->lanes,
        .slice_bytes = plan->slice_bytes,
        .stall_ms = plan->stall_ms,
    };
    const struct sl_transfer_setup setup = {
        .reactors = app->base.process.reactors,
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(app->options.network,
                                        app->options.plan->first_host + app->options.host, 0),
        .metastore = plan->has_store
                         ? sl_sim_transfer_store_open(app->options.store, app->options.host,
                                                      app->base.process.reactors[0])
                         : NULL,
        .random = draw,
        .wait = sl_sim_app_wait,
        .ctx = app,
    };
    app->incarnation_drawn = false;
    const int err = sl_transfer_create_with(&options, &setup, &app->engine);
    if (err != 0) {
        sl_assert(plan->has_store);
        sl_sim_transfer_store_forget(app->options.store, app->options.host);
    }
    return err == 0;
}

static struct sl_transfer_memory buffer(const struct sl_sim_transfer_app *app, uint32_t index)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    uint64_t *words = app->options.oracle->memories[app->options.host].words;
    return (struct sl_transfer_memory){
        .base = &words[sl_sim_transfer_buffer_at(plan, index)],
        .bytes = plan->buffer_words * sizeof *words,
        .location = "cpu:0",
        .access = SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE,
    };
}

static void register_all(struct sl_sim_transfer_app *app)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    struct sl_transfer_memory memory[SL_SIM_TRANSFER_BUFFERS_MAX + SL_SIM_TRANSFER_SLOTS_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->buffer_count; i++) {
        memory[count++] = buffer(app, i);
    }
    for (uint32_t i = 0; i < plan->slots; i++) {
        memory[count++] =
            (struct sl_transfer_memory){.base = app->batches[i].local,
                                        .bytes = app->batches[i].local_words * sizeof(uint64_t),
                                        .location = "cpu:0"};
        int err = sl_transfer_batch_create(
            app->engine, plan->requests_max < 2 ? 2 : plan->requests_max, &app->batches[i].batch);
        sl_assert(err == 0);
    }
    int err = sl_transfer_register(app->engine, memory, count);
    sl_assert(err == 0);
    app->serves = true;
}

/* Memory is taken from the peers for some time: they must neither see nor change it. */
static void renew(struct sl_sim_transfer_app *app)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    const uint32_t index = sl_sim_below(&app->base.random, plan->buffer_count);
    const uint32_t first = sl_sim_transfer_buffer_at(plan, index);
    const struct sl_transfer_memory memory = buffer(app, index);
    int err = sl_transfer_unregister(app->engine, &memory.base, 1, UNREGISTER_MS);
    if (err != 0) {
        sl_sim_fail(&app->options.oracle->breach, "unregister", "process %u: %s", app->options.host,
                    sl_transfer_last_error());
        return;
    }
    if (app->base.dying) {
        return;
    }
    sl_sim_transfer_oracle_fill(app->options.oracle, app->options.host, first, plan->buffer_words,
                                true);
    sl_sim_app_sleep(&app->base, sl_sim_below(&app->base.random, 20 * SL_CLOCK_NS_PER_MS));
    if (app->base.dying) {
        return;
    }
    sl_sim_transfer_oracle_scan(app->options.oracle, app->options.host);
    sl_sim_transfer_oracle_fill(app->options.oracle, app->options.host, first, plan->buffer_words,
                                false);
    err = sl_transfer_register(app->engine, &memory, 1);
    sl_assert(err == 0);
}

static void take(struct sl_sim_transfer_app *app, const struct sl_transfer_noticed *noticed)
{
    uint32_t number;
    if (!app->base.dying) {
        sl_assert(noticed->bytes == sizeof number);
        memcpy(&number, noticed->text, sizeof number);
        sl_sim_transfer_oracle_taken(app->options.oracle, number, app->options.host);
    }
}

static void arrived(void *ctx, const struct sl_transfer_noticed *noticed,
                    struct sl_transfer_asked *asked)
{
    take(ctx, noticed);
}

static void async_ended(void *ctx)
{
    sl_transfer_io_answer(ctx, 0, "ended");
}

/* On the engine's first reactor. */
struct use_call {
    struct sl_transfer_call call;
    struct sl_sim_transfer_app *app;
};

static void create_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_sim_transfer_app *app = SL_CONTAINER_OF(call, struct use_call, call)->app;
    const int err = sl_transfer_async_create(app->engine, "objects", arrived, app, &app->async);
    sl_assert(err == 0);
    sl_transfer_io_answer(call, 0, "created");
}

static void destroy_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct sl_sim_transfer_app *app = SL_CONTAINER_OF(call, struct use_call, call)->app;
    sl_transfer_async_destroy(&app->async, async_ended, call);
}

static void use_here(struct sl_sim_transfer_app *app,
                     void (*run)(struct sl_transfer_io *io, struct sl_transfer_call *call))
{
    struct use_call use = {.call = {.run = run}, .app = app};
    const int err = sl_transfer_io_call(&app->engine->ios[0], &use.call);
    sl_assert(err == 0);
}

static void destroy(struct sl_sim_transfer_app *app)
{
    if (app->async != NULL) {
        use_here(app, destroy_here);
    }
    sl_transfer_destroy(&app->engine);
    if (app->options.plan->has_store) {
        sl_sim_transfer_store_forget(app->options.store, app->options.host);
    }
    for (uint32_t i = 0; i < app->options.plan->slots && !app->base.dying; i++) {
        sl_sim_transfer_batch_judge_local(&app->batches[i]);
    }
}

static void life(void *ctx)
{
    struct sl_sim_transfer_app *app = ctx;
    const uint64_t most_ns = 2ULL * SL_CLOCK_NS_PER_US * app->options.plan->think_us_max *
                             app->options.plan->batch_count / 3;
    for (uint32_t tries = 0; !create(app) && !app->base.dying; tries++) {
        sl_assert(tries < CREATE_TRIES);
        sl_sim_app_sleep(&app->base, BACK_OFF_NS);
    }
    if (app->engine != NULL && app->options.plan->has_reader) {
        use_here(app, create_here);
    }
    if (app->engine != NULL) {
        register_all(app);
    }
    while (app->base.stage != SL_SIM_TRANSFER_ENDING && !app->base.dying) {
        if (app->options.plan->unregisters && app->base.stage == SL_SIM_TRANSFER_WORKING &&
            !app->naps) {
            sl_sim_app_sleep(&app->base, sl_sim_below(&app->base.random, most_ns));
            if (app->base.stage == SL_SIM_TRANSFER_WORKING && !app->base.dying && !app->naps) {
                renew(app);
            }
        } else {
            sl_sim_app_sleep(&app->base, LOOK_NS);
        }
    }
    while (!sl_sim_app_others_ended(&app->base)) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    destroy(app);
}

/* The thread `driver` */

/* All buffers of the peer are known; it may have been found before it had registered them. */
static bool is_complete(struct sl_sim_transfer_app *app, struct sl_transfer_segment *segment)
{
    uint32_t count;
    return sl_transfer_segment_buffers(segment, NULL, 0, &count) == 0 &&
           count == app->options.plan->buffer_count;
}

static void open_segment(struct sl_sim_transfer_app *app, uint32_t peer)
{
    char name[SL_SIM_APP_NAME_BYTES];
    struct sl_transfer_segment *segment;
    sl_sim_app_name(app->options.plan->first_host + peer / SL_SIM_TRANSFER_HANDLES_MAX, name);
    if (sl_transfer_segment_open(app->engine, name, OPEN_MS, &segment) != 0) {
        return;
    }
    bool complete = is_complete(app, segment);
    for (uint32_t i = 0; i < LOOKS_MAX && !complete && !app->base.dying; i++) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
        complete = is_complete(app, segment);
    }
    if (!complete && !app->options.plan->unregisters) {
        sl_transfer_segment_close(&segment);
        return;
    }
    app->segments[peer] = segment;
    app->lives[peer] = sl_sim_transfer_oracle_life(app->options.oracle, segment->incarnation);
}

static bool is_idle(const struct sl_sim_transfer_app *app)
{
    for (uint32_t i = 0; i < app->options.plan->slots; i++) {
        if (app->batches[i].is_running) {
            return false;
        }
    }
    return true;
}

static void wait_until_idle(struct sl_sim_transfer_app *app)
{
    for (uint32_t i = 0; i < app->options.plan->slots; i++) {
        if (app->batches[i].is_running) {
            (void)sl_transfer_batch_wait(app->batches[i].batch);
            sl_sim_transfer_batch_poll(&app->batches[i]);
        }
    }
    sl_assert(is_idle(app));
}

static void close_segment(struct sl_sim_transfer_app *app, uint32_t peer)
{
    if (app->segments[peer] != NULL) {
        struct sl_transfer_segment *segment = app->segments[peer];
        app->segments[peer] = NULL;
        sl_transfer_segment_close(&segment);
    }
}

static void close_segments(struct sl_sim_transfer_app *app)
{
    for (uint32_t i = 0; i < SL_SIM_TRANSFER_PEERS_MAX; i++) {
        close_segment(app, i);
    }
}

/* One segment, unless it is open. After a peer was restarted its segment has to be opened again. */
static void look_after_segments(struct sl_sim_transfer_app *app)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    const uint32_t drawn = sl_sim_below(&app->base.random, plan->process_count * plan->handles);
    const uint32_t peer =
        drawn / plan->handles * SL_SIM_TRANSFER_HANDLES_MAX + drawn % plan->handles;
    bool saw_closed = false;
    for (uint32_t i = 0; i < plan->slots; i++) {
        saw_closed = saw_closed || app->batches[i].saw_closed;
        app->batches[i].saw_closed = false;
    }
    if (saw_closed) {
        wait_until_idle(app);
        close_segments(app);
    }
    if (app->segments[peer] == NULL && !app->base.dying) {
        open_segment(app, peer);
    }
}

/* Lanes that were not used for a minute are closed. */
static void judge_idle(const struct sl_sim_transfer_app *app)
{
    for (uint32_t i = 0; i < SL_SIM_TRANSFER_PEERS_MAX && !app->base.dying; i++) {
        const struct sl_transfer_segment *segment = app->segments[i];
        for (uint32_t k = 0; segment != NULL && k < app->options.plan->reactor_count; k++) {
            const struct sl_transfer_route *route = &segment->routes[k];
            for (uint32_t lane = 0; lane < route->lane_count; lane++) {
                if (route->lanes[lane].slices != NULL) {
                    sl_sim_fail(&app->options.oracle->breach, "idle",
                                "process %u: %s is open, and was not used", app->options.host,
                                route->lanes[lane].name);
                }
            }
        }
    }
}

static void work(struct sl_sim_transfer_app *app)
{
    const struct sl_sim_transfer_plan *plan = app->options.plan;
    struct sl_sim_transfer_batch *batch =
        &app->batches[sl_sim_below(&app->base.random, plan->slots)];
    look_after_segments(app);
    if (!app->base.dying && app->batches_left == app->nap_at) {
        app->nap_at = UINT32_MAX;
        wait_until_idle(app);
        app->naps = true;
        sl_sim_app_sleep(&app->base, NAP_NS);
        app->naps = false;
        judge_idle(app);
    }
    if (app->base.dying) {
        return;
    }
    if (!batch->is_running) {
        sl_sim_transfer_batch_begin(batch, false, 0);
        app->batches_left--;
    } else if (plan->impatient && sl_sim_chance(&app->base.random, 300)) {
        sl_sim_transfer_batch_cancel(batch);
    } else if (sl_sim_chance(&app->base.random, 300)) {
        (void)sl_transfer_batch_wait(batch->batch);
    }
    sl_sim_app_sleep(&app->base, SL_CLOCK_NS_PER_US *
                                     sl_sim_below(&app->base.random, plan->think_us_max + 1ULL));
}

/* All faults are over: everybody is reached again. */
static void prove_one(struct sl_sim_transfer_app *app, uint32_t host)
{
    const uint32_t peer = host * SL_SIM_TRANSFER_HANDLES_MAX;
    for (uint32_t i = 0; i < PROOF_ATTEMPTS && app->segments[peer] == NULL && !app->base.dying;
         i++) {
        open_segment(app, peer);
        if (app->segments[peer] == NULL) {
            sl_sim_app_sleep(&app->base, BACK_OFF_NS);
        }
    }
    if (app->base.dying) {
        return;
    }
    if (app->segments[peer] == NULL) {
        sl_sim_fail(&app->options.oracle->breach, "progress",
                    "process %u cannot open the segment of %u: %s", app->options.host, host,
                    sl_transfer_last_error());
        return;
    }
    sl_sim_transfer_batch_begin(&app->batches[0], true, peer);
    wait_until_idle(app);
}

static void prove(struct sl_sim_transfer_app *app)
{
    wait_until_idle(app);
    close_segments(app);
    for (uint32_t i = 0; i < app->options.plan->process_count && !app->base.dying; i++) {
        prove_one(app, i);
    }
    app->base.stage =
        app->base.stage == SL_SIM_TRANSFER_PROVING ? SL_SIM_TRANSFER_PROVED : app->base.stage;
}

static void driver(void *ctx)
{
    struct sl_sim_transfer_app *app = ctx;
    while (!app->serves && !app->base.dying) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    while (app->base.stage != SL_SIM_TRANSFER_ENDING && !app->base.dying) {
        if (app->base.stage == SL_SIM_TRANSFER_WORKING && app->batches_left > 0) {
            work(app);
        } else if (app->base.stage == SL_SIM_TRANSFER_WORKING) {
            wait_until_idle(app);
            app->base.stage = SL_SIM_TRANSFER_DONE;
        } else if (app->base.stage == SL_SIM_TRANSFER_PROVING) {
            prove(app);
        } else {
            sl_sim_app_sleep(&app->base, LOOK_NS);
        }
    }
    if (!app->base.dying && sl_sim_chance(&app->base.random, 500)) {
        close_segments(app); /* else the engine closes them */
    }
}

/* The thread `taker` */

static void taker(void *ctx)
{
    struct sl_sim_transfer_app *app = ctx;
    struct sl_transfer_noticed *noticed = malloc(sizeof *noticed);
    sl_assert(noticed != NULL);
    while (!app->serves && !app->base.dying) {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
    while (app->base.stage != SL_SIM_TRANSFER_ENDING && !app->base.dying) {
        if (sl_transfer_notice_take(app->engine, TAKE_MS, noticed) == 0) {
            take(app, noticed);
        }
    }
    free(noticed);
}

/* Outside of threads */

static void poll_batches(struct sl_sim_app *base)
{
    struct sl_sim_transfer_app *app = SL_CONTAINER_OF(base, struct sl_sim_transfer_app, base);
    for (uint32_t i = 0; i < app->options.plan->slots; i++) {
        sl_sim_transfer_batch_poll(&app->batches[i]);
    }
}

static void ended(struct sl_sim_app *base)
{
    const struct sl_sim_transfer_app *app = SL_CONTAINER_OF(base, struct sl_sim_transfer_app, base);
    sl_sim_transfer_oracle_end(app->options.oracle, app->options.host);
}

static void fini(struct sl_sim_app *base)
{
    struct sl_sim_transfer_app *app = SL_CONTAINER_OF(base, struct sl_sim_transfer_app, base);
    for (uint32_t i = 0; i < app->options.plan->slots; i++) {
        sl_sim_transfer_batch_fini(&app->batches[i]);
    }
}

void sl_sim_transfer_app_start(struct sl_sim_transfer_app *app,
                               const struct sl_sim_transfer_app_options *options)
{
    static const struct sl_sim_app_actions actions = {
        .poll = poll_batches, .ended = ended, .fini = fini};
    *app = (struct sl_sim_transfer_app){.base = {.actions = &actions, .random = options->seed},
                                        .options = *options,
                                        .batches_left = options->plan->batch_count};
    char name[16];
    (void)snprintf(name, sizeof name, "e%u", options->host % 100);
    app->incarnation = sl_hash_random(&app->base.random) | 1;
    sl_sim_process_init(&app->base.process, options->network,
                        options->plan->first_host + options->host, name,
                        options->plan->reactor_count, sl_hash_random(&app->base.random),
                        options->offset_ns, options->plan->gap_ns);
    app->life = sl_sim_transfer_oracle_begin(options->oracle, options->host, app->incarnation);
    for (uint32_t i = 0; i < options->plan->slots; i++) {
        sl_sim_transfer_batch_init(&app->batches[i], app, i);
    }
    app->nap_at = options->plan->naps ? options->plan->batch_count / 2 : UINT32_MAX;
    sl_sim_app_thread(&app->base, life, app);
    sl_sim_app_thread(&app->base, driver, app);
    sl_sim_app_thread(&app->base, taker, app);
}

/* Rest */

static void judge_lane(const struct sl_sim_transfer_app *app, const struct sl_transfer_lane *lane)
{
    uint32_t free_slices = 0;
    if (lane->slices == NULL) { /* it is closed */
        return;
    }
    SL_LIST_FOREACH (link, &lane->free) {
        free_slices++;
    }
    if (free_slices != SL_LIMIT_TRANSFER_SLICES || lane->in_flight_count != 0 ||
        lane->in_flight_bytes != 0 || lane->operation_count != 0) {
        sl_sim_fail(&app->options.oracle->breach, "rest",
                    "process %u, %s: %u free slices, %u in flight", app->options.host, lane->name,
                    free_slices, lane->in_flight_count);
    }
    if (lane->is_open && (lane->rma.credit.requests + CREDIT_DUE_MAX < SL_LIMIT_TRANSFER_SLICES ||
                          lane->rma.credit.bytes != SL_LIMIT_TRANSFER_CREDIT_BYTES)) {
        sl_sim_fail(&app->options.oracle->breach, "rest",
                    "process %u, %s: credit for %u requests and %" PRIu64 " bytes",
                    app->options.host, lane->name, lane->rma.credit.requests,
                    (uint64_t)lane->rma.credit.bytes);
    }
}

static void judge_io(const struct sl_sim_transfer_app *app, const struct sl_transfer_io *io)
{
    if (io->outbox.frame_count != 0 || !sl_list_empty(&io->changes) || !sl_list_empty(&io->work) ||
        !sl_list_empty(&io->later)) {
        sl_sim_fail(&app->options.oracle->breach, "rest",
                    "process %u, reactor %u: %u unsent frames, or work left", app->options.host,
                    io->index, io->outbox.frame_count);
    }
    for (uint32_t i = 0; i < io->table->count; i++) {
        if (io->table->by_key[i]->memory.uses != 0) {
            sl_sim_fail(&app->options.oracle->breach, "rest", "process %u: memory has %u uses",
                        app->options.host, io->table->by_key[i]->memory.uses);
        }
    }
}

void sl_sim_transfer_app_judge_rest(struct sl_sim_transfer_app *app)
{
    const uint32_t reactors = app->options.plan->reactor_count;
    sl_sim_transfer_oracle_judge_notices(app->options.oracle, app->options.host);
    for (uint32_t i = 0; i < reactors; i++) {
        judge_io(app, &app->engine->ios[i]);
    }
    for (uint32_t peer = 0; peer < SL_SIM_TRANSFER_PEERS_MAX; peer++) {
        const struct sl_transfer_segment *segment = app->segments[peer];
        for (uint32_t i = 0; segment != NULL && i < reactors; i++) {
            const struct sl_transfer_route *route = &segment->routes[i];
            if (!sl_list_empty(&route->parts)) {
                sl_sim_fail(&app->options.oracle->breach, "rest", "parts are left");
            }
            for (uint32_t k = 0; k < route->lane_count; k++) {
                judge_lane(app, &route->lanes[k]);
            }
        }
    }
}
