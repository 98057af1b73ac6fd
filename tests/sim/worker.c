#include "tests/sim/worker.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/assert.h"
#include "core/clock.h"
#include "tests/sim/random.h"
#include "worker/client/control.h"
#include "worker/client/start.h"

#define OPEN_TIMEOUT_MS 60000
#define FAILURES_MAX    12
#define SCATTER_MAX     4
#define BACK_OFF_US     20000
#define PATIENT_MS      10000 /* a step that fails after so long may not be worth another try */
/* Calls may end so long after their deadline, and closing may take so long. */
#define LATE_NS         (1500 * SL_CLOCK_NS_PER_MS)
#define CLOSE_NS        (4 * SL_CLOCK_NS_PER_S)

static uint64_t net_now(const struct sl_sim_worker *worker)
{
    return sl_sim_network_now(worker->options.network);
}

/* Of the network that is simulated: who asks gives no context. */
static const struct sl_transport_ops *transport_ops;

static const struct sl_transport_ops *find_transport(enum sl_endpoint_scheme scheme)
{
    return scheme == SL_ENDPOINT_TCP ? transport_ops : NULL;
}

static bool is_observer(const struct sl_sim_worker *worker)
{
    return worker->options.task == UINT32_MAX;
}

static void enter(struct sl_sim_worker *worker, enum sl_sim_stage stage, uint64_t timeout_ns)
{
    worker->stage = stage;
    worker->stage_ns = net_now(worker);
    worker->late_ns = 0;
    worker->deadline_ns = sl_sim_process_now(&worker->process) + timeout_ns;
    worker->stage_paused_ns = worker->process.paused_ns;
}

static void start_client(struct sl_sim_worker *worker)
{
    const struct sl_sim_worker_options *from = &worker->options;
    struct sl_endpoint endpoint;
    char coordinator[SL_LIMIT_ENDPOINT_BYTES];
    sl_sim_network_endpoint(from->network, sl_sim_plan_coordinator_host(from->plan), &endpoint);
    sl_endpoint_format(&endpoint, coordinator, sizeof coordinator);
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = coordinator,
        .task_index = is_observer(worker) ? -1 : (int32_t)from->task,
        .checksum = from->plan->checksum,
        .protocol = from->plan->protocol,
        .start_timeout_ms = (uint32_t)(from->plan->start_timeout_ns / SL_CLOCK_NS_PER_MS),
        .join_running = from->joins,
        .secret = from->secret,
        .secret_bytes = from->secret_bytes,
    };
    transport_ops = sl_sim_network_transport(from->network);
    const struct sl_client_setup setup = {
        .reactors = worker->process.reactors,
        .reactor_count = worker->process.reactor_count,
        .find_transport = find_transport,
        .medium = sl_sim_network_medium(from->network, from->host, 0),
        .client_id = sl_hash_random(&worker->random) | 1,
    };
    from->oracle->instances[worker->instance].client_id = setup.client_id;
    int err = sl_start_begin(&options, &setup, &worker->client);
    sl_assert(err == 0);
    enter(worker, SL_SIM_STAGE_STARTING, from->plan->start_timeout_ns);
}

void sl_sim_worker_start(struct sl_sim_worker *worker, const struct sl_sim_worker_options *options)
{
    *worker = (struct sl_sim_worker){.options = *options, .random = options->seed};
    const struct sl_sim_plan *plan = options->plan;
    char name[16];
    (void)snprintf(name, sizeof name, "w%u", options->task % 100000);
    sl_sim_process_init(&worker->process, options->network, options->host, name, plan->hubs,
                        sl_hash_random(&worker->random), options->offset_ns, plan->gap_ns);
    worker->shape =
        plan->mixed_shapes ? sl_sim_below(&worker->random, SL_SIM_SHAPE_COUNT) : plan->shape;
    worker->instance = sl_sim_oracle_instance(options->oracle, options->task, !is_observer(worker));
    start_client(worker);
    sl_sim_process_look(&worker->process);
}

