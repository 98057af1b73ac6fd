#include "core/arena.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/arena_ahead.h"
#include "core/arena_pages.h"
#include "core/assert.h"

#define LATE_FROM   8  /* chunks of an arena that prepares nothing */
#define SPARE_SHARE 16 /* at most one spare chunk for so many mapped ones */

void sl_arena_init(struct sl_arena *arena, size_t chunk_bytes, size_t bytes_max, bool huge)
{
    const size_t unit = huge ? SL_ARENA_HUGE_PAGE_BYTES : (size_t)sysconf(_SC_PAGESIZE);
    sl_assert(chunk_bytes > 0);
    sl_assert(chunk_bytes <= SIZE_MAX / 2);
    *arena = (struct sl_arena){
        .chunk_bytes = (chunk_bytes + unit - 1) / unit * unit,
        .bytes_max = bytes_max,
        .huge = huge,
    };
}

void sl_arena_fini(struct sl_arena *arena)
{
    sl_arena_ahead_close(&arena->ahead);
    while (arena->chunks != NULL) {
        struct sl_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        sl_arena_chunk_unmap(chunk, arena->chunk_bytes);
    }
    arena->mapped_bytes = 0;
    arena->prepared_count = 0;
    arena->spare_count = 0;
}

static bool limit_reached(const struct sl_arena *arena)
{
    return arena->bytes_max != 0 && (arena->mapped_bytes >= arena->bytes_max ||
                                     arena->bytes_max - arena->mapped_bytes < arena->chunk_bytes);
}

/* A late chunk asks for one more spare; a chunk taken while the thread has nothing to do for the
 * arena, for one less. */
static void arena_measure(struct sl_arena *arena, bool late)
{
    const size_t most = arena->mapped_bytes / arena->chunk_bytes / SPARE_SHARE;
    if (late) {
        arena->spare_wanted += arena->spare_wanted < most;
    } else if (arena->spare_wanted > 0 && sl_arena_ahead_is_idle(arena->ahead)) {
        arena->spare_wanted--;
    }
    arena->chunks_late += late;
}

/* Takes the chunk of the oldest request; maps a fresh one if the thread has not mapped it yet. */
static void *take_prepared(struct sl_arena *arena)
{
    bool ready;
    void *base = sl_arena_ahead_take(arena->ahead, &ready);
    arena->prepared_count--;
    arena_measure(arena, !ready);
    if (base == NULL) {
        base = sl_arena_pages_map(arena->chunk_bytes, arena->huge);
    }
    if (base == NULL) {
        arena->mapped_bytes -= arena->chunk_bytes;
    }
    return base;
}

static void *map_fresh(struct sl_arena *arena, void *(*map)(const struct sl_arena *arena))
{
    void *base = limit_reached(arena) ? NULL : map(arena);
    if (base != NULL) {
        arena->mapped_bytes += arena->chunk_bytes;
        if (arena->ahead != NULL) {
            arena_measure(arena, true);
        }
    }
    return base;
}

/* Creates the record of a chunk; chunk_keep sets its base or frees the record. */
static struct sl_arena_chunk *arena_chunk_create(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk != NULL) {
        chunk->next = arena->chunks;
    }
    return chunk;
}

