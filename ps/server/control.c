/* Control messages: hello and welcome, tables, counters, goodbye. */
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/server/internal.h"

void sl_server_send_to_peer(void *ctx, uint64_t peer, const struct sl_message *message)
{
    (void)ctx;
    sl_server_send((struct sl_server_conn *)(uintptr_t)peer, message);
}

void sl_server_close_peer(void *ctx, uint64_t peer, const char *why)
{
    (void)ctx;
    sl_server_drop((struct sl_server_conn *)(uintptr_t)peer, SL_ERR_CLOSED, "%s", why);
}

void sl_server_refuse(struct sl_server_conn *conn, int err, const char *text)
{
    sl_server_send_error(conn, conn->hello_id, err, text);
    sl_server_drop(conn, err, "%s", text);
}

static void fill_data_welcome(const struct sl_server_conn *conn, struct sl_message_welcome *welcome)
{
    const struct sl_server *server = conn->server;
    welcome->credit_bytes = conn->credit.bytes;
    welcome->credit_requests = conn->credit.requests;
    welcome->shard = server->options.shard.index;
    welcome->shard_count = server->options.shard.count;
    welcome->resumed = conn->resumed;
    welcome->restored = conn->resumed ? conn->session->restored : server->is_restored;
    welcome->incarnation = server->role.state;
    welcome->payload_bytes_max = server->payload_bytes_max;
    if (conn->hello.role == SL_MESSAGE_ROLE_WORKER) {
        struct sl_shard_worker worker = sl_shard_worker_find(server->shard, conn->hello.task_index);
        welcome->counts = worker.counts;
        welcome->clock = worker.clock;
    }
}

static void send_welcome(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    struct sl_message message = {
        .kind = SL_MESSAGE_WELCOME,
        .id = conn->hello_id,
        .welcome = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                    .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
                    .incarnation = server->options.incarnation,
                    .software = "starling " STARLING_VERSION},
    };
    if (conn->kind == SL_SERVER_CONN_DATA) {
        fill_data_welcome(conn, &message.welcome);
    } else {
        message.welcome.lease_ms =
            (uint32_t)(server->options.coordinator_ops->lease_ns(server->options.coordinator) /
                       SL_CLOCK_NS_PER_MS);
        message.welcome.task_index = conn->hello.task_index;
    }
    conn->welcomed = conn->conn->is_welcome = true;
    if (conn->kind == SL_SERVER_CONN_DATA) {
        sl_server_send(conn, &message);
    } else {
        server->options.coordinator_ops->tell(server->options.coordinator, (uintptr_t)conn,
                                              &message);
    }
}

void sl_server_welcome(struct sl_server_conn *conn)
{
    sl_assert(!conn->welcomed);
    conn->server->role.is_touched = true;
    conn->credit = (struct sl_credit){
        .bytes = SL_LIMIT_CREDIT_BYTES,
        .requests = SL_LIMIT_CREDIT_REQUESTS,
    };
    if (conn->hello.role == SL_MESSAGE_ROLE_WORKER) {
        sl_shard_worker_seen(conn->server->shard, conn->hello.task_index);
    }
    send_welcome(conn);
}

static void admit_data(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    char text[SL_MESSAGE_TEXT_BYTES];
    if (server->options.server_count == 0) {
        sl_server_refuse(conn, SL_ERR_REFUSED, "this is the scheduler, which has no shards");
        return;
    }
    if (server->options.hooks != NULL && !server->options.hooks->admit(conn)) {
        return;
    }
    if (conn->hello.shard != server->options.local_index) {
        (void)snprintf(text, sizeof text, "ps/%u has shards 0 to %u, not %u",
                       server->options.task_index, server->options.server_count - 1,
                       conn->hello.shard);
        sl_server_refuse(conn, SL_ERR_INVALID, text);
        return;
    }
    if (!server->is_open) {
        conn->kind = SL_SERVER_CONN_WAITING;
        return;
    }
    int err = sl_server_session_attach(conn, text, sizeof text);
    if (err != 0) {
        sl_server_refuse(conn, err, text);
        return;
    }
    conn->kind = SL_SERVER_CONN_DATA;
    if (server->shard != NULL && server->role.serves) {
        sl_server_welcome(conn);
    }
}

