#include "ps/server/buffers.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "net/transport.h"

#define TOP_ORDER   (SL_SERVER_BUFFERS_ORDERS - 1)
#define TOP_BYTES   ((size_t)SL_LIMIT_FRAME_PAYLOAD_BYTES)

/* Checks that find a block free before its memory is returned; pieces per block; pieces returned
 * per check, which takes 0.2 ms. */
#define QUIET_LOOKS 5
#define PIECES      4
#define GIVEN_MAX   2

/* Map entries: no block starts here, or a free or used block with its order in the low bits. */
#define MAP_NOTHING 0
#define MAP_FREE    0x40
#define MAP_USED    0x80
#define MAP_ORDER   0x3f

struct sl_server_buffers_free {
    struct sl_server_buffers_free *prev, *next;
};

static size_t order_bytes(uint32_t order)
{
    return (size_t)1 << (SL_SERVER_BUFFERS_LEAST_BITS + order);
}

static uint8_t *map_of(const struct sl_server_buffers *buffers, const uint8_t *block)
{
    sl_assert(block >= buffers->base);
    size_t offset = (size_t)(block - buffers->base);
    sl_assert(offset < buffers->bytes);
    return &buffers->map[offset >> SL_SERVER_BUFFERS_LEAST_BITS];
}

static void free_push(struct sl_server_buffers *buffers, uint8_t *block, uint32_t order)
{
    struct sl_server_buffers_free *entry = (void *)block;
    *entry = (struct sl_server_buffers_free){.next = buffers->free[order]};
    if (entry->next != NULL) {
        entry->next->prev = entry;
    }
    buffers->free[order] = entry;
    *map_of(buffers, block) = (uint8_t)(MAP_FREE | order);
}

static void free_remove(struct sl_server_buffers *buffers, uint8_t *block, uint32_t order)
{
    struct sl_server_buffers_free *entry = (void *)block;
    if (entry->prev == NULL) {
        buffers->free[order] = entry->next;
    } else {
        entry->prev->next = entry->next;
    }
    if (entry->next != NULL) {
        entry->next->prev = entry->prev;
    }
    *map_of(buffers, block) = MAP_NOTHING;
}

static size_t whole_bytes(size_t bytes)
{
    return bytes < TOP_BYTES ? TOP_BYTES : bytes / TOP_BYTES * TOP_BYTES;
}

/* Builds the allocator over the existing mapping. */
static int server_buffers_init(struct sl_server_buffers *buffers)
{
    size_t past = (uintptr_t)buffers->mapping % TOP_BYTES;
    buffers->base = buffers->mapping + (past == 0 ? 0 : TOP_BYTES - past);
    const size_t top_count = buffers->bytes / TOP_BYTES;
    buffers->map = calloc(buffers->bytes >> SL_SERVER_BUFFERS_LEAST_BITS, 1);
    buffers->looks = malloc(top_count);
    if (buffers->map == NULL || buffers->looks == NULL) {
        sl_server_buffers_fini(buffers);
        return SL_ERR_NO_MEMORY;
    }
    memset(buffers->looks, SL_SERVER_BUFFERS_COLD, top_count);
    /* From the last block, so that the first is allocated first. */
    for (size_t at = buffers->bytes; at > 0; at -= TOP_BYTES) {
        free_push(buffers, buffers->base + at - TOP_BYTES, TOP_ORDER);
    }
    return 0;
}

int sl_server_buffers_init(struct sl_server_buffers *buffers, size_t bytes)
{
    bytes = whole_bytes(bytes);
    *buffers = (struct sl_server_buffers){.bytes = bytes, .mapping_bytes = bytes + TOP_BYTES};
    void *mapping = mmap(NULL, buffers->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        *buffers = (struct sl_server_buffers){0};
        return SL_ERR_NO_MEMORY;
    }
    buffers->mapping = mapping;
    return server_buffers_init(buffers);
}

int sl_server_buffers_init_shared(struct sl_server_buffers *buffers, size_t bytes,
                                  struct sl_transport *transport)
{
    bytes = whole_bytes(bytes);
    *buffers = (struct sl_server_buffers){.bytes = bytes};
    buffers->is_registered = true;
    struct sl_shared *shared = &buffers->shared;
    int err = sl_shared_create("starling-replies", bytes + TOP_BYTES, SL_SHARED_READ, shared);
    if (err != 0) {
        return err;
    }
    buffers->mapping = shared->base;
    buffers->mapping_bytes = shared->bytes;
    err = server_buffers_init(buffers);
    if (err != 0) {
        return err;
    }
    err = sl_transport_memory_register(transport, shared->base, shared->bytes);
    if (err != 0) {
        sl_server_buffers_fini(buffers);
    }
    return err;
}