static void open_next(struct sl_sim_worker *worker)
{
    int err =
        sl_table_opening_begin(&worker->opening, worker->client,
                               &worker->options.plan->tables[worker->opened], OPEN_TIMEOUT_MS);
    sl_assert(err == 0);
    worker->is_opening = true;
    enter(worker, SL_SIM_STAGE_OPENING, OPEN_TIMEOUT_MS * SL_CLOCK_NS_PER_MS);
}

static void begin_barrier(struct sl_sim_worker *worker)
{
    struct sl_port *port;
    int err = sl_port_here(worker->client->ports, &port);
    sl_assert(err == 0);
    uint64_t timeout_ns = worker->options.plan->start_timeout_ns;
    worker->barrier = (struct sl_control_op){
        .io = &worker->client->ios[0],
        .run = sl_control_barrier,
        .deadline_ns = sl_sim_process_now(&worker->process) + timeout_ns,
        .name = "start",
        .count = 0,
    };
    worker->in_barrier = true;
    sl_control_op_post(&worker->barrier, port);
    enter(worker, SL_SIM_STAGE_BARRIER, timeout_ns);
}

static void give_up(struct sl_sim_worker *worker)
{
    worker->failed = true;
}

static void begin_training(struct sl_sim_worker *worker)
{
    enter(worker, SL_SIM_STAGE_TRAINING, 0);
}

static void started(struct sl_sim_worker *worker)
{
    worker->clock = is_observer(worker) ? 0 : sl_client_clock(worker->client);
    sl_sim_oracle_started(worker->options.oracle, worker->instance, worker->clock);
    worker->started = true;
    if (worker->clock == UINT32_MAX) {
        worker->finished = true; /* the one before had done all */
        sl_sim_worker_close(worker);
        return;
    }
    open_next(worker);
}

static void poll_starting(struct sl_sim_worker *worker)
{
    int err = sl_start_poll(worker->client);
    if (err == 0) {
        started(worker);
    } else if (err != SL_ERR_AGAIN) {
        give_up(worker);
    }
}

static void poll_opening(struct sl_sim_worker *worker)
{
    int err = sl_table_opening_poll(&worker->opening, &worker->tables[worker->opened]);
    if (err == SL_ERR_AGAIN) {
        return;
    }
    worker->is_opening = false;
    if (err != 0) {
        give_up(worker);
        return;
    }
    struct sl_sim_table *table = &worker->options.oracle->tables[worker->opened];
    if (worker->tables[worker->opened]->id != table->id) {
        sl_sim_fail(&worker->options.oracle->breach, "tables", "table t%u has id %u, not %u",
                    worker->opened, worker->tables[worker->opened]->id, table->id);
    }
    worker->opened++;
    if (worker->opened < worker->options.plan->table_count) {
        open_next(worker);
    } else if (worker->options.plan->barriers && !is_observer(worker) && worker->clock == 0) {
        begin_barrier(worker);
    } else {
        begin_training(worker);
    }
}

/* A barrier whose deadline passes is no reason to stop: somebody may be gone for good. */
static void poll_barrier(struct sl_sim_worker *worker)
{
    struct sl_port *port;
    int err = sl_port_here(worker->client->ports, &port);
    sl_assert(err == 0);
    sl_port_drain(port);
    if (worker->barrier.done) {
        worker->in_barrier = false;
        begin_training(worker);
    }
}

struct sl_sim_work *sl_sim_worker_begin(struct sl_sim_worker *worker, uint32_t clock)
{
    uint32_t slot = 0;
    while (slot < SL_SIM_WORKS_MAX && worker->working[slot]) {
        slot++;
    }
    if (slot == SL_SIM_WORKS_MAX || worker->stage != SL_SIM_STAGE_TRAINING) {
        return NULL;
    }
    int err = sl_sim_work_begin(&worker->works[slot], worker->client, worker->options.oracle,
                                &worker->process, worker->instance, worker->tables, &worker->random,
                                clock);
    sl_assert(err == 0);
    return &worker->works[slot];
}

