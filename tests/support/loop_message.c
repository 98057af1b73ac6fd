#include "tests/support/loop_message.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

static void message_free(struct sl_loop_network *network, struct loop_message *message)
{
    network->message_count--;
    free(message->rest);
    free(message);
}

void sl_loop_message_empty_inbox(struct loop_conn *conn)
{
    while (conn->inbox_first != NULL) {
        struct loop_message *message = conn->inbox_first;
        conn->inbox_first = message->next;
        message_free(home_of(conn)->network, message);
    }
    conn->inbox_last = NULL;
    if (conn->part != NULL) {
        message_free(home_of(conn)->network, conn->part);
        conn->part = NULL;
    }
}

static void inbox_append(struct loop_conn *conn, struct loop_message *message)
{
    if (conn->inbox_last == NULL) {
        conn->inbox_first = message;
    } else {
        conn->inbox_last->next = message;
    }
    conn->inbox_last = message;
}

/* Room for the frame whose header is here. */
static struct loop_message *message_make(struct loop_conn *peer, const uint8_t *head)
{
    uint32_t payload_bytes;
    memcpy(&payload_bytes, head, sizeof payload_bytes);
    uint32_t bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
    struct loop_message *message = aligned_alloc(16, (sizeof *message + bytes + 15) / 16 * 16);
    sl_assert(message != NULL);
    *message = (struct loop_message){.bytes = bytes};
    home_of(peer)->network->message_count++;
    return message;
}

/* More of a header; true when it is whole. */
static bool carry_head(struct loop_conn *peer, const uint8_t *bytes, uint32_t count)
{
    memcpy(peer->head + peer->head_have, bytes, count);
    peer->head_have += count;
    if (peer->head_have < SL_FRAME_HEADER_BYTES) {
        return false;
    }
    peer->part = message_make(peer, peer->head);
    memcpy(peer->part->data, peer->head, SL_FRAME_HEADER_BYTES);
    peer->part_have = SL_FRAME_HEADER_BYTES;
    peer->head_have = 0;
    return true;
}

/* More of the stream: frames, whole or in parts. */
static void carry_bytes(struct loop_conn *peer, const uint8_t *bytes, uint32_t count)
{
    for (uint32_t more; count > 0; bytes += more, count -= more) {
        const bool in_head = peer->part == NULL;
        const uint32_t left = in_head ? (uint32_t)SL_FRAME_HEADER_BYTES - peer->head_have
                                      : peer->part->bytes - peer->part_have;
        more = count < left ? count : left;
        if (in_head && !carry_head(peer, bytes, more)) {
            continue;
        }
        if (!in_head) {
            memcpy(peer->part->data + peer->part_have, bytes, more);
            peer->part_have += more;
        }
        if (peer->part_have == peer->part->bytes) {
            inbox_append(peer, peer->part);
            peer->part = NULL;
        }
    }
}

static bool shares(const struct loop_conn *conn)
{
    return (conn->base.transport->ops->capabilities & SL_TRANSPORT_MAPS_MEMORY) != 0;
}

static bool has_device(const struct loop_conn *conn)
{
    return (conn->base.transport->ops->capabilities & SL_TRANSPORT_REGISTERS) != 0;
}

static bool is_registered(const struct loop_transport *loop, const uint8_t *at, size_t bytes)
{
    for (uint32_t i = 0; i < LOOP_REGIONS_MAX; i++) {
        const struct loop_region *region = &loop->regions[i];
        if (region->base != NULL && at >= region->base &&
            at + bytes <= region->base + region->bytes) {
            return true;
        }
    }
    return false;
}

/* What a device neither fetches from where it lies nor delivers there. */
static void count_copied(struct loop_conn *conn, const uint8_t *from, uint32_t bytes)
{
    if (bytes > 0 && !is_registered(home_of(conn), from, bytes)) {
        sl_cell_add(&home_of(conn)->base.cells->copied_bytes, bytes);
    }
}

