#include "ps/server/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/list.h"
#include "core/log.h"
#include "ps/server/session_snapshot.h"

#define BUFFER_BYTES_DEFAULT ((size_t)256 << 20)
#define BUFFER_BYTES_LEAST   ((size_t)32 << 20)

/* Thousands of workers have a few requests each that wait for clocks, or 256 connections use all of
 * their credit. Memory that was never used is not touched. */
#define REQUESTS_MAX         65536

#define TICKS_PER_LEASE      8 /* of the coordinator */

static void tick_coordinator(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server *server = SL_CONTAINER_OF(timer, struct sl_server, coordinator_timer);
    const struct sl_server_coordinator_ops *ops = server->options.coordinator_ops;
    ops->tick(server->options.coordinator, now_ns);
    uint64_t pause_ns = ops->lease_ns(server->options.coordinator) / TICKS_PER_LEASE;
    pause_ns = pause_ns < SL_CLOCK_NS_PER_S ? pause_ns : SL_CLOCK_NS_PER_S;
    sl_timer_arm(sl_reactor_timers(server->options.reactor), timer, now_ns + pause_ns);
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
        tick_coordinator(&server->coordinator_timer, sl_reactor_now_ns(server->options.reactor));
        return;
    }
    sl_timer_disarm(sl_reactor_timers(server->options.reactor), &server->coordinator_timer);
    for (struct sl_server_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        dismiss(conn);
    }
}

void sl_server_set_leader(struct sl_server *server, const char *name, const char *endpoint)
{
    sl_reactor_assert_owner(server->options.reactor);
    (void)snprintf(server->leader_name, sizeof server->leader_name, "%s", name);
    (void)snprintf(server->leader_endpoint, sizeof server->leader_endpoint, "%s", endpoint);
}

/* Pools and buffers for buffer_bytes_max. */
static int memory_init(struct sl_server *server)
{
    const struct sl_server_options *options = &server->options;
    const size_t half = options->buffer_bytes_max / 2;
    const size_t extra_bytes = options->hooks == NULL ? 0 : options->hooks->request_bytes;
    int err = sl_outbox_init(&server->replies, half, options->checksum);
    if (err != 0) {
        return err;
    }
    err = sl_outbox_init(&server->control, SL_OUTBOX_MEMORY_BYTES_MIN, options->checksum);
    if (err != 0) {
        goto fini_replies;
    }
    err = sl_server_buffers_init(&server->buffers, half);
    if (err != 0) {
        goto fini_control;
    }
    err = sl_pool_init(&server->requests, sizeof(struct sl_server_request) + extra_bytes,
                       options->waiting_max == 0 ? REQUESTS_MAX : options->waiting_max);
    if (err == 0) {
        return 0;
    }
    sl_server_buffers_fini(&server->buffers);
fini_control:
    sl_outbox_fini(&server->control);
fini_replies:
    sl_outbox_fini(&server->replies);
    return err;
}

static void memory_fini(struct sl_server *server)
{
    sl_pool_fini(&server->requests);
    sl_server_shm_fini(server);
    sl_server_buffers_fini(&server->buffers);
    sl_outbox_fini(&server->control);
    sl_outbox_fini(&server->replies);
}

int sl_server_create(const struct sl_server_options *options, struct sl_server **out)
{
    sl_reactor_assert_owner(options->reactor);
    struct sl_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const size_t bytes =
        options->buffer_bytes_max == 0 ? BUFFER_BYTES_DEFAULT : options->buffer_bytes_max;
    server->options = *options;
    server->options.buffer_bytes_max = bytes < BUFFER_BYTES_LEAST ? BUFFER_BYTES_LEAST : bytes;
    server->lease_ns = SL_SERVER_LEASE_DEFAULT_NS;
    server->is_open = !options->restores;
    server->payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES;
    server->role =
        (struct sl_server_role){.serves = options->hooks == NULL, .state = options->incarnation};
    int err = memory_init(server);
    if (err != 0) {
        goto free_server;
    }
    err = sl_server_sessions_init(&server->sessions);
    if (err != 0) {
        goto fini_memory;
    }
    err = sl_server_transports_open(server);
    if (err != 0) {
        goto fini_sessions;
    }
    err = options->hooks == NULL ? 0 : options->hooks->create(server);
    if (err != 0) {
        goto close_transports;
    }
    sl_server_scheduler_init(server);
    server->coordinator_timer.run = tick_coordinator;
    if (options->coordinator != NULL) {
        tick_coordinator(&server->coordinator_timer, sl_reactor_now_ns(options->reactor));
    }
    *out = server;
    return 0;

close_transports:
    sl_server_transports_close(server);
fini_sessions:
    sl_server_sessions_fini(&server->sessions);
fini_memory:
    memory_fini(server);
free_server:
    free(server);
    return err;
}

