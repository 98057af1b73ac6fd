#include "ps/server/request_error.h"

#include <string.h>

#include "core/event.h"

#define REFUSAL_LOG_EVERY_NS (60 * SL_CLOCK_NS_PER_S) /* between two lines of the same kind */

/* Returns whether a line is due, and notes it. */
static bool request_error_is_due(const struct sl_server *server, uint64_t *logged_ns)
{
    const uint64_t now_ns = sl_server_now_ns(server);
    const bool due = *logged_ns == 0 || now_ns - *logged_ns >= REFUSAL_LOG_EVERY_NS;
    *logged_ns = due ? now_ns : *logged_ns;
    return due;
}

static void log_out_of_memory(struct sl_server *server, const char *text)
{
    if (!request_error_is_due(server, &server->logged.out_of_memory_ns)) {
        return;
    }
    const uint32_t shard = server->options.shard.index;
    sl_log_event(SL_LOG_WARN,
                 SL_EVENT("memory_limit_reached", SL_EVENT_NUMBER("shard", shard),
                          SL_EVENT_TEXT("reason", text)),
                 "shard %u refuses requests: %s (logged once a minute)", shard, text);
}

void sl_server_request_error_reply(const struct sl_server_reply_to *to, int err, const char *text)
{
    struct sl_server_channel *channel = to->channel;
    struct sl_server_conn *conn = channel->conn;
    uint32_t bytes = (uint32_t)strlen(text);
    sl_server_metrics_failed(channel->server->cells.used, err);
    if (err == SL_ERR_NO_MEMORY) {
        log_out_of_memory(channel->server, text);
    }
    uint8_t *frame = sl_outbox_reserve(conn->outbox, bytes);
    if (frame == NULL) {
        sl_server_conn_drop(conn, SL_ERR_NO_MEMORY, "no room to answer request %llu: %s",
                            (unsigned long long)to->id, text);
        return;
    }
    memcpy(frame + SL_FRAME_HEADER_BYTES, text, bytes);
    struct sl_frame header = sl_server_reply_header(channel, to->id, to->credit_bytes, bytes);
    header.status = (uint8_t)-err;
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
}

void sl_server_request_error_not_finite(const struct sl_server_channel *channel, const char *text)
{
    struct sl_server *server = channel->server;
    const uint32_t shard = server->options.shard.index;
    sl_cell_add(&server->cells.used->not_finite, 1);
    if (request_error_is_due(server, &server->logged.not_finite_ns)) {
        sl_log_event(SL_LOG_WARN,
                     SL_EVENT("push_refused", SL_EVENT_NUMBER("shard", shard),
                              SL_EVENT_TEXT("client", channel->conn->name),
                              SL_EVENT_TEXT("reason", text)),
                     "shard %u refuses a push of %s: %s (logged once a minute)", shard,
                     channel->conn->name, text);
    }
}
