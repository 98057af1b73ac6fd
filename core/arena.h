/* Memory in large chunks that is only ever given back whole: the rows of a table, the buffers of a
 * transport. Chunks are mapped on huge pages where the system has them (MAP_HUGETLB, else
 * transparent huge pages by madvise, else ordinary pages). Owned by one thread.
 *
 * The first touch of a fresh huge page takes from 0.2 ms to 20 ms, more than a turn of a reactor
 * may last. An owner who foresees his need calls sl_arena_prepare, and a background thread
 * (arena_ahead.h) makes the next chunks ready, every page touched. Whether it came in time shows in
 * chunks_late and in nothing else: not in what the chunks hold, not in which call meets the limit.
 */
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
    size_t chunk_bytes;           /* of each mapping; a multiple of 2 MiB when huge */
    size_t mapped_bytes;          /* sum over all mappings, prepared ones included */
    size_t bytes_max;             /* never maps more than this; 0: no limit */
    uint64_t chunks_late;         /* mapped since the first prepare, and not ready when needed */
    uint32_t prepared_count;      /* chunks asked for ahead and not taken yet */
    bool huge;
};

/* chunk_bytes is rounded up to a whole number of pages, huge ones where `huge`. */
void sl_arena_init(struct sl_arena *arena, size_t chunk_bytes, size_t bytes_max, bool huge);
void sl_arena_fini(struct sl_arena *arena);

/* A zeroed chunk of chunk_bytes, aligned to 2 MiB when huge, else to a page: the oldest prepared
 * one, else a fresh one that is not touched yet. Never waits for a chunk to become ready. NULL when
 * the limit or the system's memory is reached; a prepared chunk that this meets is not prepared any
 * more. */
void *sl_arena_map(struct sl_arena *arena);

/* A fresh chunk of ordinary pages, whatever the arena's are, that leaves the prepared ones to
 * become ready: its pages come one by one, each in microseconds, for an owner who cannot bear the
 * first touch of a huge one. Aligned to a page. Counted as late. NULL as above. */
void *sl_arena_map_ordinary(struct sl_arena *arena);

/* Has one chunk more made ready, which is counted as mapped from now on. Takes a lock the first
 * time, for the background thread may have to be started; never again. False, and nothing changes,
 * when the limit is reached, SL_ARENA_AHEAD_MAX are prepared, or there is no background thread to
 * be had. */
bool sl_arena_prepare(struct sl_arena *arena);

/* Whether the next sl_arena_map gives a chunk whose pages are all there. */
bool sl_arena_ready(const struct sl_arena *arena);

#endif
