/* Upcalls of the transports. */
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/server/control.h"
#include "ps/server/handshake.h"
#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

static void events_hello_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_server_conn *conn = SL_CONTAINER_OF(timer, struct sl_server_conn, handshake.timer);
    sl_server_conn_drop(conn, SL_ERR_DEADLINE, "no %s within %llu s",
                        conn->kind == SL_SERVER_CONN_NEW ? "hello" : "proof of the secret",
                        SL_GREETING_TIMEOUT_NS / SL_CLOCK_NS_PER_S);
}

static void events_on_accepted(void *ctx, struct sl_conn *transport_conn)
{
    struct sl_server_host *host = ctx;
    struct sl_server *server = host->home;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn != NULL) {
        /* Migrated by the listening reactor, with its hello read. */
        conn->conn = transport_conn;
        sl_server_admission_add(host, conn);
        sl_timer_arm(sl_server_timers(server), &conn->handshake.timer, conn->handshake.until_ns);
        sl_server_handshake_continue(conn);
        return;
    }
    conn = sl_server_drains(server) ? NULL : calloc(1, sizeof *conn);
    if (conn == NULL) {
        sl_transport_disconnect(transport_conn);
        return;
    }
    sl_list_init(&conn->pending.messages);
    conn->conn = transport_conn;
    conn->server = server;
    conn->outbox = &host->memory.control;
    conn->uses_shm = transport_conn->transport == host->transports.shm;
    conn->handshake.timer.run = events_hello_late;
    (void)snprintf(conn->name, sizeof conn->name, "a new connection");
    transport_conn->user = conn;
    sl_server_admission_add(host, conn);
    conn->handshake.until_ns = sl_server_now_ns(server) + SL_GREETING_TIMEOUT_NS;
    sl_timer_arm(sl_server_timers(server), &conn->handshake.timer, conn->handshake.until_ns);
}

/* The server opens no connections. */
static void events_on_connected(void *ctx, struct sl_conn *conn)
{
    sl_assert(false);
}

static void *events_on_sink(void *ctx, struct sl_conn *transport_conn,
                            const struct sl_frame *header)
{
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL) {
        return NULL;
    }
    if (!sl_server_conn_is_welcomed(conn) ||
        (header->type == SL_FRAME_REQUEST && conn->credit.bytes < header->payload_bytes)) {
        sl_server_host_answer_pulls(conn->host);
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL,
                            "a frame of %u bytes, for which it has no credit",
                            header->payload_bytes);
        return NULL;
    }
    /* A checksum is verified only on memory that no peer can change: copy the frame. */
    bool stays = conn->uses_shm && header->type == SL_FRAME_REQUEST && header->flags == 0 &&
                 header->payload_bytes <= SL_SERVER_SHM_BYTES;
    if (stays && sl_server_shm_is_late(conn, header->payload_bytes)) {
        return NULL;
    }
    if (conn->sink.buffer == NULL) { /* else: second call for the same frame */
        conn->sink.buffer = sl_server_admission_sink(conn, header->payload_bytes);
    }
    return stays && conn->sink.buffer != NULL ? SL_TRANSPORT_IN_PLACE : conn->sink.buffer;
}