void sl_server_destroy(struct sl_server **server)
{
    struct sl_server *self = *server;
    sl_reactor_assert_owner(self->options.reactor);
    struct sl_timer_wheel *timers = sl_reactor_timers(self->options.reactor);
    sl_timer_disarm(timers, &self->coordinator_timer);
    sl_timer_disarm(timers, &self->drain_timer);
    self->drained = NULL;
    self->draining = true;
    const struct sl_server_hooks *hooks = self->options.hooks;
    if (hooks != NULL) {
        hooks->stop(self);
    }
    sl_server_transports_close(self);
    sl_assert(self->conns == NULL);
    sl_timer_disarm(timers, &self->watch_timer);
    sl_server_restore_fini(self);
    sl_server_checkpoint_fini(self);
    sl_server_session_snapshot_fini(self);
    sl_server_sessions_fini(&self->sessions);
    sl_server_scheduler_fini(self);
    sl_server_send_fini(self);
    if (self->shard != NULL) {
        sl_shard_destroy(&self->shard);
    }
    if (hooks != NULL) {
        hooks->destroy(self);
    }
    memory_fini(self);
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
    int err = sl_shard_create(&options, &server->shard);
    if (err != 0) {
        return err;
    }
    server->options.shard = options;
    if (!server->is_open) {
        return 0;
    }
    sl_server_sessions_number(server);
    for (struct sl_server_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        if (conn->session != NULL && server->role.serves) {
            sl_server_welcome(conn);
        }
    }
    return 0;
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
    stats.requests = server->request_count;
    sl_server_transports_count(server, &stats.bytes_in, &stats.bytes_out);
    stats.stalls = reactor.stalls;
    if (server->options.hooks != NULL) {
        stats.degraded_writes = server->role.degraded_writes;
    }
    if (server->role.degraded_since_ns != 0) {
        const uint64_t degraded_ns =
            sl_reactor_now_ns(server->options.reactor) - server->role.degraded_since_ns;
        stats.degraded_ms = 1 + degraded_ns / SL_CLOCK_NS_PER_MS;
    }
    *out = stats;
    return 0;
}

void sl_server_log(struct sl_server *server, const char *format, ...)
{
    if (!sl_log_limit_allows(&server->log_limit, sl_reactor_now_ns(server->options.reactor))) {
        return;
    }
    char text[SL_MESSAGE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sl_log_warn("%s", text);
}

void sl_server_drop(struct sl_server_conn *conn, int err, const char *format, ...)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sl_server_pull_batch_before(conn);
    sl_server_log(conn->server, "closing %s (%s): %s: %s", conn->name, conn->conn->peer,
                  sl_err_name(err), text);
    if (conn->kind == SL_SERVER_CONN_NEW || conn->kind == SL_SERVER_CONN_CHALLENGED ||
        conn->kind == SL_SERVER_CONN_WAITING) {
        conn->kind = SL_SERVER_CONN_REFUSED;
    }
    sl_transport_disconnect(conn->conn);
}

static void hello_late(struct sl_timer *timer, uint64_t now_ns)
{
    (void)now_ns;
    struct sl_server_conn *conn = SL_CONTAINER_OF(timer, struct sl_server_conn, hello_timer);
    sl_server_drop(conn, SL_ERR_DEADLINE, "no %s within %llu s",
                   conn->kind == SL_SERVER_CONN_NEW ? "hello" : "proof of the secret",
                   SL_SERVER_HELLO_NS / SL_CLOCK_NS_PER_S);
}

