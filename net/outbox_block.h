/* The blocks of an outbox, shared by outbox.c and outbox_idle.c. */
#ifndef SL_NET_OUTBOX_BLOCK_H
#define SL_NET_OUTBOX_BLOCK_H

#include "net/outbox.h"

/* Followed by its room. */
struct sl_outbox_block {
    struct sl_outbox_block *next; /* in the free list */
    uint32_t room_bytes;
    uint32_t head;          /* offset in the room: next frame */
    uint32_t tail;          /* offset in the room: last sl_outbox_waiting */
    uint32_t waiting_count; /* committed and unsent */
    uint32_t unit_count;    /* units of a long frame; 0: an ordinary block */
    bool is_cold;           /* free, and its memory returned to the system */
};

static inline uint8_t *sl_outbox_unit_at(const struct sl_outbox *outbox, uint32_t unit)
{
    return outbox->base + outbox->block_count * (size_t)SL_OUTBOX_BLOCK_BYTES +
           unit * (size_t)SL_OUTBOX_UNIT_BYTES;
}

#endif
