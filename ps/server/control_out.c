/* Sends control messages. Messages that find no room in the outbox wait on the heap, where equal
 * ones share a payload: the coordinator sends the same message to thousands of members. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/server/internal.h"

#define KEPT_BYTES_DEFAULT ((size_t)256 << 20)

struct sl_server_shared_payload {
    uint32_t user_count;
    uint32_t bytes;
    uint8_t payload[]; /* an encoded message */
};

struct sl_server_pending_message {
    struct sl_server_pending_message *next;
    struct sl_server_shared_payload *text;
};

static struct sl_server_line *line_of(struct sl_server *server, const struct sl_outbox *outbox)
{
    if (outbox == &server->shm_replies) {
        return &server->later_shm;
    }
    return outbox == &server->control ? &server->later_control : &server->later_replies;
}

static void line_append(struct sl_server_line *line, struct sl_server_conn *conn)
{
    conn->server->pending_count++;
    conn->later_prev = line->last;
    conn->later_next = NULL;
    if (line->last == NULL) {
        line->first = conn;
    } else {
        line->last->later_next = conn;
    }
    line->last = conn;
}

static void line_remove(struct sl_server_line *line, struct sl_server_conn *conn)
{
    conn->server->pending_count--;
    if (conn->later_prev == NULL) {
        line->first = conn->later_next;
    } else {
        conn->later_prev->later_next = conn->later_next;
    }
    if (conn->later_next == NULL) {
        line->last = conn->later_prev;
    } else {
        conn->later_next->later_prev = conn->later_prev;
    }
}

static void text_put(struct sl_server *server, struct sl_server_shared_payload *text)
{
    if (text != NULL && --text->user_count == 0) {
        server->later_bytes -= text->bytes;
        free(text);
    }
}

/* Encodes the message, or shares the last kept payload if it is equal. NULL: no memory. */
static struct sl_server_shared_payload *text_get(struct sl_server *server,
                                                 const struct sl_message *message, uint32_t bytes)
{
    struct sl_server_shared_payload *text = malloc(sizeof *text + bytes);
    if (text == NULL) {
        return NULL;
    }
    *text = (struct sl_server_shared_payload){.user_count = 1, .bytes = bytes};
    sl_message_encode(message, text->payload);
    struct sl_server_shared_payload *last = server->text_last;
    if (last != NULL && last->bytes == bytes && memcmp(last->payload, text->payload, bytes) == 0) {
        free(text);
        last->user_count++;
        return last;
    }
    text_put(server, last);
    server->text_last = text;
    text->user_count++;
    server->later_bytes += bytes;
    return text;
}

/* False: no memory. */
static bool keep(struct sl_server_conn *conn, const struct sl_message *message, uint32_t bytes)
{
    struct sl_server *server = conn->server;
    const size_t bytes_max =
        server->options.kept_bytes_max == 0 ? KEPT_BYTES_DEFAULT : server->options.kept_bytes_max;
    if (server->later_bytes + sizeof(struct sl_server_pending_message) + bytes > bytes_max) {
        return false;
    }
    struct sl_server_pending_message *later = malloc(sizeof *later);
    struct sl_server_shared_payload *text = later == NULL ? NULL : text_get(server, message, bytes);
    if (text == NULL) {
        free(later);
        return false;
    }
    *later = (struct sl_server_pending_message){.text = text};
    server->later_bytes += sizeof *later;
    if (conn->later_first == NULL) {
        conn->later_first = later;
        line_append(line_of(server, conn->outbox), conn);
    } else {
        conn->later_last->next = later;
    }
    conn->later_last = later;
    conn->pending_count++;
    return true;
}

static void commit(struct sl_server_conn *conn, uint32_t bytes)
{
    struct sl_frame header = {
        .payload_bytes = bytes,
        .type = SL_FRAME_CONTROL,
        .flags = conn->hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
}

void sl_server_send(struct sl_server_conn *conn, const struct sl_message *message)
{
    uint32_t unsent = conn->out.count + conn->pending_count;
    if (message->id != 0 && unsent >= SL_LIMIT_UNSENT_ANSWERS) {
        sl_server_drop(conn, SL_ERR_PROTOCOL, "%u answers wait for it to read them", unsent);
        return;
    }
    size_t bytes = sl_message_encoded_bytes(message);
    if (bytes > SL_LIMIT_CONTROL_PAYLOAD_BYTES) {
        sl_server_drop(conn, SL_ERR_TOO_LARGE, "a control message for it has %zu bytes", bytes);
        return;
    }
    uint8_t *frame =
        conn->later_first == NULL ? sl_outbox_reserve(conn->outbox, (uint32_t)bytes) : NULL;
    if (frame != NULL) {
        sl_message_encode(message, frame + SL_FRAME_HEADER_BYTES);
        commit(conn, (uint32_t)bytes);
    } else if (!keep(conn, message, (uint32_t)bytes)) {
        sl_server_drop(conn, SL_ERR_NO_MEMORY, "no room for a control message of %zu bytes", bytes);
    }
}

void sl_server_send_error(struct sl_server_conn *conn, uint64_t id, int err, const char *text)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .id = id, .error.err = err};
    (void)snprintf(message.error.text, sizeof message.error.text, "%s", text);
    sl_server_send(conn, &message);
}

/* Removes the connection's first message. */
static void forget_first(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    struct sl_server_pending_message *later = conn->later_first;
    conn->later_first = later->next;
    conn->pending_count--;
    server->later_bytes -= sizeof *later;
    text_put(server, later->text);
    free(later);
}

void sl_server_send_later(struct sl_server *server, struct sl_outbox *outbox)
{
    struct sl_server_line *line = line_of(server, outbox);
    while (line->first != NULL) {
        struct sl_server_conn *conn = line->first;
        const struct sl_server_shared_payload *text = conn->later_first->text;
        uint8_t *frame = sl_outbox_reserve(outbox, text->bytes);
        if (frame == NULL) {
            return;
        }
        memcpy(frame + SL_FRAME_HEADER_BYTES, text->payload, text->bytes);
        commit(conn, text->bytes);
        forget_first(conn);
        line_remove(line, conn);
        if (conn->later_first != NULL) {
            line_append(line, conn);
        }
    }
}

void sl_server_send_drop(struct sl_server_conn *conn)
{
    if (conn->later_first == NULL) {
        return;
    }
    line_remove(line_of(conn->server, conn->outbox), conn);
    while (conn->later_first != NULL) {
        forget_first(conn);
    }
}

void sl_server_send_fini(struct sl_server *server)
{
    text_put(server, server->text_last);
    server->text_last = NULL;
    sl_assert(server->later_bytes == 0);
}
