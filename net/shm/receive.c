#include "net/shm/receive.h"

#include <string.h>

#include "net/shm/imported_memory.h"
#include "net/shm/reply_buffer.h"

/* Consumed frames */

static struct sl_shm_loan *loan_at(struct sl_shm_receive *receive, uint32_t number)
{
    return &receive->claims[number % SL_SHM_SLOTS];
}

/* Reports frames to the peer in order, independent of the order of release. */
static void shm_receive_consume(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    while (receive->consumed != receive->head && loan_at(receive, receive->consumed)->done) {
        receive->consumed++;
    }
    if (receive->consumed != receive->published) {
        sl_shm_mark_dirty(conn);
    }
}

/* Marks the slot at the head, and the memory it names, as no longer needed. */
static void finish_slot(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    loan_at(receive, receive->head)->done = true;
    receive->head++;
    receive->phase = SL_SHM_PHASE_NEXT;
    shm_receive_consume(conn);
}

/* Keeps the slot at the head, and the memory it names, until the message is released. */
static struct sl_shm_token *loan_slot(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    struct sl_shm_loan *loan = loan_at(receive, receive->head);
    loan->done = false;
    receive->claims_open++;
    receive->head++;
    receive->phase = SL_SHM_PHASE_NEXT;
    return &loan->token;
}

struct sl_shm_conn *sl_shm_receive_release(struct sl_shm *shm, struct sl_shm_token *token)
{
    if (token->kind != SL_SHM_TOKEN_LOAN) {
        sl_shm_staging_put(&shm->staging, token);
        return NULL;
    }
    struct sl_shm_loan *loan = (struct sl_shm_loan *)token;
    struct sl_shm_conn *conn = loan->conn;
    sl_assert(!loan->done);
    loan->done = true;
    conn->receive.claims_open--;
    if (conn->base.state != SL_CONN_CLOSED) {
        shm_receive_consume(conn);
        return NULL;
    }
    return conn->receive.claims_open == 0 ? conn : NULL;
}

/* Delivery. Functions return whether another frame may follow. */

static bool shm_receive_readable(const struct sl_shm_conn *conn)
{
    return conn->phase == SL_SHM_LIVE && conn->base.failure == 0;
}

static bool shm_receive_deliver(struct sl_shm_conn *conn, const uint8_t *payload, void *token)
{
    struct sl_shm_receive *receive = &conn->receive;
    struct sl_transport_message message = {
        .header = receive->frame, .payload = payload, .token = token};
    conn->base.reply_buffer = receive->reply_buffer;
    conn->base.reply_buffer_bytes = receive->reply_buffer_bytes;
    if (message.header.type == SL_FRAME_REPLY) {
        sl_shm_reply_buffer_unexport(conn, message.header.request_id);
    }
    sl_cell_add(&conn->shm->base.cells->frames_received, 1);
    sl_cell_add(&conn->shm->base.cells->bytes_received,
                SL_FRAME_HEADER_BYTES + message.header.payload_bytes);
    sl_conn_report_received(&conn->base, &message);
    conn->base.reply_buffer = NULL;
    conn->base.tail = NULL;
    conn->base.reply_buffer_bytes = conn->base.tail_bytes = 0;
    return shm_receive_readable(conn);
}

static bool lies_in_one(const struct sl_shm_receive *receive)
{
    return receive->part_count == 1 && (uintptr_t)receive->parts[0] % 8 == 0;
}

/* A peer that has gone may reuse the memory that it exported, for payloads or reply buffers: from
 * then on no frame that names such memory is delivered. */
static bool still_imported(struct sl_shm_conn *conn)
{
    return !conn->receive.is_imported || sl_shm_side_stays(sl_shm_peer_side(conn)) ||
           sl_shm_fail(conn, SL_ERR_CLOSED, NULL);
}

/* Copies bytes [from, from + bytes) of the payload. */
static void shm_receive_copy(struct sl_shm_conn *conn, uint8_t *to, uint32_t from, uint32_t bytes)
{
    const struct sl_shm_receive *receive = &conn->receive;
    for (uint32_t i = 0; i < receive->part_count && bytes > 0; i++) {
        uint32_t part_bytes = receive->part_bytes[i];
        if (from >= part_bytes) {
            from -= part_bytes;
            continue;
        }
        uint32_t some = part_bytes - from < bytes ? part_bytes - from : bytes;
        memcpy(to, receive->parts[i] + from, some);
        to += some;
        bytes -= some;
        from = 0;
    }
}

