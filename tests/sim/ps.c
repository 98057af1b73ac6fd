#include "tests/sim/ps.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/coordinator/state.h"
#include "ps/server/request.h"
#include "ps/server/state.h"

#define REQUEST_ID 0xa5c /* of an operator */
#define WAIT_NS    (100 * SL_CLOCK_NS_PER_US)
#define DYING_NS   SL_CLOCK_NS_PER_MS /* that a turn takes then */

static void joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct sl_sim_ps *ps = ctx;
    ps->wiring.member.first_shard = first_shard;
    ps->wiring.member.shard_count = shard_count;
    ps->wiring.member.lease_ns = lease_ns;
    const uint64_t restore = sl_process_restore_joined(&ps->wiring);
    sl_sim_ps_note_begin(ps, restore);
    sl_process_placement_join(&ps->wiring, restore);
}

static void on_cluster(void *ctx, const struct sl_message_cluster *cluster)
{
    sl_process_on_cluster(&((struct sl_sim_ps *)ctx)->wiring, cluster);
}

static bool has_tables(void *ctx)
{
    return sl_process_hosted_has_tables(&((struct sl_sim_ps *)ctx)->wiring);
}

static void failed(void *ctx, int err)
{
    sl_sim_ps_answer(ctx, 0, err);
}

static void expired(void *ctx, const struct sl_message_expired *told)
{
    struct sl_sim_ps *ps = ctx;
    if (ps->options.oracle != NULL) {
        sl_sim_oracle_lost(ps->options.oracle, told->task_index);
    }
    sl_process_hosted_expired(&ps->wiring, told);
}

static void ended(void *ctx, const char *why)
{
    ((struct sl_sim_ps *)ctx)->is_over = true;
}

/* As a ps process does with a transport that is faster than its first. */
static void register_memory(struct sl_server *server)
{
    if ((server->host->transports.first->ops->capabilities & SL_TRANSPORT_REGISTERS) != 0) {
        int err = sl_outbox_register(&server->host->memory.replies, server->host->transports.first);
        sl_assert(err == 0);
        err = sl_server_buffers_register(&server->host->memory.buffers,
                                         server->host->transports.first);
        sl_assert(err == 0);
    }
}

/* As a ps process does: the servers that have the reactors' transports, and no shards. */
static void make_cores(struct sl_sim_ps *ps)
{
    for (uint32_t i = 0; i < ps->options.reactor_count; i++) {
        struct sl_process_core *core = &ps->cores[i];
        struct sl_server_options server = ps->wiring.shards.server;
        *core = (struct sl_process_core){
            .process = &ps->wiring, .index = i, .reactor = ps->process.reactors[i]};
        server.reactor = core->reactor;
        server.local_index = i;
        server.transports.only = true;
        server.coordinator = i == 0 ? ps->wiring.coordinator : NULL;
        server.coordinator_ops = &sl_process_coordinator_ops;
        server.restores = false;
        int err = sl_server_create(&server, &core->server);
        sl_assert(err == 0);
        ps->servers[i] = core->server;
        register_memory(core->server);
    }
}

/* As a ps process does: each reactor listens where connections do not migrate. */
static void listen_here(struct sl_sim_ps *ps)
{
    const uint32_t can = sl_sim_network_transport(ps->options.network)->capabilities;
    const uint32_t count = (can & SL_TRANSPORT_MIGRATES) != 0 ? 1 : ps->options.reactor_count;
    sl_sim_network_endpoint(ps->options.network, ps->options.host, &ps->bound);
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_endpoint here = ps->bound;
        int err = sl_server_listen(ps->servers[i], &here, &ps->bound);
        sl_assert(err == 0);
    }
}

