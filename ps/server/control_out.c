#include "ps/server/control_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/server/state.h"

#define KEPT_BYTES_DEFAULT ((size_t)256 << 20)

struct sl_server_shared_payload {
    uint32_t user_count;
    uint32_t bytes;
    uint8_t payload[]; /* an encoded message */
};

struct pending_message {
    struct sl_list_link link;
    struct sl_server_shared_payload *payload;
};

/* Returns the connections with messages for the outbox. */
static struct sl_list *control_out_conns_of(struct sl_server_host *host,
                                            const struct sl_outbox *outbox)
{
    if (outbox == &host->memory.shm_replies) {
        return &host->pending.shm;
    }
    return outbox == &host->memory.control ? &host->pending.control : &host->pending.replies;
}

void sl_server_control_out_init(struct sl_server_host *host)
{
    sl_list_init(&host->pending.control);
    sl_list_init(&host->pending.replies);
    sl_list_init(&host->pending.shm);
}

static void payload_put(struct sl_server_host *host, struct sl_server_shared_payload *payload)
{
    if (payload != NULL && --payload->user_count == 0) {
        host->pending.bytes -= payload->bytes;
        free(payload);
    }
}

/* Encodes the message, or shares the last kept payload if it is equal. NULL: no memory. */
static struct sl_server_shared_payload *
payload_get(struct sl_server_host *host, const struct sl_message *message, uint32_t bytes)
{
    struct sl_server_shared_payload *payload = malloc(sizeof *payload + bytes);
    if (payload == NULL) {
        return NULL;
    }
    *payload = (struct sl_server_shared_payload){.user_count = 1, .bytes = bytes};
    sl_message_encode(message, payload->payload);
    struct sl_server_shared_payload *last = host->pending.payload_last;
    if (last != NULL && last->bytes == bytes &&
        memcmp(last->payload, payload->payload, bytes) == 0) {
        free(payload);
        last->user_count++;
        return last;
    }
    payload_put(host, last);
    host->pending.payload_last = payload;
    payload->user_count++;
    host->pending.bytes += bytes;
    return payload;
}

/* False: no memory. */
static bool keep(struct sl_server_conn *conn, const struct sl_message *message, uint32_t bytes)
{
    struct sl_server_host *host = conn->host;
    const size_t bytes_max =
        host->options.kept_bytes_max == 0 ? KEPT_BYTES_DEFAULT : host->options.kept_bytes_max;
    if (host->pending.bytes + sizeof(struct pending_message) + bytes > bytes_max) {
        return false;
    }
    struct pending_message *pending = malloc(sizeof *pending);
    struct sl_server_shared_payload *payload =
        pending == NULL ? NULL : payload_get(host, message, bytes);
    if (payload == NULL) {
        free(pending);
        return false;
    }
    *pending = (struct pending_message){.payload = payload};
    host->pending.bytes += sizeof *pending;
    if (conn->pending.count++ == 0) {
        sl_list_append(control_out_conns_of(host, conn->outbox), &conn->pending.link);
        host->pending.conn_count++;
    }
    sl_list_append(&conn->pending.messages, &pending->link);
    return true;
}

static void control_out_commit(struct sl_server_conn *conn, uint32_t bytes)
{
    struct sl_frame header = {
        .payload_bytes = bytes,
        .type = SL_FRAME_CONTROL,
        .flags = conn->greeting.hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
}

void sl_server_send(struct sl_server_conn *conn, const struct sl_message *message)
{
    uint32_t unsent = conn->out.count + conn->pending.count;
    if (message->id != 0 && unsent >= SL_LIMIT_UNSENT_ANSWERS) {
        sl_server_conn_drop(conn, SL_ERR_PROTOCOL, "%u answers wait for it to read them", unsent);
        return;
    }
    size_t bytes = sl_message_encoded_bytes(message);
    if (bytes > SL_LIMIT_CONTROL_PAYLOAD_BYTES) {
        sl_server_conn_drop(conn, SL_ERR_TOO_LARGE, "a control message for it has %zu bytes",
                            bytes);
        return;
    }
    uint8_t *frame =
        conn->pending.count == 0 ? sl_outbox_reserve(conn->outbox, (uint32_t)bytes) : NULL;
    if (frame != NULL) {
        sl_message_encode(message, frame + SL_FRAME_HEADER_BYTES);
        control_out_commit(conn, (uint32_t)bytes);
    } else if (!keep(conn, message, (uint32_t)bytes)) {
        sl_server_conn_drop(conn, SL_ERR_NO_MEMORY, "no room for a control message of %zu bytes",
                            bytes);
    }
}

void sl_server_send_error(struct sl_server_conn *conn, uint64_t id, int err, const char *text)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    (void)snprintf(message.error.text, sizeof message.error.text, "%s", text);
    sl_server_send(conn, &message);
}

static struct pending_message *control_out_first_of(const struct sl_server_conn *conn)
{
    return SL_CONTAINER_OF(sl_list_first(&conn->pending.messages), struct pending_message, link);
}

/* Removes the connection's first message. */
static void forget_first(struct sl_server_conn *conn)
{
    struct sl_server_host *host = conn->host;
    struct pending_message *pending = control_out_first_of(conn);
    sl_list_remove(&pending->link);
    host->pending.bytes -= sizeof *pending;
    payload_put(host, pending->payload);
    free(pending);
    if (--conn->pending.count == 0) {
        sl_list_remove(&conn->pending.link);
        host->pending.conn_count--;
    }
}

/* Sends one message of each connection in turn. */
void sl_server_control_out_resume(struct sl_server_host *host, struct sl_outbox *outbox)
{
    struct sl_list *conns = control_out_conns_of(host, outbox);
    while (host->pending.conn_count > 0 && !sl_list_empty(conns)) {
        struct sl_server_conn *conn =
            SL_CONTAINER_OF(sl_list_first(conns), struct sl_server_conn, pending.link);
        const struct sl_server_shared_payload *payload = control_out_first_of(conn)->payload;
        uint8_t *frame = sl_outbox_reserve(outbox, payload->bytes);
        if (frame == NULL) {
            return;
        }
        memcpy(frame + SL_FRAME_HEADER_BYTES, payload->payload, payload->bytes);
        control_out_commit(conn, payload->bytes);
        forget_first(conn);
        if (conn->pending.count > 0) {
            sl_list_append(conns, &conn->pending.link);
        }
    }
}

void sl_server_control_out_drop(struct sl_server_conn *conn)
{
    while (conn->pending.count > 0) {
        forget_first(conn);
    }
}

void sl_server_control_out_fini(struct sl_server_host *host)
{
    payload_put(host, host->pending.payload_last);
    host->pending.payload_last = NULL;
    sl_assert(host->pending.bytes == 0);
}
