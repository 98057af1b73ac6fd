#include "ps/server/handshake.h"

#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "core/log.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

void sl_server_handshake_refuse(struct sl_server_conn *conn, int err, const char *format, ...)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    SL_FORMAT(text, format);
    sl_server_send_error(conn, conn->greeting.hello_id, err, text);
    sl_server_conn_drop(conn, err, "%s", text);
}

void sl_server_handshake_refuse_version(struct sl_server_conn *conn, uint32_t version)
{
    char own_name[SL_MESSAGE_NAME_BYTES];
    char text[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(own_name, sizeof own_name, "ps/%u", conn->server->options.task_index);
    sl_greeting_version_text(&conn->greeting, own_name, conn->name, version, text);
    sl_server_handshake_refuse(conn, SL_ERR_VERSION, "%s", text);
}

/* Admission */

static void send_welcome(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    struct sl_message message = sl_greeting_welcome(&conn->greeting);
    message.welcome.incarnation = server->options.incarnation;
    conn->conn->is_welcome = true;
    if (conn->kind == SL_SERVER_CONN_DATA) {
        message.welcome.credit_bytes = conn->credit.bytes;
        message.welcome.credit_requests = conn->credit.requests;
        sl_server_send(conn, &message);
        return;
    }
    server->options.coordinator_ops->welcome(server->options.coordinator, &message.welcome);
    message.welcome.task_index = conn->greeting.hello.task_index;
    server->options.coordinator_ops->tell(server->options.coordinator, (uintptr_t)conn, &message);
}

static void admit_data(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    if (server->options.server_count == 0) {
        sl_server_handshake_refuse(conn, SL_ERR_REFUSED,
                                   "this is the scheduler, which has no shards");
        return;
    }
    if (conn->greeting.hello.shard != conn->host->home->options.local_index) {
        sl_server_handshake_refuse(conn, SL_ERR_INVALID, "ps/%u has no reactor %u",
                                   server->options.task_index, conn->greeting.hello.shard);
        return;
    }
    conn->kind = SL_SERVER_CONN_DATA;
    conn->conn->sink_bytes = SL_SERVER_SHM_SINK_BYTES;
    conn->credit = (struct sl_credit){
        .bytes = SL_LIMIT_CREDIT_BYTES,
        .requests = SL_LIMIT_CREDIT_REQUESTS,
    };
    send_welcome(conn);
}

/* Redirects a member: the coordinator may start here soon, or is elsewhere. */
static void send_elsewhere(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    struct sl_message message = {
        .kind = SL_MESSAGE_ERROR, .id = conn->greeting.hello_id, .error.err = SL_ERR_AGAIN};
    char *text = message.error.text;
    if (server->coordinator.leader.endpoint[0] == '\0') {
        (void)snprintf(text, sizeof message.error.text,
                       "no process hosts the coordinator at the moment");
    } else {
        (void)snprintf(text, sizeof message.error.text, "%s hosts the coordinator, at %s",
                       server->coordinator.leader.name, server->coordinator.leader.endpoint);
    }
    memcpy(message.error.coordinator, server->coordinator.leader.endpoint,
           sizeof server->coordinator.leader.endpoint);
    sl_server_send(conn, &message);
    conn->kind = SL_SERVER_CONN_REFUSED;
    sl_log_debug("%s (%s) is redirected: %s", conn->name, conn->conn->peer, text);
    sl_transport_disconnect(conn->conn);
}

static void admit_control(struct sl_server_conn *conn)
{
    struct sl_coordinator *coordinator = conn->server->options.coordinator;
    const struct sl_server_coordinator_ops *ops = conn->server->options.coordinator_ops;
    struct sl_reason reason;
    if (coordinator == NULL && conn->server->options.elects) {
        send_elsewhere(conn);
        return;
    }
    if (coordinator == NULL) {
        sl_server_handshake_refuse(conn, SL_ERR_REFUSED,
                                   "ps/%u does not host the coordinator, ps/0 does",
                                   conn->server->options.task_index);
        return;
    }
    int err = ops->hello(coordinator, (uintptr_t)conn, &conn->greeting.hello,
                         sl_server_now_ns(conn->server), &reason);
    if (err != 0) {
        sl_server_handshake_refuse(conn, err, "%s", reason.text);
        return;
    }
    conn->kind = SL_SERVER_CONN_CONTROL;
    conn->greeting.hello.any_task = false;
    conn->greeting.hello.task_index = ops->task_index(coordinator, (uintptr_t)conn);
    sl_message_hello_name(&conn->greeting.hello, conn->name);
    send_welcome(conn);
}

static void admit_primary(struct sl_server_conn *conn)
{
    const struct sl_server *server = conn->server;
    if (server->shard == NULL) {
        sl_server_handshake_refuse(conn, SL_ERR_AGAIN, "this server does not know its shards yet");
    } else if (server->options.hooks == NULL) {
        sl_server_handshake_refuse(
            conn, SL_ERR_REFUSED,
            "shard %u of ps/%u: it has a KV handler, whose state is not known",
            server->options.shard.index, server->options.task_index);
    } else {
        server->options.hooks->admit(conn);
    }
}

/* Gives the connection of a primary to the server of its shard. Returns false if it was refused. */
static bool find_shard(struct sl_server_conn *conn)
{
    const uint32_t shard = conn->greeting.hello.shard;
    struct sl_server *found = conn->host->by_shard[shard];
    if (found == NULL) {
        sl_server_handshake_refuse(conn, SL_ERR_AGAIN, "ps/%u does not have shard %u",
                                   conn->server->options.task_index, shard);
        return false;
    }
    conn->server = found;
    return true;
}

/* The peer is authenticated. */
static void admit(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    const bool is_control = conn->greeting.hello.purpose == SL_MESSAGE_PURPOSE_CONTROL;
    sl_timer_disarm(sl_server_timers(server), &conn->handshake.timer);
    if (sl_server_drains(server)) {
        sl_server_handshake_refuse(conn, SL_ERR_CANCELLED, "ps/%u is shutting down",
                                   server->options.task_index);
    } else if (is_control) {
        admit_control(conn);
    } else if (conn->greeting.hello.purpose == SL_MESSAGE_PURPOSE_REPLICA) {
        if (find_shard(conn)) {
            admit_primary(conn);
        }
    } else if (conn->greeting.hello.purpose == SL_MESSAGE_PURPOSE_DATA) {
        admit_data(conn);
    } else {
        sl_server_handshake_refuse(conn, SL_ERR_UNSUPPORTED, "ps/%u takes no such connections",
                                   server->options.task_index);
    }
}

/* Attaching */

/* Attaches a channel to the shard. Errors: AGAIN, if the shard does not serve here now; those of
 * sl_server_session_attach. */
static int attach(struct sl_server_conn *conn, uint32_t shard, struct sl_server_channel **out,
                  struct sl_reason *reason)
{
    struct sl_server *server = conn->host->by_shard[shard];
    if (server == NULL || !server->is_open) {
        return sl_reason_fail(reason, SL_ERR_AGAIN, "shard %u is not on this reactor of ps/%u%s",
                              shard, conn->server->options.task_index,
                              server == NULL ? "" : " yet: it is being restored");
    }
    if (!server->role.serves) {
        return sl_reason_fail(reason, SL_ERR_AGAIN,
                              "shard %u of ps/%u: it has the backup, or is being promoted", shard,
                              server->options.task_index);
    }
    if (sl_server_drains(server)) {
        return sl_reason_fail(reason, SL_ERR_CANCELLED, "ps/%u is shutting down",
                              server->options.task_index);
    }
    *out = sl_server_conn_add_channel(conn, server);
    if (*out == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY,
                              "the server has no memory for another client");
    }
    return sl_server_session_attach(*out, reason);
}

