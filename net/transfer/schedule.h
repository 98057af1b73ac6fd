/* Decides which batch sends the next slice to a peer: batches take turns by bytes (deficit round
 * robin; Shreedhar and Varghese, 1996), so that a small batch does not wait behind a large one.
 * Pure; owner reactor. */
#ifndef SL_NET_TRANSFER_SCHEDULE_H
#define SL_NET_TRANSFER_SCHEDULE_H

#include <stdint.h>

#include "core/list.h"

/* Of something that has slices to send. Zero at first. */
struct sl_transfer_turn {
    struct sl_list_link link;
    int64_t left_bytes; /* of this turn; below 0: the last slice exceeded it */
};

struct sl_transfer_schedule {
    struct sl_list turns; /* of struct sl_transfer_turn; the first has its turn */
    uint32_t turn_bytes;
};

/* turn_bytes: at least the bytes of a slice. */
void sl_transfer_schedule_init(struct sl_transfer_schedule *schedule, uint32_t turn_bytes);

/* Gives the turn a place behind all others, unless it has one. */
void sl_transfer_schedule_add(struct sl_transfer_schedule *schedule, struct sl_transfer_turn *turn);

/* Nothing to send any more. */
void sl_transfer_schedule_remove(struct sl_transfer_turn *turn);

/* The turn sends a slice: when its bytes are spent, it goes behind all others. */
void sl_transfer_schedule_spend(struct sl_transfer_schedule *schedule,
                                struct sl_transfer_turn *turn, uint32_t bytes);

#endif
