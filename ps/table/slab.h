/* A slab is a stack of equal units that never move: records of a table, segments of its index.
 * Memory above the last unit returns to the system by whole mappings, so huge pages stay whole. A
 * chunk holds a power of two of units, so a shift and a multiplication turn an index into an
 * address. A small table maps chunks one at a time from ordinary pages. A larger table cuts chunks
 * from huge-page mappings. A background thread prepares these in advance (core/arena.h): one, and
 * another for each 64 in use, and up to one for each 16 while the table grows faster than that.
 * Ordinary pages replace a mapping that is not ready in time; the thread turns them into huge ones
 * afterwards. Owner reactor. */
#ifndef SL_PS_TABLE_SLAB_H
#define SL_PS_TABLE_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/arena.h"
#include "core/err.h"

/* Memory of one table, all parts together. */
struct sl_table_budget {
    size_t bytes;
    size_t bytes_max; /* 0: no limit */
};

/* Charges the budget. Returns false, without effect, beyond the limit. */
bool sl_table_budget_take(struct sl_table_budget *budget, size_t bytes);
void sl_table_budget_give(struct sl_table_budget *budget, size_t bytes);

struct sl_slab {
    struct sl_table_budget *budget;
    uint8_t **chunks;
    size_t unit_bytes;
    size_t chunk_bytes;
    uint32_t unit_shift; /* a chunk holds 1 << unit_shift units */
    uint32_t unit_count;
    uint32_t unit_room; /* units that fit into the present chunks */
    uint32_t dirty_end; /* units from unit_count to here have been popped: they are not zeroed */
    uint32_t chunk_count, chunk_capacity;
    struct sl_arena small, large;
    uint8_t *large_next; /* unused end of the last large mapping */
    size_t large_left;
};

/* Allocates nothing. A chunk has at most chunk_bytes_max, but at least one unit. unit_bytes is a
 * multiple of 8. The budget outlives the slab. */
void sl_slab_init(struct sl_slab *memory, struct sl_table_budget *budget, size_t unit_bytes,
                  size_t chunk_bytes_max);
void sl_slab_fini(struct sl_slab *memory);

/* Returns the memory of the slab, including prepared mappings. */
size_t sl_slab_memory_bytes(const struct sl_slab *memory);

/* Makes room for one more unit, which is zeroed unless it was popped or a failed insert used it.
 * Errors: NO_MEMORY. */
int sl_slab_reserve(struct sl_slab *memory);

/* Removes the last unit. Unmaps chunks above it, except for a share of spare units. */
void sl_slab_pop(struct sl_slab *memory);

/* Returns a unit. After a reserve, the unit after the last is valid too. */
static inline void *sl_slab_at(const struct sl_slab *memory, uint32_t number)
{
    const uint32_t within = number & ((1U << memory->unit_shift) - 1);
    return memory->chunks[number >> memory->unit_shift] + within * memory->unit_bytes;
}

#endif
