#include "ps/process/process.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/event.h"
#include "core/log.h"
#include "core/notify.h"
#include "core/rlimit.h"
#include "ps/process/checkpoint.h"
#include "ps/process/cluster.h"
#include "ps/process/embedding.h"
#include "ps/process/job.h"
#include "ps/process/leadership.h"
#include "ps/process/listen.h"
#include "ps/process/main_thread.h"
#include "ps/process/observe.h"
#include "ps/process/placement.h"
#include "ps/process/report.h"
#include "ps/process/restore.h"
#include "ps/process/state.h"
#include "ps/replication/replication.h"
#include "reactor/topology.h"

/* How long an idle reactor spins: about the cost of a wake-up. */
#define SPIN_US             50

/* A Waiting must arrive well before the deadline that it explains. */
#define WAITING_INTERVAL_NS (2 * SL_CLOCK_NS_PER_S)

const struct sl_server_coordinator_ops sl_process_coordinator_ops = {
    .hello = sl_coordinator_hello,
    .task_index = sl_coordinator_task_index,
    .message = sl_coordinator_message,
    .gone = sl_coordinator_gone,
    .tell = sl_coordinator_send_to,
    .tick = sl_coordinator_tick,
    .lease_ns = sl_coordinator_lease_ns,
    .welcome = sl_coordinator_welcome,
};

static uint64_t wall_ms(void *ctx)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / SL_CLOCK_NS_PER_MS;
}

/* The options for a coordinator in this process. */
static struct sl_coordinator_options coordinator_options(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    uint64_t half = options->times.start_timeout_ns / 2;
    struct sl_coordinator_options coordinator = {
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .worker_count_source = options->worker_count_source,
        .needs_operator = options->secrets.operators != NULL,
        .waiting_interval_ns = half < WAITING_INTERVAL_NS ? half : WAITING_INTERVAL_NS,
        .lease_ns = options->times.lease_ns,
        .identity = process->incarnation,
        .send = sl_server_send_to_peer,
        .close = sl_server_close_peer,
        .http = sl_process_observe_http(process),
        .stage_changed = options->kind == SL_PROCESS_SCHEDULER ? sl_process_on_stage : NULL,
        .start_timeout_ns = options->times.start_timeout_ns,
        .checkpoint_interval_ns = options->checkpoint.every_ns,
        .incrementals_max = options->checkpoint.incrementals_max,
        .restore_policy = options->checkpoint.policy,
        .time_ms = wall_ms,
        .ctx = process,
        .cells = &process->metrics.coordinator,
    };
    sl_process_cluster_options(process, &coordinator);
    return coordinator;
}

/* On the reactors */

static bool process_is_scheduler(const struct sl_process *process)
{
    return process->options.kind == SL_PROCESS_SCHEDULER;
}

/* Sets the pool sizes of a reactor and of a shard from the plan. */
static void set_pools(const struct sl_memory_plan *plan, struct sl_server_options *server)
{
    server->shard.memory_bytes_max = plan->tables_bytes;
    server->shard.push_buffer_bytes_max = plan->staging_bytes;
    server->shard.snapshot_bytes_max = plan->snapshot_bytes;
    server->shard.limit_covers_all = true;
    server->buffer_bytes_max = plan->buffer_bytes;
    server->kept_bytes_max = plan->kept_bytes;
    server->waiting_max = plan->waiting;
    server->transports.options.connections_max = plan->connections;
    server->transports.options.buffer_count = plan->receive;
    server->transports.options.unplaced_bytes = plan->unplaced_bytes;
}

