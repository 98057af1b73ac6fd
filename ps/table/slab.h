/* Equal units that never move and are never given back one by one: the records of a table, the
 * segments of its index. They lie in chunks of a power of two of units, so that a number becomes an
 * address by a shift and a multiplication. A small table takes its chunks one at a time from
 * ordinary pages; a larger one cuts them from mappings of huge pages, which a background thread
 * makes ready ahead of need (core/arena.h): one mapping, and another for each 64 in use. A mapping
 * that is not ready in time is made of ordinary pages instead. Owner reactor. */
#ifndef SL_PS_TABLE_SLAB_H
#define SL_PS_TABLE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/err.h"

/* What one table holds of memory, in all its parts. */
struct sl_table_budget {
    size_t bytes;
    size_t bytes_max; /* 0: no limit */
};

/* False, and nothing changes, when the limit would be passed. */
bool sl_table_budget_take(struct sl_table_budget *budget, size_t bytes);
void sl_table_budget_give(struct sl_table_budget *budget, size_t bytes);

struct sl_slab {
    struct sl_table_budget *budget;
    uint8_t **chunks;
    size_t unit_bytes;
    size_t chunk_bytes;
    uint32_t unit_shift; /* a chunk holds 1 << unit_shift units */
    uint32_t unit_count;
    uint32_t unit_room; /* units that fit into the chunks there are */
    uint32_t chunk_count, chunk_capacity;
    struct sl_arena small, large;
    uint8_t *large_next; /* what is left of the last large mapping */
    size_t large_left;
};

/* Chunks of at most chunk_bytes_max, but of one unit at least. unit_bytes is a multiple of 8.
 * Allocates nothing. The budget outlives the memory. */
void sl_slab_init(struct sl_slab *memory, struct sl_table_budget *budget, size_t unit_bytes,
                  size_t chunk_bytes_max);
void sl_slab_fini(struct sl_slab *memory);

/* Makes sure that there is room for one unit more, zeroed unless its last taker failed. Errors:
 * NO_MEMORY. */
int sl_slab_reserve(struct sl_slab *memory);

/* The unit of this number; the one after the last is there too after a reserve. */
static inline void *sl_slab_at(const struct sl_slab *memory, uint32_t number)
{
    const uint32_t within = number & ((1U << memory->unit_shift) - 1);
    return memory->chunks[number >> memory->unit_shift] + within * memory->unit_bytes;
}

#endif
