#include "net/dpdk/receive_slots.h"

#include <stdlib.h>

#include "net/dpdk/ring.h"

int sl_dpdk_receive_open(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_receiving *receive = calloc(1, sizeof *receive);
    if (receive == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    receive->slots = sl_dpdk_ring_open(&receive->slots_mask, sizeof *receive->slots);
    if (receive->slots == NULL) {
        free(receive);
        return SL_ERR_NO_MEMORY;
    }
    conn->receive = receive;
    return 0;
}

uint32_t sl_dpdk_receive_next(const struct sl_dpdk_conn *conn)
{
    return conn->receive->head;
}

bool sl_dpdk_receive_waits_for_sink(const struct sl_dpdk_conn *conn)
{
    return conn->receive->is_known && conn->receive->sink == NULL;
}

bool sl_dpdk_receive_is_owed(const struct sl_dpdk_conn *conn)
{
    return conn->receive->begun > 0 && !sl_dpdk_receive_waits_for_sink(conn) &&
           conn->grant.granted != conn->grant.arrived;
}

/* Slots */

struct sl_dpdk_slot *sl_dpdk_slot_at(struct sl_dpdk_receiving *receive, uint32_t message)
{
    return &receive->slots[message & receive->slots_mask];
}

bool sl_dpdk_receive_has_slot(struct sl_dpdk_receiving *receive, uint32_t ahead)
{
    while (ahead > receive->slots_mask) {
        uint32_t count = receive->slots_mask + 1;
        struct sl_dpdk_slot *grown =
            count < SL_DPDK_MESSAGES
                ? sl_dpdk_ring_grow(receive->slots, &receive->slots_mask, sizeof *receive->slots,
                                    receive->head, receive->head + count)
                : NULL;
        if (grown == NULL) {
            return false;
        }
        receive->slots = grown;
    }
    return true;
}

void sl_dpdk_receive_shrink(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    if (receive->begun == 0) {
        receive->slots =
            sl_dpdk_ring_shrink(receive->slots, &receive->slots_mask, sizeof *receive->slots);
    }
}

void sl_dpdk_receive_begin_slot(struct sl_dpdk_receiving *receive, struct sl_dpdk_slot *slot,
                                enum sl_dpdk_slot_kind kind)
{
    receive->begun += slot->kind == SL_DPDK_SLOT_EMPTY;
    slot->kind = (uint8_t)kind;
}

void sl_dpdk_receive_pass(struct sl_dpdk_receiving *receive)
{
    *sl_dpdk_slot_at(receive, receive->head) = (struct sl_dpdk_slot){0};
    receive->is_known = false;
    receive->sink = NULL;
    receive->head++;
    receive->begun--;
}

static void drop_slot(struct sl_dpdk *dpdk, struct sl_dpdk_slot *slot)
{
    while (slot->parked != NULL) {
        struct sl_dpdk_parked *parked = slot->parked;
        slot->parked = parked->next;
        sl_dpdk_unpark(dpdk, parked);
    }
    if (slot->block != NULL) {
        sl_dpdk_block_put(slot->block);
    }
    *slot = (struct sl_dpdk_slot){0};
}

void sl_dpdk_receive_close(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    if (receive == NULL) {
        return;
    }
    for (uint32_t i = 0; i <= receive->slots_mask && receive->begun > 0; i++) {
        if (receive->slots[i].kind != SL_DPDK_SLOT_EMPTY) {
            drop_slot(conn->dpdk, &receive->slots[i]);
            receive->begun--;
        }
    }
    free(receive->slots);
    free(receive);
    conn->receive = NULL;
}

/* Pieces and frames */

bool sl_dpdk_receive_is_piece(const struct sl_dpdk_conn *conn, uint32_t offset, uint32_t bytes,
                              uint32_t message_bytes)
{
    uint32_t piece_bytes = sl_dpdk_piece_bytes(conn);
    if (offset % piece_bytes != 0 || offset >= message_bytes) {
        return false;
    }
    uint32_t left = message_bytes - offset;
    return bytes == (left < piece_bytes ? left : piece_bytes);
}

bool sl_dpdk_receive_is_readable(const struct sl_dpdk_conn *conn)
{
    return conn->phase == SL_DPDK_LIVE && conn->base.state == SL_CONN_OPEN;
}

void sl_dpdk_receive_report(struct sl_dpdk_conn *conn, const struct sl_frame *frame,
                            const uint8_t *payload, void *token)
{
    struct sl_transport_message message = {.header = *frame, .payload = payload, .token = token};
    sl_cell_add(&conn->dpdk->base.cells->frames_received, 1);
    sl_cell_add(&conn->dpdk->base.cells->bytes_received,
                SL_FRAME_HEADER_BYTES + (uint64_t)frame->payload_bytes);
    sl_conn_report_received(&conn->base, &message);
}