/* Redirects a member: the coordinator may start here soon, or is elsewhere. */
static void send_elsewhere(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    struct sl_message message = {
        .kind = SL_MESSAGE_ERROR, .id = conn->hello_id, .error.err = SL_ERR_AGAIN};
    char *text = message.error.text;
    if (server->leader_endpoint[0] == '\0') {
        (void)snprintf(text, sizeof message.error.text,
                       "no process hosts the coordinator at the moment");
    } else {
        (void)snprintf(text, sizeof message.error.text, "%s hosts the coordinator, at %s",
                       server->leader_name, server->leader_endpoint);
    }
    memcpy(message.error.coordinator, server->leader_endpoint, sizeof server->leader_endpoint);
    sl_server_send(conn, &message);
    conn->kind = SL_SERVER_CONN_REFUSED;
    sl_log_debug("%s (%s) is redirected: %s", conn->name, conn->conn->peer, text);
    sl_transport_disconnect(conn->conn);
}

static void admit_control(struct sl_server_conn *conn)
{
    struct sl_coordinator *coordinator = conn->server->options.coordinator;
    const struct sl_server_coordinator_ops *ops = conn->server->options.coordinator_ops;
    char text[SL_MESSAGE_TEXT_BYTES];
    if (coordinator == NULL && conn->server->options.elects) {
        send_elsewhere(conn);
        return;
    }
    if (coordinator == NULL) {
        (void)snprintf(text, sizeof text, "ps/%u does not host the coordinator, ps/0 does",
                       conn->server->options.task_index);
        sl_server_refuse(conn, SL_ERR_REFUSED, text);
        return;
    }
    int err = ops->hello(coordinator, (uintptr_t)conn, &conn->hello,
                         sl_reactor_now_ns(conn->server->options.reactor), text, sizeof text);
    if (err != 0) {
        sl_server_refuse(conn, err, text);
        return;
    }
    conn->kind = SL_SERVER_CONN_CONTROL;
    conn->hello.any_task = false;
    conn->hello.task_index = ops->task_index(coordinator, (uintptr_t)conn);
    sl_message_hello_name(&conn->hello, conn->name);
    send_welcome(conn);
}

static void admit_primary(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    char text[SL_MESSAGE_TEXT_BYTES];
    if (server->shard == NULL) {
        sl_server_refuse(conn, SL_ERR_AGAIN, "this ps does not know its shards yet");
    } else if (server->options.hooks == NULL) {
        (void)snprintf(text, sizeof text, "shard %u of ps/%u: it was started without --replicas",
                       conn->hello.shard, server->options.task_index);
        sl_server_refuse(conn, SL_ERR_REFUSED, text);
    } else {
        (void)server->options.hooks->admit(conn);
    }
}

void sl_server_admit(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    sl_timer_disarm(sl_reactor_timers(server->options.reactor), &conn->hello_timer);
    if (server->draining) {
        char text[SL_MESSAGE_TEXT_BYTES];
        (void)snprintf(text, sizeof text, "ps/%u is shutting down", server->options.task_index);
        sl_server_refuse(conn, SL_ERR_CANCELLED, text);
        return;
    }
    if (conn->hello.purpose == SL_MESSAGE_PURPOSE_CONTROL) {
        admit_control(conn);
    } else if (conn->hello.purpose == SL_MESSAGE_PURPOSE_REPLICA) {
        admit_primary(conn);
    } else {
        admit_data(conn);
    }
}

