#include "ps/server/control.h"

#include "core/reason.h"
#include "net/session/message_spec.h"
#include "ps/server/handshake.h"
#include "ps/server/state.h"

void sl_server_send_to_peer(void *ctx, uint64_t peer, const struct sl_message *message)
{
    sl_server_send((struct sl_server_conn *)(uintptr_t)peer, message);
}

void sl_server_close_peer(void *ctx, uint64_t peer, const char *why)
{
    sl_server_conn_drop((struct sl_server_conn *)(uintptr_t)peer, SL_ERR_CLOSED, "%s", why);
}

/* A message was executed that the backup must execute too. */
static void server_control_send_answer(struct sl_server_channel *channel,
                                       const struct sl_message *message,
                                       const struct sl_message *answer)
{
    if (channel->server->role.logs) {
        channel->server->options.hooks->answer_later(channel, message, answer);
    } else {
        sl_server_send(channel->conn, answer);
    }
}

static void on_table_open(struct sl_server_channel *channel, const struct sl_message *message)
{
    struct sl_server *server = channel->server;
    struct sl_server_conn *conn = channel->conn;
    struct sl_reason reason;
    const struct sl_message_table_open *open = &message->table_open;
    if (open->asks) {
        sl_server_send_error(conn, message->id, SL_ERR_INVALID,
                             "a shard is not asked for specifications: the coordinator is");
        return;
    }
    int err = sl_server_table_drop_check(server, open, &reason);
    err = err != 0 ? err : sl_shard_table_open(server->shard, open->table_id, &open->spec, &reason);
    if (err != 0) {
        sl_server_log(server, "refused %s: %s", conn->name, reason.text);
        sl_server_send_error(conn, message->id, err, reason.text);
        return;
    }
    const struct sl_message opened =
        sl_message_table_opened(message->id, open->table_id, &open->spec);
    server_control_send_answer(channel, message, &opened);
}

static void on_stats_get(struct sl_server_channel *channel, const struct sl_message *message)
{
    struct sl_server_conn *conn = channel->conn;
    struct sl_message answer = {.kind = SL_MESSAGE_STATS, .id = message->id};
    if (sl_server_stats(channel->server, &answer.stats) != 0) {
        sl_server_send_error(conn, message->id, SL_ERR_NO_MEMORY, "no memory for the counters");
        return;
    }
    sl_server_send(conn, &answer);
    sl_message_fini(&answer);
}

static void on_join(struct sl_server_channel *channel, const struct sl_message *message)
{
    struct sl_server_conn *conn = channel->conn;
    if (conn->greeting.hello.role != SL_MESSAGE_ROLE_WORKER) {
        sl_server_send_error(conn, message->id, SL_ERR_INVALID, "only a worker has a clock");
        return;
    }
    const struct sl_message joined = {
        .kind = SL_MESSAGE_JOINED,
        .id = message->id,
        .clock = sl_shard_worker_join(channel->server->shard, conn->greeting.hello.task_index,
                                      message->clock),
    };
    if (joined.clock == message->clock) {
        server_control_send_answer(channel, message, &joined);
    } else {
        sl_server_send(conn, &joined);
    }
}

static void on_data_message(struct sl_server_conn *conn, const struct sl_message *message)
{
    const uint32_t shard = sl_frame_shard(message->id);
    struct sl_server_channel *channel = sl_server_conn_channel(conn, shard);
    if (channel == NULL) {
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL,
                            "a message for shard %u, which it has not attached", shard);
        return;
    }
    const struct sl_server *server = channel->server;
    const bool is_first = !channel->session->confirmed;
    const bool is_logged =
        is_first || message->kind == SL_MESSAGE_TABLE_OPEN || message->kind == SL_MESSAGE_JOIN;
    if (is_logged && server->role.log_room == SL_SERVER_LOG_OVERFULL) {
        sl_server_conn_drop(conn, SL_ERR_AGAIN, "its backup does not keep up with messages");
        return;
    }
    if (is_first && server->role.logs) {
        server->options.hooks->client_event(channel->session, SL_SERVER_CLIENT_CONFIRMED);
    }
    sl_server_session_confirm(channel->session);
    switch (message->kind) {
    case SL_MESSAGE_TABLE_OPEN:
        on_table_open(channel, message);
        break;
    case SL_MESSAGE_STATS_GET:
        on_stats_get(channel, message);
        break;
    case SL_MESSAGE_JOIN:
        on_join(channel, message);
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
        sl_server_handshake_hello(conn, message);
        return;
    case SL_SERVER_CONN_CHALLENGED:
        sl_server_handshake_authenticate(conn, message);
        return;
    case SL_SERVER_CONN_REFUSED:
        return;
    case SL_SERVER_CONN_CONTROL:
        server->options.coordinator_ops->message(server->options.coordinator, (uintptr_t)conn,
                                                 message, sl_server_now_ns(server));
        break;
    case SL_SERVER_CONN_DATA:
        if (message->kind == SL_MESSAGE_ATTACH) {
            sl_server_handshake_attach(conn, message);
        } else if (message->kind != SL_MESSAGE_GOODBYE) {
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
    sl_server_conn_release(conn, message);
    if (err != 0) {
        sl_server_conn_drop(conn, err, "not a valid control message");
        return;
    }
    dispatch(conn, &decoded);
    sl_message_fini(&decoded);
}
