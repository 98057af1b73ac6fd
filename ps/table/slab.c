#include "ps/table/slab.h"

#include <stdlib.h>

#include "core/arena_ahead.h"
#include "core/assert.h"

#define HUGE_PAGE_BYTES   ((size_t)2 << 20)
#define LARGE_BYTES_MAX   ((size_t)16 << 20)
#define SMALL_CHUNK_COUNT 8
#define SLACK_SHARE       32 /* a large mapping wastes at most 1/32 */

/* Sizes, in large mappings. */
#define LARGE_FROM        2  /* used as small chunks before the first large mapping */
#define AHEAD_SHARE       64 /* prepare one, and another for each so many in use */
#define AHEAD_LEFT        4  /* keep so many free in the budget */
#define SPARE_SHARE       4  /* beside the budget, one spare for each so many free in it */

#define ROOM_SHARE        8 /* popped units of this share of the others keep their memory */

bool sl_table_budget_take(struct sl_table_budget *budget, size_t bytes)
{
    if (budget->bytes_max != 0 &&
        (budget->bytes > budget->bytes_max || bytes > budget->bytes_max - budget->bytes)) {
        return false;
    }
    budget->bytes += bytes;
    return true;
}

void sl_table_budget_give(struct sl_table_budget *budget, size_t bytes)
{
    sl_assert(bytes <= budget->bytes);
    budget->bytes -= bytes;
}

/* Returns the shortest mapping of whole huge pages that chunks fill with little waste. */
static size_t large_bytes(size_t chunk_bytes)
{
    size_t best = LARGE_BYTES_MAX;
    for (size_t bytes = LARGE_BYTES_MAX; bytes >= HUGE_PAGE_BYTES; bytes -= HUGE_PAGE_BYTES) {
        if (bytes >= chunk_bytes && bytes % chunk_bytes <= bytes / SLACK_SHARE) {
            best = bytes;
        }
    }
    return best;
}

void sl_slab_init(struct sl_slab *memory, struct sl_table_budget *budget, size_t unit_bytes,
                  size_t chunk_bytes_max)
{
    sl_assert(unit_bytes > 0);
    sl_assert(unit_bytes % 8 == 0);
    sl_assert(chunk_bytes_max <= LARGE_BYTES_MAX);
    sl_assert(unit_bytes <= LARGE_BYTES_MAX);
    *memory = (struct sl_slab){.budget = budget, .unit_bytes = unit_bytes};
    while (unit_bytes << (memory->unit_shift + 1) <= chunk_bytes_max) {
        memory->unit_shift++;
    }
    memory->chunk_bytes = unit_bytes << memory->unit_shift;
    sl_arena_init(&memory->small, memory->chunk_bytes, 0, false);
    sl_arena_init(&memory->large, large_bytes(memory->chunk_bytes), 0, true);
}

void sl_slab_fini(struct sl_slab *memory)
{
    sl_table_budget_give(memory->budget, sl_slab_memory_bytes(memory));
    sl_arena_fini(&memory->small);
    sl_arena_fini(&memory->large);
    free(memory->chunks);
    memory->chunks = NULL;
}

size_t sl_slab_memory_bytes(const struct sl_slab *memory)
{
    return memory->small.mapped_bytes + memory->large.mapped_bytes +
           memory->chunk_capacity * sizeof *memory->chunks;
}

/* Maps memory with `make` and charges the budget; NULL if either fails. A prepared mapping is
 * charged already. */
static uint8_t *slab_map(struct sl_slab *memory, struct sl_arena *arena,
                         void *(*make)(struct sl_arena *arena))
{
    const uint32_t prepared = arena->prepared_count;
    const size_t charge = make == sl_arena_map && prepared > 0 ? 0 : arena->chunk_bytes;
    const size_t charged = arena->mapped_bytes + charge;
    if (!sl_table_budget_take(memory->budget, charge)) {
        return NULL;
    }
    uint8_t *base = make(arena);
    sl_table_budget_give(memory->budget, charged - arena->mapped_bytes);
    return base;
}

static bool large_begun(const struct sl_slab *memory)
{
    return memory->chunk_count >= SMALL_CHUNK_COUNT &&
           memory->chunk_count * memory->chunk_bytes >= LARGE_FROM * memory->large.chunk_bytes;
}

/* The end of the budget is left to the table's other parts. */
static bool may_prepare(const struct sl_slab *memory)
{
    const struct sl_table_budget *budget = memory->budget;
    return budget->bytes_max == 0 ||
           budget->bytes_max - budget->bytes >= AHEAD_LEFT * memory->large.chunk_bytes;
}

/* Returns how many large mappings should be prepared, in proportion to the memory in use. */
static size_t ahead_wanted(const struct sl_slab *memory)
{
    const size_t used = memory->chunk_count * memory->chunk_bytes;
    return large_begun(memory) ? 1 + used / memory->large.chunk_bytes / AHEAD_SHARE : 0;
}