/* Sets the options that all servers of the process have in common. */
static void set_server_options(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    process->shards.replication = (struct sl_replication_options){
        .log_bytes_max = process->memory.log_bytes,
        .state_changed = sl_process_on_replica_state_changed,
        .failed = sl_process_on_replica_failed,
    };
    process->shards.server = (struct sl_server_options){
        .transports.options = {.congestion_control = options->congestion_control,
                               .tls = options->tls,
                               .rdma_device = options->rdma.device,
                               .has_rdma_gid_index = options->rdma.has_gid_index,
                               .rdma_gid_index = options->rdma.gid_index,
                               .dpdk = options->dpdk},
        .shard = {.kv_handler = options->kv_handler},
        .task_index = options->task_index,
        .servers = process->servers,
        .server_count = options->reactors.count,
        .slow_request_ns = options->times.slow_request_ns,
        .checksum = options->checksum,
        .secret = options->secrets.cluster,
        .operator_secret = options->secrets.operators,
        .incarnation = process->incarnation,
        .restores = options->checkpoint.directory != NULL && options->checkpoint.restores,
        /* The state of a KV handler is not known, so that its shards cannot move. */
        .hooks = options->kv_handler == NULL ? &sl_replication_hooks : NULL,
    };
    set_pools(&process->memory, &process->shards.server);
}

/* Creates the server that has the reactor's transports and no shard. */
static int core_create_server(struct sl_process_core *core)
{
    struct sl_process *process = core->process;
    const struct sl_process_options *options = &process->options;
    struct sl_server_options server = process->shards.server;
    server.reactor = core->reactor;
    server.local_index = core->index;
    server.transports.only = true;
    server.coordinator = core->index == 0 ? process->coordinator : NULL;
    server.coordinator_ops = &sl_process_coordinator_ops;
    server.elects =
        core->index == 0 && options->metastore != NULL && options->kind != SL_PROCESS_SERVER;
    server.control_gone = sl_process_leadership_gone;
    server.control_gone_ctx = process;
    server.restores = false;
    server.server_count = process_is_scheduler(process) ? 0 : options->reactors.count;
    server.cells = &process->metrics.blocks[core->index].server;
    sl_process_listen_choose(process, &server);
    int err = sl_server_create(&server, &core->server);
    process->servers[core->index] = core->server;
    sl_process_listen_created(core, err);
    if (err == 0) {
        sl_process_metrics_add_core(process, core->index, &server);
    }
    return err;
}

static int reactor_start(void *ctx)
{
    struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    int err = core_create_server(core);
    if (err == 0 && core->index == 0) {
        err = sl_process_checkpoint_create(process);
    }
    err = err != 0 ? err : sl_process_listen_core(core);
    if (err == 0) {
        const struct sl_coordinator_options coordinator = coordinator_options(process);
        err = sl_process_leadership_open(core, &coordinator);
    }
    return err;
}

static void reactor_stop(void *ctx)
{
    struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    if (core->index == 0) {
        sl_agent_close(&process->agent);
        sl_process_checkpoint_close(process);
        sl_process_restore_close(process);
        sl_process_leadership_close(process);
    }
    if (sl_server_stats(core->server, &core->stats) != 0) {
        sl_log_warn("no memory for the totals of %s", sl_reactor_name(core->reactor));
    }
    sl_server_destroy(&core->server); /* closes the connections also of the others */
    sl_process_placement_destroy(core);
}

static void core_set_task(void *ctx, uint64_t a, uint64_t b)
{
    const struct sl_process_core *core = ctx;
    sl_server_set_task(core->server, core->process->member.task_index);
}

static void on_joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct sl_process *process = ctx;
    process->member.task_index = sl_agent_task_index(process->agent);
    sl_process_report_name(process);
    process->member.first_shard = first_shard;
    process->member.shard_count = shard_count;
    process->member.lease_ns = lease_ns;
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        sl_reactor_post(process->reactors[0], i,
                        (struct sl_mail){.run = core_set_task, .ctx = &process->cores[i]});
    }
    sl_process_placement_join(process, sl_process_restore_joined(process));
}

static bool has_tables(void *ctx)
{
    return sl_process_hosted_has_tables(ctx);
}