static int join(struct sl_process *process)
{
    struct sl_sim_ps *ps = process->sim_hooks->ctx;
    const struct sl_sim_ps_options *options = &ps->options;
    struct sl_agent_options member = {
        .reactor = ps->process.reactors[0],
        .transport = sl_sim_network_transport(options->network),
        .transport_options = {.medium = sl_sim_network_medium(options->network, options->host, 1),
                              .peer_timeout_ms = options->peer_timeout_ms},
        .task_index = options->task_index,
        .shard_count = options->joins ? 0 : options->shard_count,
        .reactor_count = options->reactor_count,
        .ps_count = options->joins ? 0 : options->ps_count,
        .worker_count = options->joins ? 0 : options->worker_count,
        .replicas = options->has_replica,
        .data = ps->bound,
        .incarnation = process->incarnation,
        .secret = options->secret,
        .start_timeout_ns = options->start_timeout_ns,
        .events = {.joined = joined,
                   .cluster = on_cluster,
                   .has_tables = has_tables,
                   .failed = failed,
                   .expired = expired,
                   .ended = ended},
        .ctx = ps,
    };
    sl_sim_network_endpoint(options->network, options->coordinator_host, &member.coordinator);
    if (options->disk != NULL) {
        sl_sim_ps_wire_member(ps, &member);
    }
    int err = sl_agent_open(&member, &process->agent);
    sl_assert(err == 0);
    return 0;
}

/* Nothing is sent that rests on what is not kept. */
static void send_to(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct sl_sim_ps *ps = ctx;
    if (ps->options.records != NULL) {
        sl_sim_records_keep(ps->options.records, ps->wiring.coordinator);
    }
    if (message->id != REQUEST_ID) {
        sl_server_send_to_peer(NULL, peer, message);
    }
}

void sl_sim_ps_change_placement(struct sl_sim_ps *ps,
                                const struct sl_message_placement_change *change)
{
    struct sl_coordinator *coordinator = ps->wiring.coordinator;
    const struct sl_message message = {
        .kind = SL_MESSAGE_PLACEMENT_CHANGE, .id = REQUEST_ID, .placement_change = *change};
    for (uint32_t i = 0; i < coordinator->member_count; i++) {
        if (coordinator->members[i]->connected) {
            sl_coordinator_message(coordinator, coordinator->members[i]->peer, &message,
                                   sl_sim_process_now(&ps->process));
            sl_sim_process_look(&ps->process);
            return;
        }
    }
}

static void record_changed(void *ctx, enum sl_coordinator_record kind, uint32_t index)
{
    sl_sim_records_note(((struct sl_sim_ps *)ctx)->options.records, kind, index);
}

static void make_coordinator(struct sl_sim_ps *ps)
{
    const struct sl_sim_ps_options *options = &ps->options;
    const bool is_kept = options->records != NULL;
    const struct sl_coordinator_options coordinator = {
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .lease_ns = options->lease_ns,
        .send = send_to,
        .close = sl_server_close_peer,
        .checkpoint_interval_ns = options->disk == NULL ? 0 : options->disk->plan.every_ns,
        .incrementals_max = options->disk == NULL ? 0 : options->disk->plan.adds,
        .checkpoint_timeout_ns = options->disk == NULL ? 0 : SL_SIM_CHECKPOINT_TIMEOUT_NS,
        .changed = is_kept ? record_changed : NULL,
        .ctx = ps,
    };
    int err = sl_coordinator_create(&coordinator, &ps->wiring.coordinator);
    sl_assert(err == 0);
    if (is_kept) {
        sl_sim_records_give(options->records, ps->wiring.coordinator,
                            sl_sim_process_now(&ps->process));
    }
}

/* A dying thread is alone: nothing else steps the ps. */
static void wait_beside(void *ctx)
{
    struct sl_sim_ps *ps = ctx;
    for (uint32_t i = 0; ps->beside->dying && i < ps->process.reactor_count; i++) {
        ps->process.offset_ns += DYING_NS;
        (void)sl_reactor_turn(ps->process.reactors[i], sl_sim_process_now(&ps->process));
    }
    sl_sim_app_sleep(ps->beside, WAIT_NS);
}