static void check_registered(const struct loop_conn *conn, const uint8_t *at, uint32_t bytes)
{
    sl_assert(bytes <= SL_TRANSPORT_UNREGISTERED_BYTES_MAX ||
              !sl_transport_needs_registered(&conn->base) ||
              home_of(conn)->network->registers_nothing || is_registered(home_of(conn), at, bytes));
}

/* As net/conn.h says of sink_bytes. */
static bool has_sink(const struct loop_conn *receiver, const struct sl_frame *header)
{
    const struct sl_conn *base = &receiver->base;
    const bool maps = (base->transport->ops->capabilities & SL_TRANSPORT_MAPS_MEMORY) != 0;
    return header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES ||
           (maps && base->sink_bytes != 0 && header->payload_bytes >= base->sink_bytes &&
            header->type == SL_FRAME_REQUEST && header->flags == 0);
}

/* A frame between those who share memory. */
static void carry_shared(struct loop_conn *conn, const struct sl_transport_frame *frame)
{
    struct loop_conn *peer = conn->peer;
    struct loop_transport *loop = home_of(conn);
    const void *parts[] = {frame->head, frame->payload};
    const uint32_t part_bytes[] = {frame->head_bytes, frame->payload_bytes};
    for (uint32_t i = 0; i < 2; i++) {
        const bool is_there = is_registered(loop, parts[i], part_bytes[i]) ||
                              is_registered(home_of(peer), parts[i], part_bytes[i]);
        sl_cell_add(&loop->base.cells->copied_bytes, is_there ? 0 : part_bytes[i]);
    }
    struct loop_message *message = message_make(peer, frame->head);
    memcpy(message->data, frame->head, frame->head_bytes);
    message->reply_buffer = frame->reply_buffer;
    message->reply_buffer_bytes = frame->reply_buffer_bytes;
    struct sl_frame header;
    if (frame->payload_bytes > 0 && sl_frame_decode(frame->head, &header) == SL_OK &&
        has_sink(peer, &header)) {
        message->rest = aligned_alloc(16, (frame->payload_bytes + 15) / 16 * 16);
        sl_assert(message->rest != NULL);
        message->rest_bytes = frame->payload_bytes;
        message->bytes -= frame->payload_bytes;
    }
    if (frame->payload_bytes > 0) {
        memcpy(message->rest != NULL ? message->rest : message->data + frame->head_bytes,
               frame->payload, frame->payload_bytes);
    }
    inbox_append(peer, message);
}

static void remember_reply_buffer(struct loop_conn *conn, uint64_t request_id,
                                  const struct sl_transport_frame *frame)
{
    struct loop_reply_buffer *reply_buffer = conn->reply_buffers;
    while (reply_buffer->at != NULL) {
        reply_buffer++;
        sl_assert(reply_buffer < conn->reply_buffers + LOOP_REPLY_BUFFERS_MAX);
    }
    *reply_buffer = (struct loop_reply_buffer){
        .request_id = request_id, .at = frame->reply_buffer, .bytes = frame->reply_buffer_bytes};
}

/* That of the request, which is answered now; its `at` is NULL when it has none. */
static struct loop_reply_buffer take_reply_buffer(struct loop_conn *conn, uint64_t request_id)
{
    struct loop_reply_buffer found = {0};
    for (uint32_t i = 0; i < LOOP_REPLY_BUFFERS_MAX; i++) {
        struct loop_reply_buffer *reply_buffer = &conn->reply_buffers[i];
        if (reply_buffer->at != NULL && reply_buffer->request_id == request_id) {
            found = *reply_buffer;
            *reply_buffer = (struct loop_reply_buffer){0};
        }
    }
    return found;
}