static void on_join_failed(void *ctx, int err)
{
    struct sl_process *process = ctx;
    const uint64_t unclaimed = sl_process_restore_found(process).unclaimed;
    if (err == SL_ERR_IN_USE && unclaimed != 0) {
        process->directory.is_misused = true;
        sl_log_error("--checkpoint-dir %s has checkpoints of an earlier job, the newest is %" PRIu64
                     ": --restore newest continues that job; --fresh starts empty, and keeps them",
                     process->options.checkpoint.directory, unclaimed);
    }
    sl_process_answer(&((struct sl_process *)ctx)->cores[0], err);
}

/* Registers with the coordinator. Reactor 0. Errors: as of sl_agent_open. */
static int process_join(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    struct sl_endpoint data = options->endpoints.data;
    data.port = process->bound.data.port; /* the configured host with the bound port */
    if (data.scheme == SL_ENDPOINT_DPDK) {
        /* "any" stands for the device's address, which peers do not know */
        data = process->bound.data;
    }
    struct sl_endpoint bypass = options->endpoints.bypass;
    bypass.port = process->bound.bypass.port;
    if (bypass.scheme == SL_ENDPOINT_DPDK) {
        bypass = process->bound.bypass;
    }
    const bool has_directory = options->checkpoint.directory != NULL;
    const struct sl_process_restore_candidate found = sl_process_restore_found(process);
    const struct sl_agent_options member = {
        .reactor = process->reactors[0],
        .transport = sl_builtin_find(options->coordinator.scheme),
        .transport_options = {.congestion_control = options->congestion_control,
                              .tls = options->tls},
        .coordinator = sl_process_leadership_coordinator(process),
        .peer_name = options->kind == SL_PROCESS_SERVER ? "the scheduler"
                     : options->metastore != NULL       ? "the coordinator"
                                                        : NULL,
        .task_index = options->task_index,
        .any_task = options->any_task,
        .shard_count = options->reactors.joins ? 0 : options->reactors.shards,
        .reactor_count = options->reactors.count,
        .ps_count = options->reactors.joins ? 0 : options->ps_count,
        .worker_count = options->reactors.joins ? 0 : options->worker_count,
        .replicas = options->replicas,
        .data = data,
        .bypass = bypass,
        .has_bypass = options->endpoints.has_bypass,
        .host = process->host,
        .incarnation = process->incarnation,
        .secret = options->secrets.cluster,
        .checksum = options->checksum,
        .heartbeat_ns = options->times.heartbeat_ns,
        .start_timeout_ns = options->times.start_timeout_ns,
        .checkpoints = {.restore = found.number,
                        .newest = found.highest,
                        .complete = found.complete,
                        .unfinished = found.unfinished,
                        .unclaimed = found.unclaimed},
        .events = {.joined = on_joined,
                   .has_tables = has_tables,
                   .registered = sl_process_embedding_registered,
                   .cluster = sl_process_on_cluster,
                   .failed = on_join_failed,
                   .expired = sl_process_hosted_expired,
                   .ended = sl_process_on_ended,
                   .checkpoint = has_directory ? sl_process_on_checkpoint : NULL,
                   .checkpoint_publish = has_directory ? sl_process_on_checkpoint_publish : NULL,
                   .checkpoint_completed =
                       has_directory ? sl_process_on_checkpoint_completed : NULL,
                   .absent = options->kind == SL_PROCESS_SERVER ? sl_process_on_absent : NULL},
        .ctx = process,
        .losses = &process->metrics.cells.coordinator_losses,
    };
    return sl_agent_open(&member, &process->agent);
}

/* Reactor 0: listens and joins the cluster. It answers when its shards are there; a scheduler at
 * once. */
static void core_join(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_core *core = ctx;
    int err = sl_process_listen(core);
    if (err == 0) {
        sl_process_leadership_begin(core->process);
    }
    if (err == 0 && !process_is_scheduler(core->process)) {
        err = core->process->options.checkpoint.directory != NULL
                  ? sl_process_restore_begin(core->process, process_join)
                  : process_join(core->process);
    }
    if (err == 0 && process_is_scheduler(core->process)) {
        sl_process_embedding_registered(core->process, 0);
    }
    if (err != 0 || process_is_scheduler(core->process)) {
        sl_process_answer(core, err);
    }
}