void sl_server_refuse_version(struct sl_server_conn *conn, uint32_t version)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(text, sizeof text,
                   "ps/%u (starling %s) speaks protocol version %d, its peer (%s) version %u",
                   conn->server->options.task_index, STARLING_VERSION, SL_FRAME_PROTOCOL_VERSION,
                   conn->hello.software[0] == '\0' ? conn->name : conn->hello.software, version);
    sl_server_refuse(conn, SL_ERR_VERSION, text);
}

/* Returns the server on the reactor that owns the requested shard, or this one if it must answer
 * with an error. */
static struct sl_server *owner_of(const struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    const uint32_t count = server->options.server_count * (server->options.hooks != NULL ? 2 : 1);
    bool is_elsewhere =
        conn->hello.purpose != SL_MESSAGE_PURPOSE_CONTROL && conn->hello.shard < count;
    return is_elsewhere ? server->options.servers[conn->hello.shard] : server;
}

static void on_hello(struct sl_server_conn *conn, const struct sl_message *message)
{
    struct sl_server *server = conn->server;
    if (message->kind != SL_MESSAGE_HELLO) {
        sl_server_drop(conn, SL_ERR_PROTOCOL, "its first message is not a hello");
        return;
    }
    conn->hello = message->hello;
    conn->hello_id = message->id;
    sl_message_hello_name(&conn->hello, conn->name);
    if (conn->hello.protocol_version != SL_FRAME_PROTOCOL_VERSION) {
        sl_server_refuse_version(conn, conn->hello.protocol_version);
        return;
    }
    struct sl_server *owner = owner_of(conn);
    if (owner == server) {
        sl_server_greet(conn);
        return;
    }
    /* On failure `closed` follows. */
    int err = sl_server_migrate(conn, owner);
    if (err != 0) {
        sl_server_log(server, "%s cannot be handed to shard %u: %s", conn->name, conn->hello.shard,
                      sl_err_name(err));
    }
}

void sl_server_greet(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    if (conn->uses_shm && sl_server_shm_begin(server) != 0) {
        sl_server_refuse(conn, SL_ERR_NO_MEMORY, "the ps has no memory to share for its replies");
        return;
    }
    if (conn->hello.purpose != SL_MESSAGE_PURPOSE_CONTROL) {
        /* Before the first frame: the outbox must not change while frames are unsent. */
        conn->outbox = conn->uses_shm ? &server->shm_replies : &server->replies;
    }
    sl_server_authenticate(conn);
}

/* A message was executed that the backup must execute too. */
static void send_answer(struct sl_server_conn *conn, const struct sl_message *message,
                        const struct sl_message *answer)
{
    if (conn->server->role.logs) {
        conn->server->options.hooks->answer_later(conn, message, answer);
    } else {
        sl_server_send(conn, answer);
    }
}

static void on_table_open(struct sl_server_conn *conn, const struct sl_message *message)
{
    char reason[SL_MESSAGE_TEXT_BYTES];
    const struct sl_message_table_open *open = &message->table_open;
    if (open->asks) {
        sl_server_send_error(conn, message->id, SL_ERR_INVALID,
                             "a shard is not asked for specifications: the coordinator is");
        return;
    }
    int err = sl_shard_table_open(conn->server->shard, open->table_id, &open->spec, reason,
                                  sizeof reason);
    if (err != 0) {
        sl_server_log(conn->server, "refused %s: %s", conn->name, reason);
        sl_server_send_error(conn, message->id, err, reason);
        return;
    }
    const struct sl_message opened = {
        .kind = SL_MESSAGE_TABLE_OPENED,
        .id = message->id,
        .table_id = open->table_id,
    };
    send_answer(conn, message, &opened);
}

static void on_stats_get(struct sl_server_conn *conn, const struct sl_message *message)
{
    struct sl_message answer = {.kind = SL_MESSAGE_STATS, .id = message->id};
    if (sl_server_stats(conn->server, &answer.stats) != 0) {
        sl_server_send_error(conn, message->id, SL_ERR_NO_MEMORY, "no memory for the counters");
        return;
    }
    sl_server_send(conn, &answer);
    sl_message_fini(&answer);
}

