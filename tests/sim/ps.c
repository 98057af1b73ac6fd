#include "tests/sim/ps.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "ps/server/request.h"
#include "ps/server/state.h"

#define WAIT_NS  (100 * SL_CLOCK_NS_PER_US)
#define DYING_NS SL_CLOCK_NS_PER_MS /* that a turn takes then */

struct sl_sim_lost {
    struct sl_sim_lost *next;
    struct sl_message_expired lost;
};

static void set_shard(void *ctx, uint64_t shards, uint64_t restore)
{
    const uint64_t first_shard = shards >> 32, shard_count = shards & UINT32_MAX;
    struct sl_sim_core *core = ctx;
    struct sl_server *server = core->ps->servers[core->index];
    const uint32_t local = core->index % core->ps->options.shard_count;
    sl_server_set_lease(server, core->ps->lease_ns);
    int err = sl_server_set_shard(server, (uint32_t)first_shard + local, (uint32_t)shard_count);
    sl_assert(err == 0);
    const bool is_last =
        core->index + core->ps->options.shard_count >= sl_sim_ps_server_count(core->ps);
    if (core->ps->options.disk != NULL && is_last) {
        sl_process_restore_core(&core->ps->wired[local], restore);
    }
}

static void joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct sl_sim_ps *ps = ctx;
    const uint64_t shards = (uint64_t)first_shard << 32 | shard_count;
    ps->lease_ns = lease_ns;
    const uint64_t restore = sl_sim_ps_wire_joined(ps, first_shard, shard_count);
    for (uint32_t i = 0; i < sl_sim_ps_server_count(ps); i++) {
        const bool is_guest = i >= ps->options.shard_count;
        const uint64_t of =
            is_guest
                ? (uint64_t)ps->wiring.hosted[SL_PROCESS_PARTNER].first_shard << 32 | shard_count
                : shards;
        sl_reactor_post(
            ps->process.reactors[0], sl_sim_ps_reactor_of(ps, i),
            (struct sl_mail){.run = set_shard, .ctx = &ps->cores[i], .a = of, .b = restore});
    }
    sl_sim_ps_pair_joined(ps);
}

static void failed(void *ctx, int err)
{
    struct sl_sim_ps *ps = ctx;
    ps->failed = true;
    if (ps->options.disk != NULL) {
        sl_sim_disk_failed(ps->options.disk, err);
    }
}

static void tell_lost(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_sim_core *core = ctx;
    const struct sl_sim_lost *lost = (const struct sl_sim_lost *)(uintptr_t)a;
    sl_server_on_expired(core->ps->servers[core->index], &lost->lost);
}

