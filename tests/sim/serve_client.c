#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "tests/sim/publish.h"
#include "tests/sim/random.h"
#include "tests/sim/serve_app.h"

#define LOOK_NS     (20 * SL_CLOCK_NS_PER_MS)
#define SLACK_NS    (101 * SL_CLOCK_NS_PER_MS) /* after the deadline; the turns of a process too */
#define ROWS_MAX    3
#define ENOUGH_NS   SL_CLOCK_NS_PER_S /* for a request, if nothing fails */
#define PROOF_MS    5000
#define PROOF_MAX   60 /* attempts for a model */
#define BACK_OFF_NS (200 * SL_CLOCK_NS_PER_MS)

struct call {
    struct sl_serve_request request;
    struct sl_sim_serve_app *app;
    struct sl_completion done;
    uint32_t model, done_count;
    uint64_t inputs[ROWS_MAX]; /* the number in all places of the row */
    uint64_t done_ns, paused_ns;
    bool has_memory;
};

/* On the reactor */

static void on_done(struct sl_serve_request *request)
{
    struct call *call = request->ctx;
    call->done_count++;
    call->done_ns = sl_sim_process_now(&call->app->base.process);
    if (call->done_count > 1) {
        sl_sim_fail(&call->app->options.oracle->breach, "once", "gateway %u answers twice",
                    call->app->options.host);
        return;
    }
    sl_completion_end(&call->done);
}

static void submit_here(void *ctx)
{
    struct call *call = ctx;
    call->request.input = sl_serve_gateway_memory(call->app->gateway, call->request.input_bytes);
    call->has_memory = call->request.input != NULL;
    if (call->has_memory) {
        const uint64_t numbers = call->app->options.plan->input_numbers;
        for (uint64_t i = 0; i < call->request.input_bytes / 8; i++) {
            memcpy(call->request.input + i * 8, &call->inputs[i / numbers], 8);
        }
        sl_serve_gateway_submit(call->app->gateway, &call->request);
    }
}

static void release_here(void *ctx)
{
    struct call *call = ctx;
    sl_serve_gateway_release(call->app->gateway, &call->request);
}

static void cancel_here(void *ctx)
{
    struct call *call = ctx;
    if (call->done_count == 0) {
        sl_serve_gateway_cancel(call->app->gateway, &call->request);
    } else {
        sl_serve_gateway_release(call->app->gateway, &call->request);
    }
}

/* Judgement */

static void judge_time(const struct call *call)
{
    const struct sl_sim_process *process = &call->app->base.process;
    const uint64_t due_ns = call->request.deadline_ns + SLACK_NS +
                            (process->paused_ns - call->paused_ns) + 10 * process->gap_ns;
    if (call->done_ns > due_ns) {
        sl_sim_fail(&call->app->options.oracle->breach, "deadline",
                    "gateway %u answers m%u %" PRIu64 " ms after the deadline: %s: %s",
                    call->app->options.host, call->model,
                    sl_sim_ms(call->done_ns - call->request.deadline_ns),
                    sl_err_name(call->request.answer.err), call->request.answer.text);
    }
}

/* The outputs say which weights were read, and which inputs. */
static void judge_outputs(const struct call *call)
{
    const struct sl_serve_request *request = &call->request;
    struct sl_sim_breach *breach = &call->app->options.oracle->breach;
    const uint32_t host = call->app->options.host;
    const uint64_t row_bytes = 8ULL * call->app->options.plan->output_numbers;
    if (request->answer.output_count != 1 ||
        request->answer.outputs[0].bytes != request->rows * row_bytes) {
        sl_sim_fail(breach, "outputs", "gateway %u: %u outputs", host,
                    request->answer.output_count);
        return;
    }
    for (uint64_t i = 0; i < request->rows; i++) {
        uint64_t row[SL_SIM_SERVE_OUT], last;
        const uint8_t *from =
            request->answer.output + request->answer.outputs[0].offset + i * row_bytes;
        memcpy(row, from, sizeof row);
        memcpy(&last, from + row_bytes - sizeof last, sizeof last);
        if (row[0] != call->model || row[2] != call->inputs[i] || last != call->inputs[i]) {
            sl_sim_fail(breach, "outputs",
                        "gateway %u: row %u of m%u is that of m%" PRIu64 ", input %" PRIu64
                        " and not %" PRIu64,
                        host, (uint32_t)i, call->model, row[0], row[2], call->inputs[i]);
        } else if (row[1] != request->answer.version ||
                   (request->version != 0 && row[1] != request->version) ||
                   row[1] > call->app->options.oracle->newest[call->model]) {
            sl_sim_fail(breach, "version",
                        "gateway %u: m%u@%" PRIu64 " was asked for, @%" PRIu64
                        " computed, and the answer says @%" PRIu64,
                        host, call->model, request->version, row[1], request->answer.version);
        }
    }
}

