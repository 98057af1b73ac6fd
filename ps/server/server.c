#include "ps/server/server.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/list.h"
#include "ps/server/checkpoint.h"
#include "ps/server/request.h"
#include "ps/server/restore.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"
#include "ps/server/token.h"
#include "ps/server/turn.h"
#include "ps/shard/handler.h"
#include "ps/shard/state.h"

#define TICKS_PER_LEASE 8                          /* of the coordinator */
#define RETIRE_PAUSE_NS (2 * SL_CLOCK_NS_PER_MS)   /* between looks for unsent frames */
#define TICK_MAX_NS     (100 * SL_CLOCK_NS_PER_MS) /* waits end this late at most */

static void tick_coordinator(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server = SL_CONTAINER_OF(timer, struct sl_server, coordinator.timer);
    const struct sl_server_coordinator_ops *ops = server->options.coordinator_ops;
    ops->tick(server->options.coordinator, now_ns);
    uint64_t pause_ns = ops->lease_ns(server->options.coordinator) / TICKS_PER_LEASE;
    pause_ns = pause_ns < TICK_MAX_NS ? pause_ns : TICK_MAX_NS;
    sl_timer_arm(sl_server_timers(server), timer, now_ns + pause_ns);
}

/* Disconnects a member of the former coordinator; later frames from it are dropped. */
static void dismiss(struct sl_server_conn *conn)
{
    if (conn->kind == SL_SERVER_CONN_CONTROL) {
        conn->kind = SL_SERVER_CONN_REFUSED;
        sl_transport_disconnect(conn->conn);
    }
}

void sl_server_set_coordinator(struct sl_server *server, struct sl_coordinator *coordinator)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->options.elects);
    server->options.coordinator = coordinator;
    if (coordinator != NULL) {
        tick_coordinator(&server->coordinator.timer, sl_server_now_ns(server));
        return;
    }
    sl_timer_disarm(sl_server_timers(server), &server->coordinator.timer);
    SL_LIST_FOREACH (link, &server->host->conns) {
        dismiss(sl_server_conn_of(link));
    }
}

void sl_server_set_leader(struct sl_server *server, const char *name, const char *endpoint)
{
    sl_reactor_assert_owner(server->options.reactor);
    (void)snprintf(server->coordinator.leader.name, sizeof server->coordinator.leader.name, "%s",
                   name);
    (void)snprintf(server->coordinator.leader.endpoint, sizeof server->coordinator.leader.endpoint,
                   "%s", endpoint);
}

int sl_server_create(const struct sl_server_options *options, struct sl_server **out)
{
    sl_reactor_assert_owner(options->reactor);
    struct sl_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    server->options = *options;
    server->cells.used = options->cells != NULL ? options->cells : &server->cells.own;
    server->lease_ns = SL_SERVER_LEASE_DEFAULT_NS;
    server->cells.hot_halved_ns = sl_reactor_now_ns(options->reactor);
    sl_list_init(&server->channels);
    server->is_open = !options->restores;
    server->payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    server->role =
        (struct sl_server_role){.serves = options->hooks == NULL, .state = options->incarnation};
    int err = sl_server_sessions_init(&server->sessions);
    if (err != 0) {
        goto free_server;
    }
    err = sl_server_host_join(server);
    if (err != 0) {
        goto fini_sessions;
    }
    server->options.hooks = options->transports.only ? NULL : options->hooks;
    err = server->options.hooks == NULL ? 0 : options->hooks->create(server);
    server->options.replication = NULL;
    if (err != 0) {
        goto leave_host;
    }
    sl_server_scheduler_init(server);
    sl_server_turn_init(server);
    server->coordinator.timer.run = tick_coordinator;
    if (options->coordinator != NULL) {
        tick_coordinator(&server->coordinator.timer, sl_reactor_now_ns(options->reactor));
    }
    *out = server;
    return 0;

leave_host:
    if (server->options.beside == NULL) {
        sl_server_host_close(server->host);
    }
    sl_server_host_leave(server);
fini_sessions:
    sl_server_sessions_fini(&server->sessions);
free_server:
    free(server);
    return err;
}