/* On the main thread */

/* Waits for answers of the cores. Errors: theirs; CANCELLED: a signal came first; CLOSED: the job
 * ended first. */
static int wait_answers(struct sl_process *process)
{
    while (process->main.answers_wanted > 0 && process->main.signal == 0 &&
           process->main.result == 0 && !process->main.is_over) {
        sl_process_wait_once(process);
    }
    return process->main.result != 0          ? process->main.result
           : process->main.signal != 0        ? SL_ERR_CANCELLED
           : process->main.answers_wanted > 0 ? SL_ERR_CLOSED
                                              : 0;
}

/* Each connection needs a descriptor, and the usual limit of 1024 is too low. Memory registered for
 * RDMA counts as locked. */
static void raise_limits(void)
{
    sl_rlimit_raise(RLIMIT_NOFILE);
    sl_rlimit_raise(RLIMIT_MEMLOCK);
}

static int create_core(struct sl_process *process, uint32_t index)
{
    const struct sl_process_options *options = &process->options;
    struct sl_process_core *core = &process->cores[index];
    struct sl_reactor_options reactor = {
        .index = index,
        .core = -1,
        .polling = options->reactors.polling,
        .spin_us = SPIN_US,
        .cells = &process->metrics.blocks[index].reactor,
    };
    if (process_is_scheduler(process)) {
        (void)snprintf(reactor.name, sizeof reactor.name, "scheduler");
    } else if (options->any_task) {
        (void)snprintf(reactor.name, sizeof reactor.name, "ps.%u", index);
    } else {
        (void)snprintf(reactor.name, sizeof reactor.name, "ps%u.%u", options->task_index, index);
    }
    if (options->reactors.pin && sl_topology_core_for(index, false, &reactor.core) != 0) {
        sl_log_warn("reactor %u is not pinned: this process may use %u core%s", index,
                    sl_topology_core_count(), sl_log_plural(sl_topology_core_count()));
        reactor.core = -1;
    }
    core->process = process;
    core->index = index;
    int err = sl_reactor_create(&reactor, &core->reactor);
    if (err != 0) {
        return err;
    }
    process->reactors[index] = core->reactor;
    process->created_count++;
    sl_reactor_on_stop(core->reactor, reactor_stop, core);
    err = sl_mailbox_lane_open(sl_reactor_mailbox(core->reactor), &core->to_core);
    return err != 0 ? err : sl_mailbox_lane_open(process->main.mailbox, &core->to_main);
}

static int create_coordinator(struct sl_process *process)
{
    const struct sl_process_options *options = &process->options;
    if (options->kind == SL_PROCESS_SERVER || options->task_index != 0 ||
        options->metastore != NULL) {
        return 0; /* hosted elsewhere, or by the elected leader */
    }
    const struct sl_coordinator_options coordinator = coordinator_options(process);
    return sl_coordinator_create(&coordinator, &process->coordinator);
}

static int create(struct sl_process *process)
{
    uint32_t count = process->options.reactors.count;
    process->member.task_index = process->options.task_index;
    sl_process_report_name(process);
    process->cores = calloc(count, sizeof *process->cores);
    process->reactors = calloc(count, sizeof *process->reactors);
    process->servers = calloc(count, sizeof *process->servers);
    if (process->cores == NULL || process->reactors == NULL || process->servers == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    if (process->options.embedding == NULL) {
        raise_limits();
    }
    int err = sl_process_metrics_init(process);
    err = err != 0 ? err : sl_process_listen_check(process);
    err = err != 0 ? err : sl_process_block_signals(process);
    err = err != 0 ? err : sl_mailbox_create(&process->main.mailbox);
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = create_core(process, i);
    }
    if (err == 0) {
        err = sl_reactor_connect(process->reactors, count);
        process->incarnation = sl_reactor_random(process->reactors[0]);
        set_server_options(process);
    }
    err = err != 0 ? err : sl_process_cluster_create(process);
    return err != 0 ? err : create_coordinator(process);
}