static void judge(const struct call *call)
{
    struct sl_sim_serve_oracle *oracle = call->app->options.oracle;
    const int err = call->request.answer.err;
    const bool may_be_gone = oracle->plan->version_count > 0 || call->request.version != 0;
    judge_time(call);
    oracle->answered += err == 0;
    oracle->refused += err == SL_ERR_AGAIN;
    oracle->late += err == SL_ERR_DEADLINE;
    if (err == 0) {
        judge_outputs(call);
    } else if (err != SL_ERR_AGAIN && err != SL_ERR_DEADLINE &&
               !(err == SL_ERR_NOT_FOUND && may_be_gone)) {
        sl_sim_fail(&oracle->breach, "error", "gateway %u: m%u: %s: %s", call->app->options.host,
                    call->model, sl_err_name(err), call->request.answer.text);
    } else if (err != SL_ERR_NOT_FOUND && oracle->plan->calm &&
               call->request.deadline_ns - call->request.arrived_ns >= ENOUGH_NS) {
        sl_sim_fail(&oracle->breach, "progress", "gateway %u: m%u, without any fault: %s: %s",
                    call->app->options.host, call->model, sl_err_name(err),
                    call->request.answer.text);
    }
}

/* Requests */

static void begin(struct call *call, struct sl_sim_serve_app *app, uint32_t model, uint64_t version,
                  uint32_t timeout_ms)
{
    const uint32_t batch_max = app->options.plan->batch_max;
    const uint64_t rows =
        1 + sl_sim_below(&app->base.random, batch_max < ROWS_MAX ? batch_max : ROWS_MAX);
    const uint64_t numbers = app->options.plan->input_numbers, bytes = rows * numbers * 8;
    *call = (struct call){.app = app, .model = model, .paused_ns = app->base.process.paused_ns};
    struct sl_serve_request *request = &call->request;
    (void)snprintf(request->model, sizeof request->model, "m%u", model);
    request->version = version;
    request->arrived_ns = sl_sim_process_now(&app->base.process);
    request->deadline_ns = request->arrived_ns + timeout_ms * SL_CLOCK_NS_PER_MS;
    request->input_count = 1;
    request->inputs[0] = (struct sl_serve_tensor){
        .name = "x", .type = SL_OBJECT_U64, .rank = 2, .shape = {rows, numbers}, .bytes = bytes};
    request->input_bytes = bytes;
    request->done = on_done;
    request->ctx = call;
    for (uint64_t i = 0; i < rows; i++) {
        call->inputs[i] = ++app->options.oracle->next_input;
    }
    sl_completion_begin(&call->done);
    sl_sim_serve_app_run(app, submit_here, call);
}

/* Returns the error of the answer. */
static int finish(struct call *call)
{
    struct sl_sim_serve_app *app = call->app;
    if (!call->has_memory) {
        sl_sim_fail(&app->options.oracle->breach, "memory", "gateway %u has none",
                    app->options.host);
        return SL_ERR_NO_MEMORY;
    }
    sl_sim_app_wait(&app->base, &call->done);
    judge(call);
    if (app->options.verbose) {
        printf("           %u: m%u@%" PRIu64 ": %s%s%s\n", app->options.host, call->model,
               call->request.answer.version, sl_err_name(call->request.answer.err),
               call->request.answer.err != 0 ? ": " : "", call->request.answer.text);
    }
    if (call->request.answer.err == 0 &&
        sl_sim_chance(&app->base.random, 300)) { /* the outputs stay */
        sl_sim_app_sleep(&app->base, sl_sim_below(&app->base.random, 50) * SL_CLOCK_NS_PER_MS);
        judge_outputs(call);
    }
    sl_sim_serve_app_run(app, release_here, call);
    return call->request.answer.err;
}

