/* Connections of the load: each says hello as a client of its own, and is then a stream of requests
 * and replies. */

#include "bench/load_internal.h"
#include "core/assert.h"
#include "net/session/message.h"

/* Connections whose welcome is awaited at a time: fewer than a listener has room for. */
#define GREETING_MAX 64

static struct sl_bench_load_connection *of_conn(const struct sl_conn *conn)
{
    return conn->user;
}

/* Sends what has no answer, or a welcome for one, from the connection's own memory. */
static void send_control(struct sl_bench_load_connection *connection,
                         const struct sl_message *message)
{
    const size_t bytes = sl_message_encoded_bytes(message);
    sl_assert(SL_FRAME_HEADER_BYTES + bytes <= sizeof connection->control);
    const struct sl_frame header = {.type = SL_FRAME_CONTROL, .payload_bytes = (uint32_t)bytes};
    sl_frame_encode(&header, connection->control);
    sl_message_encode(message, connection->control + SL_FRAME_HEADER_BYTES);
    const struct sl_transport_frame frame = {.head = connection->control,
                                             .head_bytes = SL_FRAME_HEADER_BYTES + (uint32_t)bytes};
    if (sl_transport_send_burst(connection->conn, &frame, 1) != 1) {
        sl_bench_load_fail(connection->load, SL_ERR_CLOSED, "%s takes no greeting",
                           connection->conn->peer);
    }
}

/* ---- The greeting ---------------------------------------------------------------------------- */

static void connect_more(struct sl_bench_load *load);

static void on_connected(void *ctx, struct sl_conn *conn)
{
    struct sl_bench_load *load = ctx;
    struct sl_bench_load_connection *connection = of_conn(conn);
    struct sl_message message = {.kind = SL_MESSAGE_HELLO,
                                 .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                                           .purpose = SL_MESSAGE_PURPOSE_DATA,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = sl_reactor_random(load->reactor),
                                           .shard = connection->shard->reactor,
                                           .software = "starling-bench"}};
    send_control(connection, &message);
}

/* The first one grants credit; the second attaches the shard. */
static void welcome(struct sl_bench_load_connection *connection,
                    const struct sl_message_welcome *welcome)
{
    struct sl_bench_load *load = connection->load;
    const uint32_t shard = (uint32_t)(connection->shard - load->shards);
    if (connection->credit.requests == 0) {
        connection->credit = (struct sl_credit){.bytes = welcome->credit_bytes,
                                                .requests = welcome->credit_requests};
        send_control(connection,
                     &(struct sl_message){.kind = SL_MESSAGE_ATTACH, .id = sl_frame_id(shard, 1)});
        return;
    }
    if (welcome->shard != shard || welcome->shard_count != load->shard_count ||
        connection->credit.bytes < load->credit_bytes) {
        sl_bench_load_fail(load, SL_ERR_PROTOCOL,
                           "%s welcomes to another shard, or with too little credit",
                           connection->conn->peer);
        return;
    }
    connection->welcomed = true;
    load->welcomed_count++;
    if (load->welcomed_count == load->connection_count) {
        load->phase = SL_BENCH_LOAD_IDLE;
        sl_bench_load_answer(load);
    } else {
        connect_more(load);
    }
}

static void control_received(struct sl_bench_load_connection *connection,
                             const struct sl_transport_message *frame)
{
    struct sl_bench_load *load = connection->load;
    struct sl_message message;
    if (sl_message_decode(frame->payload, frame->header.payload_bytes, &message) != 0) {
        sl_bench_load_fail(load, SL_ERR_PROTOCOL, "%s sent a malformed message",
                           connection->conn->peer);
        return;
    }
    if (message.kind == SL_MESSAGE_WELCOME && !connection->welcomed) {
        welcome(connection, &message.welcome);
    } else if (message.kind == SL_MESSAGE_ERROR) {
        sl_bench_load_fail(load, message.error.err, "%s says: %s", connection->conn->peer,
                           message.error.text);
    } else if (message.kind != SL_MESSAGE_WAITING) {
        sl_bench_load_fail(load, SL_ERR_PROTOCOL, "%s sent a message that was not expected",
                           connection->conn->peer);
    }
    sl_message_fini(&message);
}

