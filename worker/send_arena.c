#include "worker/send_arena.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
    sl_assert(bytes % SL_WIRE_MEMORY_UNIT_BYTES == 0);
    size_t unit_count = bytes / SL_WIRE_MEMORY_UNIT_BYTES;
    struct sl_send_arena *memory = calloc(1, sizeof *memory + unit_count * sizeof(bool));
    if (memory == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memory->unit_count = unit_count;
    int err = sl_shared_create("starling-wire", bytes, SL_SHARED_READ, &memory->shared);
    if (err != 0) {
        free(memory);
        return err;
    }
    pthread_mutex_init(&memory->lock, NULL);
    *out = memory;
    return 0;
}

void sl_send_arena_destroy(struct sl_send_arena **memory)
{
    struct sl_send_arena *gone = *memory;
    *memory = NULL;
    if (gone == NULL) {
        return;
    }
    sl_assert(gone->used_count == 0);
    sl_shared_destroy(&gone->shared);
    pthread_mutex_destroy(&gone->lock);
    free(gone);
}

/* Finds the first run of `count` free units; unit_count: none. */
static size_t find_run(const struct sl_send_arena *memory, size_t count)
{
    size_t run = 0;
    for (size_t unit = 0; unit < memory->unit_count; unit++) {
        run = memory->used[unit] ? 0 : run + 1;
        if (run == count) {
            return unit + 1 - count;
        }
    }
    return memory->unit_count;
}

static void mark(struct sl_send_arena *memory, size_t first, size_t count, bool used)
{
    for (size_t unit = first; unit < first + count; unit++) {
        sl_assert(memory->used[unit] != used);
        memory->used[unit] = used;
    }
    memory->used_count = used ? memory->used_count + count : memory->used_count - count;
}

void *sl_send_arena_take(struct sl_send_arena *memory, size_t bytes, size_t *taken_bytes)
{
    sl_assert(bytes > 0);
    size_t count = (bytes - 1) / SL_WIRE_MEMORY_UNIT_BYTES + 1;
    pthread_mutex_lock(&memory->lock);
    size_t first = find_run(memory, count);
    if (first < memory->unit_count) {
        mark(memory, first, count, true);
    }
    pthread_mutex_unlock(&memory->lock);
    if (first == memory->unit_count) {
        return NULL;
    }
    *taken_bytes = count * SL_WIRE_MEMORY_UNIT_BYTES;
    return memory->shared.base + first * SL_WIRE_MEMORY_UNIT_BYTES;
}

void sl_send_arena_put(struct sl_send_arena *memory, void *piece, size_t taken_bytes)
{
    size_t offset = (size_t)((uint8_t *)piece - memory->shared.base);
    sl_assert(offset % SL_WIRE_MEMORY_UNIT_BYTES == 0);
    sl_assert(taken_bytes % SL_WIRE_MEMORY_UNIT_BYTES == 0);
    sl_assert(taken_bytes <= memory->shared.bytes - offset);
    pthread_mutex_lock(&memory->lock);
    mark(memory, offset / SL_WIRE_MEMORY_UNIT_BYTES, taken_bytes / SL_WIRE_MEMORY_UNIT_BYTES,
         false);
    pthread_mutex_unlock(&memory->lock);
}

const struct sl_shared *sl_send_arena_shared(const struct sl_send_arena *memory)
{
    return &memory->shared;
}
