#include "net/shm/staging.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "core/err.h"
#include "core/limits.h"

#define ALIGNMENT 64U

static uint32_t staging_round_up(uint32_t bytes)
{
    return (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

int sl_shm_staging_init(struct sl_shm_staging *staging, uint32_t buffer_count,
                        uint32_t buffer_bytes)
{
    uint32_t bytes = buffer_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES ? staging_round_up(buffer_bytes)
                                                                  : SL_LIMIT_INLINE_PAYLOAD_BYTES;
    *staging = (struct sl_shm_staging){
        .buffer_bytes = bytes, .buffer_count = buffer_count, .empty.kind = SL_SHM_TOKEN_EMPTY};
    staging->buffers = calloc(buffer_count, sizeof *staging->buffers);
    if (staging->buffers == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    /* Pages are allocated on first use. */
    staging->memory = mmap(NULL, (size_t)buffer_count * bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (staging->memory == MAP_FAILED) {
        free(staging->buffers);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = buffer_count; i-- > 0;) {
        struct sl_shm_buffer *buffer = &staging->buffers[i];
        *buffer = (struct sl_shm_buffer){.token.kind = SL_SHM_TOKEN_BUFFER,
                                         .next = staging->free,
                                         .memory = staging->memory + (size_t)i * bytes};
        staging->free = buffer;
    }
    return 0;
}

void sl_shm_staging_fini(struct sl_shm_staging *staging)
{
    while (staging->heaps != NULL) {
        struct sl_shm_heap *heap = staging->heaps;
        staging->heaps = heap->next;
        free(heap);
    }
    munmap(staging->memory, (size_t)staging->buffer_count * staging->buffer_bytes);
    free(staging->buffers);
}

static bool staging_fits(const struct sl_shm_staging *staging, uint32_t bytes)
{
    return staging->current != NULL &&
           staging_round_up(bytes) <= staging->buffer_bytes - staging->current->used;
}

bool sl_shm_staging_has(const struct sl_shm_staging *staging, uint32_t bytes)
{
    return staging->free != NULL || staging_fits(staging, bytes);
}

uint8_t *sl_shm_staging_get(struct sl_shm_staging *staging, uint32_t bytes,
                            struct sl_shm_token **token)
{
    sl_assert(bytes <= SL_LIMIT_INLINE_PAYLOAD_BYTES);
    if (!staging_fits(staging, bytes)) {
        if (staging->free == NULL) {
            return NULL;
        }
        staging->current = staging->free;
        staging->free = staging->current->next;
    }
    struct sl_shm_buffer *buffer = staging->current;
    uint8_t *memory = buffer->memory + buffer->used;
    buffer->used += staging_round_up(bytes);
    buffer->refs++;
    *token = &buffer->token;
    return memory;
}

uint8_t *sl_shm_staging_get_heap(struct sl_shm_staging *staging, uint32_t bytes,
                                 struct sl_shm_token **token)
{
    size_t total = sizeof(struct sl_shm_heap) + staging_round_up(bytes);
    struct sl_shm_heap *heap = aligned_alloc(ALIGNMENT, total);
    if (heap == NULL) {
        return NULL;
    }
    heap->token.kind = SL_SHM_TOKEN_HEAP;
    heap->prev = NULL;
    heap->next = staging->heaps;
    if (heap->next != NULL) {
        heap->next->prev = heap;
    }
    staging->heaps = heap;
    *token = &heap->token;
    return heap->payload;
}

static void put_heap(struct sl_shm_staging *staging, struct sl_shm_heap *heap)
{
    if (heap->prev != NULL) {
        heap->prev->next = heap->next;
    } else {
        staging->heaps = heap->next;
    }
    if (heap->next != NULL) {
        heap->next->prev = heap->prev;
    }
    free(heap);
}

static void put_buffer(struct sl_shm_staging *staging, struct sl_shm_buffer *buffer)
{
    sl_assert(buffer->refs > 0);
    if (--buffer->refs > 0) {
        return;
    }
    buffer->used = 0; /* reuse the memory while it is in the cache */
    if (buffer != staging->current) {
        buffer->next = staging->free;
        staging->free = buffer;
    }
}

void sl_shm_staging_put(struct sl_shm_staging *staging, struct sl_shm_token *token)
{
    if (token->kind == SL_SHM_TOKEN_BUFFER) {
        put_buffer(staging, (struct sl_shm_buffer *)token);
    } else if (token->kind == SL_SHM_TOKEN_HEAP) {
        put_heap(staging, (struct sl_shm_heap *)token);
    }
}