static int start(struct sl_process *process)
{
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        int err = sl_reactor_start(process->reactors[i], reactor_start, &process->cores[i]);
        if (err != 0) {
            return err;
        }
        process->started_count++;
    }
    process->main.answers_wanted = 1;
    sl_process_post(&process->cores[0], core_join, 0);
    return wait_answers(process);
}

/* Runs before anything closes, because all servers take part. Skipped if a core failed, or if
 * another process holds this task and may write the same files. */
static void make_last_checkpoint(struct sl_process *process)
{
    if (process->directory.checkpoints == NULL || process->main.result != 0) {
        return;
    }
    process->main.answers_wanted = 1;
    sl_process_post(&process->cores[0], sl_process_checkpoint_last, 0);
    while (process->main.answers_wanted > 0) {
        sl_process_wait_once(process);
    }
}

/* Lets the servers finish accepted requests. */
static void drain(struct sl_process *process)
{
    sl_log_event(SL_LOG_INFO,
                 SL_EVENT("draining", SL_EVENT_NUMBER("signal", (uint64_t)process->main.signal)),
                 "%s: draining",
                 process->main.signal != 0 ? sl_process_signal_name(process->main.signal)
                 : process->main.result == SL_ERR_DEADLINE ? "no process is left"
                 : process->main.is_over                   ? "nothing is left to do"
                                                           : "no longer a member");
    process->main.answers_wanted = 1;
    sl_process_post(&process->cores[0], sl_process_drain, 0);
    while (process->main.answers_wanted > 0) {
        sl_process_wait_once(process);
    }
}

/* Whether the page of the job stays when it has ended. */
static bool lingers(const struct sl_process *process)
{
    return process->options.embedding == NULL && process->options.http.linger_ns > 0 &&
           process->options.http.listen != NULL && process->coordinator != NULL &&
           process->options.metastore == NULL && process->main.signal != SIGINT;
}

/* Everything is saved. A signal ends it. */
static void linger(struct sl_process *process)
{
    const uint64_t linger_ns = process->options.http.linger_ns;
    struct pollfd signals = {.fd = process->main.signal_fd, .events = POLLIN};
    sl_log_info("the job has ended: its page stays for %g s, or until a signal: http://%s",
                (double)linger_ns / (double)SL_CLOCK_NS_PER_S, sl_process_observe_http(process));
    (void)poll(&signals, 1, (int)(linger_ns / SL_CLOCK_NS_PER_MS));
}

/* Reactor 0 migrates connections to the others, so it stops first. */
static void stop(struct sl_process *process)
{
    for (uint32_t i = 0; i < process->started_count; i++) {
        sl_reactor_stop(process->reactors[i]);
        sl_reactor_join(process->reactors[i]);
    }
}

static void destroy(struct sl_process *process)
{
    sl_process_cluster_destroy(process);
    sl_process_hosted_free(process);
    for (uint32_t i = 0; process->cores != NULL && i < process->options.reactors.count; i++) {
        struct sl_process_core *core = &process->cores[i];
        if (core->to_core != NULL) {
            sl_mailbox_lane_close(&core->to_core);
        }
        if (core->to_main != NULL) {
            sl_mailbox_lane_close(&core->to_main);
        }
        struct sl_message stats = {.kind = SL_MESSAGE_STATS, .stats = core->stats};
        sl_message_fini(&stats);
    }
    for (uint32_t i = 0; i < process->created_count; i++) {
        sl_reactor_destroy(&process->reactors[i]);
    }
    if (process->coordinator != NULL) {
        sl_coordinator_destroy(&process->coordinator);
    }
    if (process->main.mailbox != NULL) {
        sl_mailbox_destroy(&process->main.mailbox);
    }
    if (process->main.signal_fd >= 0) {
        (void)close(process->main.signal_fd);
    }
    free(process->servers);
    free(process->reactors);
    free(process->cores);
    sl_process_metrics_fini(process);
}

