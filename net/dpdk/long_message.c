#include "net/dpdk/long_message.h"

#include <string.h>

#include "core/bytes.h"

static uint32_t dpdk_long_message_index_of(const struct sl_dpdk_conn *conn, uint32_t offset)
{
    return offset / sl_dpdk_piece_bytes(conn);
}

static uint32_t message_bytes(const struct sl_dpdk_receiving *receive)
{
    return SL_FRAME_HEADER_BYTES + receive->frame.payload_bytes;
}

bool sl_dpdk_long_has(const struct sl_dpdk_conn *conn, uint32_t offset)
{
    uint32_t index = dpdk_long_message_index_of(conn, offset);
    return (conn->receive->pieces[index / 64] >> index % 64 & 1) != 0;
}

bool sl_dpdk_long_place(struct sl_dpdk_conn *conn, uint32_t offset, const uint8_t *body,
                        uint32_t bytes)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    uint32_t index = dpdk_long_message_index_of(conn, offset);
    const uint32_t end = message_bytes(receive);
    if (offset > end || bytes > end - offset || bytes > receive->missing ||
        (offset == 0 && bytes < SL_FRAME_HEADER_BYTES) ||
        (offset != 0 && offset < SL_FRAME_HEADER_BYTES) || sl_dpdk_long_has(conn, offset)) {
        return false;
    }
    receive->pieces[index / 64] |= 1ULL << index % 64;
    receive->missing -= bytes;
    sl_dpdk_grant_consumed(&conn->dpdk->grants, &conn->grant, bytes);
    if (offset == 0) { /* the sink gets only the payload */
        memcpy(receive->sink, body + SL_FRAME_HEADER_BYTES, bytes - SL_FRAME_HEADER_BYTES);
    } else {
        memcpy(receive->sink + (offset - SL_FRAME_HEADER_BYTES), body, bytes);
    }
    return true;
}

/* The message at the head */

/* Finds the frame header, perhaps in a parked packet. */
static bool know(struct sl_dpdk_receiving *receive, const struct sl_dpdk_slot *slot)
{
    for (const struct sl_dpdk_parked *at = slot->parked; !receive->is_known && at != NULL;
         at = at->next) {
        if (at->offset == 0) { /* checked on arrival */
            receive->is_known = sl_frame_decode_received(at->body, &receive->frame) == 0;
        }
    }
    return receive->is_known;
}

static uint32_t parked_bytes(const struct sl_dpdk_slot *slot)
{
    uint32_t bytes = 0;
    for (const struct sl_dpdk_parked *at = slot->parked; at != NULL; at = at->next) {
        bytes += at->bytes;
    }
    return bytes;
}

/* The upcall may end the connection. */
static bool ask(struct sl_dpdk_conn *conn, const struct sl_dpdk_slot *slot)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    uint8_t *sink = sl_conn_ask_sink(&conn->base, &receive->frame);
    if (!sl_dpdk_receive_is_readable(conn)) {
        return false;
    }
    if (sink == NULL) {
        sl_dpdk_mark_waiting(conn);
        return false;
    }
    uint32_t bytes = message_bytes(receive);
    receive->sink = sink;
    receive->missing = bytes;
    memset(receive->pieces, 0,
           (dpdk_long_message_index_of(conn, bytes - 1) / 64 + 1) * sizeof receive->pieces[0]);
    sl_dpdk_grant_wants(&conn->dpdk->grants, &conn->grant, bytes - parked_bytes(slot));
    return true;
}

/* False: malformed pieces; the connection has ended. */
static bool place_parked(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot)
{
    while (slot->parked != NULL) {
        struct sl_dpdk_parked *parked = slot->parked;
        if (!sl_dpdk_receive_is_piece(conn, parked->offset, parked->bytes,
                                      message_bytes(conn->receive)) ||
            !sl_dpdk_long_place(conn, parked->offset, parked->body, parked->bytes)) {
            (void)sl_conn_fail(&conn->base, SL_ERR_PROTOCOL, "it sent more than its frame has");
            return false;
        }
        slot->parked = parked->next;
        sl_dpdk_unpark(conn->dpdk, parked);
    }
    return true;
}

bool sl_dpdk_long_deliver(struct sl_dpdk_conn *conn, struct sl_dpdk_slot *slot)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    if (!know(receive, slot) || (receive->sink == NULL && !ask(conn, slot))) {
        return false;
    }
    if (!place_parked(conn, slot) || receive->missing > 0) {
        return false;
    }
    struct sl_frame frame = receive->frame;
    uint8_t *sink = receive->sink;
    sl_dpdk_receive_pass(receive);
    sl_dpdk_receive_report(conn, &frame, sink, NULL);
    return true;
}