static void events_on_received(void *ctx, struct sl_conn *transport_conn,
                               const struct sl_transport_message *message)
{
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL) {
        sl_transport_release(transport_conn, message);
        return;
    }
    if (message->header.version != SL_FRAME_PROTOCOL_VERSION) {
        sl_server_conn_release(conn, message);
        sl_server_host_answer_pulls(conn->host);
        sl_server_handshake_refuse_version(conn, message->header.version);
        return;
    }
    if ((message->header.flags & SL_FRAME_CHECKSUM) != 0 &&
        sl_frame_verify(&message->header, message->payload) != 0) {
        sl_server_conn_release(conn, message);
        sl_server_host_answer_pulls(conn->host);
        sl_server_conn_drop(conn, SL_ERR_CORRUPT, "a frame's checksum does not match");
        return;
    }
    if (message->header.type == SL_FRAME_REQUEST && conn->kind == SL_SERVER_CONN_DATA) {
        const uint32_t shard = sl_frame_shard(message->header.request_id);
        struct sl_server_channel *channel = sl_server_conn_channel(conn, shard);
        if (channel != NULL) {
            sl_server_request_arrive(channel, message);
            return;
        }
        sl_server_conn_release(conn, message);
        sl_server_host_answer_pulls(conn->host);
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL,
                            "a request for shard %u, which it has not attached", shard);
        return;
    }
    if (message->header.type == SL_FRAME_REQUEST && conn->kind == SL_SERVER_CONN_PRIMARY) {
        conn->server->options.hooks->frame(conn, message);
        return;
    }
    if (message->header.type == SL_FRAME_CONTROL && message->header.request_id == 0 &&
        message->header.budget_us == 0) {
        sl_server_host_answer_pulls(conn->host);
        sl_server_control(conn, message);
        return;
    }
    sl_server_conn_release(conn, message);
    sl_server_host_answer_pulls(conn->host);
    sl_server_conn_drop(conn, SL_ERR_PROTOCOL, "a frame of type %u, which is not expected here",
                        message->header.type);
}

static void events_on_sent(void *ctx, struct sl_conn *transport_conn, void *cookie)
{
    struct sl_server_host *host = ctx;
    struct sl_server_conn *conn = transport_conn->user;
    sl_server_host_unblock(host);
    conn->output.progressed = true;
    sl_outbox_sent(conn->outbox, cookie);
    sl_server_control_out_resume(host, conn->outbox);
    if (conn->server->drain.stage == SL_SERVER_SAID_GOODBYE) {
        sl_server_drain_conn(conn);
    }
}

static void events_on_writable(void *ctx, struct sl_conn *transport_conn)
{
    struct sl_server_conn *conn = transport_conn->user;
    if (conn != NULL) {
        sl_outbox_writable(conn->outbox, transport_conn, &conn->out);
    }
}

static void events_on_closed(void *ctx, struct sl_conn *transport_conn, int err)
{
    struct sl_server_host *host = ctx;
    struct sl_server_conn *conn = transport_conn->user;
    if (conn == NULL || conn->host == NULL) {
        free(conn); /* refused, or closed during the migration: it has no channels */
        return;
    }
    struct sl_server *server = conn->server;
    sl_log_debug("%s (%s) closed: %s", conn->name, transport_conn->peer, sl_err_name(err));
    transport_conn->user = NULL;
    sl_timer_disarm(sl_server_timers(server), &conn->handshake.timer);
    for (uint32_t i = 0; i < conn->channel_count; i++) {
        sl_server_pull_batch_drop(conn->channels[i]);
    }
    sl_server_control_out_drop(conn);
    sl_outbox_closed(conn->outbox, transport_conn, &conn->out);
    sl_server_control_out_resume(host, conn->outbox);
    if (conn->sink.buffer != NULL) {
        sl_server_buffers_put(&host->memory.buffers, conn->sink.buffer);
    }
    sl_server_session_detach(conn);
    if (conn->kind == SL_SERVER_CONN_PRIMARY) {
        server->options.hooks->closed(conn);
    }
    if (conn->kind == SL_SERVER_CONN_CONTROL && server->options.control_gone != NULL) {
        server->options.control_gone(server->options.control_gone_ctx, (uintptr_t)conn);
    }
    if (conn->kind == SL_SERVER_CONN_CONTROL) {
        server->options.coordinator_ops->gone(server->options.coordinator, (uintptr_t)conn,
                                              sl_server_drains(server), sl_server_now_ns(server));
    }
    sl_server_admission_remove(conn);
    sl_server_conn_free(conn);
    sl_server_host_unblock(host);
    sl_server_drain_update(host);
}

const struct sl_transport_events sl_server_conn_events = {
    .accepted = events_on_accepted,
    .connected = events_on_connected,
    .sink = events_on_sink,
    .received = events_on_received,
    .sent = events_on_sent,
    .writable = events_on_writable,
    .closed = events_on_closed,
};