static void on_join(struct sl_server_conn *conn, const struct sl_message *message)
{
    if (conn->hello.role != SL_MESSAGE_ROLE_WORKER) {
        sl_server_send_error(conn, message->id, SL_ERR_INVALID, "only a worker has a clock");
        return;
    }
    const struct sl_message joined = {
        .kind = SL_MESSAGE_JOINED,
        .id = message->id,
        .clock = sl_shard_worker_join(conn->server->shard, conn->hello.task_index, message->clock),
    };
    if (joined.clock == message->clock) {
        send_answer(conn, message, &joined);
    } else {
        sl_server_send(conn, &joined);
    }
}

static void on_data_message(struct sl_server_conn *conn, const struct sl_message *message)
{
    if (!conn->welcomed) {
        sl_server_drop(conn, SL_ERR_PROTOCOL, "it did not wait for its welcome");
        return;
    }
    const struct sl_server *server = conn->server;
    const bool is_first = !conn->session->confirmed;
    const bool is_logged =
        is_first || message->kind == SL_MESSAGE_TABLE_OPEN || message->kind == SL_MESSAGE_JOIN;
    if (is_logged && server->role.log_room == SL_SERVER_LOG_OVERFULL) {
        sl_server_drop(conn, SL_ERR_AGAIN, "its backup does not keep up with messages");
        return;
    }
    if (is_first && server->role.logs) {
        server->options.hooks->client_event(conn->session, SL_SERVER_CLIENT_CONFIRMED);
    }
    sl_server_session_confirm(conn->session);
    switch (message->kind) {
    case SL_MESSAGE_TABLE_OPEN:
        on_table_open(conn, message);
        break;
    case SL_MESSAGE_STATS_GET:
        on_stats_get(conn, message);
        break;
    case SL_MESSAGE_JOIN:
        on_join(conn, message);
        break;
    default:
        sl_server_send_error(conn, message->id, SL_ERR_PROTOCOL,
                             "a shard does not take such a message");
    }
}

static void on_goodbye(struct sl_server_conn *conn)
{
    conn->said_goodbye = true;
    sl_server_session_detach(conn);
    sl_transport_disconnect(conn->conn);
}

static void dispatch(struct sl_server_conn *conn, const struct sl_message *message)
{
    struct sl_server *server = conn->server;
    switch (conn->kind) {
    case SL_SERVER_CONN_NEW:
        on_hello(conn, message);
        return;
    case SL_SERVER_CONN_CHALLENGED:
        sl_server_auth_message(conn, message);
        return;
    case SL_SERVER_CONN_REFUSED:
        return;
    case SL_SERVER_CONN_WAITING:
        if (message->kind != SL_MESSAGE_GOODBYE) {
            sl_server_drop(conn, SL_ERR_PROTOCOL, "it did not wait for its welcome");
            return;
        }
        break;
    case SL_SERVER_CONN_CONTROL:
        server->options.coordinator_ops->message(server->options.coordinator, (uintptr_t)conn,
                                                 message,
                                                 sl_reactor_now_ns(server->options.reactor));
        break;
    case SL_SERVER_CONN_DATA:
        if (message->kind != SL_MESSAGE_GOODBYE) {
            on_data_message(conn, message);
        }
        break;
    case SL_SERVER_CONN_PRIMARY:
        break; /* only a goodbye is expected */
    }
    if (message->kind == SL_MESSAGE_GOODBYE) {
        on_goodbye(conn);
    }
}

void sl_server_control(struct sl_server_conn *conn, const struct sl_transport_message *message)
{
    struct sl_message decoded;
    int err = sl_message_decode(message->payload, message->header.payload_bytes, &decoded);
    sl_server_release(conn, message);
    if (err != 0) {
        sl_server_drop(conn, err, "not a valid control message");
        return;
    }
    dispatch(conn, &decoded);
    sl_message_fini(&decoded);
}