int sl_server_buffers_register(struct sl_server_buffers *buffers, struct sl_transport *transport)
{
    sl_assert((transport->ops->capabilities & SL_TRANSPORT_REGISTERS) != 0);
    buffers->is_registered = true;
    return sl_transport_memory_register(transport, buffers->base, buffers->bytes);
}

void sl_server_buffers_fini(struct sl_server_buffers *buffers)
{
    sl_assert(buffers->used_bytes == 0);
    if (buffers->shared.base != NULL) {
        sl_shared_destroy(&buffers->shared);
    } else if (buffers->mapping != NULL) {
        (void)munmap(buffers->mapping, buffers->mapping_bytes);
    }
    free(buffers->looks);
    free(buffers->map);
    *buffers = (struct sl_server_buffers){0};
}

uint8_t *sl_server_buffers_get(struct sl_server_buffers *buffers, size_t bytes,
                               size_t used_bytes_max)
{
    sl_assert(bytes > 0);
    sl_assert(bytes <= TOP_BYTES);
    uint32_t order = 0;
    while (order_bytes(order) < bytes) {
        order++;
    }
    if (buffers->used_bytes + order_bytes(order) > used_bytes_max) {
        return NULL;
    }
    uint32_t from = order;
    while (from <= TOP_ORDER && buffers->free[from] == NULL) {
        from++;
    }
    if (from > TOP_ORDER) {
        return NULL;
    }
    uint8_t *block = (uint8_t *)buffers->free[from];
    free_remove(buffers, block, from);
    buffers->looks[(size_t)(block - buffers->base) / TOP_BYTES] = 0;
    while (from > order) {
        from--;
        free_push(buffers, block + order_bytes(from), from);
    }
    *map_of(buffers, block) = (uint8_t)(MAP_USED | order);
    buffers->used_bytes += order_bytes(order);
    return block;
}

void sl_server_buffers_put(struct sl_server_buffers *buffers, uint8_t *block)
{
    uint8_t *map = map_of(buffers, block);
    sl_assert((*map & MAP_USED) != 0);
    uint32_t order = *map & MAP_ORDER;
    buffers->used_bytes -= order_bytes(order);
    *map = MAP_NOTHING;
    while (order < TOP_ORDER) {
        size_t offset = (size_t)(block - buffers->base);
        uint8_t *buddy = buffers->base + (offset ^ order_bytes(order));
        if (*map_of(buffers, buddy) != (MAP_FREE | order)) {
            break;
        }
        free_remove(buffers, buddy, order);
        block = buddy < block ? buddy : block;
        order++;
    }
    free_push(buffers, block, order);
}

/* Checks a free block. Its first page stays, since it links the free blocks. True: a piece was
 * returned. */
static bool look_at_free(uint8_t *block, uint8_t *looks)
{
    const uint8_t look = (*looks)++;
    if (look < QUIET_LOOKS) {
        return false;
    }
    const size_t piece_bytes = TOP_BYTES / PIECES;
    const uint8_t piece = look - QUIET_LOOKS;
    const size_t kept = piece == 0 ? order_bytes(0) : 0;
    (void)madvise(block + piece * piece_bytes + kept, piece_bytes - kept, MADV_DONTNEED);
    *looks = piece + 1 == PIECES ? SL_SERVER_BUFFERS_COLD : *looks;
    return true;
}

bool sl_server_buffers_give_back(struct sl_server_buffers *buffers)
{
    bool has_more = false;
    uint32_t given = 0;
    for (size_t at = 0; at < buffers->bytes && !buffers->is_registered; at += TOP_BYTES) {
        uint8_t *block = buffers->base + at;
        uint8_t *looks = &buffers->looks[at / TOP_BYTES];
        const bool is_free = *map_of(buffers, block) == (MAP_FREE | TOP_ORDER);
        if (*looks != SL_SERVER_BUFFERS_COLD && is_free && given < GIVEN_MAX) {
            given += look_at_free(block, looks);
        }
        has_more = has_more || *looks != SL_SERVER_BUFFERS_COLD;
    }
    return has_more;
}

size_t sl_server_buffers_size(const struct sl_server_buffers *buffers, const uint8_t *buffer)
{
    return order_bytes(*map_of(buffers, buffer) & MAP_ORDER);
}