/* What a process has, as ps/process/process.c fills it in. */
static void wire(struct sl_sim_ps *ps, uint64_t incarnation)
{
    const struct sl_sim_ps_options *options = &ps->options;
    const bool is_scheduler = options->is_scheduler;
    ps->sim_hooks = (struct sl_process_sim_hooks){
        .answer = sl_sim_ps_answer, .wait = wait_beside, .time_s = sl_sim_ps_time_s, .ctx = ps};
    ps->wiring = (struct sl_process){
        .options = {.kind = is_scheduler ? SL_PROCESS_SCHEDULER : SL_PROCESS_PS,
                    .task_index = options->task_index,
                    .ps_count = options->ps_count,
                    .worker_count = options->worker_count,
                    .reactors = {.count = options->reactor_count,
                                 .shards = options->shard_count,
                                 .joins = options->joins},
                    .replicas = options->has_replica},
        .memory.tables_bytes = options->memory_bytes_max,
        .incarnation = incarnation,
        .cores = ps->cores,
        .reactors = ps->process.reactors,
        .servers = ps->servers,
        .member.task_index = options->task_index,
        .sim_hooks = &ps->sim_hooks,
        .shards.server = {.transports.first = sl_sim_network_transport(options->network),
                          .transports.options = {.medium = sl_sim_network_medium(options->network,
                                                                                 options->host, 0),
                                                 .peer_timeout_ms = options->peer_timeout_ms},
                          .task_index = options->task_index,
                          .servers = ps->servers,
                          .server_count = is_scheduler ? 0 : options->reactor_count,
                          .slow_request_ns = options->has_views ? SL_SIM_VIEWS_SLOW_NS : 0,
                          .secret = options->secret,
                          .incarnation = incarnation,
                          .hooks = &sl_replication_hooks},
        .shards.replication = {.catch_up_budget = options->snapshot_keys,
                               .state_changed = sl_process_on_replica_state_changed,
                               .failed = sl_process_on_replica_failed},
    };
    if (options->disk != NULL && !is_scheduler) {
        sl_sim_ps_wire_disk(ps);
    }
}

void sl_sim_ps_start(struct sl_sim_ps *ps, const struct sl_sim_ps_options *options)
{
    *ps = (struct sl_sim_ps){.options = *options, .running = true};
    char name[16];
    (void)snprintf(name, sizeof name, "ps%u", options->task_index % 1000);
    uint64_t random = options->seed;
    sl_sim_process_init(&ps->process, options->network, options->host, name, options->reactor_count,
                        sl_hash_random(&random), options->offset_ns, options->gap_ns);
    ps->process.aside_us_max =
        options->disk == NULL || options->disk->is_calm ? 0 : options->disk->plan.slow_us_max;
    wire(ps, sl_hash_random(&random) | 1);
    if (options->hosts_coordinator) {
        make_coordinator(ps);
    }
    make_cores(ps);
    int err = sl_process_checkpoint_create(&ps->wiring);
    if (options->has_views) {
        sl_sim_views_init(ps);
    }
    listen_here(ps);
    if (!options->is_scheduler) {
        err = err != 0                ? err
              : options->disk == NULL ? join(&ps->wiring)
                                      : sl_process_restore_begin(&ps->wiring, join);
    }
    sl_assert(err == 0);
    sl_sim_process_look(&ps->process);
    if (options->started != NULL) {
        options->started(ps);
    }
}

void sl_sim_ps_kill(struct sl_sim_ps *ps, bool silent)
{
    sl_assert(ps->running);
    ps->running = false;
    sl_sim_network_kill(ps->options.network, ps->options.host, silent);
    if (ps->options.ends != NULL) {
        ps->options.ends(ps, silent);
    }
    sl_agent_close(&ps->wiring.agent);
    sl_process_checkpoint_close(&ps->wiring);
    sl_process_restore_close(&ps->wiring);
    for (uint32_t i = 0; i < ps->options.reactor_count; i++) {
        sl_server_destroy(&ps->cores[i].server);
        sl_process_placement_destroy(&ps->cores[i]);
    }
    if (ps->wiring.coordinator != NULL) {
        sl_coordinator_destroy(&ps->wiring.coordinator);
    }
    sl_sim_views_fini(ps);
    sl_process_hosted_free(&ps->wiring);
    sl_sim_process_fini(&ps->process);
}
