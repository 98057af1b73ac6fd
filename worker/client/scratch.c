#include "worker/client/scratch.h"

#include <stdlib.h>

#include "core/assert.h"
#include "worker/client/send_arena.h"

#define CHUNK_BYTES_MIN (32U << 10)

static struct sl_scratch_chunk *client_scratch_chunk_create(const struct sl_scratch *scratch,
                                                            size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(struct sl_scratch_chunk)) {
        return NULL;
    }
    size_t taken = 0;
    size_t all = sizeof(struct sl_scratch_chunk) + bytes;
    struct sl_scratch_chunk *chunk =
        scratch->arena == NULL ? NULL : sl_send_arena_take(scratch->arena, all, &taken);
    if (chunk == NULL) {
        chunk = malloc(all);
    } else {
        bytes = taken - sizeof *chunk;
    }
    if (chunk != NULL) {
        *chunk = (struct sl_scratch_chunk){.bytes = bytes, .arena_bytes = taken};
    }
    return chunk;
}

void sl_scratch_fini(struct sl_scratch *scratch)
{
    while (scratch->chunks != NULL) {
        struct sl_scratch_chunk *chunk = scratch->chunks;
        scratch->chunks = chunk->next;
        if (chunk->arena_bytes != 0) {
            sl_send_arena_put(scratch->arena, chunk, chunk->arena_bytes);
        } else {
            free(chunk);
        }
    }
}

void *sl_scratch_take_fresh(struct sl_scratch *scratch, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + SL_SCRATCH_ALIGNMENT - 1) & ~(size_t)(SL_SCRATCH_ALIGNMENT - 1);
    struct sl_scratch_chunk *full = scratch->chunks;
    size_t wanted = full == NULL ? CHUNK_BYTES_MIN : 2 * full->bytes;
    struct sl_scratch_chunk *fresh =
        client_scratch_chunk_create(scratch, wanted > bytes ? wanted : bytes);
    if (fresh == NULL) {
        return NULL;
    }
    fresh->next = full;
    fresh->used = bytes;
    scratch->chunks = fresh;
    return fresh->data;
}

void sl_scratch_trim(struct sl_scratch *scratch, const void *piece, size_t bytes)
{
    struct sl_scratch_chunk *chunk = scratch->chunks;
    sl_assert(chunk != NULL);
    size_t start = (size_t)((const uint8_t *)piece - chunk->data);
    sl_assert(start <= chunk->used);
    sl_assert(bytes <= chunk->used - start);
    chunk->used =
        start + ((bytes + SL_SCRATCH_ALIGNMENT - 1) & ~(size_t)(SL_SCRATCH_ALIGNMENT - 1));
}

void sl_scratch_reset(struct sl_scratch *scratch)
{
    struct sl_scratch_chunk *chunk = scratch->chunks;
    if (chunk == NULL) {
        return;
    }
    if (chunk->next == NULL) {
        chunk->used = 0;
        return;
    }
    size_t bytes = 0;
    for (; chunk != NULL; chunk = chunk->next) {
        bytes += chunk->bytes;
    }
    sl_scratch_fini(scratch);
    scratch->chunks =
        client_scratch_chunk_create(scratch, bytes); /* NULL is fine: the next take retries */
}
