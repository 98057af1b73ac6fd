/* An arena maps memory in large chunks, which it unmaps from the newest on: table rows, transport
 * buffers. Chunks use huge pages if available: MAP_HUGETLB, else transparent huge pages (madvise),
 * else ordinary pages. Owned by one thread.
 *
 * The first touch of a fresh huge page takes 0.2 ms to 20 ms, longer than a reactor turn may last.
 * sl_arena_prepare therefore requests the next chunk early: a background thread (arena_ahead.h)
 * maps the chunk and touches every page. An owner that grows faster takes ordinary pages instead
 * (sl_arena_map_ordinary), and the thread turns these into huge ones afterwards. A late chunk
 * is one that was not prepared when the owner needed it. After late chunks the thread prepares up
 * to spare_max spare chunks besides those requested; a spare chunk counts in mapped_bytes only once
 * it is requested. Late chunks change neither the contents of chunks nor which call meets the
 * limit. */
#ifndef SL_CORE_ARENA_H
#define SL_CORE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_arena_chunk;
struct sl_arena_ahead;

struct sl_arena {
    struct sl_arena_chunk *chunks;
    struct sl_arena_ahead *ahead; /* NULL before the first prepare */
    size_t chunk_bytes;           /* per mapping; a multiple of 2 MiB when huge */
    size_t mapped_bytes;          /* sum of all mappings, including prepared chunks */
    size_t bytes_max;             /* upper bound of mapped_bytes; 0: no limit */
    uint64_t chunks_late;         /* mapped since the first prepare, but not ready when needed */
    uint32_t prepared_count;      /* requested ahead and not taken yet */
    uint32_t spare_max;           /* set by the owner; 0, the default: no spare chunks */
    uint32_t spare_wanted;        /* grows with late chunks */
    uint32_t spare_count;         /* requested beyond prepared_count, not in mapped_bytes */
    bool huge;
};

/* Rounds chunk_bytes up to whole pages, huge pages if `huge`. */
void sl_arena_init(struct sl_arena *arena, size_t chunk_bytes, size_t bytes_max, bool huge);
void sl_arena_fini(struct sl_arena *arena);

/* Returns a zeroed chunk of chunk_bytes, aligned to 2 MiB when huge, else to a page: the oldest
 * prepared chunk, else a fresh untouched one. Never waits for a chunk to become ready. NULL if the
 * limit or the system's memory is reached; the prepared chunk of such a call is no longer
 * prepared. */
void *sl_arena_map(struct sl_arena *arena);

/* Maps a fresh chunk of ordinary pages, also in a huge arena, and leaves the prepared chunks in
 * preparation. For an owner that cannot afford the first touch of a huge page: each ordinary page
 * takes only microseconds. In a huge arena the chunk is aligned to 2 MiB. After the owner
 * has touched a range of 2 MiB, the background thread turns it into a huge page, in ascending
 * order. If the arena has prepared nothing so far, this begins when it has eight chunks. Counts as
 * late if anything was prepared before. NULL as above. */
void *sl_arena_map_ordinary(struct sl_arena *arena);

/* Requests one more chunk from the background thread; mapped_bytes includes it from now on. The
 * first call takes a lock, because it may have to start the thread. Returns false, without effect,
 * if the limit is reached, SL_ARENA_AHEAD_MAX chunks are prepared, or the thread cannot be
 * started. */
bool sl_arena_prepare(struct sl_arena *arena);

/* Unmaps the newest chunk that the owner has taken (asserted: there is one). In an arena that has
 * prepared chunks, the background thread does it, before it prepares another. */
void sl_arena_unmap_newest(struct sl_arena *arena);

/* Cancels the oldest request of sl_arena_prepare. Returns false, without effect, if there is none,
 * or no memory to cancel it. */
bool sl_arena_unprepare(struct sl_arena *arena);

/* Whether all pages of the next chunk from sl_arena_map are present. */
bool sl_arena_ready(const struct sl_arena *arena);

#endif
