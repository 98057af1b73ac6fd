#include "ps/process/leadership.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/list.h"
#include "core/log.h"
#include "net/store/remote_metastore.h"
#include "ps/coordinator/leader.h"

/* Bounds of the leader's lease: half of the members' lease, so that a new leader is known before
 * members expire. */
#define TTL_MIN_S   2
#define TTL_MAX_S   5
#define TICKS_A_TTL 50

/* How long shutdown waits for the last writes, and then for a thread that hangs. */
#define END_NS      (2 * SL_CLOCK_NS_PER_S)
#define CLOSE_NS    (1 * SL_CLOCK_NS_PER_S)

struct sl_process_leadership {
    struct sl_process *process;
    struct sl_remote_metastore *metastore;
    struct sl_leader *leader;
    struct sl_coordinator_options coordinator; /* of the next one */
    struct sl_timer tick, wake;
    uint64_t tick_ns;
    bool saw_another; /* another process was leader before */
    struct sl_process_core *core;
    void (*done)(void *core);
};

static struct sl_reactor *reactor_of(const struct sl_process_leadership *leadership)
{
    return leadership->process->reactors[0];
}

static bool is_scheduler(const struct sl_process_leadership *leadership)
{
    return leadership->process->options.kind == SL_PROCESS_SCHEDULER;
}

/* Callbacks of the leader */

static uint64_t leadership_on_now(void *ctx)
{
    return sl_reactor_now_ns(reactor_of(ctx));
}

static void leadership_on_wake(void *ctx)
{
    struct sl_process_leadership *leadership = ctx;
    sl_reactor_arm(reactor_of(leadership), &leadership->wake, 0);
}

/* As a coordinator of this process would report it. */
static void report_over(const struct sl_process_leadership *leadership, const char *why)
{
    const struct sl_coordinator_options *coordinator = &leadership->coordinator;
    coordinator->stage_changed(coordinator->ctx, SL_COORDINATOR_OVER, 0, why);
}

/* The former leader erased the records and stopped. */
static void job_is_over(struct sl_process_leadership *leadership)
{
    sl_log_info("the job is over: the cluster store knows no more of it");
    report_over(leadership, "another has ended it");
}

static void on_elected(void *ctx, struct sl_coordinator *coordinator, bool anew)
{
    struct sl_process_leadership *leadership = ctx;
    struct sl_process *process = leadership->process;
    process->coordinator = coordinator;
    sl_server_set_coordinator(process->cores[0].server, coordinator);
    if (is_scheduler(leadership) && anew && leadership->saw_another) {
        job_is_over(leadership);
    }
}

static void on_term_ended(void *ctx, const char *why)
{
    struct sl_process_leadership *leadership = ctx;
    struct sl_process *process = leadership->process;
    process->coordinator = NULL;
    sl_server_set_coordinator(process->cores[0].server, NULL);
    if (process->job.ends_by_signal) {
        report_over(leadership, "it is another's to end");
    }
}

static void on_leader(void *ctx, const struct sl_leader_record *leader)
{
    struct sl_process_leadership *leadership = ctx;
    struct sl_process *process = leadership->process;
    const bool is_other = leader->term != 0 && leader->id != process->incarnation;
    sl_server_set_leader(process->cores[0].server, leader->name, leader->endpoint);
    leadership->saw_another = leadership->saw_another || is_other;
    if (is_other) {
        sl_log_info("%s hosts the coordinator, at %s", leader->name, leader->endpoint);
    }
    struct sl_endpoint endpoint;
    if (process->agent != NULL && leader->term != 0 &&
        sl_endpoint_parse(leader->endpoint, &endpoint, NULL) == 0) {
        sl_agent_set_coordinator(process->agent, &endpoint);
    }
}

/* Timers */

static void on_tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_process_leadership *leadership =
        SL_CONTAINER_OF(timer, struct sl_process_leadership, tick);
    sl_reactor_arm(reactor_of(leadership), timer, leadership->tick_ns);
    sl_leader_tick(leadership->leader);
}

static void on_woken(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_process_leadership *leadership =
        SL_CONTAINER_OF(timer, struct sl_process_leadership, wake);
    sl_leader_run(leadership->leader);
}

/* Calls of the process */

static uint32_t choose_ttl(const struct sl_process_options *options)
{
    uint64_t half_s = options->times.lease_ns / 2 / SL_CLOCK_NS_PER_S;
    return half_s < TTL_MIN_S ? TTL_MIN_S : half_s > TTL_MAX_S ? TTL_MAX_S : (uint32_t)half_s;
}

