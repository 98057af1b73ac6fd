#include "worker/client/send_arena.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/assert.h"

struct sl_send_arena {
    pthread_mutex_t lock;
    struct sl_shared shared;
    size_t unit_count, used_count;
    bool used[]; /* by unit */
};

int sl_send_arena_create(size_t bytes, struct sl_send_arena **out)
{
    sl_assert(bytes > 0);
    sl_assert(bytes % SL_SEND_ARENA_UNIT_BYTES == 0);
    size_t unit_count = bytes / SL_SEND_ARENA_UNIT_BYTES;
    struct sl_send_arena *arena = calloc(1, sizeof *arena + unit_count * sizeof(bool));
    if (arena == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    arena->unit_count = unit_count;
    int err = sl_shared_create("starling-wire", bytes, SL_SHARED_READ, &arena->shared);
    if (err != 0) {
        free(arena);
        return err;
    }
    pthread_mutex_init(&arena->lock, NULL);
    *out = arena;
    return 0;
}

void sl_send_arena_destroy(struct sl_send_arena **arena)
{
    struct sl_send_arena *closing = *arena;
    *arena = NULL;
    if (closing == NULL) {
        return;
    }
    sl_assert(closing->used_count == 0);
    sl_shared_destroy(&closing->shared);
    pthread_mutex_destroy(&closing->lock);
    free(closing);
}

/* Finds the first run of `count` free units; unit_count: none. */
static size_t find_run(const struct sl_send_arena *arena, size_t count)
{
    size_t run = 0;
    for (size_t unit = 0; unit < arena->unit_count; unit++) {
        run = arena->used[unit] ? 0 : run + 1;
        if (run == count) {
            return unit + 1 - count;
        }
    }
    return arena->unit_count;
}

static void mark(struct sl_send_arena *arena, size_t first, size_t count, bool used)
{
    for (size_t unit = first; unit < first + count; unit++) {
        sl_assert(arena->used[unit] != used);
        arena->used[unit] = used;
    }
    arena->used_count = used ? arena->used_count + count : arena->used_count - count;
}

void *sl_send_arena_take(struct sl_send_arena *arena, size_t bytes, size_t *taken_bytes)
{
    sl_assert(bytes > 0);
    size_t count = (bytes - 1) / SL_SEND_ARENA_UNIT_BYTES + 1;
    pthread_mutex_lock(&arena->lock);
    size_t first = find_run(arena, count);
    if (first < arena->unit_count) {
        mark(arena, first, count, true);
    }
    pthread_mutex_unlock(&arena->lock);
    if (first == arena->unit_count) {
        return NULL;
    }
    *taken_bytes = count * SL_SEND_ARENA_UNIT_BYTES;
    return arena->shared.base + first * SL_SEND_ARENA_UNIT_BYTES;
}

void sl_send_arena_put(struct sl_send_arena *arena, void *piece, size_t taken_bytes)
{
    size_t offset = (size_t)((uint8_t *)piece - arena->shared.base);
    sl_assert(offset % SL_SEND_ARENA_UNIT_BYTES == 0);
    sl_assert(taken_bytes % SL_SEND_ARENA_UNIT_BYTES == 0);
    sl_assert(taken_bytes <= arena->shared.bytes - offset);
    pthread_mutex_lock(&arena->lock);
    mark(arena, offset / SL_SEND_ARENA_UNIT_BYTES, taken_bytes / SL_SEND_ARENA_UNIT_BYTES, false);
    pthread_mutex_unlock(&arena->lock);
}

const struct sl_shared *sl_send_arena_shared(const struct sl_send_arena *arena)
{
    return &arena->shared;
}