/* Waits for a signal, the end of the job, or a failed core. A scheduler that gets a signal first
 * ends its job, so that no process looks for it afterwards. */
static void serve(struct sl_process *process)
{
    while (process->main.signal == 0 && process->main.result == 0 && !process->main.is_over) {
        sl_process_wait_once(process);
    }
    if (process_is_scheduler(process) && !process->main.is_over) {
        sl_process_post(&process->cores[0], sl_process_end_job, (uint64_t)process->main.signal);
        while (!process->main.is_over) {
            sl_process_wait_once(process);
        }
    }
}

int sl_process_memory_plan(const struct sl_process_options *options, struct sl_memory_plan *out,
                           struct sl_reason *reason)
{
    const bool serves = options->kind != SL_PROCESS_SCHEDULER;
    const struct sl_memory_plan_options plan = {
        .limit_bytes = options->memory_bytes_max,
        .reactors = options->reactors.count,
        .shards = options->reactors.shards,
        .replicas = options->replicas,
        .transports.has_shm =
            serves && (options->shm || options->endpoints.data.scheme == SL_ENDPOINT_SHM),
        .transports.has_bypass = serves && (options->endpoints.has_bypass ||
                                            options->endpoints.data.scheme == SL_ENDPOINT_RDMA ||
                                            options->endpoints.data.scheme == SL_ENDPOINT_DPDK),
        .transports.has_tls = options->tls != NULL,
        .has_metastore = options->metastore != NULL,
        .has_checkpoints = serves && options->checkpoint.directory != NULL,
        .has_snapshots = serves && options->beside != NULL,
        .checkpoint_level = options->checkpoint.compression_level,
    };
    return sl_memory_plan_make(&plan, out, reason);
}

int sl_process_run(const struct sl_process_options *options)
{
    sl_assert(options->reactors.count > 0);
    sl_assert(options->reactors.shards >= options->reactors.count);
    sl_assert(options->kind != SL_PROCESS_SCHEDULER || options->reactors.shards == 1);
    struct sl_process process = {.options = *options, .main.signal_fd = -1};
    struct sl_reason reason;
    int err = sl_process_memory_plan(options, &process.memory, &reason);
    if (err != 0) {
        sl_log_error("%s", reason.text);
        return 1;
    }
    struct sl_process_beside *beside = options->beside;
    err = sl_process_observe_open(&process, &reason);
    if (err != 0) {
        sl_log_error("%s", reason.text);
        return 1;
    }
    err = create(&process);
    err = err != 0 ? err : sl_process_observe_start(&process);
    err = err != 0 ? err : start(&process);
    err = err != 0 || beside == NULL ? err : beside->start(beside, &process);
    bool ready = err == 0;
    bool failed = !ready && process.main.signal == 0;
    if (ready) {
        sl_process_report_ready(&process);
        serve(&process);
        if (options->embedding == NULL) {
            (void)sl_notify_send("STOPPING=1\nSTATUS=saves and drains");
        }
        failed = process.main.result != 0 || process.main.job_failed;
        sl_process_observe_end(&process, lingers(&process));
        make_last_checkpoint(&process);
        drain(&process);
        if (beside != NULL) {
            beside->stop(beside);
        }
        if (lingers(&process)) {
            linger(&process);
        }
    } else if (process.main.signal != 0) {
        sl_log_info("stopped by a signal before it was ready");
    } else {
        sl_process_report_failure(&process, err);
    }
    if (options->embedding != NULL) {
        options->embedding->err = ready ? 0 : err;
    }
    sl_process_observe_stop(&process);
    stop(&process);
    if (ready) {
        sl_process_report_totals(&process);
    }
    sl_process_observe_close(&process);
    destroy(&process);
    return process.directory.is_misused ? 2 : failed || process.directory.is_unsaved ? 1 : 0;
}
