#include "net/dpdk/receive.h"

#include <string.h>

#include "core/bytes.h"
#include "net/dpdk/long_message.h"

static_assert(SL_DPDK_SHORT_BYTES / SL_DPDK_BODY_MIN < 64, "one word says what has come");

/* Received packets */

/* As sl_dpdk_receive_is_piece, for a message of unknown length: valid if any length fits. */
static bool may_be_piece(const struct sl_dpdk_conn *conn, uint32_t offset, uint32_t bytes)
{
    uint32_t piece_bytes = sl_dpdk_piece_bytes(conn);
    return offset % piece_bytes == 0 && bytes > 0 && bytes <= piece_bytes &&
           offset < SL_FRAME_HEADER_BYTES + SL_LIMIT_FRAME_PAYLOAD_BYTES;
}

/* Counts new bytes as arrived. False: the peer exceeds its grant. */
static bool dpdk_receive_admit(struct sl_dpdk_conn *conn, uint32_t bytes)
{
    if (!sl_dpdk_grant_allows(&conn->grant, bytes)) {
        return false;
    }
    sl_dpdk_grant_arrived(&conn->dpdk->grants, &conn->grant, bytes);
    return true;
}

/* Parks the packet until its message is at the head. Not if too many are parked, or this piece is
 * parked already. */
