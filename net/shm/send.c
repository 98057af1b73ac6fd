#include "net/shm/send.h"

#include <string.h>

#include "net/shm/imported_memory.h"
#include "net/shm/region.h"
#include "net/shm/reply_buffer.h"

#define LEFT_IN_PLACE_BYTES 4096U /* of a payload part, if the part before it must be copied */

static struct sl_shm_entry *shm_send_entry_at(struct sl_shm_send *send, uint32_t index)
{
    return &send->queue[index % SL_SHM_QUEUE];
}

void sl_shm_send_refresh(struct sl_shm_conn *conn)
{
    struct sl_shm_send *send = &conn->send;
    uint32_t consumed = sl_shm_side_consumed(sl_shm_peer_side(conn));
    if (consumed - send->consumed > send->number - send->consumed) {
        sl_shm_fail(conn, SL_ERR_PROTOCOL, "it consumed frames that were not sent");
        return;
    }
    if (consumed != send->consumed) {
        send->arena_bottom = send->arena_ends[(consumed - 1) % SL_SHM_SLOTS];
        if (consumed == send->number) {
            /* Reuse the memory while it is in the cache. */
            send->arena_top = send->arena_bottom = 0;
        }
        if ((int32_t)(send->refs_due - consumed) < 0) {
            send->refs_due = consumed;
        }
        send->consumed = consumed;
    }
}

/* Arena */

/* Returns the position for the next `bytes`: after the last, or at the front once that is
 * consumed. */
static uint64_t next_place(const struct sl_shm_send *send, uint32_t bytes)
{
    uint64_t at = send->arena_top % SL_SHM_ARENA_BYTES;
    bool same_lap = send->arena_top / SL_SHM_ARENA_BYTES == send->arena_bottom / SL_SHM_ARENA_BYTES;
    bool goes_back =
        at >= SL_SHM_ARENA_WARM && same_lap && bytes <= send->arena_bottom % SL_SHM_ARENA_BYTES;
    if (goes_back || at + bytes > SL_SHM_ARENA_BYTES) {
        return send->arena_top + SL_SHM_ARENA_BYTES - at;
    }
    return send->arena_top;
}

/* Allocates room in the arena; false: none now. */
static bool take_arena(struct sl_shm_conn *conn, uint32_t bytes, struct sl_shm_piece *out)
{
    struct sl_shm_send *send = &conn->send;
    uint32_t rounded = (bytes + 63U) & ~63U;
    uint64_t place = next_place(send, rounded);
    if (place + rounded - send->arena_bottom > SL_SHM_ARENA_WARM) {
        sl_shm_send_refresh(conn);
        place = next_place(send, rounded);
    }
    if (place + rounded - send->arena_bottom > SL_SHM_ARENA_BYTES) {
        return false;
    }
    send->arena_top = place + rounded;
    *out = (struct sl_shm_piece){
        .offset = place % SL_SHM_ARENA_BYTES, .region = SL_SHM_REGION_ARENA, .bytes = bytes};
    return true;
}

/* Slots */

struct payload {
    const uint8_t *first, *second; /* after the header in `head`; `payload` */
    uint32_t first_bytes, second_bytes;
};

static struct payload payload_of(const struct sl_transport_frame *frame)
{
    return (struct payload){.first = (const uint8_t *)frame->head + SL_FRAME_HEADER_BYTES,
                            .first_bytes = frame->head_bytes - SL_FRAME_HEADER_BYTES,
                            .second = frame->payload,
                            .second_bytes = frame->payload_bytes};
}

static void shm_send_copy(uint8_t *to, const struct payload *payload)
{
    memcpy(to, payload->first, payload->first_bytes);
    if (payload->second_bytes > 0) {
        memcpy(to + payload->first_bytes, payload->second, payload->second_bytes);
    }
}

/* Describes memory that the peer can read in place as a piece. False: there is none, or it is so
 * short that a copy is better. */
static bool piece_in_place(struct sl_shm_conn *conn, const void *at, uint32_t bytes,
                           struct sl_shm_piece *out)
{
    return sl_shm_imported_memory_piece(conn, at, bytes, out) ||
           (bytes >= SL_SHM_BY_REF_BYTES && sl_shm_region_piece(conn, at, bytes, out) != NULL);
}

/* Describes the payload as one piece, if it is contiguous, aligned and readable by the peer. */
static bool piece_of_one(struct sl_shm_conn *conn, const struct payload *payload,
                         struct sl_shm_piece *out)
{
    const uint8_t *at = payload->first_bytes > 0 ? payload->first : payload->second;
    return (payload->first_bytes == 0 || payload->second_bytes == 0) && (uintptr_t)at % 8 == 0 &&
           piece_in_place(conn, at, payload->first_bytes + payload->second_bytes, out);
}

/* Finds the pieces of a payload that does not fit in the slot. Returns their number; 0: no room
 * now. */
static uint8_t find_pieces(struct sl_shm_conn *conn, const struct payload *payload,
                           struct sl_shm_piece pieces[2], bool *by_ref)
{
    uint8_t *arena = conn->send.arena;
    *by_ref = true;
    if (piece_of_one(conn, payload, &pieces[0])) {
        return 1;
    }
    if (payload->first_bytes > 0 && payload->second_bytes >= LEFT_IN_PLACE_BYTES &&
        piece_in_place(conn, payload->second, payload->second_bytes, &pieces[1])) {
        if (!take_arena(conn, payload->first_bytes, &pieces[0])) {
            return 0;
        }
        memcpy(arena + pieces[0].offset, payload->first, payload->first_bytes);
        return 2;
    }
    *by_ref = false;
    if (!take_arena(conn, payload->first_bytes + payload->second_bytes, &pieces[0])) {
        return 0;
    }
    shm_send_copy(arena + pieces[0].offset, payload);
    sl_cell_add(&conn->shm->base.cells->copied_bytes, pieces[0].bytes);
    return 1;
}

