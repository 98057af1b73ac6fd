/* Memory in large chunks that is only ever given back whole: the rows of a table, the buffers of a
 * transport. Chunks are mapped on huge pages where the system has them (MAP_HUGETLB, else
 * transparent huge pages by madvise, else ordinary pages). Owned by one thread. */
#ifndef SL_CORE_ARENA_H
#define SL_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct sl_arena_chunk;

struct sl_arena {
    struct sl_arena_chunk *chunks;
    size_t chunk_bytes;  /* of each mapping; a multiple of 2 MiB when huge pages are wanted */
    size_t mapped_bytes; /* sum over all mappings */
    size_t bytes_max;    /* never maps more than this; 0: no limit */
    bool huge;
};

/* chunk_bytes is rounded up to a whole number of pages, huge ones where `huge`. */
void sl_arena_init(struct sl_arena *arena, size_t chunk_bytes, size_t bytes_max, bool huge);
void sl_arena_fini(struct sl_arena *arena);

/* A fresh zeroed chunk of chunk_bytes, aligned to 2 MiB when huge, else to a page; NULL when the
 * limit or the system's memory is reached. */
void *sl_arena_map(struct sl_arena *arena);

#endif