void sl_sim_worker_submit(struct sl_sim_worker *worker, struct sl_sim_work *work,
                          uint32_t timeout_ms)
{
    if (work->operation_count == 0 && !work->ticks && !work->finishes) {
        sl_sim_work_free(work);
        return;
    }
    int err = sl_sim_work_submit(work, timeout_ms);
    if (err == 0) {
        worker->working[work - worker->works] = true;
        worker->work_count++;
    } else {
        give_up(worker);
    }
}

static uint32_t timeout_of(struct sl_sim_worker *worker, bool may_fail)
{
    const struct sl_sim_plan *plan = worker->options.plan;
    bool impatient = may_fail && plan->impatient && worker->failures < FAILURES_MAX / 2 &&
                     sl_sim_chance(&worker->random, 300);
    return impatient ? plan->impatient_timeout_ms : plan->step_timeout_ms;
}

static void pull_some(struct sl_sim_worker *worker, struct sl_sim_work *work, uint32_t clock)
{
    uint32_t count = worker->options.plan->table_count;
    uint32_t sure = sl_sim_below(&worker->random, count);
    for (uint32_t i = 0; i < count; i++) {
        if (i == sure || sl_sim_chance(&worker->random, 700)) {
            sl_sim_work_pull(work, i, clock);
        }
    }
}

static void push_some(struct sl_sim_worker *worker, struct sl_sim_work *work, bool pull_too)
{
    uint32_t count = worker->options.plan->table_count;
    uint32_t sure = sl_sim_below(&worker->random, count);
    for (uint32_t i = 0; i < count; i++) {
        if (i == sure || sl_sim_chance(&worker->random, 600)) {
            sl_sim_work_push(work, i, pull_too);
        }
    }
}

static void step_pull(struct sl_sim_worker *worker)
{
    struct sl_sim_work *work = sl_sim_worker_begin(worker, worker->clock);
    pull_some(worker, work, worker->clock);
    sl_sim_worker_submit(worker, work, timeout_of(worker, true));
}

static void step_tick(struct sl_sim_worker *worker, bool push, bool pull_too, bool pull_next)
{
    struct sl_sim_work *work = sl_sim_worker_begin(worker, worker->clock);
    if (push) {
        push_some(worker, work, pull_too);
    }
    sl_sim_work_tick(work);
    if (pull_next && worker->clock + 1 < worker->options.plan->iterations) {
        pull_some(worker, work, worker->clock + 1);
    }
    /* What has ticked and fails leaves something to the backup, and nobody who knows it. */
    const bool may_fail = pull_next && worker->options.plan->replica.is_there;
    sl_sim_worker_submit(worker, work, timeout_of(worker, may_fail));
}

/* Several pushes side by side. */
static void step_scatter(struct sl_sim_worker *worker)
{
    uint32_t count = 1 + sl_sim_below(&worker->random, SCATTER_MAX);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_sim_work *work = sl_sim_worker_begin(worker, worker->clock);
        push_some(worker, work, sl_sim_chance(&worker->random, 200));
        sl_sim_worker_submit(worker, work, timeout_of(worker, true));
    }
}

/* What to do next in this iteration; `phase` counts what has been done of it. */
static void begin_step(struct sl_sim_worker *worker)
{
    switch (worker->shape) {
    case SL_SIM_SHAPE_PULL_PUSH:
        if (worker->phase == 0) {
            step_pull(worker);
        } else {
            step_tick(worker, true, false, false);
        }
        break;
    case SL_SIM_SHAPE_PIPELINE:
        if (worker->phase == 0) {
            step_pull(worker);
        } else {
            step_tick(worker, true, false, true);
        }
        break;
    case SL_SIM_SHAPE_PUSH_PULL:
        step_tick(worker, true, true, false);
        break;
    default:
        if (worker->phase == 0) {
            step_scatter(worker);
        } else if (worker->phase == 1) {
            step_pull(worker);
        } else {
            step_tick(worker, false, false, false);
        }
        break;
    }
}

/* A step of this iteration has ended; one that ticked ends it. */
static void go_on(struct sl_sim_worker *worker, bool ticked)
{
    worker->failures = 0;
    worker->next_ns =
        net_now(worker) +
        SL_CLOCK_NS_PER_US * sl_sim_below(&worker->random, worker->options.plan->think_us_max);
    if (ticked) {
        worker->clock++;
        worker->phase = worker->shape == SL_SIM_SHAPE_PIPELINE ? 1 : 0;
    } else if (worker->work_count == 0) {
        worker->phase++;
    }
}