static void conn_link(struct sl_server *server, struct sl_server_conn *conn)
{
    conn->server = server;
    conn->prev = NULL;
    conn->next = server->conns;
    if (conn->next != NULL) {
        conn->next->prev = conn;
    }
    server->conns = conn;
    server->conn_count++;
    sl_server_admission(server);
}

static void conn_unlink(struct sl_server_conn *conn)
{
    sl_server_admission_forget(conn);
    if (conn->prev == NULL) {
        conn->server->conns = conn->next;
    } else {
        conn->prev->next = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->prev = conn->prev;
    }
    conn->server->conn_count--;
}

static void on_accepted(void *ctx, struct sl_conn *transport_conn)
{
    struct sl_server *server = ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn != NULL) {
        /* Migrated by the listening reactor, with its hello read. */
        conn->conn = transport_conn;
        conn_link(server, conn);
        sl_timer_arm(sl_reactor_timers(server->options.reactor), &conn->hello_timer,
                     conn->hello_until_ns);
        sl_server_greet(conn);
        return;
    }
    conn = server->draining ? NULL : calloc(1, sizeof *conn);
    if (conn == NULL) {
        sl_transport_disconnect(transport_conn);
        return;
    }
    conn->conn = transport_conn;
    conn->outbox = &server->control;
    conn->uses_shm = transport_conn->transport == server->shm;
    conn->hello_timer.run = hello_late;
    (void)snprintf(conn->name, sizeof conn->name, "a new connection");
    transport_conn->user = conn;
    conn_link(server, conn);
    conn->hello_until_ns = sl_reactor_now_ns(server->options.reactor) + SL_SERVER_HELLO_NS;
    sl_timer_arm(sl_reactor_timers(server->options.reactor), &conn->hello_timer,
                 conn->hello_until_ns);
}

/* The server opens no connections. */
static void on_connected(void *ctx, struct sl_conn *conn)
{
    (void)ctx;
    (void)conn;
    sl_assert(false);
}

int sl_server_migrate(struct sl_server_conn *conn, struct sl_server *to)
{
    struct sl_server *from = conn->server;
    struct sl_transport *transport = sl_server_transports_like(to, conn->conn);
    if (transport == NULL) {
        sl_transport_disconnect(conn->conn);
        return SL_ERR_UNSUPPORTED;
    }
    sl_timer_disarm(sl_reactor_timers(from->options.reactor), &conn->hello_timer);
    conn_unlink(conn);
    /* Unless the call fails, the connection now belongs to the other reactor. */
    struct sl_conn *transport_conn = conn->conn;
    conn->server = NULL;
    int err = sl_transport_migrate(transport_conn, transport, &sl_server_events, to, conn);
    if (err != 0) {
        conn_link(from, conn);
    }
    return err;
}

static void *on_sink(void *ctx, struct sl_conn *transport_conn, const struct sl_frame *header)
{
    (void)ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL) {
        return NULL;
    }
    bool may_be_long = conn->kind == SL_SERVER_CONN_DATA || conn->kind == SL_SERVER_CONN_CONTROL ||
                       conn->kind == SL_SERVER_CONN_PRIMARY;
    if (!may_be_long ||
        (header->type == SL_FRAME_REQUEST && conn->credit.bytes < header->payload_bytes)) {
        sl_server_drop(conn, SL_ERR_PROTOCOL, "a frame of %u bytes, for which it has no credit",
                       header->payload_bytes);
        return NULL;
    }
    /* A checksum is verified only on memory that no peer can change: copy the frame. */
    bool stays = conn->uses_shm && header->type == SL_FRAME_REQUEST && header->flags == 0 &&
                 header->payload_bytes <= SL_SERVER_SHM_BYTES;
    if (stays && sl_server_shm_is_late(conn, header->payload_bytes)) {
        return NULL;
    }
    if (conn->sink == NULL) { /* else: second call for the same frame */
        conn->sink = sl_server_admission_sink(conn, header->payload_bytes);
    }
    return stays && conn->sink != NULL ? SL_TRANSPORT_IN_PLACE : conn->sink;
}

