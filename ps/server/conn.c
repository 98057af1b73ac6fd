#include "ps/server/conn.h"

#include <stdlib.h>

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

struct sl_server_channel *sl_server_conn_channel(const struct sl_server_conn *conn, uint32_t shard)
{
    const struct sl_server *server = conn->host->by_shard[shard];
    struct sl_server_channel *channel = server == NULL || server->place >= conn->channel_count
                                            ? NULL
                                            : conn->channels[server->place];
    return channel == NULL || channel->session == NULL ? NULL : channel;
}

struct sl_server_channel *sl_server_conn_add_channel(struct sl_server_conn *conn,
                                                     struct sl_server *server)
{
    const uint32_t count = conn->host->place_count;
    if (server->place >= conn->channel_count) {
        struct sl_server_channel **channels =
            realloc(conn->channels, count * sizeof(struct sl_server_channel *));
        if (channels == NULL) {
            return NULL;
        }
        for (; conn->channel_count < count; conn->channel_count++) {
            channels[conn->channel_count] = NULL;
        }
        conn->channels = channels;
    }
    struct sl_server_channel **at = &conn->channels[server->place];
    if (*at == NULL && (*at = calloc(1, sizeof **at)) != NULL) {
        sl_list_init(&(*at)->queue);
        (*at)->conn = conn;
        (*at)->server = server;
    }
    return *at;
}

void sl_server_conn_free(struct sl_server_conn *conn)
{
    for (uint32_t i = 0; i < conn->channel_count; i++) {
        free(conn->channels[i]);
    }
    free(conn->channels);
    free(conn);
}

void sl_server_conn_drop(struct sl_server_conn *conn, int err, const char *format, ...)
{
    char text[SL_MESSAGE_TEXT_BYTES];
    SL_FORMAT(text, format);
    sl_server_log(conn->server, "closing %s (%s): %s: %s", conn->name, conn->conn->peer,
                  sl_err_name(err), text);
    if (conn->kind == SL_SERVER_CONN_NEW || conn->kind == SL_SERVER_CONN_CHALLENGED) {
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