void sl_server_destroy(struct sl_server **server)
{
    struct sl_server *self = *server;
    sl_reactor_assert_owner(self->options.reactor);
    struct sl_timer_wheel *timers = sl_server_timers(self);
    sl_timer_disarm(timers, &self->coordinator.timer);
    sl_timer_disarm(timers, &self->retired.timer);
    const struct sl_server_hooks *hooks = self->options.hooks;
    if (self->options.beside == NULL) {
        sl_server_host_close(self->host);
    } else if (!self->host->is_closed) {
        sl_server_host_stop(self);
    }
    sl_server_restore_fini(self);
    sl_server_checkpoint_fini(self);
    sl_server_table_drop_fini(self);
    sl_server_sessions_fini(&self->sessions);
    sl_server_turn_fini(self);
    sl_server_scheduler_fini(self);
    sl_server_tokens_close(&self->scheduler.tokens);
    if (self->shard != NULL) {
        sl_shard_destroy(&self->shard);
    }
    if (hooks != NULL) {
        hooks->destroy(self);
    }
    sl_server_host_leave(self);
    free(self);
    *server = NULL;
}

int sl_server_set_shard(struct sl_server *server, uint32_t index, uint32_t count)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->shard == NULL);
    struct sl_shard_options options = server->options.shard;
    options.index = index;
    options.count = count;
    options.copy = sl_server_next_copy(server);
    int err = options.kv_handler == NULL
                  ? 0
                  : sl_server_tokens_create(sl_reactor_mailbox(server->options.reactor),
                                            sl_server_request_answered, &server->scheduler.tokens);
    err = err != 0 ? err : sl_shard_create(&options, &server->shard);
    if (err != 0) {
        sl_server_tokens_close(&server->scheduler.tokens);
        return err;
    }
    server->options.shard = options;
    server->host->by_shard[index] = server;
    if (server->is_open) {
        sl_server_sessions_number(server);
    }
    return 0;
}

void sl_server_set_handler(struct sl_server *server, const struct sl_kv_handler *handler)
{
    sl_reactor_assert_owner(server->options.reactor);
    server->options.shard.kv_handler = handler;
    if (server->shard != NULL) {
        sl_shard_handler_set(server->shard, handler);
        sl_server_scheduler_resume_parked(server);
    }
}

void sl_server_set_task(struct sl_server *server, uint32_t task_index)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->shard == NULL);
    server->options.task_index = task_index;
}

void sl_server_set_lease(struct sl_server *server, uint64_t lease_ns)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_assert(server->shard == NULL);
    sl_assert(lease_ns > 0);
    server->lease_ns = lease_ns;
}

void sl_server_set_memory_limit(struct sl_server *server, size_t bytes_max)
{
    server->options.shard.memory_bytes_max = bytes_max;
    if (server->shard != NULL) {
        server->shard->options.memory_bytes_max = bytes_max;
    }
}

bool sl_server_has_tables(const struct sl_server *server)
{
    return server->shard != NULL && sl_shard_has_tables(server->shard);
}

int sl_server_stats(const struct sl_server *server, struct sl_message_stats *out)
{
    struct sl_message_stats stats = {0};
    int err = server->shard == NULL ? 0 : sl_shard_stats(server->shard, &stats);
    if (err != 0) {
        return err;
    }
    struct sl_reactor_stats reactor;
    sl_reactor_get_stats(server->options.reactor, &reactor);
    stats.requests = sl_server_metrics_requests(server);
    sl_server_transports_count(server->host, &stats.bytes_in, &stats.bytes_out);
    stats.stalls = reactor.stalls;
    if (server->role.backup.is_needed) {
        stats.degraded_writes = server->role.backup.degraded_writes;
    }
    if (server->role.backup.degraded_since_ns != 0) {
        const uint64_t degraded_ns =
            sl_server_now_ns(server) - server->role.backup.degraded_since_ns;
        stats.degraded_ms = 1 + degraded_ns / SL_CLOCK_NS_PER_MS;
    }
    *out = stats;
    return 0;
}

/* Drain */

/* The backup will be promoted: stops executing and answering, so that clients connect to it at
 * once. */
static void switch_over(struct sl_server *server)
{
    server->role.switchover = SL_SERVER_SWITCHED_OVER;
    struct sl_server_request *request;
    while ((request = sl_server_request_first(&server->scheduler.parked)) != NULL) {
        sl_server_scheduler_discard(request);
    }
    SL_LIST_FOREACH (link, &server->channels) {
        struct sl_server_conn *conn = sl_server_channel_of(link)->conn;
        sl_server_drain_say_goodbye(conn);
        sl_transport_disconnect(conn->conn); /* also within a reply */
    }
}