/* Delivers a copy of the frame in the slot at the head. */
static bool deliver_copy(struct sl_shm_conn *conn, const uint8_t *memory,
                         struct sl_shm_token *token)
{
    if (!still_imported(conn)) {
        if (token != NULL) {
            sl_shm_staging_put(&conn->shm->staging, token);
        }
        return false;
    }
    finish_slot(conn);
    return shm_receive_deliver(conn, memory, token);
}

static bool deliver_short(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    uint32_t bytes = receive->frame.payload_bytes;
    if (receive->frame.type == SL_FRAME_REPLY && receive->slot.kind == SL_SHM_PIECES &&
        lies_in_one(receive)) {
        const uint8_t *payload = receive->parts[0];
        return shm_receive_deliver(conn, payload, loan_slot(conn));
    }
    struct sl_shm_token *token;
    uint8_t *memory = sl_shm_staging_get(&conn->shm->staging, bytes, &token);
    receive->wait_buffer = memory == NULL;
    if (memory == NULL) {
        return false;
    }
    shm_receive_copy(conn, memory, 0, bytes);
    if (receive->slot.kind == SL_SHM_PIECES) {
        sl_cell_add(&conn->shm->base.cells->copied_bytes, bytes);
    }
    return deliver_copy(conn, memory, token);
}

/* Delivers in place, in one or two parts; from a copy if the first part is not aligned. */
static bool deliver_in_place(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    if ((uintptr_t)receive->parts[0] % 8 == 0) {
        const uint8_t *payload = receive->parts[0];
        conn->base.tail = receive->part_count == 2 ? receive->parts[1] : NULL;
        conn->base.tail_bytes = receive->part_count == 2 ? receive->part_bytes[1] : 0;
        return shm_receive_deliver(conn, payload, loan_slot(conn));
    }
    uint32_t bytes = receive->frame.payload_bytes;
    struct sl_shm_token *token;
    uint8_t *memory = sl_shm_staging_get_heap(&conn->shm->staging, bytes, &token);
    if (memory == NULL) {
        return false;
    }
    shm_receive_copy(conn, memory, 0, bytes);
    return deliver_copy(conn, memory, token);
}

static bool ask(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    void *memory = sl_conn_ask_sink(&conn->base, &receive->frame);
    if (!shm_receive_readable(conn) || memory == NULL) {
        return false;
    }
    if (memory == SL_TRANSPORT_IN_PLACE) {
        return deliver_in_place(conn);
    }
    if (lies_in_one(receive) && receive->parts[0] == memory) {
        finish_slot(conn);
        return shm_receive_deliver(conn, memory, NULL);
    }
    receive->sink = memory;
    receive->sink_have = 0;
    receive->phase = SL_SHM_PHASE_COPY;
    return true;
}

/* Whether the upper layer says where the payload goes. */
static bool has_sink(const struct sl_shm_conn *conn)
{
    const struct sl_frame *frame = &conn->receive.frame;
    return frame->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES ||
           (conn->base.sink_bytes != 0 && frame->payload_bytes >= conn->base.sink_bytes &&
            frame->type == SL_FRAME_REQUEST && frame->flags == 0 &&
            conn->receive.slot.kind == SL_SHM_PIECES);
}

/* Delivers the frame in `slot`, if there is memory for it. */
static bool place(struct sl_shm_conn *conn)
{
    uint32_t bytes = conn->receive.frame.payload_bytes;
    if (!still_imported(conn)) {
        return false;
    }
    if (bytes == 0) {
        struct sl_shm_token *empty = &conn->shm->staging.empty;
        finish_slot(conn);
        return shm_receive_deliver(conn, conn->shm->staging.memory, empty);
    }
    return has_sink(conn) ? ask(conn) : deliver_short(conn);
}

/* Copies a slice of a long payload: other connections may have short frames. */
static bool copy_on(struct sl_shm_conn *conn, uint32_t *slice)
{
    struct sl_shm_receive *receive = &conn->receive;
    uint32_t left = receive->frame.payload_bytes - receive->sink_have;
    uint32_t bytes = left < *slice ? left : *slice;
    shm_receive_copy(conn, receive->sink + receive->sink_have, receive->sink_have, bytes);
    receive->sink_have += bytes;
    *slice -= bytes;
    return bytes == left && deliver_copy(conn, receive->sink, NULL);
}

/* Slots */