/* A step without a tick is tried again, as new work; else nobody knows where the clock stands. */
static void step_failed(struct sl_sim_worker *worker, bool ticked, bool patient)
{
    worker->failures += patient ? FAILURES_MAX / 2 : 1;
    worker->next_ns =
        net_now(worker) + SL_CLOCK_NS_PER_US * sl_sim_below(&worker->random, BACK_OFF_US);
    if (!is_observer(worker) && (ticked || worker->failures > FAILURES_MAX)) {
        give_up(worker);
    }
}

static void poll_works(struct sl_sim_worker *worker)
{
    for (uint32_t i = 0; i < SL_SIM_WORKS_MAX; i++) {
        struct sl_sim_work *work = &worker->works[i];
        if (!worker->working[i]) {
            continue;
        }
        int err = sl_sim_work_poll(work);
        if (err == SL_ERR_AGAIN) {
            continue;
        }
        bool ticked = work->ticks || work->finishes;
        bool finished = work->finishes;
        bool late = err == SL_ERR_DEADLINE && work->timeout_ms > PATIENT_MS;
        worker->working[i] = false;
        worker->work_count--;
        if (worker->options.ended != NULL) {
            worker->options.ended(worker->options.ctx, work, err);
        }
        sl_sim_work_free(work);
        if (err != 0) {
            step_failed(worker, ticked, late);
        } else if (finished) {
            worker->finished = true;
            worker->wants_to_leave = true;
        } else {
            go_on(worker, ticked);
        }
    }
}

static void finish(struct sl_sim_worker *worker)
{
    if (worker->options.plan->leaves_early) {
        worker->finished = true;
        sl_sim_worker_close(worker);
        return;
    }
    struct sl_sim_work *work = sl_sim_worker_begin(worker, worker->clock);
    sl_sim_work_finish(work);
    sl_sim_worker_submit(worker, work, worker->options.plan->step_timeout_ms);
}

static void poll_training(struct sl_sim_worker *worker)
{
    poll_works(worker);
    if (worker->work_count > 0 || worker->failed) {
        return;
    }
    if (worker->wants_to_leave) {
        sl_sim_worker_close(worker);
    } else if (is_observer(worker)) {
        return;
    } else if (worker->next_ns > net_now(worker)) {
        sl_sim_process_wake(&worker->process, worker->next_ns);
    } else if (worker->clock >= worker->options.plan->iterations) {
        finish(worker);
    } else {
        begin_step(worker);
    }
}

static bool is_busy(const struct sl_sim_worker *worker)
{
    bool starts = worker->stage == SL_SIM_STAGE_STARTING && !worker->failed &&
                  worker->client->stage != SL_CLIENT_RUNNING;
    return starts || worker->work_count > 0 || worker->is_opening || worker->in_barrier;
}

void sl_sim_worker_close(struct sl_sim_worker *worker)
{
    if (is_busy(worker)) {
        worker->wants_to_leave = true;
        return;
    }
    sl_sim_oracle_gone(worker->options.oracle, worker->instance);
    sl_start_close_begin(worker->client);
    enter(worker, SL_SIM_STAGE_CLOSING, CLOSE_NS);
    sl_sim_process_look(&worker->process);
}

static void free_all(struct sl_sim_worker *worker)
{
    sl_start_free(&worker->client);
    sl_sim_process_fini(&worker->process);
    worker->stage = SL_SIM_STAGE_DEAD;
}

