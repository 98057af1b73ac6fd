/* The ids of dropped tables, in Register and Cluster messages. Any thread. */
#ifndef SL_NET_SESSION_MESSAGE_DROPPED_H
#define SL_NET_SESSION_MESSAGE_DROPPED_H

#include <stdbool.h>
#include <stdint.h>

#include "core/limits.h"

/* Ids of dropped tables, as bits. */
struct sl_message_dropped {
    uint8_t items[SL_LIMIT_TABLES / 8];
    bool has_bits; /* else none was dropped */
};

static inline bool sl_message_dropped_has(const struct sl_message_dropped *dropped, uint32_t id)
{
    return dropped->has_bits && (dropped->items[id / 8] >> id % 8 & 1) != 0;
}

static inline void sl_message_dropped_add(struct sl_message_dropped *dropped, uint32_t id)
{
    dropped->has_bits = true;
    dropped->items[id / 8] = (uint8_t)(dropped->items[id / 8] | 1U << id % 8);
}

#endif