static bool find_parts(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    const struct sl_shm_slot *slot = &receive->slot;
    uint32_t bytes = receive->frame.payload_bytes;
    receive->is_imported = false;
    uint32_t inline_max =
        SL_SHM_INLINE_BYTES - (slot->has_reply_buffer != 0 ? sizeof(struct sl_shm_piece) : 0);
    if (slot->kind == SL_SHM_INLINE) {
        receive->part_count = 1;
        receive->parts[0] = slot->inlined;
        receive->part_bytes[0] = bytes;
        return bytes <= inline_max;
    }
    if (slot->kind != SL_SHM_PIECES || slot->piece_count < 1 || slot->piece_count > 2) {
        return false;
    }
    receive->part_count = slot->piece_count;
    for (uint32_t i = 0; i < slot->piece_count; i++) {
        const struct sl_shm_piece *piece = &slot->pieces[i];
        if (piece->bytes == 0 || piece->bytes > bytes) {
            return false;
        }
        receive->parts[i] = sl_shm_imported_memory_resolve(conn, piece);
        receive->part_bytes[i] = piece->bytes;
        receive->is_imported = receive->is_imported || piece->region < SL_SHM_REGION_NAMES;
        bytes -= piece->bytes;
        if (receive->parts[i] == NULL) {
            return false;
        }
    }
    return bytes == 0;
}

static bool find_reply_buffer(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    const struct sl_shm_slot *slot = &receive->slot;
    receive->reply_buffer = NULL;
    receive->reply_buffer_bytes = 0;
    if (slot->has_reply_buffer == 0) {
        return true;
    }
    receive->reply_buffer = sl_shm_imported_memory_reply_buffer(conn, &slot->reply_buffer);
    receive->reply_buffer_bytes = slot->reply_buffer.bytes;
    receive->is_imported = true;
    return receive->reply_buffer != NULL && (uintptr_t)receive->reply_buffer % 8 == 0;
}

static bool read_slot(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    if (receive->head - receive->consumed >= SL_SHM_SLOTS) {
        return sl_shm_fail(conn, SL_ERR_PROTOCOL, "it sent more than there is room for");
    }
    sl_shm_slot_read(&receive->slots[receive->head % SL_SHM_SLOTS], &receive->slot);
    int err = sl_frame_decode_received(receive->slot.header, &receive->frame);
    if (err != 0) {
        return sl_shm_fail(conn, err, "it sent a frame header that is not ours");
    }
    if (!find_parts(conn) || !find_reply_buffer(conn)) {
        return sl_shm_fail(conn, SL_ERR_PROTOCOL, "it sent a frame that lies where nothing is");
    }
    receive->phase = SL_SHM_PHASE_HELD;
    return shm_receive_readable(conn);
}

/* Resolves a payload in our memory again: the region may have been unregistered since the last
 * turn, or revoked; then the peer's data is at another address (core/shared.h). */
static bool is_still_there(struct sl_shm_conn *conn)
{
    struct sl_shm_receive *receive = &conn->receive;
    if (receive->phase == SL_SHM_PHASE_NEXT || receive->slot.kind != SL_SHM_PIECES) {
        return true;
    }
    for (uint32_t i = 0; i < receive->part_count; i++) {
        const struct sl_shm_piece *piece = &receive->slot.pieces[i];
        const bool is_ours =
            piece->region != SL_SHM_REGION_ARENA && (piece->region & SL_SHM_REGION_YOURS) != 0;
        receive->parts[i] =
            is_ours ? sl_shm_imported_memory_resolve(conn, piece) : receive->parts[i];
        if (receive->parts[i] == NULL) {
            return sl_shm_fail(conn, SL_ERR_PROTOCOL, "it answered in memory that was taken back");
        }
    }
    return true;
}

uint32_t sl_shm_receive_run(struct sl_shm_conn *conn, uint32_t budget)
{
    struct sl_shm_receive *receive = &conn->receive;
    uint32_t slice = SL_SHM_COPY_BYTES, begun = receive->head;
    bool more = is_still_there(conn);
    while (more && receive->head - begun < budget) {
        if (receive->phase == SL_SHM_PHASE_COPY) {
            more = copy_on(conn, &slice);
        } else if (receive->phase == SL_SHM_PHASE_HELD) {
            more = place(conn);
        } else {
            more = sl_shm_receive_pending(conn) && read_slot(conn) && place(conn);
        }
    }
    return receive->head - begun + (slice < SL_SHM_COPY_BYTES ? 1 : 0);
}

void sl_shm_receive_drop(struct sl_shm_conn *conn)
{
    for (uint32_t i = 0; i < SL_SHM_SLOTS && sl_shm_receive_pending(conn); i++) {
        if (conn->receive.head - conn->receive.consumed >= SL_SHM_SLOTS) {
            sl_shm_fail(conn, SL_ERR_PROTOCOL, "it sent more than there is room for");
            return;
        }
        finish_slot(conn);
    }
    conn->receive.phase = SL_SHM_PHASE_NEXT;
}
