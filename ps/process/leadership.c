/* Leadership: with a metastore, this process may be elected to host the coordinator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "ps/leader/leader.h"
#include "ps/metastore/etcd_metastore.h"
#include "ps/process/internal.h"

/* Bounds of the leader's lease: half of the members' lease, so that a new leader is known before
 * members expire. */
#define TTL_MIN_S           2
#define TTL_MAX_S           5
#define TICKS_A_TTL         50

/* How long shutdown waits for the last writes, and then for a thread that hangs. */
#define END_NS              (2 * SL_CLOCK_NS_PER_S)
#define CLOSE_NS            (1 * SL_CLOCK_NS_PER_S)

/* A Waiting must arrive well before the deadline that it explains. */
#define WAITING_INTERVAL_NS (2 * SL_CLOCK_NS_PER_S)

struct sl_process_store {
    struct sl_process *process;
    struct sl_etcd_metastore *metastore;
    struct sl_leader *leader;
    struct sl_timer tick, wake;
    uint64_t tick_ns;
    bool saw_another; /* another process was leader before */
    struct sl_process_core *core;
    void (*done)(void *core);
};

static struct sl_timer_wheel *timers_of(const struct sl_process_store *metastore)
{
    return sl_reactor_timers(metastore->process->reactors[0]);
}

static uint64_t now_of(const struct sl_process_store *metastore)
{
    return sl_reactor_now_ns(metastore->process->reactors[0]);
}

static bool is_scheduler(const struct sl_process_store *metastore)
{
    return metastore->process->options.kind == SL_PROCESS_SCHEDULER;
}

static uint64_t wall_ms(void *ctx)
{
    (void)ctx;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / SL_CLOCK_NS_PER_MS;
}

struct sl_coordinator_options sl_process_coordinator_options(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    uint64_t half = options->start_timeout_ns / 2;
    return (struct sl_coordinator_options){
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .worker_count_source = options->worker_count_source,
        .waiting_interval_ns = half < WAITING_INTERVAL_NS ? half : WAITING_INTERVAL_NS,
        .lease_ns = options->lease_ns,
        .send = sl_server_send_to_peer,
        .close = sl_server_close_peer,
        .stage_changed = options->kind == SL_PROCESS_SCHEDULER ? sl_process_on_stage : NULL,
        .start_timeout_ns = options->start_timeout_ns,
        .checkpoint_interval_ns = options->checkpoint.every_ns,
        .incrementals_max = options->checkpoint.incrementals_max,
        .time_ms = wall_ms,
        .ctx = process,
    };
}

/* Callbacks of the leader */

static uint64_t on_now(void *ctx)
{
    return now_of(ctx);
}

static void on_wake(void *ctx)
{
    struct sl_process_store *metastore = ctx;
    sl_timer_arm(timers_of(metastore), &metastore->wake, now_of(metastore));
}

/* The former leader erased the records and stopped. */
static void job_is_over(struct sl_process_store *metastore)
{
    sl_log_info("the job is over: the cluster store knows no more of it");
    sl_process_on_stage(metastore->process, SL_COORDINATOR_OVER, 0, "another has ended it");
}

static void on_seated(void *ctx, struct sl_coordinator *coordinator, bool anew)
{
    struct sl_process_store *metastore = ctx;
    struct sl_process *process = metastore->process;
    process->coordinator = coordinator;
    sl_server_set_coordinator(process->servers[0], coordinator);
    if (is_scheduler(metastore) && anew && metastore->saw_another) {
        job_is_over(metastore);
    }
}

static void on_unseated(void *ctx, const char *why)
{
    (void)why;
    struct sl_process_store *metastore = ctx;
    struct sl_process *process = metastore->process;
    process->coordinator = NULL;
    sl_server_set_coordinator(process->servers[0], NULL);
    if (process->ends_job) {
        sl_process_on_stage(process, SL_COORDINATOR_OVER, 0, "it is another's to end");
    }
}

static void on_leader(void *ctx, const struct sl_election_leader *leader)
{
    struct sl_process_store *metastore = ctx;
    struct sl_process *process = metastore->process;
    const bool is_other = leader->term != 0 && leader->id != process->incarnation;
    sl_server_set_leader(process->servers[0], leader->name, leader->endpoint);
    metastore->saw_another = metastore->saw_another || is_other;
    if (is_other) {
        sl_log_info("%s hosts the coordinator, at %s", leader->name, leader->endpoint);
    }
    struct sl_endpoint endpoint;
    if (process->member != NULL && leader->term != 0 &&
        sl_endpoint_parse(leader->endpoint, &endpoint, NULL, 0) == 0) {
        sl_agent_set_coordinator(process->member, &endpoint);
    }
}

/* Timers */

static void on_tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_process_store *metastore = SL_CONTAINER_OF(timer, struct sl_process_store, tick);
    sl_timer_arm(timers_of(metastore), timer, now_ns + metastore->tick_ns);
    sl_leader_tick(metastore->leader);
}

static void on_woken(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_process_store *metastore = SL_CONTAINER_OF(timer, struct sl_process_store, wake);
    sl_leader_run(metastore->leader);
}

