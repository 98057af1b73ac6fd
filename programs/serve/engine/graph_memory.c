#include "programs/serve/engine/graph_memory.h"

#include <stdlib.h>

#define CHUNK_BYTES 65536
#define ALIGNMENT   64

struct sl_graph_memory_chunk {
    struct sl_graph_memory_chunk *older;
};

void sl_graph_memory_init(struct sl_graph_memory *memory, size_t bytes_max)
{
    *memory = (struct sl_graph_memory){.bytes_left = bytes_max};
}

void sl_graph_memory_fini(struct sl_graph_memory *memory)
{
    while (memory->newest != NULL) {
        struct sl_graph_memory_chunk *chunk = memory->newest;
        memory->newest = chunk->older;
        free(chunk);
    }
    sl_graph_memory_init(memory, 0);
}

/* A chunk with that many bytes behind its header, which takes ALIGNMENT. */
static uint8_t *add_chunk(struct sl_graph_memory *memory, size_t bytes)
{
    if (bytes > memory->bytes_left) {
        return NULL;
    }
    /* calloc does not touch the pages of a large chunk. */
    struct sl_graph_memory_chunk *chunk = calloc(1, bytes + 2 * ALIGNMENT);
    if (chunk == NULL) {
        return NULL;
    }
    memory->bytes_left -= bytes;
    chunk->older = memory->newest;
    memory->newest = chunk;
    const uintptr_t end = (uintptr_t)chunk + sizeof *chunk;
    return (uint8_t *)chunk + sizeof *chunk + (-end & (ALIGNMENT - 1));
}

void *sl_graph_memory_take(struct sl_graph_memory *memory, size_t count, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes) || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes += bytes == 0;
    const size_t alignment = bytes < ALIGNMENT ? 16 : ALIGNMENT;
    const size_t gap = -(uintptr_t)memory->next & (alignment - 1);
    if (memory->left < gap || memory->left - gap < bytes) {
        if (bytes > CHUNK_BYTES / 4) {
            return add_chunk(memory, bytes);
        }
        const size_t chunk = memory->bytes_left < CHUNK_BYTES ? memory->bytes_left : CHUNK_BYTES;
        uint8_t *base = bytes <= chunk ? add_chunk(memory, chunk) : NULL;
        if (base == NULL) {
            return NULL;
        }
        memory->next = base + bytes;
        memory->left = chunk - bytes;
        return base;
    }
    void *at = memory->next + gap;
    memory->next += gap + bytes;
    memory->left -= gap + bytes;
    return at;
}