void sl_server_handshake_attach(struct sl_server_conn *conn, const struct sl_message *message)
{
    const uint32_t shard = sl_frame_shard(message->id);
    const struct sl_message_hello *hello = &conn->greeting.hello;
    struct sl_message answer = sl_greeting_welcome(&conn->greeting);
    struct sl_server_channel *channel;
    struct sl_reason reason;
    if (sl_server_conn_channel(conn, shard) != NULL) {
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL, "it attaches shard %u twice", shard);
        return;
    }
    const int err = attach(conn, shard, &channel, &reason);
    if (err != 0) {
        sl_log_debug("%s (%s) does not get shard %u: %s", conn->name, conn->conn->peer, shard,
                     reason.text);
        sl_server_send_error(conn, message->id, err, reason.text);
        return;
    }
    struct sl_server *server = channel->server;
    server->role.backup.needs_snapshot = true;
    channel->request_id_last = 0;
    answer.id = message->id;
    answer.welcome.shard = shard;
    answer.welcome.shard_count = server->options.shard.count;
    answer.welcome.resumed = channel->resumed;
    answer.welcome.restored =
        channel->resumed ? channel->session->restored : server->restore.is_done;
    answer.welcome.incarnation = server->role.state;
    answer.welcome.payload_bytes_max = server->payload_bytes_max;
    if (hello->role == SL_MESSAGE_ROLE_WORKER) {
        sl_shard_worker_seen(server->shard, hello->task_index);
        const struct sl_shard_worker worker =
            sl_shard_worker_find(server->shard, hello->task_index);
        answer.welcome.counts = worker.active;
        answer.welcome.clock = worker.clock;
    }
    sl_server_send(conn, &answer);
}

/* Secret */