static void lost(void *ctx, const struct sl_message_expired *told)
{
    struct sl_sim_ps *ps = ctx;
    struct sl_sim_lost *record = malloc(sizeof *record);
    if (ps->options.oracle != NULL) {
        sl_sim_oracle_lost(ps->options.oracle, told->task_index);
    }
    sl_assert(record != NULL);
    *record = (struct sl_sim_lost){.next = ps->lost, .lost = *told};
    ps->lost = record;
    for (uint32_t i = 0; i < sl_sim_ps_server_count(ps); i++) {
        sl_reactor_post(
            ps->process.reactors[0], sl_sim_ps_reactor_of(ps, i),
            (struct sl_mail){.run = tell_lost, .ctx = &ps->cores[i], .a = (uintptr_t)record});
    }
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

uint32_t sl_sim_ps_server_count(const struct sl_sim_ps *ps)
{
    return ps->options.shard_count * (ps->options.has_replica ? 2 : 1);
}

static void make_servers(struct sl_sim_ps *ps)
{
    const struct sl_sim_ps_options *options = &ps->options;
    for (uint32_t i = 0; i < sl_sim_ps_server_count(ps); i++) {
        ps->cores[i] = (struct sl_sim_core){.ps = ps, .index = i};
        struct sl_server_options server = {
            .reactor = ps->process.reactors[sl_sim_ps_reactor_of(ps, i)],
            .transports.first = sl_sim_network_transport(options->network),
            .transports.options = {.medium =
                                       sl_sim_network_medium(options->network, options->host, 0),
                                   .peer_timeout_ms = options->peer_timeout_ms},
            .shard.memory_bytes_max = options->memory_bytes_max,
            .task_index = options->task_index,
            .local_index = i,
            .servers = ps->servers,
            .server_count = options->is_scheduler ? 0 : options->shard_count,
            .coordinator = i == 0 ? ps->coordinator : NULL,
            .coordinator_ops = &sl_process_coordinator_ops,
            .slow_request_ns = options->has_views ? SL_SIM_VIEWS_SLOW_NS : 0,
            .secret = options->secret,
            .incarnation = ps->incarnation,
            .restores = options->disk != NULL && !options->is_scheduler &&
                        sl_sim_disk_restores(options->disk),
        };
        if (i >= options->reactor_count) {
            server.beside = ps->servers[sl_sim_ps_reactor_of(ps, i)];
        }
        sl_sim_ps_pair_server(ps, &server);
        int err = sl_server_create(&server, &ps->servers[i]);
        sl_assert(err == 0);
        if (server.beside == NULL) {
            register_memory(ps->servers[i]);
        }
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

void sl_sim_ps_join(struct sl_sim_ps *ps)
{
    const struct sl_sim_ps_options *options = &ps->options;
    struct sl_agent_options member = {
        .reactor = ps->process.reactors[0],
        .transport = sl_sim_network_transport(options->network),
        .transport_options = {.medium = sl_sim_network_medium(options->network, options->host, 1),
                              .peer_timeout_ms = options->peer_timeout_ms},
        .task_index = options->task_index,
        .shard_count = options->shard_count,
        .reactor_count = options->reactor_count,
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .data = ps->bound,
        .incarnation = ps->incarnation,
        .secret = options->secret,
        .start_timeout_ns = options->start_timeout_ns,
        .events = {.joined = joined, .failed = failed, .expired = lost},
        .ctx = ps,
    };
    sl_sim_network_endpoint(options->network, options->coordinator_host, &member.coordinator);
    sl_sim_ps_wire_member(ps, &member);
    sl_sim_ps_pair_member(ps, &member);
    int err = sl_agent_open(&member, &ps->member);
    sl_assert(err == 0);
    ps->wiring.agent = ps->member;
}

/* Nothing is sent that rests on what is not kept. */
static void send_kept(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    struct sl_sim_ps *ps = ctx;
    sl_sim_records_keep(ps->options.records, ps->coordinator);
    sl_server_send_to_peer(NULL, peer, message);
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
        .identity = ps->incarnation,
        .send = is_kept ? send_kept : sl_server_send_to_peer,
        .close = sl_server_close_peer,
        .checkpoint_interval_ns = options->disk == NULL ? 0 : options->disk->plan.every_ns,
        .incrementals_max = options->disk == NULL ? 0 : options->disk->plan.adds,
        .checkpoint_timeout_ns = options->disk == NULL ? 0 : SL_SIM_CHECKPOINT_TIMEOUT_NS,
        .changed = is_kept ? record_changed : NULL,
        .ctx = ps,
    };
    int err = sl_coordinator_create(&coordinator, &ps->coordinator);
    sl_assert(err == 0);
    if (is_kept) {
        sl_sim_records_give(options->records, ps->coordinator, sl_sim_process_now(&ps->process));
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
    if (options->hosts_coordinator) {
        make_coordinator(ps);
    }
    ps->incarnation = sl_hash_random(&random) | 1;
    sl_sim_ps_pair(ps);
    make_servers(ps);
    if (options->has_views) {
        sl_sim_views_init(ps);
    }
    listen_here(ps);
    if (options->is_scheduler) {
        ps->member = NULL;
    } else if (options->disk == NULL) {
        sl_sim_ps_join(ps);
    } else {
        sl_sim_ps_wire(ps);
    }
    sl_sim_process_look(&ps->process);
    if (options->started != NULL) {
        options->started(ps);
    }
}

/* A dying thread is alone: nothing else steps the ps. */
void sl_sim_ps_wait(void *ctx)
{
    struct sl_sim_ps *ps = ctx;
    for (uint32_t i = 0; ps->beside->dying && i < ps->process.reactor_count; i++) {
        ps->process.offset_ns += DYING_NS;
        (void)sl_reactor_turn(ps->process.reactors[i], sl_sim_process_now(&ps->process));
    }
    sl_sim_app_sleep(ps->beside, WAIT_NS);
}

void sl_sim_ps_kill(struct sl_sim_ps *ps, bool silent)
{
    sl_assert(ps->running);
    ps->running = false;
    sl_sim_network_kill(ps->options.network, ps->options.host, silent);
    if (ps->options.ends != NULL) {
        ps->options.ends(ps, silent);
    }
    sl_agent_close(&ps->member);
    sl_sim_ps_unwire(ps);
    for (uint32_t i = sl_sim_ps_server_count(ps); i-- > 0;) {
        sl_server_destroy(&ps->servers[i]);
    }
    if (ps->coordinator != NULL) {
        sl_coordinator_destroy(&ps->coordinator);
    }
    sl_sim_views_fini(ps);
    sl_sim_process_fini(&ps->process);
    while (ps->lost != NULL) {
        struct sl_sim_lost *next = ps->lost->next;
        free(ps->lost);
        ps->lost = next;
    }
}