static int create_leader(struct sl_process_leadership *leadership)
{
    struct sl_process *process = leadership->process;
    const struct sl_process_options *options = &process->options;
    struct sl_leader_options leader = {
        .metastore = sl_remote_metastore_base(leadership->metastore),
        .prefix = options->metastore->etcd.prefix,
        .campaigns = options->kind != SL_PROCESS_SERVER,
        .id = process->incarnation,
        .ttl_s = choose_ttl(options),
        .coordinator_log_bytes_max = process->memory.coordinator_log_bytes,
        .coordinator = leadership->coordinator,
        .now_ns = leadership_on_now,
        .elected = on_elected,
        .term_ended = on_term_ended,
        .leader = on_leader,
        .wake = leadership_on_wake,
        .ctx = leadership,
    };
    (void)snprintf(leader.name, sizeof leader.name, "%s", process->name);
    sl_endpoint_format(&options->endpoints.control, leader.endpoint, sizeof leader.endpoint);
    leadership->tick_ns = leader.ttl_s * SL_CLOCK_NS_PER_S / TICKS_A_TTL;
    return sl_leader_create(&leader, &leadership->leader);
}

int sl_process_leadership_open(struct sl_process_core *core,
                               const struct sl_coordinator_options *coordinator)
{
    struct sl_process *process = core->process;
    if (process->options.metastore == NULL || core->index != 0) {
        return 0;
    }
    struct sl_process_leadership *leadership = calloc(1, sizeof *leadership);
    if (leadership == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    leadership->process = process;
    leadership->core = core;
    leadership->coordinator = *coordinator;
    leadership->tick.run = on_tick;
    leadership->wake.run = on_woken;
    int err = sl_remote_metastore_create(core->reactor, process->options.metastore,
                                         &leadership->metastore);
    err = err != 0 ? err : create_leader(leadership);
    if (err != 0) {
        sl_log_error("the cluster store cannot be used: %s", sl_err_name(err));
        if (leadership->metastore != NULL) {
            (void)sl_remote_metastore_destroy(&leadership->metastore, CLOSE_NS);
        }
        free(leadership);
        return err;
    }
    process->leadership = leadership;
    return 0;
}

void sl_process_leadership_begin(struct sl_process *process)
{
    if (process->leadership != NULL) {
        on_tick(&process->leadership->tick, sl_reactor_now_ns(reactor_of(process->leadership)));
    }
}

struct sl_endpoint sl_process_leadership_coordinator(const struct sl_process *process)
{
    const struct sl_leader_record *leader =
        process->leadership == NULL ? NULL : sl_leader_leader(process->leadership->leader);
    struct sl_endpoint endpoint;
    bool is_known = leader != NULL && leader->term != 0 &&
                    sl_endpoint_parse(leader->endpoint, &endpoint, NULL) == 0;
    return is_known ? endpoint : process->options.coordinator;
}

void sl_process_leadership_gone(void *ctx, uint64_t peer)
{
    const struct sl_process *process = ctx;
    if (process->leadership != NULL) {
        sl_leader_gone(process->leadership->leader, peer);
    }
}

/* Detaches the coordinator from the server, if this process hosts it. */
static void leadership_detach(struct sl_process *process)
{
    if (process->coordinator != NULL) {
        process->coordinator = NULL;
        sl_server_set_coordinator(process->cores[0].server, NULL);
    }
}

static void on_resigned(void *ctx)
{
    struct sl_process_leadership *leadership = ctx;
    leadership->done(leadership->core);
}

void sl_process_leadership_end(struct sl_process_core *core, void (*done)(void *core))
{
    struct sl_process *process = core->process;
    struct sl_process_leadership *leadership = process->leadership;
    bool erases = false;
    if (process->coordinator != NULL) {
        const bool is_ps = process->options.kind == SL_PROCESS_PS;
        if (is_ps) {
            sl_coordinator_depart(process->coordinator, process->member.task_index,
                                  sl_reactor_now_ns(reactor_of(leadership)));
        }
        erases = is_ps ? sl_coordinator_is_deserted(process->coordinator) : true;
    }
    leadership_detach(process);
    leadership->done = done;
    sl_leader_resign(leadership->leader, erases, END_NS, on_resigned, leadership);
}

bool sl_process_leadership_store_is_away(const struct sl_process *process)
{
    return process->leadership != NULL && process->leadership->leader != NULL &&
           sl_leader_store_is_away(process->leadership->leader);
}

void sl_process_leadership_close(struct sl_process *process)
{
    struct sl_process_leadership *leadership = process->leadership;
    process->leadership = NULL;
    if (leadership == NULL) {
        return;
    }
    leadership_detach(process);
    sl_reactor_disarm(reactor_of(leadership), &leadership->tick);
    sl_reactor_disarm(reactor_of(leadership), &leadership->wake);
    if (!sl_remote_metastore_destroy(&leadership->metastore, CLOSE_NS)) {
        return; /* a thread hangs and uses the leader's memory, which stays allocated until exit */
    }
    sl_reactor_disarm(reactor_of(leadership), &leadership->wake);
    sl_leader_destroy(&leadership->leader);
    free(leadership);
}