/* Calls of the process */

static uint32_t choose_ttl(const struct sl_process_options *options)
{
    uint64_t half_s = options->lease_ns / 2 / SL_CLOCK_NS_PER_S;
    return half_s < TTL_MIN_S ? TTL_MIN_S : half_s > TTL_MAX_S ? TTL_MAX_S : (uint32_t)half_s;
}

static int create_leader(struct sl_process_store *metastore)
{
    struct sl_process *process = metastore->process;
    const struct sl_process_options *options = &process->options;
    struct sl_leader_options leader = {
        .metastore = sl_etcd_metastore_base(metastore->metastore),
        .prefix = options->metastore_prefix,
        .campaigns = options->kind != SL_PROCESS_SERVER,
        .id = process->incarnation,
        .ttl_s = choose_ttl(options),
        .coordinator_log_bytes_max = process->memory.coordinator_log_bytes,
        .coordinator = sl_process_coordinator_options(process),
        .now_ns = on_now,
        .seated = on_seated,
        .unseated = on_unseated,
        .leader = on_leader,
        .wake = on_wake,
        .ctx = metastore,
    };
    (void)snprintf(leader.name, sizeof leader.name, "%s", process->name);
    sl_endpoint_format(&options->control, leader.endpoint, sizeof leader.endpoint);
    metastore->tick_ns = leader.ttl_s * SL_CLOCK_NS_PER_S / TICKS_A_TTL;
    return sl_leader_create(&leader, &metastore->leader);
}

int sl_process_store_open(struct sl_process_core *core)
{
    struct sl_process *process = core->process;
    if (process->options.metastore == NULL || core->index != 0) {
        return 0;
    }
    struct sl_process_store *metastore = calloc(1, sizeof *metastore);
    if (metastore == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    metastore->process = process;
    metastore->core = core;
    metastore->tick.run = on_tick;
    metastore->wake.run = on_woken;
    int err =
        sl_etcd_metastore_create(core->reactor, process->options.metastore, &metastore->metastore);
    if (err == 0) {
        err = create_leader(metastore);
    }
    if (err != 0) {
        sl_log_error("the cluster store cannot be used: %s", sl_err_name(err));
        if (metastore->metastore != NULL) {
            (void)sl_etcd_metastore_destroy(&metastore->metastore, CLOSE_NS);
        }
        free(metastore);
        return err;
    }
    process->metastore = metastore;
    return 0;
}

void sl_process_store_begin(struct sl_process *process)
{
    if (process->metastore != NULL) {
        on_tick(&process->metastore->tick, now_of(process->metastore));
    }
}

struct sl_endpoint sl_process_store_coordinator(const struct sl_process *process)
{
    const struct sl_election_leader *leader =
        process->metastore == NULL ? NULL : sl_leader_leader(process->metastore->leader);
    struct sl_endpoint endpoint;
    bool is_known = leader != NULL && leader->term != 0 &&
                    sl_endpoint_parse(leader->endpoint, &endpoint, NULL, 0) == 0;
    return is_known ? endpoint : process->options.coordinator;
}

void sl_process_store_gone(void *ctx, uint64_t peer)
{
    const struct sl_process *process = ctx;
    if (process->metastore != NULL) {
        sl_leader_gone(process->metastore->leader, peer);
    }
}

/* Detaches the coordinator from the server, if this process hosts it. */
static void detach(struct sl_process *process)
{
    if (process->coordinator != NULL) {
        process->coordinator = NULL;
        sl_server_set_coordinator(process->servers[0], NULL);
    }
}

static void on_resigned(void *ctx)
{
    struct sl_process_store *metastore = ctx;
    metastore->done(metastore->core);
}

void sl_process_store_end(struct sl_process_core *core, void (*done)(void *core))
{
    struct sl_process *process = core->process;
    struct sl_process_store *metastore = process->metastore;
    bool erases = false;
    if (process->coordinator != NULL) {
        const bool is_ps = process->options.kind == SL_PROCESS_PS;
        if (is_ps) {
            sl_coordinator_depart(process->coordinator, process->task_index, now_of(metastore));
        }
        erases = is_ps ? sl_coordinator_is_deserted(process->coordinator) : true;
    }
    detach(process);
    metastore->done = done;
    sl_leader_resign(metastore->leader, erases, END_NS, on_resigned, metastore);
}

void sl_process_store_close(struct sl_process *process)
{
    struct sl_process_store *metastore = process->metastore;
    process->metastore = NULL;
    if (metastore == NULL) {
        return;
    }
    detach(process);
    sl_timer_disarm(timers_of(metastore), &metastore->tick);
    sl_timer_disarm(timers_of(metastore), &metastore->wake);
    if (!sl_etcd_metastore_destroy(&metastore->metastore, CLOSE_NS)) {
        return; /* a thread hangs and uses the leader's memory, which stays allocated until exit */
    }
    sl_timer_disarm(timers_of(metastore), &metastore->wake);
    sl_leader_destroy(&metastore->leader);
    free(metastore);
}