/* One frame, of which so much is at `head`; the rest is the frame's `payload`. */
static void carry_to_device(struct loop_conn *conn, const uint8_t *head, uint32_t head_bytes,
                            const struct sl_transport_frame *frame)
{
    struct loop_message *message = message_make(conn->peer, head);
    const uint32_t rest_bytes = message->bytes - head_bytes;
    sl_assert(rest_bytes == 0 || rest_bytes == frame->payload_bytes);
    memcpy(message->data, head, head_bytes);
    if (rest_bytes > 0) {
        memcpy(message->data + head_bytes, frame->payload, rest_bytes);
    }
    struct sl_frame header;
    int err = sl_frame_decode(message->data, &header);
    sl_assert(err == 0);
    const bool is_long = header.payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES;
    if (is_long) {
        check_registered(conn, head, head_bytes);
        check_registered(conn, frame->payload, rest_bytes);
        count_copied(conn, head, head_bytes);
        count_copied(conn, frame->payload, rest_bytes);
    }
    if (frame->reply_buffer != NULL) {
        remember_reply_buffer(conn->peer, header.request_id, frame);
    }
    if (header.type == SL_FRAME_REPLY) {
        const struct loop_reply_buffer reply_buffer = take_reply_buffer(conn, header.request_id);
        if (reply_buffer.at != NULL && is_long && header.payload_bytes <= reply_buffer.bytes) {
            memcpy(reply_buffer.at, message->data + SL_FRAME_HEADER_BYTES, header.payload_bytes);
            message->landed = reply_buffer.at;
        }
    }
    inbox_append(conn->peer, message);
}

/* One frame, or several behind each other. */
static void carry_by_device(struct loop_conn *conn, const struct sl_transport_frame *frame)
{
    const uint8_t *head = frame->head;
    for (uint32_t left = frame->head_bytes, bytes; left > 0; head += bytes, left -= bytes) {
        uint32_t payload_bytes;
        memcpy(&payload_bytes, head, sizeof payload_bytes);
        bytes = SL_FRAME_HEADER_BYTES + payload_bytes;
        bytes = bytes < left ? bytes : left;
        carry_to_device(conn, head, bytes, frame);
    }
}

void sl_loop_message_carry(struct loop_conn *conn)
{
    const struct sl_transport_frame *frame = &conn->queue[conn->carried++ % LOOP_QUEUE_FRAMES];
    struct loop_conn *peer = conn->peer;
    sl_cell_add(&home_of(conn)->base.cells->bytes_sent, frame->head_bytes + frame->payload_bytes);
    sl_cell_add(&home_of(conn)->base.cells->frames_sent, 1);
    if (peer == NULL || peer->base.state == SL_CONN_CLOSED) {
        return;
    }
    if (shares(conn)) {
        carry_shared(conn, frame);
        return;
    }
    if (has_device(conn)) {
        carry_by_device(conn, frame);
        return;
    }
    carry_bytes(peer, frame->head, frame->head_bytes);
    carry_bytes(peer, frame->payload, frame->payload_bytes);
}

void sl_loop_message_carry_now(struct loop_conn *conn, const uint8_t *bytes, uint32_t count)
{
    sl_cell_add(&home_of(conn)->base.cells->bytes_sent, count);
    if (conn->peer != NULL && conn->peer->base.state != SL_CONN_CLOSED) {
        carry_bytes(conn->peer, bytes, count);
    }
}

/* Delivers the message, with what the connection says of it. */
static void report_received(struct loop_conn *conn, const struct loop_message *message,
                            const struct sl_transport_message *received)
{
    conn->base.reply_buffer = message->reply_buffer;
    conn->base.reply_buffer_bytes = message->reply_buffer_bytes;
    conn->base.tail = message->in_place ? message->rest : NULL;
    conn->base.tail_bytes = message->in_place ? message->rest_bytes : 0;
    sl_conn_report_received(&conn->base, received);
    conn->base.reply_buffer = NULL;
    conn->base.tail = NULL;
    conn->base.reply_buffer_bytes = conn->base.tail_bytes = 0;
}

