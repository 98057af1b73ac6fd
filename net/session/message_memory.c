#include "net/session/message_memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/err.h"

/* The densest message, a Waiting of short names, needs about 20 bytes of arena per byte. The
 * longest, a Cluster of SL_LIMIT_PS servers, needs 512 KiB. */
#define BYTES_MIN      (8U << 10)
#define BYTES_PER_BYTE 32
#define BYTES_MAX      (2U << 20)

/* Each allocation is preceded by its size, padded to keep the allocation aligned. */
#define HEADER_BYTES   16

static void *message_memory_allocate(void *ctx, size_t bytes)
{
    struct sl_message_memory *memory = ctx;
    size_t left = memory->bytes - memory->used;
    if (bytes > left || left - bytes < 2 * HEADER_BYTES) {
        return NULL;
    }
    uint8_t *at = memory->base + memory->used;
    memcpy(at, &bytes, sizeof bytes);
    size_t padded = (bytes + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
    memory->used += HEADER_BYTES + padded;
    return at + HEADER_BYTES;
}

static void message_memory_release(void *ctx, void *at)
{
}

int sl_message_memory_init(struct sl_message_memory *memory, size_t message_bytes)
{
    sl_assert(memory != NULL);
    size_t bytes = BYTES_MAX;
    if (message_bytes < (BYTES_MAX - BYTES_MIN) / BYTES_PER_BYTE) {
        bytes = BYTES_MIN + message_bytes * BYTES_PER_BYTE;
    }
    uint8_t *base = malloc(bytes);
    if (base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *memory = (struct sl_message_memory){
        .allocator = {.alloc = message_memory_allocate,
                      .free = message_memory_release,
                      .allocator_data = memory},
        .base = base,
        .bytes = bytes,
    };
    return SL_OK;
}

void sl_message_memory_fini(struct sl_message_memory *memory)
{
    sl_assert(memory != NULL);
    free(memory->base);
    memory->base = NULL;
}

size_t sl_message_memory_bytes(const struct sl_message_memory *memory, const void *at)
{
    sl_assert(memory != NULL);
    uintptr_t base = (uintptr_t)memory->base;
    uintptr_t place = (uintptr_t)at;
    if (place < base + HEADER_BYTES || place >= base + memory->used) {
        return 0;
    }
    size_t bytes;
    memcpy(&bytes, (const uint8_t *)at - HEADER_BYTES, sizeof bytes);
    return bytes;
}