static void look_ahead(struct sl_slab *memory)
{
    struct sl_arena *large = &memory->large;
    const size_t wanted = ahead_wanted(memory);
    const struct sl_table_budget *budget = memory->budget;
    const size_t left = budget->bytes_max - budget->bytes;
    large->spare_max = budget->bytes_max == 0 ? SL_ARENA_AHEAD_MAX
                                              : (uint32_t)(left / large->chunk_bytes / SPARE_SHARE);
    while (large->prepared_count < wanted && may_prepare(memory) && sl_arena_prepare(large)) {
        memory->budget->bytes += large->chunk_bytes;
    }
}

/* The first touch of an unprepared huge page would stall, so ordinary pages replace a late mapping.
 * This charges the budget as if the prepared mapping had been taken and look_ahead had prepared the
 * next. So budget use does not depend on timing. */
static uint8_t *map_large(struct sl_slab *memory)
{
    struct sl_arena *large = &memory->large;
    if (large->prepared_count > 0 && !sl_arena_ready(large) && may_prepare(memory)) {
        return slab_map(memory, large, sl_arena_map_ordinary);
    }
    return slab_map(memory, large, sl_arena_map);
}

/* Takes chunks from large mappings once the table is not small. If no large mapping fits below the
 * limit, falls back to small ones. */
static uint8_t *take_chunk(struct sl_slab *memory)
{
    if (memory->large_left < memory->chunk_bytes && large_begun(memory)) {
        uint8_t *base = map_large(memory);
        if (base != NULL) {
            memory->large_next = base;
            memory->large_left = memory->large.chunk_bytes;
        }
    }
    if (memory->large_left < memory->chunk_bytes) {
        return slab_map(memory, &memory->small, sl_arena_map);
    }
    uint8_t *chunk = memory->large_next;
    memory->large_next += memory->chunk_bytes;
    memory->large_left -= memory->chunk_bytes;
    return chunk;
}

/* Doubles the array of chunk pointers: one pointer per half megabyte of records. realloc moves a
 * large array by remapping pages, not by copying. */
static int grow_chunks(struct sl_slab *memory)
{
    const uint32_t capacity = memory->chunk_capacity == 0 ? 8 : memory->chunk_capacity * 2;
    const size_t more = (capacity - memory->chunk_capacity) * sizeof *memory->chunks;
    if (!sl_table_budget_take(memory->budget, more)) {
        return SL_ERR_NO_MEMORY;
    }
    uint8_t **chunks = realloc(memory->chunks, capacity * sizeof *chunks);
    if (chunks == NULL) {
        sl_table_budget_give(memory->budget, more);
        return SL_ERR_NO_MEMORY;
    }
    memory->chunks = chunks;
    memory->chunk_capacity = capacity;
    return 0;
}

int sl_slab_reserve(struct sl_slab *memory)
{
    if (memory->unit_count < memory->unit_room) {
        return 0;
    }
    if (memory->unit_room > UINT32_MAX - (1U << memory->unit_shift)) {
        return SL_ERR_NO_MEMORY;
    }
    if (memory->chunk_count == memory->chunk_capacity && grow_chunks(memory) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    uint8_t *chunk = take_chunk(memory);
    if (chunk == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memory->chunks[memory->chunk_count++] = chunk;
    memory->unit_room += 1U << memory->unit_shift;
    if (large_begun(memory)) {
        look_ahead(memory);
    }
    return 0;
}

/* Unmaps the last mapping if no unit needs it. Both arenas are stacks, so it is the newest of one
 * of them. Returns false if it stays. */
static bool unmap_last(struct sl_slab *memory)
{
    const uint8_t *last = memory->chunks[memory->chunk_count - 1];
    const struct sl_arena_chunk *newest = memory->large.chunks;
    const bool is_large =
        newest != NULL && last >= newest->base && last < newest->base + memory->large.chunk_bytes;
    const uint32_t chunks =
        is_large ? (uint32_t)((size_t)(last - newest->base) / memory->chunk_bytes) + 1 : 1;
    const uint32_t left = memory->unit_room - (chunks << memory->unit_shift);
    if (left == 0 || memory->unit_count > left - left / ROOM_SHARE) {
        return false;
    }
    struct sl_arena *arena = is_large ? &memory->large : &memory->small;
    sl_arena_unmap_newest(arena);
    sl_table_budget_give(memory->budget, arena->chunk_bytes);
    memory->large_left = is_large ? 0 : memory->large_left;
    memory->chunk_count -= chunks;
    memory->unit_room = left;
    memory->dirty_end = memory->dirty_end < left ? memory->dirty_end : left;
    return true;
}

void sl_slab_pop(struct sl_slab *memory)
{
    sl_assert(memory->unit_count > 0);
    if (memory->dirty_end < memory->unit_count) {
        memory->dirty_end = memory->unit_count;
    }
    memory->unit_count--;
    while (memory->unit_room - memory->unit_count > 1U << memory->unit_shift &&
           unmap_last(memory)) {
        const size_t wanted = ahead_wanted(memory);
        while (memory->large.prepared_count > wanted && sl_arena_unprepare(&memory->large)) {
            sl_table_budget_give(memory->budget, memory->large.chunk_bytes);
        }
    }
}
