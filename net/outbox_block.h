/* The blocks of an outbox, for its own files. */
#ifndef SL_NET_OUTBOX_BLOCK_H
#define SL_NET_OUTBOX_BLOCK_H

#include "net/outbox.h"

/* Followed by its room. */
struct sl_outbox_block {
    struct sl_outbox_block *next; /* among the free ones */
    uint32_t room_bytes;
    uint32_t head;          /* offset in the room of the next frame */
    uint32_t tail;          /* offset in the room of the waiting made last */
    uint32_t waiting_count; /* committed and not sent */
    uint32_t unit_count;    /* that it has for a single long frame; 0: it is an ordinary one */
    bool is_cold;           /* it is free, and its memory is the system's */
};

static inline uint8_t *sl_outbox_unit_at(const struct sl_outbox *outbox, uint32_t unit)
{
    return outbox->base + outbox->block_count * (size_t)SL_OUTBOX_BLOCK_BYTES +
           unit * (size_t)SL_OUTBOX_UNIT_BYTES;
}

#endif
