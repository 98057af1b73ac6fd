/* Moves the received data of a migrating connection. */
#include <stdlib.h>
#include <string.h>

#include "net/dpdk/receive.h"

/* Replaces each parked packet by a copy. */
static bool copy_parked(struct sl_dpdk *dpdk, struct sl_dpdk_slot *slot)
{
    for (struct sl_dpdk_parked **at = &slot->parked; *at != NULL; at = &(*at)->next) {
        struct sl_dpdk_parked *from = *at, *copy = malloc(sizeof *copy + from->bytes);
        if (copy == NULL) {
            return false;
        }
        *copy = (struct sl_dpdk_parked){.next = from->next,
                                        .body = (uint8_t *)(copy + 1),
                                        .offset = from->offset,
                                        .bytes = from->bytes};
        memcpy(copy + 1, from->body, from->bytes);
        *at = copy;
        sl_dpdk_unpark(dpdk, from);
    }
    return true;
}

static bool copy_block(struct sl_dpdk_slot *slot)
{
    if (slot->block == NULL) {
        return true;
    }
    struct sl_dpdk_block *copy = sl_dpdk_block_copy(slot->memory, slot->bytes);
    if (copy == NULL) {
        return false;
    }
    sl_dpdk_block_put(slot->block);
    slot->block = copy;
    slot->memory = copy->memory;
    return true;
}

struct sl_dpdk_receiving *sl_dpdk_receive_leave(struct sl_dpdk_conn *conn)
{
    struct sl_dpdk_receiving *receive = conn->receive;
    uint32_t left = receive->begun;
    sl_assert(receive->sink == NULL); /* it migrates between two messages */
    for (uint32_t message = receive->head; left > 0; message++) {
        struct sl_dpdk_slot *slot = sl_dpdk_slot_at(receive, message);
        if (slot->kind != SL_DPDK_SLOT_EMPTY) {
            left--;
            if (!copy_parked(conn->dpdk, slot) || !copy_block(slot)) {
                return NULL;
            }
        }
    }
    conn->receive = NULL;
    return receive;
}

int sl_dpdk_receive_arrive(struct sl_dpdk_conn *conn, struct sl_dpdk_receiving *receiving)
{
    for (uint32_t i = 0; i <= receiving->slots_mask; i++) {
        if (receiving->slots[i].block != NULL) {
            sl_dpdk_store_adopt(conn->dpdk->store, receiving->slots[i].block);
        }
    }
    sl_dpdk_receive_close(conn);
    conn->receive = receiving;
    return 0;
}

void sl_dpdk_receive_drop(struct sl_dpdk_receiving *receiving)
{
    sl_dpdk_receive_free(receiving, NULL);
}