/* Returns false if there is no room for the payload now. */
static bool fill_slot(struct sl_shm_conn *conn, const struct sl_transport_frame *frame,
                      struct sl_shm_slot *slot, bool *by_ref)
{
    struct payload payload = payload_of(frame);
    struct sl_shm_piece pieces[2], reply_buffer;
    bool has_reply_buffer = sl_shm_reply_buffer_export(conn, frame, &reply_buffer);
    uint32_t inline_max = SL_SHM_INLINE_BYTES - (has_reply_buffer ? sizeof reply_buffer : 0);
    slot->piece_count = 0;
    *by_ref = false;
    if (payload.first_bytes <= inline_max &&
        payload.second_bytes <= inline_max - payload.first_bytes) {
        slot->kind = SL_SHM_INLINE;
        shm_send_copy(slot->inlined, &payload);
    } else {
        slot->kind = SL_SHM_PIECES;
        slot->piece_count = find_pieces(conn, &payload, pieces, by_ref);
        if (slot->piece_count == 0 || conn->base.failure != 0) {
            return false;
        }
        memcpy(slot->pieces, pieces, slot->piece_count * sizeof pieces[0]);
    }
    slot->has_reply_buffer = has_reply_buffer;
    if (has_reply_buffer) {
        slot->reply_buffer = reply_buffer;
    }
    memcpy(slot->header, frame->head, SL_FRAME_HEADER_BYTES);
    return true;
}

static bool has_slot(struct sl_shm_conn *conn)
{
    struct sl_shm_send *send = &conn->send;
    if (send->number - send->consumed == SL_SHM_SLOTS) {
        sl_shm_send_refresh(conn);
    }
    return send->number - send->consumed < SL_SHM_SLOTS && conn->base.failure == 0;
}

static bool shm_send_publish(struct sl_shm_conn *conn, struct sl_shm_entry *entry)
{
    struct sl_shm_send *send = &conn->send;
    if (!has_slot(conn)) {
        return false;
    }
    struct sl_shm_slot *slot = &send->slots[send->number % SL_SHM_SLOTS];
    if (!fill_slot(conn, &entry->frame, slot, &entry->by_ref)) {
        return false;
    }
    send->arena_ends[send->number % SL_SHM_SLOTS] = send->arena_top;
    sl_shm_slot_publish(slot, send->number);
    send->number++;
    entry->due = send->number;
    if (entry->by_ref) {
        send->refs_due = send->number;
    }
    sl_cell_add(&conn->shm->base.cells->bytes_sent,
                entry->frame.head_bytes + (uint64_t)entry->frame.payload_bytes);
    sl_shm_mark_dirty(conn);
    return true;
}

uint32_t sl_shm_send_burst(struct sl_conn *base, const struct sl_transport_frame *frames,
                           uint32_t count)
{
    struct sl_shm_conn *conn = (struct sl_shm_conn *)base;
    struct sl_shm_send *send = &conn->send;
    uint32_t taken = 0;
    if (base->state != SL_CONN_OPEN) {
        return 0;
    }
    while (taken < count && send->tail - send->head < SL_SHM_QUEUE) {
        struct sl_shm_entry *entry = shm_send_entry_at(send, send->tail);
        entry->frame = frames[taken++];
        if (send->next == send->tail && shm_send_publish(conn, entry)) {
            send->next++;
        }
        send->tail++;
    }
    send->wants_room = send->wants_room || taken < count;
    conn->busy = conn->ready = true;
    return taken;
}

/* Sent frames */

static bool head_is_sent(struct sl_shm_send *send)
{
    const struct sl_shm_entry *entry = shm_send_entry_at(send, send->head);
    return send->head != send->next &&
           (!entry->by_ref || (int32_t)(send->consumed - entry->due) >= 0);
}

/* The upcall may queue frames, or disconnect. */
static uint32_t shm_send_report(struct sl_shm_conn *conn)
{
    struct sl_shm_send *send = &conn->send;
    uint32_t reported = 0;
    while (conn->phase != SL_SHM_ENDED && head_is_sent(send)) {
        void *cookie = shm_send_entry_at(send, send->head++)->frame.cookie;
        reported++;
        if (send->head == send->tail ||
            !sl_transport_pass_cookie(cookie, &shm_send_entry_at(send, send->head)->frame.cookie)) {
            sl_conn_report_sent(&conn->base, cookie);
        }
    }
    sl_cell_add(&conn->shm->base.cells->frames_sent, reported);
    return reported;
}

uint32_t sl_shm_send_run(struct sl_shm_conn *conn)
{
    struct sl_shm_send *send = &conn->send;
    uint32_t work = 0;
    if (sl_shm_send_waits(conn)) {
        sl_shm_send_refresh(conn);
    }
    while (send->next != send->tail &&
           shm_send_publish(conn, shm_send_entry_at(send, send->next))) {
        send->next++;
        work++;
    }
    work += shm_send_report(conn);
    if (send->wants_room && conn->base.state == SL_CONN_OPEN &&
        send->tail - send->head < SL_SHM_QUEUE) {
        send->wants_room = false;
        sl_conn_report_writable(&conn->base);
        work++;
    }
    return work;
}
