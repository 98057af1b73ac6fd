#include "core/arena.h"

#include <stdlib.h>
#include <unistd.h>

#include "core/arena_ahead.h"
#include "core/arena_pages.h"
#include "core/assert.h"

struct sl_arena_chunk {
    struct sl_arena_chunk *next;
    void *base;
};

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
        sl_arena_pages_unmap(chunk->base, arena->chunk_bytes);
        free(chunk);
    }
    arena->mapped_bytes = 0;
    arena->prepared_count = 0;
}

static bool limit_reached(const struct sl_arena *arena)
{
    return arena->bytes_max != 0 && (arena->mapped_bytes >= arena->bytes_max ||
                                     arena->bytes_max - arena->mapped_bytes < arena->chunk_bytes);
}

/* Takes the chunk of the oldest request; maps a fresh one if the thread has not mapped it yet. */
static void *take_prepared(struct sl_arena *arena)
{
    bool ready;
    void *base = sl_arena_ahead_take(arena->ahead, &ready);
    arena->prepared_count--;
    arena->chunks_late += !ready;
    if (base == NULL) {
        base = sl_arena_pages_map(arena->chunk_bytes, arena->huge);
    }
    if (base == NULL) {
        arena->mapped_bytes -= arena->chunk_bytes;
    }
    return base;
}

static void *map_fresh(struct sl_arena *arena, bool huge)
{
    void *base = limit_reached(arena) ? NULL : sl_arena_pages_map(arena->chunk_bytes, huge);
    if (base != NULL) {
        arena->mapped_bytes += arena->chunk_bytes;
        arena->chunks_late += arena->ahead != NULL;
    }
    return base;
}

/* Creates the record of a chunk; chunk_keep sets its base or frees the record. */
static struct sl_arena_chunk *chunk_create(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = malloc(sizeof *chunk);
    if (chunk != NULL) {
        chunk->next = arena->chunks;
    }
    return chunk;
}

static void *chunk_keep(struct sl_arena *arena, struct sl_arena_chunk *chunk, void *base)
{
    if (base == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->base = base;
    arena->chunks = chunk;
    return base;
}

void *sl_arena_map(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = chunk_create(arena);
    if (chunk == NULL) {
        return NULL;
    }
    void *base = arena->prepared_count > 0 ? take_prepared(arena) : map_fresh(arena, arena->huge);
    return chunk_keep(arena, chunk, base);
}

void *sl_arena_map_ordinary(struct sl_arena *arena)
{
    struct sl_arena_chunk *chunk = chunk_create(arena);
    return chunk == NULL ? NULL : chunk_keep(arena, chunk, map_fresh(arena, false));
}

bool sl_arena_prepare(struct sl_arena *arena)
{
    if (limit_reached(arena) || arena->prepared_count == SL_ARENA_AHEAD_MAX) {
        return false;
    }
    if (arena->ahead == NULL) {
        arena->ahead = sl_arena_ahead_open(arena->chunk_bytes, arena->huge);
    }
    if (arena->ahead == NULL) {
        return false;
    }
    sl_arena_ahead_request(arena->ahead);
    arena->mapped_bytes += arena->chunk_bytes;
    arena->prepared_count++;
    return true;
}

bool sl_arena_ready(const struct sl_arena *arena)
{
    return arena->prepared_count > 0 && sl_arena_ahead_ready(arena->ahead);
}