/* ---- The transport's upcalls ----------------------------------------------------------------- */

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct sl_bench_load *load = ctx;
    struct sl_bench_load_connection *connection = of_conn(conn);
    if (header->type != SL_FRAME_REPLY || header->payload_bytes != load->reply_bytes) {
        sl_bench_load_fail(load, SL_ERR_PROTOCOL,
                           "%s sent a frame of %u bytes, which nobody "
                           "asked for",
                           conn->peer, header->payload_bytes);
        return NULL;
    }
    return connection->reply_buffer;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct sl_bench_load *load = ctx;
    struct sl_bench_load_connection *connection = of_conn(conn);
    if (load->phase == SL_BENCH_LOAD_FAILED || load->phase == SL_BENCH_LOAD_CLOSING) {
        /* Nobody wants it any more. */
    } else if (message->header.type == SL_FRAME_CONTROL) {
        control_received(connection, message);
    } else if (connection->welcomed) {
        sl_bench_load_received(connection, message);
    }
    sl_transport_release(conn, message);
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct sl_bench_load_connection *connection = cookie;
    if (connection != NULL) {
        connection->sent_id++;
    }
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    sl_bench_load_wake(of_conn(conn));
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    struct sl_bench_load *load = ctx;
    struct sl_bench_load_connection *connection = of_conn(conn);
    connection->conn = NULL;
    load->open_count--;
    if (load->phase != SL_BENCH_LOAD_CLOSING) {
        sl_bench_load_fail(load, err == 0 ? SL_ERR_CLOSED : err, "connection %u to %s ended: %s",
                           (uint32_t)(connection - load->connections), conn->peer,
                           err == 0 ? "closed" : sl_err_name(err));
    } else if (load->open_count == 0) {
        sl_bench_load_answer(load);
    }
}

static const struct sl_transport_events events = {
    .connected = on_connected,
    .sink = on_sink,
    .received = on_received,
    .sent = on_sent,
    .writable = on_writable,
    .closed = on_closed,
};

/* ---- All of them ----------------------------------------------------------------------------- */

static void connect_more(struct sl_bench_load *load)
{
    while (load->phase == SL_BENCH_LOAD_CONNECTING && load->begun_count < load->connection_count &&
           load->begun_count - load->welcomed_count < GREETING_MAX) {
        struct sl_bench_load_connection *connection = &load->connections[load->begun_count];
        int err = sl_transport_connect(load->transport, &connection->shard->endpoint,
                                       connection->shard->reactor, &events, load, connection,
                                       &connection->conn);
        if (err != 0) {
            sl_bench_load_fail(load, err, "connection %u cannot be opened: %s", load->begun_count,
                               sl_err_name(err));
            return;
        }
        load->begun_count++;
        load->open_count++;
    }
}

void sl_bench_load_connect(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    load->phase = SL_BENCH_LOAD_CONNECTING;
    connect_more(load);
}

void sl_bench_load_disconnect(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    load->phase = SL_BENCH_LOAD_CLOSING;
    if (load->open_count == 0) {
        sl_bench_load_answer(load);
        return;
    }
    for (uint32_t i = 0; i < load->begun_count; i++) {
        struct sl_bench_load_connection *connection = &load->connections[i];
        if (connection->conn == NULL) {
            continue;
        }
        if (connection->welcomed && connection->conn->state == SL_CONN_OPEN) {
            send_control(connection, &(struct sl_message){.kind = SL_MESSAGE_GOODBYE});
        }
        sl_transport_disconnect(connection->conn);
    }
}