static void check_late(struct sl_sim_worker *worker)
{
    uint64_t now_ns = net_now(worker);
    if (worker->stage == SL_SIM_STAGE_TRAINING || worker->stage == SL_SIM_STAGE_DEAD) {
        return;
    }
    uint64_t process_ns = sl_sim_process_now(&worker->process);
    if (process_ns < worker->deadline_ns) {
        sl_sim_process_wake(&worker->process, now_ns + worker->deadline_ns - process_ns);
        return;
    }
    worker->late_ns = worker->late_ns == 0 ? now_ns : worker->late_ns;
    uint64_t paused_ns = worker->process.paused_ns - worker->stage_paused_ns;
    if (now_ns - worker->late_ns > LATE_NS + paused_ns) {
        static const char *const names[] = {"start", "table open", "barrier", "", "", "close"};
        sl_sim_fail(&worker->options.oracle->breach, "deadline",
                    "the %s of worker/%u, begun at %" PRIu64 " us, has not ended %" PRIu64
                    " ms after its deadline",
                    names[worker->stage], worker->options.task, sl_sim_us(worker->stage_ns),
                    sl_sim_ms(now_ns - worker->late_ns));
    }
    sl_sim_process_wake(&worker->process, now_ns + LATE_NS + SL_CLOCK_NS_PER_MS);
}

void sl_sim_worker_poll(struct sl_sim_worker *worker)
{
    check_late(worker);
    switch (worker->stage) {
    case SL_SIM_STAGE_STARTING:
        poll_starting(worker);
        break;
    case SL_SIM_STAGE_OPENING:
        poll_opening(worker);
        break;
    case SL_SIM_STAGE_BARRIER:
        poll_barrier(worker);
        break;
    case SL_SIM_STAGE_TRAINING:
        poll_training(worker);
        break;
    case SL_SIM_STAGE_CLOSING:
        if (sl_start_close_poll(worker->client)) {
            free_all(worker);
            return;
        }
        break;
    default:
        return;
    }
    /* What was asked just now is mail for the reactors. */
    uint64_t asked_ns = worker->process.due_ns;
    sl_sim_process_look(&worker->process);
    sl_sim_process_wake(&worker->process, asked_ns);
}

static bool is_quiet(void *ctx)
{
    struct sl_sim_worker *worker = ctx;
    if (worker->stage == SL_SIM_STAGE_STARTING && !worker->failed &&
        sl_start_poll(worker->client) == SL_ERR_AGAIN) {
        return false;
    }
    worker->stage = worker->stage == SL_SIM_STAGE_STARTING ? SL_SIM_STAGE_TRAINING : worker->stage;
    struct sl_table *table;
    if (worker->is_opening && sl_table_opening_poll(&worker->opening, &table) == SL_ERR_AGAIN) {
        return false;
    }
    worker->is_opening = false;
    struct sl_port *port;
    int err = sl_port_here(worker->client->ports, &port);
    sl_assert(err == 0);
    sl_port_drain(port);
    if (worker->in_barrier && !worker->barrier.done) {
        return false;
    }
    for (uint32_t i = 0; i < SL_SIM_WORKS_MAX; i++) {
        if (worker->working[i] && !sl_step_done(worker->works[i].step)) {
            return false;
        }
    }
    return true;
}

static bool is_closed(void *ctx)
{
    return sl_start_close_poll(((struct sl_sim_worker *)ctx)->client);
}

void sl_sim_worker_kill(struct sl_sim_worker *worker, bool silent)
{
    sl_assert(worker->stage != SL_SIM_STAGE_DEAD);
    if (worker->stage != SL_SIM_STAGE_CLOSING) {
        worker->options.oracle->instances[worker->instance].killed = true;
    }
    sl_sim_oracle_gone(worker->options.oracle, worker->instance);
    sl_sim_network_kill(worker->options.network, worker->options.host, silent);
    for (uint32_t i = 0; i < SL_SIM_WORKS_MAX; i++) {
        if (worker->working[i]) {
            sl_sim_work_forsake(&worker->works[i]);
        }
    }
    if (worker->stage != SL_SIM_STAGE_CLOSING) {
        sl_sim_process_drain(&worker->process, is_quiet, worker);
        for (uint32_t i = 0; i < SL_SIM_WORKS_MAX; i++) {
            if (worker->working[i]) {
                sl_sim_work_free(&worker->works[i]);
            }
        }
        sl_start_close_begin(worker->client);
    }
    sl_sim_process_drain(&worker->process, is_closed, worker);
    free_all(worker);
}