static enum sl_dpdk_taken dpdk_receive_park(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                            const struct sl_dpdk_packet *packet,
                                            const struct sl_dpdk_parsed *parsed)
{
    for (const struct sl_dpdk_parked *at = slot->parked; at != NULL; at = at->next) {
        if (at->offset == parsed->header.offset) {
            return at->bytes == parsed->body_bytes ? SL_DPDK_TAKEN : SL_DPDK_PROTOCOL_ERROR;
        }
    }
    if (!sl_dpdk_grant_allows(&conn->grant, parsed->body_bytes)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    struct sl_dpdk_parked *parked =
        sl_dpdk_park(conn->dpdk, conn->path.netif, packet, parsed, !conn->base.is_welcome);
    if (parked == NULL) {
        return SL_DPDK_NO_ROOM;
    }
    (void)dpdk_receive_admit(conn, parsed->body_bytes);
    parked->next = slot->parked;
    slot->parked = parked;
    sl_dpdk_receive_begin_slot(conn->receive, slot, SL_DPDK_SLOT_PARKED);
    return SL_DPDK_PARKED;
}

static uint64_t bit_of(const struct sl_dpdk_conn *conn, uint32_t offset)
{
    return 1ULL << offset / sl_dpdk_piece_bytes(conn);
}

/* The piece is new. */
static void place_short(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot, uint32_t offset,
                        const uint8_t *body, uint32_t bytes)
{
    slot->pieces |= bit_of(conn, offset);
    slot->missing -= bytes;
    memcpy(slot->memory + offset, body, bytes);
    sl_cell_add(&conn->dpdk->base.cells->copied_bytes, bytes);
}

static enum sl_dpdk_taken take_short(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                     const struct sl_dpdk_parsed *parsed)
{
    uint32_t offset = parsed->header.offset, bytes = parsed->body_bytes;
    if (!sl_dpdk_receive_is_piece(conn, offset, bytes, slot->bytes)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    if ((slot->pieces & bit_of(conn, offset)) != 0) {
        const bool is_same = offset != 0 || memcmp(slot->memory, parsed->body, bytes) == 0;
        return is_same ? SL_DPDK_TAKEN : SL_DPDK_PROTOCOL_ERROR;
    }
    if (!dpdk_receive_admit(conn, bytes)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    place_short(conn, slot, offset, parsed->body, bytes);
    return SL_DPDK_TAKEN;
}

/* Copies the pieces that arrived before the first one, which has the length. False: malformed. */
static bool place_parked_short(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot)
{
    while (slot->parked != NULL) {
        struct sl_dpdk_parked *parked = slot->parked;
        if (!sl_dpdk_receive_is_piece(conn, parked->offset, parked->bytes, slot->bytes) ||
            (slot->pieces & bit_of(conn, parked->offset)) != 0) {
            return false;
        }
        place_short(conn, slot, parked->offset, parked->body, parked->bytes);
        slot->parked = parked->next;
        sl_dpdk_unpark(conn->dpdk, parked);
    }
    return true;
}

/* Memory for a short message. A complete message of an unauthenticated peer at the head is
 * delivered at once, so that it may use any share. Other messages of such peers use the strangers'
 * share. */
static uint8_t *get_memory(struct sl_dpdk_conn *conn, const struct sl_dpdk_parsed *parsed,
                           uint32_t bytes, bool is_whole, struct sl_dpdk_block **block)
{
    const bool is_head = parsed->header.message == conn->receive->head;
    const enum sl_dpdk_share share = !conn->base.is_welcome && !(is_head && is_whole)
                                         ? SL_DPDK_SHARE_STRANGER
                                     : is_head ? SL_DPDK_SHARE_HEAD
                                               : SL_DPDK_SHARE_AHEAD;
    return sl_dpdk_store_get(conn->dpdk->store, bytes, share, block);
}

static enum sl_dpdk_taken begin_short(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                      const struct sl_dpdk_parsed *parsed, uint32_t bytes)
{
    uint8_t *memory = get_memory(conn, parsed, bytes, parsed->body_bytes == bytes, &slot->block);
    if (memory == NULL) {
        return SL_DPDK_NO_ROOM;
    }
    slot->memory = memory;
    slot->bytes = slot->missing = bytes;
    sl_dpdk_receive_begin_slot(conn->receive, slot, SL_DPDK_SLOT_SHORT);
    enum sl_dpdk_taken taken = take_short(conn, slot, parsed);
    return taken == SL_DPDK_PROTOCOL_ERROR || place_parked_short(conn, slot)
               ? taken
               : SL_DPDK_PROTOCOL_ERROR;
}

/* The frame header of the slot's parked first piece; NULL: none. */
static const uint8_t *find_header(const struct sl_dpdk_slot *slot)
{
    const struct sl_dpdk_parked *at = slot->parked;
    while (at != NULL && at->offset != 0) {
        at = at->next;
    }
    return at == NULL ? NULL : at->body;
}

/* A repeated first piece must have the same header: the length depends on it. */
static bool says_the_same(const struct sl_dpdk_receiving *receive, const struct sl_dpdk_slot *slot,
                          const uint8_t *header)
{
    const uint8_t *before = find_header(slot);
    uint8_t known[SL_FRAME_HEADER_BYTES];
    if (slot->bytes == 0) {
        return true; /* it is new */
    }
    if (before == NULL) { /* there was no room to park it: then only the head's frame is known */
        sl_frame_encode(&receive->frame, known);
        before = known;
    }
    return memcmp(before, header, SL_FRAME_HEADER_BYTES) == 0;
}

/* Handles the first piece of a message, which has the frame header. */
static enum sl_dpdk_taken take_first(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                     const struct sl_dpdk_packet *packet,
                                     const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    struct sl_frame frame;
    if (parsed->body_bytes < SL_FRAME_HEADER_BYTES ||
        sl_frame_decode_received(parsed->body, &frame) != 0 ||
        !says_the_same(receive, slot, parsed->body)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    uint32_t bytes = SL_FRAME_HEADER_BYTES + frame.payload_bytes;
    if (frame.payload_bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        return begin_short(conn, slot, parsed, bytes);
    }
    if (!sl_dpdk_receive_is_piece(conn, 0, parsed->body_bytes, bytes)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    enum sl_dpdk_taken taken = dpdk_receive_park(conn, slot, packet, parsed);
    if (taken != SL_DPDK_NO_ROOM) {
        slot->bytes = bytes;
    } else if (parsed->header.message == receive->head) {
        sl_dpdk_receive_begin_slot(receive, slot,
                                   SL_DPDK_SLOT_PARKED); /* later pieces need the length */
        slot->bytes = bytes;
        receive->is_known = true;
        receive->frame = frame;
    }
    return taken;
}

static enum sl_dpdk_taken take_data(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                    const struct sl_dpdk_packet *packet,
                                    const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    uint32_t offset = parsed->header.offset, bytes = parsed->body_bytes;
    if (slot->kind == SL_DPDK_SLOT_SHORT) {
        return take_short(conn, slot, parsed);
    }
    if (slot->kind == SL_DPDK_SLOT_BUNDLE ||
        !(slot->bytes > 0 ? sl_dpdk_receive_is_piece(conn, offset, bytes, slot->bytes)
                          : may_be_piece(conn, offset, bytes))) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    if (receive->sink != NULL && parsed->header.message == receive->head) {
        if (offset == 0 && !says_the_same(receive, slot, parsed->body)) {
            return SL_DPDK_PROTOCOL_ERROR;
        }
        if (sl_dpdk_long_has(conn, offset)) {
            return SL_DPDK_TAKEN;
        }
        return dpdk_receive_admit(conn, bytes) &&
                       sl_dpdk_long_place(conn, offset, parsed->body, bytes)
                   ? SL_DPDK_TAKEN
                   : SL_DPDK_PROTOCOL_ERROR;
    }
    return offset == 0 ? take_first(conn, slot, packet, parsed)
                       : dpdk_receive_park(conn, slot, packet, parsed);
}

static enum sl_dpdk_taken take_bundle(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                      const struct sl_dpdk_parsed *parsed)
{
    uint32_t bytes = parsed->body_bytes;
    if (slot->kind == SL_DPDK_SLOT_BUNDLE) {
        return SL_DPDK_TAKEN;
    }
    if (slot->kind != SL_DPDK_SLOT_EMPTY || bytes < SL_FRAME_HEADER_BYTES || bytes % 8 != 0 ||
        bytes > SL_DPDK_SHORT_BYTES) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    if (!sl_dpdk_grant_allows(&conn->grant, bytes)) {
        return SL_DPDK_PROTOCOL_ERROR;
    }
    uint8_t *memory = get_memory(conn, parsed, bytes, true, &slot->block);
    if (memory == NULL) {
        return SL_DPDK_NO_ROOM;
    }
    (void)dpdk_receive_admit(conn, bytes);
    memcpy(memory, parsed->body, bytes);
    sl_cell_add(&conn->dpdk->base.cells->copied_bytes, bytes);
    slot->memory = memory;
    slot->bytes = bytes;
    sl_dpdk_receive_begin_slot(conn->receive, slot, SL_DPDK_SLOT_BUNDLE);
    return SL_DPDK_TAKEN;
}

/* The peer has more queued: raises its grant. Not while `sink` has no memory, since the data would
 * have to be parked; nor for an unauthenticated peer, which may send no long message. */
static void note_more(struct sl_dpdk_conn *conn)
{
    const struct sl_dpdk_receiving *receive = conn->receive;
    if (conn->base.is_welcome && (!receive->is_known || receive->sink != NULL)) {
        sl_dpdk_grant_wants_more(&conn->dpdk->grants, &conn->grant, SL_DPDK_AHEAD_BYTES);
    }
}

enum sl_dpdk_taken sl_dpdk_receive_take(struct sl_dpdk_conn *conn, struct sl_dpdk_packet *packet,
                                        const struct sl_dpdk_parsed *parsed)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    const struct sl_dpdk_header *header = &parsed->header;
    if (sl_dpdk_before(header->message, receive->head)) {
        return SL_DPDK_TAKEN; /* already delivered */
    }
    if (!sl_dpdk_receive_has_slot(receive, header->message - receive->head)) {
        return SL_DPDK_NO_ROOM; /* many short messages behind one that waits for memory */
    }
    struct sl_dpdk_slot *slot = sl_dpdk_slot_at(receive, header->message);
    enum sl_dpdk_taken taken = header->kind == SL_DPDK_BUNDLE
                                   ? take_bundle(conn, slot, parsed)
                                   : take_data(conn, slot, packet, parsed);
    if ((header->flags & SL_DPDK_FLAG_MORE) != 0 && taken <= SL_DPDK_PARKED) {
        note_more(conn);
    }
    return taken;
}

/* Delivery */

static void dpdk_receive_consume(struct sl_dpdk_conn *conn, uint32_t bytes)
{
    sl_dpdk_grant_consumed(&conn->dpdk->grants, &conn->grant, bytes);
}

/* The next frame of the bundle at the head; advances the slot. NULL: malformed, and the connection
 * has ended. */
static const uint8_t *next_frame(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot,
                                 struct sl_frame *frame)
{
    struct sl_bytes cursor = sl_bytes_over(slot->memory, slot->bytes);
    const uint8_t *header = sl_bytes_take(&cursor, SL_FRAME_HEADER_BYTES);
    if (header == NULL || sl_frame_decode_received(header, frame) != 0 ||
        frame->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        (void)sl_conn_fail(&conn->base, SL_ERR_PROTOCOL, "it sent a frame header that is not ours");
        return NULL;
    }
    const uint8_t *payload = sl_bytes_take(&cursor, sl_bytes_pad8(frame->payload_bytes));
    if (payload == NULL) {
        (void)sl_conn_fail(&conn->base, SL_ERR_PROTOCOL, "it sent a frame that is cut off");
        return NULL;
    }
    slot->memory += slot->bytes - (uint32_t)cursor.left;
    slot->bytes = (uint32_t)cursor.left;
    return payload;
}

/* The slot is up to date at each upcall, since the connection may end in it. */
static void deliver_bundle(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot)
{
    struct sl_dpdk_block *block = slot->block;
    struct sl_frame frame;
    const uint8_t *payload;
    uint32_t bytes = slot->bytes, left = bytes;
    block->refs++;
    while (left > 0 && sl_dpdk_receive_is_readable(conn) &&
           (payload = next_frame(conn, slot, &frame)) != NULL) {
        left = slot->bytes;
        block->refs++;
        if (left == 0) {
            block->refs--; /* the slot's reference */
            sl_dpdk_receive_pass(conn->receive);
        }
        sl_dpdk_receive_report(conn, &frame, payload, block);
    }
    dpdk_receive_consume(conn, bytes - left);
    sl_dpdk_block_put(block);
}

static bool deliver_short(struct sl_dpdk_conn *conn, const struct sl_dpdk_slot *slot)
{
    struct sl_frame frame;
    if (slot->missing > 0) {
        return false;
    }
    const uint8_t *memory = slot->memory;
    struct sl_dpdk_block *block = slot->block;
    (void)sl_frame_decode_received(memory, &frame); /* valid: checked on arrival */
    dpdk_receive_consume(conn, slot->bytes);
    sl_dpdk_receive_pass(conn->receive);
    sl_dpdk_receive_report(conn, &frame, memory + SL_FRAME_HEADER_BYTES, block);
    return true;
}

/* Returns whether it did work. */
static bool deliver_head(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_slot *slot = sl_dpdk_slot_at(conn->receive, conn->receive->head);
    switch ((enum sl_dpdk_slot_kind)slot->kind) {
    case SL_DPDK_SLOT_BUNDLE:
        deliver_bundle(conn, slot);
        return true;
    case SL_DPDK_SLOT_SHORT:
        return deliver_short(conn, slot);
    case SL_DPDK_SLOT_PARKED:
        return sl_dpdk_long_deliver(conn, slot);
    case SL_DPDK_SLOT_EMPTY:
        break;
    }
    return false;
}

bool sl_dpdk_receive_deliver(struct sl_dpdk_conn *conn)
{
    bool work = false;
    while (sl_dpdk_receive_is_readable(conn) && deliver_head(conn)) {
        work = true;
    }
    return work;
}

void sl_dpdk_receive_release(struct sl_conn *conn, const struct sl_transport_message *message)
{
    sl_dpdk_block_put(message->token);
}
