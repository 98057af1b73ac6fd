#include "core/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/assert.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

struct sl_arena_chunk {
    struct sl_arena_chunk *next;
    void *base;
};

void sl_arena_init(struct sl_arena *arena, size_t chunk_bytes, size_t bytes_max, bool huge)
{
    const size_t unit = huge ? HUGE_PAGE_BYTES : (size_t)sysconf(_SC_PAGESIZE);
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
    while (arena->chunks != NULL) {
        struct sl_arena_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        munmap(chunk->base, arena->chunk_bytes);
        free(chunk);
    }
    arena->mapped_bytes = 0;
}

static void *map_pages(size_t bytes, int more_flags)
{
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Ordinary pages at a 2 MiB boundary: maps one huge page more than needed, cuts both ends off, and
 * asks for transparent huge pages. That the system has none is no failure. */
static void *map_transparent(size_t bytes)
{
    uint8_t *wide = map_pages(bytes + HUGE_PAGE_BYTES, 0);
    if (wide == NULL) {
        return NULL;
    }
    const size_t before = (HUGE_PAGE_BYTES - (uintptr_t)wide % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    const size_t after = HUGE_PAGE_BYTES - before;
    uint8_t *base = wide + before;
    if (before > 0) {
        munmap(wide, before);
    }
    munmap(base + bytes, after);
    madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

static void *map_chunk(const struct sl_arena *arena)
{
    if (!arena->huge) {
        return map_pages(arena->chunk_bytes, 0);
    }
    /* The size is named, since the system's default huge page may be one of 1 GiB. Without
     * MAP_NORESERVE the pages are ours here and now, or the call fails: no SIGBUS at first touch.
     */
    void *base = map_pages(arena->chunk_bytes, MAP_HUGETLB | (21 << MAP_HUGE_SHIFT));
    return base != NULL ? base : map_transparent(arena->chunk_bytes);
}

void *sl_arena_map(struct sl_arena *arena)
{
    if (arena->bytes_max != 0 && (arena->mapped_bytes >= arena->bytes_max ||
                                  arena->bytes_max - arena->mapped_bytes < arena->chunk_bytes)) {
        return NULL;
    }
    struct sl_arena_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
        return NULL;
    }
    chunk->base = map_chunk(arena);
    if (chunk->base == NULL) {
        free(chunk);
        return NULL;
    }
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->mapped_bytes += arena->chunk_bytes;
    return chunk->base;
}