static void act(struct sl_sim_serve_app *app)
{
    const struct sl_sim_serve_plan *plan = app->options.plan;
    uint64_t *random = &app->base.random;
    static const uint32_t cancels = 100, versions = 150;
    const uint32_t drawn = sl_sim_below(random, plan->model_count);
    const uint32_t model = sl_sim_chance(random, 500) ? 0 : drawn; /* some more often */
    const uint64_t newest = app->options.oracle->newest[model];
    const uint64_t version = sl_sim_chance(random, versions) ? 1 + sl_sim_below(random, newest) : 0;
    struct call call;
    begin(&call, app, model, version, 1 + sl_sim_below(random, plan->timeout_ms_max));
    if (call.has_memory && sl_sim_chance(random, cancels)) {
        sl_sim_app_sleep(&app->base, sl_sim_below(random, 20) * SL_CLOCK_NS_PER_MS);
        sl_sim_serve_app_run(app, cancel_here, &call);
        return;
    }
    (void)finish(&call);
}

static void prove(struct sl_sim_serve_app *app)
{
    for (uint32_t model = 0; model < app->options.plan->model_count; model++) {
        int err = SL_ERR_DEADLINE;
        struct call call;
        for (uint32_t i = 0; i < PROOF_MAX && err != 0 && !app->base.dying; i++) {
            begin(&call, app, model, 0, PROOF_MS);
            err = finish(&call);
            if (err != 0) {
                sl_sim_app_sleep(&app->base, BACK_OFF_NS);
            }
        }
        const bool is_there = !app->options.plan->has_tables || sl_sim_publish_has(model);
        if (err != 0 && is_there && !app->base.dying) {
            sl_sim_fail(&app->options.oracle->breach, "progress", "gateway %u: m%u: %s",
                        app->options.host, model, call.request.answer.text);
        }
    }
}

static void drained(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    sl_completion_end(&app->ended);
}

static void drain_here(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    sl_serve_gateway_drain(app->gateway, drained, app);
}

static void judge_rest_here(void *ctx)
{
    struct sl_sim_serve_app *app = ctx;
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(app->gateway, &stats);
    if (stats.waiting != 0 || stats.running != 0 || stats.memory_in_use != 0) {
        sl_sim_fail(&app->options.oracle->breach, "rest",
                    "gateway %u: %u requests wait, %u run, %" PRIu64 " bytes are in use",
                    app->options.host, stats.waiting, stats.running, stats.memory_in_use);
    }
}

static void lead(struct sl_sim_serve_app *app)
{
    if (app->base.stage == SL_SIM_SERVE_PROVING) {
        prove(app);
        app->base.stage = SL_SIM_SERVE_PROVED;
    } else if (app->base.stage == SL_SIM_SERVE_ENDING) {
        sl_completion_begin(&app->ended);
        sl_sim_serve_app_run(app, drain_here, app);
        sl_sim_app_wait(&app->base, &app->ended);
        sl_sim_app_sleep(&app->base, SL_CLOCK_NS_PER_S); /* cancelled ones end at their worker */
        if (!app->base.dying) {
            sl_sim_serve_app_run(app, judge_rest_here, app);
        }
        app->base.stage = SL_SIM_SERVE_EMPTY;
    } else {
        sl_sim_app_sleep(&app->base, LOOK_NS);
    }
}

static bool all_are_done(const struct sl_sim_serve_app *app)
{
    bool are = true;
    for (uint32_t i = 0; i < app->options.plan->client_count; i++) {
        are = are && app->clients[i].is_done;
    }
    return are;
}

void sl_sim_serve_client_run(void *ctx)
{
    struct sl_sim_serve_client *client = ctx;
    struct sl_sim_serve_app *app = client->app;
    const bool leads = client == &app->clients[0];
    while (app->base.stage != SL_SIM_SERVE_LEAVING && !app->base.dying) {
        if (!app->is_ready || !app->options.oracle->is_published) {
            sl_sim_app_sleep(&app->base, LOOK_NS);
        } else if (app->base.stage == SL_SIM_SERVE_WORKING && client->requests_left > 0) {
            client->requests_left--;
            act(app);
            sl_sim_app_sleep(&app->base,
                             SL_CLOCK_NS_PER_US *
                                 sl_sim_below(&app->base.random, app->options.plan->think_us_max));
        } else if (app->base.stage == SL_SIM_SERVE_WORKING) {
            client->is_done = true;
            if (leads && all_are_done(app)) {
                app->base.stage = SL_SIM_SERVE_DONE;
            }
            sl_sim_app_sleep(&app->base, LOOK_NS);
        } else if (leads) {
            lead(app);
        } else {
            sl_sim_app_sleep(&app->base, LOOK_NS);
        }
    }
}