void sl_server_drain(struct sl_server *server, uint64_t timeout_ns, void (*drained)(void *ctx),
                     void *ctx)
{
    sl_reactor_assert_owner(server->options.reactor);
    sl_server_pull_batch_answer(server);
    sl_server_drain_begin(server, timeout_ns, drained, ctx);
    if (server->role.switchover != SL_SERVER_NO_SWITCHOVER) {
        switch_over(server);
    } else {
        sl_server_scheduler_cancel_parked(server, SL_ERR_CANCELLED, "the server is shutting down");
    }
    sl_server_drain_update(server->host);
}

/* Returns whether the connection refers to the server. */
static bool concerns(const struct sl_server_conn *conn, const struct sl_server *server)
{
    return (conn->kind == SL_SERVER_CONN_PRIMARY && conn->server == server) ||
           (server->place < conn->channel_count && conn->channels[server->place] != NULL);
}

static void retire_now(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server = SL_CONTAINER_OF(timer, struct sl_server, retired.timer);
    const struct sl_server_hooks *hooks = server->options.hooks;
    bool waits = hooks != NULL && hooks->has_unsent(server);
    SL_LIST_FOREACH (link, &server->host->conns) {
        waits = waits || concerns(sl_server_conn_of(link), server);
    }
    if (waits) {
        sl_timer_arm(sl_server_timers(server), timer, now_ns + RETIRE_PAUSE_NS);
    } else {
        server->retired.run(server->retired.ctx);
    }
}

/* Connections close as a whole: replies under way may refer to memory of the shard. */
void sl_server_retire(struct sl_server *server, void (*retired)(void *ctx), void *ctx)
{
    server->retired.run = retired;
    server->retired.ctx = ctx;
    server->retired.timer.run = retire_now;
    server->role.serves = false;
    server->drain.stage = SL_SERVER_DRAINS;
    sl_server_pull_batch_answer(server);
    switch_over(server);
    SL_LIST_FOREACH (link, &server->host->conns) {
        struct sl_server_conn *conn = sl_server_conn_of(link);
        if (concerns(conn, server)) {
            sl_transport_disconnect(conn->conn);
        }
    }
    if (server->replica != NULL) {
        server->options.hooks->stop(server);
    }
    sl_timer_arm(sl_server_timers(server), &server->retired.timer,
                 sl_server_now_ns(server) + RETIRE_PAUSE_NS);
}

/* Expirations, from the thread of the coordinator's client to the servers */

struct expiry {
    struct sl_server *const *server;
    struct sl_message_expired expired;
};

static void server_deliver(void *ctx, uint64_t a, uint64_t b)
{
    struct expiry *expiry = ctx;
    if (*expiry->server != NULL) {
        sl_server_on_expired(*expiry->server, &expiry->expired);
    }
    free(expiry);
}

/* Without memory: everything except the reason fits into the mail. */
static void deliver_briefly(void *ctx, uint64_t client_id, uint64_t who)
{
    struct sl_server *const *server = ctx;
    const struct sl_message_expired expired = {.role = (enum sl_message_role)(who >> 32),
                                               .task_index = (uint32_t)who,
                                               .client_id = client_id,
                                               .why = "memory is too short to say why"};
    if (*server != NULL) {
        sl_server_on_expired(*server, &expired);
    }
}

void sl_server_post_expired(struct sl_server *const *server, struct sl_reactor *from,
                            uint32_t to_index, const struct sl_message_expired *expired)
{
    struct expiry *expiry = malloc(sizeof *expiry);
    if (expiry == NULL) {
        sl_reactor_post(from, to_index,
                        (struct sl_mail){.run = deliver_briefly,
                                         .ctx = (void *)(uintptr_t)server,
                                         .a = expired->client_id,
                                         .b = (uint64_t)expired->role << 32 | expired->task_index});
        return;
    }
    *expiry = (struct expiry){.server = server, .expired = *expired};
    sl_reactor_post(from, to_index,
                    (struct sl_mail){.run = server_deliver, .ctx = expiry, .drop = free});
}