/* Runs after the migration, on the owning reactor: no frame may be in flight during a migration. */
void sl_server_handshake_authenticate(struct sl_server_conn *conn, const struct sl_message *message)
{
    const char *why;
    struct sl_message answer;
    const struct sl_server_options *options = &conn->server->options;
    const bool is_operator = conn->greeting.hello.secret == SL_MESSAGE_SECRET_OPERATOR;
    if (is_operator && options->operator_secret == NULL) {
        sl_server_handshake_refuse(conn, SL_ERR_REFUSED,
                                   "this cluster has no operator's secret: leave out "
                                   "--operator-secret-file");
        return;
    }
    const int err = sl_greeting_authenticate(
        &conn->greeting, is_operator ? options->operator_secret : options->secret, message, &answer,
        &why);
    if (err == SL_ERR_PROTOCOL) {
        sl_server_conn_drop(conn, err, "%s", why);
    } else if (err != 0) {
        sl_server_handshake_refuse(conn, err, "%s", why);
    } else if (answer.kind == SL_MESSAGE_CHALLENGE) {
        conn->kind = SL_SERVER_CONN_CHALLENGED;
        sl_server_send(conn, &answer);
    } else {
        if (answer.kind == SL_MESSAGE_PROOF) {
            sl_server_send(conn, &answer);
        }
        admit(conn);
    }
}

/* Hello */

void sl_server_handshake_continue(struct sl_server_conn *conn)
{
    if (conn->uses_shm && sl_server_shm_begin(conn->host) != 0) {
        sl_server_handshake_refuse(conn, SL_ERR_NO_MEMORY,
                                   "the server has no memory to share for its replies");
        return;
    }
    if (conn->greeting.hello.purpose != SL_MESSAGE_PURPOSE_CONTROL) {
        /* Before the first frame: the outbox must not change while frames are unsent. */
        conn->outbox =
            conn->uses_shm ? &conn->host->memory.shm_replies : &conn->host->memory.replies;
    }
    sl_server_handshake_authenticate(conn, NULL);
}

/* Returns the first server of the requested reactor, or of that of the requested shard; or this
 * one, if it must answer with an error. */
static struct sl_server *owner_of(const struct sl_server_conn *conn)
{
    const struct sl_message_hello *hello = &conn->greeting.hello;
    struct sl_server *server = conn->server;
    const uint32_t count = server->options.server_count;
    const bool is_reactor = hello->purpose == SL_MESSAGE_PURPOSE_DATA;
    return hello->purpose == SL_MESSAGE_PURPOSE_CONTROL || count == 0 ||
                   (is_reactor && hello->shard >= count)
               ? server
               : server->options.servers[is_reactor ? hello->shard : hello->shard % count];
}

/* Migrates the connection to another reactor's server. On error the transport then reports `closed`
 * here. */
static int migrate(struct sl_server_conn *conn, struct sl_server *to)
{
    struct sl_server_host *from = conn->host;
    struct sl_server *server = conn->server;
    struct sl_transport *transport = sl_server_transports_like(to->host, conn->conn);
    if (transport == NULL) {
        sl_transport_disconnect(conn->conn);
        return SL_ERR_UNSUPPORTED;
    }
    sl_timer_disarm(sl_server_timers(server), &conn->handshake.timer);
    sl_server_admission_remove(conn);
    /* Unless the call fails, the connection now belongs to the other reactor. */
    struct sl_conn *transport_conn = conn->conn;
    conn->host = NULL;
    conn->server = to;
    int err =
        sl_transport_migrate(transport_conn, transport, &sl_server_conn_events, to->host, conn);
    if (err != 0) {
        conn->server = server;
        sl_server_admission_add(from, conn);
    }
    return err;
}

void sl_server_handshake_hello(struct sl_server_conn *conn, const struct sl_message *message)
{
    struct sl_server *server = conn->server;
    int err = sl_greeting_hello(&conn->greeting, message);
    if (err == SL_ERR_PROTOCOL) {
        sl_server_conn_drop(conn, err, "its first message is not a hello");
        return;
    }
    sl_message_hello_name(&conn->greeting.hello, conn->name);
    if (err == SL_ERR_VERSION) {
        sl_server_handshake_refuse_version(conn, conn->greeting.hello.protocol_version);
        return;
    }
    struct sl_server *owner = owner_of(conn);
    if (owner->host == server->host) {
        sl_server_handshake_continue(conn);
        return;
    }
    if ((conn->conn->transport->ops->capabilities & SL_TRANSPORT_MIGRATES) == 0) {
        sl_server_handshake_refuse(
            conn, SL_ERR_REFUSED, "ps/%u: the connection is to reactor %u, not to %u",
            server->options.task_index, server->options.local_index, owner->options.local_index);
        return;
    }
    /* On failure `closed` follows. */
    err = migrate(conn, owner);
    if (err != 0) {
        sl_server_log(server, "%s cannot be handed to reactor %u: %s", conn->name,
                      owner->options.local_index, sl_err_name(err));
    }
}