static void *chunk_keep(struct sl_arena *arena, struct sl_arena_chunk *chunk, void *base,
                        bool ordinary)
{
    if (base == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->base = base;
    chunk->ordinary_bytes = ordinary ? arena->chunk_bytes : 0;
    sl_arena_pages_count_ordinary((int64_t)chunk->ordinary_bytes);
    arena->chunks = chunk;
    return base;
}

static bool open_ahead(struct sl_arena *arena)
{
    if (arena->ahead == NULL) {
        arena->ahead = sl_arena_ahead_open(arena->chunk_bytes, arena->huge);
    }
    return arena->ahead != NULL;
}

/* A spare chunk, if there is one, becomes the requested one. Then replaces spare chunks. */
bool sl_arena_prepare(struct sl_arena *arena)
{
    if (limit_reached(arena) || arena->prepared_count == SL_ARENA_AHEAD_MAX || !open_ahead(arena)) {
        return false;
    }
    if (arena->spare_count > 0) {
        arena->spare_count--;
    } else {
        sl_arena_ahead_request(arena->ahead);
    }
    arena->mapped_bytes += arena->chunk_bytes;
    arena->prepared_count++;
    while (arena->spare_count < arena->spare_wanted && arena->spare_count < arena->spare_max &&
           arena->prepared_count + arena->spare_count < SL_ARENA_AHEAD_MAX) {
        sl_arena_ahead_request(arena->ahead);
        arena->spare_count++;
    }
    return true;
}

static void *map_as_arena(const struct sl_arena *arena)
{
    return sl_arena_pages_map(arena->chunk_bytes, arena->huge);
}

static void *arena_map_ordinary(const struct sl_arena *arena)
{
    return arena->huge ? sl_arena_pages_map_aligned(arena->chunk_bytes)
                       : sl_arena_pages_map(arena->chunk_bytes, false);
}

void *sl_arena_map(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = arena_chunk_create(arena);
    if (chunk == NULL) {
        return NULL;
    }
    if (arena->prepared_count == 0 && arena->spare_count > 0) {
        (void)sl_arena_prepare(arena);
    }
    void *base = arena->prepared_count > 0 ? take_prepared(arena) : map_fresh(arena, map_as_arena);
    return chunk_keep(arena, chunk, base, !arena->huge);
}

/* Gives the newest chunk to the thread. A small arena that prepares nothing does without it; once
 * the arena is larger, its earlier chunks go to the thread too. */
static void add_late(struct sl_arena *arena)
{
    const bool had_thread = arena->ahead != NULL;
    if (!had_thread && arena->mapped_bytes < LATE_FROM * arena->chunk_bytes) {
        return;
    }
    struct sl_arena_chunk *chunk = open_ahead(arena) ? arena->chunks : NULL;
    for (; chunk != NULL; chunk = had_thread ? NULL : chunk->next) {
        if (chunk->ordinary_bytes > 0) {
            sl_arena_ahead_add_late(arena->ahead, chunk);
        }
    }
}

void *sl_arena_map_ordinary(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = arena_chunk_create(arena);
    void *base = chunk == NULL ? NULL : map_fresh(arena, arena_map_ordinary);
    base = chunk == NULL ? NULL : chunk_keep(arena, chunk, base, true);
    if (base != NULL && arena->huge) {
        add_late(arena);
    }
    return base;
}

/* Hands a chunk without an owner to the thread, if there is one. */
static void arena_give(struct sl_arena *arena, struct sl_arena_chunk *chunk)
{
    if (arena->ahead == NULL) {
        sl_arena_chunk_unmap(chunk, arena->chunk_bytes);
    } else {
        sl_arena_ahead_unmap(arena->ahead, chunk);
    }
}

/* Ends the oldest request. The thread may still be touching its chunk. Returns false without memory
 * for the chunk's record. */
static bool drop_oldest(struct sl_arena *arena)
{
    bool ready;
    struct sl_arena_chunk *chunk = arena_chunk_create(arena);
    if (chunk == NULL) {
        return false;
    }
    chunk->base = sl_arena_ahead_take(arena->ahead, &ready);
    if (chunk->base != NULL) {
        arena_give(arena, chunk);
    } else {
        free(chunk);
    }
    return true;
}

bool sl_arena_unprepare(struct sl_arena *arena)
{
    if (arena->prepared_count == 0 || !drop_oldest(arena)) {
        return false;
    }
    arena->prepared_count--;
    arena->mapped_bytes -= arena->chunk_bytes;
    return true;
}

/* A smaller arena needs fewer spare chunks. */
void sl_arena_unmap_newest(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = arena->chunks;
    sl_assert(chunk != NULL);
    arena->chunks = chunk->next;
    arena->mapped_bytes -= arena->chunk_bytes;
    arena_give(arena, chunk);
    const size_t most = arena->mapped_bytes / arena->chunk_bytes / SPARE_SHARE;
    arena->spare_wanted = arena->spare_wanted < most ? arena->spare_wanted : (uint32_t)most;
    while (arena->spare_count > arena->spare_wanted && drop_oldest(arena)) {
        arena->spare_count--;
    }
}

bool sl_arena_ready(const struct sl_arena *arena)
{
    return arena->prepared_count > 0 && sl_arena_ahead_ready(arena->ahead);
}