static void inbox_pop(struct loop_conn *conn)
{
    conn->inbox_first = conn->inbox_first->next;
    if (conn->inbox_first == NULL) {
        conn->inbox_last = NULL;
    }
}

/* Hands the memory of a message to the receiver, until it is released. */
static void deliver_held(struct loop_conn *conn, struct loop_message *message,
                         const struct sl_frame *header)
{
    struct loop_transport *loop = home_of(conn);
    inbox_pop(conn);
    message->holder = loop;
    message->next = loop->held;
    loop->held = message;
    struct sl_transport_message received = {
        .header = *header, .payload = message->data + SL_FRAME_HEADER_BYTES, .token = message};
    report_received(conn, message, &received);
}

/* False when the receiver has nowhere to put a long message yet. */
static bool deliver_into_sink(struct loop_conn *conn, struct loop_message *message,
                              const struct sl_frame *header)
{
    uint8_t *memory = sl_conn_ask_sink(&conn->base, header);
    if (memory == NULL || conn->base.state != SL_CONN_OPEN) {
        return false;
    }
    if (memory == SL_TRANSPORT_IN_PLACE) {
        message->in_place = true;
        home_of(conn)->network->in_place_count++;
        deliver_held(conn, message, header);
        return true;
    }
    const uint32_t first_bytes = message->bytes - SL_FRAME_HEADER_BYTES;
    if (memory == message->landed) {
        home_of(conn)->network->landed_count++;
    } else {
        memcpy(memory, message->data + SL_FRAME_HEADER_BYTES, first_bytes);
    }
    if (message->rest_bytes > 0) {
        memcpy(memory + first_bytes, message->rest, message->rest_bytes);
    }
    if (has_device(conn) && message->landed == NULL) {
        count_copied(conn, memory, first_bytes);
    }
    inbox_pop(conn);
    struct sl_transport_message received = {.header = *header, .payload = memory};
    report_received(conn, message, &received);
    message_free(home_of(conn)->network, message);
    return true;
}

int sl_loop_message_deliver(struct loop_conn *conn)
{
    struct loop_message *message = conn->inbox_first;
    struct sl_frame header;
    int err = message->bytes < SL_FRAME_HEADER_BYTES ? SL_ERR_CLOSED
                                                     : sl_frame_decode(message->data, &header);
    if (err == SL_ERR_VERSION && header.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        err = SL_OK; /* for the upper layer to answer in words */
    }
    if (err == SL_OK &&
        header.payload_bytes != message->bytes + message->rest_bytes - SL_FRAME_HEADER_BYTES) {
        err = SL_ERR_CLOSED; /* a stream would wait for the rest until its end */
    }
    if (err != SL_OK) {
        return err;
    }
    sl_cell_add(&home_of(conn)->base.cells->bytes_received, message->bytes + message->rest_bytes);
    sl_cell_add(&home_of(conn)->base.cells->frames_received, 1);
    if (has_sink(conn, &header)) {
        return deliver_into_sink(conn, message, &header) ? 1 : 0;
    }
    deliver_held(conn, message, &header);
    return 1;
}

void sl_loop_message_release(struct loop_message *message)
{
    struct loop_message **at = &message->holder->held;
    while (*at != message) {
        sl_assert(*at != NULL); /* released twice */
        at = &(*at)->next;
    }
    *at = message->next;
    message_free(message->holder->network, message);
}

static void spoil(struct sl_loop_network *network, uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; count > 0 && i < 64; i++) {
        bytes[some_of(network, count - 1)] = (uint8_t)sl_hash_random(&network->random_state);
    }
}

void sl_loop_message_spoil(struct loop_transport *loop)
{
    for (struct loop_message *message = loop->held; message != NULL; message = message->next) {
        if (message->in_place) {
            spoil(loop->network, message->data, message->bytes);
            spoil(loop->network, message->rest, message->rest_bytes);
        }
    }
}