void sl_server_release(struct sl_server_conn *conn, const struct sl_transport_message *message)
{
    const bool is_short = message->header.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES;
    const bool has_sink = message->token == NULL || !is_short;
    sl_transport_release(conn->conn, message);
    if (has_sink && conn->sink != NULL) {
        sl_server_buffers_put(&conn->server->buffers, conn->sink);
        conn->sink = NULL;
        sl_server_unblock(conn->server);
    }
}

static void on_received(void *ctx, struct sl_conn *transport_conn,
                        const struct sl_transport_message *message)
{
    (void)ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL) {
        sl_transport_release(transport_conn, message);
        return;
    }
    if (message->header.version != SL_FRAME_PROTOCOL_VERSION) {
        sl_server_release(conn, message);
        sl_server_pull_batch_before(conn);
        sl_server_refuse_version(conn, message->header.version);
        return;
    }
    if ((message->header.flags & SL_FRAME_CHECKSUM) != 0 &&
        sl_frame_verify(&message->header, message->payload) != 0) {
        sl_server_release(conn, message);
        sl_server_drop(conn, SL_ERR_CORRUPT, "a frame's checksum does not match");
        return;
    }
    if (message->header.type == SL_FRAME_REQUEST && conn->kind == SL_SERVER_CONN_DATA &&
        conn->welcomed) {
        sl_server_request_arrive(conn, message);
        return;
    }
    if (message->header.type == SL_FRAME_REQUEST && conn->kind == SL_SERVER_CONN_PRIMARY) {
        conn->server->options.hooks->frame(conn, message);
        return;
    }
    if (message->header.type == SL_FRAME_CONTROL && message->header.request_id == 0 &&
        message->header.budget_us == 0) {
        sl_server_pull_batch_answer(conn->server);
        sl_server_control(conn, message);
        return;
    }
    sl_server_release(conn, message);
    sl_server_drop(conn, SL_ERR_PROTOCOL, "a frame of type %u, which is not expected here",
                   message->header.type);
}

static void on_sent(void *ctx, struct sl_conn *transport_conn, void *cookie)
{
    struct sl_server *server = ctx;
    struct sl_server_conn *conn = transport_conn->user;
    sl_server_unblock(server);
    conn->progressed = true;
    sl_outbox_sent(conn->outbox, cookie);
    if (sl_server_send_waits(server)) {
        sl_server_send_later(server, conn->outbox);
    }
    if (server->goodbye_said) {
        sl_server_drain_conn(conn);
    }
}

static void on_writable(void *ctx, struct sl_conn *transport_conn)
{
    (void)ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn != NULL) {
        sl_outbox_writable(conn->outbox, transport_conn, &conn->out);
    }
}

static void on_closed(void *ctx, struct sl_conn *transport_conn, int err)
{
    struct sl_server *server = ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL || conn->server == NULL) {
        free(conn); /* refused, or closed during the migration */
        return;
    }
    sl_log_debug("%s (%s) closed: %s", conn->name, transport_conn->peer, sl_err_name(err));
    transport_conn->user = NULL;
    sl_timer_disarm(sl_reactor_timers(server->options.reactor), &conn->hello_timer);
    sl_server_pull_batch_drop(conn);
    sl_server_send_drop(conn);
    sl_outbox_closed(conn->outbox, transport_conn, &conn->out);
    sl_server_send_later(server, conn->outbox);
    if (conn->sink != NULL) {
        sl_server_buffers_put(&server->buffers, conn->sink);
    }
    sl_server_session_detach(conn);
    if (conn->kind == SL_SERVER_CONN_PRIMARY) {
        server->options.hooks->leave(conn);
    }
    if (conn->kind == SL_SERVER_CONN_CONTROL && server->options.control_gone != NULL) {
        server->options.control_gone(server->options.control_gone_ctx, (uintptr_t)conn);
    }
    if (conn->kind == SL_SERVER_CONN_CONTROL) {
        server->options.coordinator_ops->gone(server->options.coordinator, (uintptr_t)conn,
                                              server->draining,
                                              sl_reactor_now_ns(server->options.reactor));
    }
    conn_unlink(conn);
    free(conn);
    sl_server_unblock(server);
    sl_server_drain_update(server);
}

const struct sl_transport_events sl_server_events = {
    .accepted = on_accepted,
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};
