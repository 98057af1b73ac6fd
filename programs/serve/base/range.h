/* Ranges of an arena that are in use: the first gap that is large enough is taken. Bookkeeping
 * only, so the arena may be a peer's. One owner thread; no allocation. */
#ifndef SL_SERVE_RANGE_H
#define SL_SERVE_RANGE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/list.h"

#define SL_SERVE_RANGE_ALIGN 64

struct sl_serve_ranges {
    struct sl_list used; /* by offset */
    uint64_t bytes, used_bytes;
};

struct sl_serve_range {
    struct sl_list_link link;
    uint64_t offset, bytes; /* multiples of the alignment */
};

void sl_serve_ranges_init(struct sl_serve_ranges *ranges, uint64_t bytes);

/* Fills in *range, the owner's storage until `put`. 0 bytes: takes nothing. False: no gap is large
 * enough. */
bool sl_serve_range_take(struct sl_serve_ranges *ranges, uint64_t bytes,
                         struct sl_serve_range *range);

/* No effect if it has taken nothing. */
void sl_serve_range_put(struct sl_serve_ranges *ranges, struct sl_serve_range *range);

#endif
