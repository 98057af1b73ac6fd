#include "ps/server/conn.h"

#include "core/format.h"
#include "core/log.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

void sl_server_log(struct sl_server *server, const char *format, ...)
{
    if (!sl_log_limit_allows(&server->logged.limit, sl_server_now_ns(server))) {
        return;
    }
    char text[SL_MESSAGE_TEXT_BYTES];
    SL_FORMAT(text, format);
    sl_log_warn("%s", text);
}

void sl_server_conn_drop(struct sl_server_conn *conn, int err, const char *format, ...)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    SL_FORMAT(text, format);
    sl_server_log(conn->server, "closing %s (%s): %s: %s", conn->name, conn->conn->peer,
                  sl_err_name(err), text);
    if (conn->kind == SL_SERVER_CONN_NEW || conn->kind == SL_SERVER_CONN_CHALLENGED ||
        conn->kind == SL_SERVER_CONN_WAITING) {
        conn->kind = SL_SERVER_CONN_REFUSED;
    }
    sl_transport_disconnect(conn->conn);
}

void sl_server_conn_release(struct sl_server_conn *conn, const struct sl_transport_message *message)
{
    const bool is_short = conn->uses_shm
                              ? message->header.payload_bytes < SL_SERVER_SHM_SINK_BYTES
                              : message->header.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES;
    const bool has_sink = message->token == NULL || !is_short;
    sl_transport_release(conn->conn, message);
    if (has_sink && conn->sink.buffer != NULL) {
        sl_server_buffers_put(&conn->host->memory.buffers, conn->sink.buffer);
        conn->sink.buffer = NULL;
        sl_server_host_unblock(conn->host);
    }
}
