/* One background thread, shared by all arenas of the process, prepares chunks ahead of need: it
 * maps a chunk and touches each page, which takes milliseconds; the owner has microseconds. When no
 * request is open, it turns late chunks, which the owner mapped on ordinary pages, into huge pages:
 * one page at a time, with pauses.
 *
 * The thread starts with the first sl_arena_ahead_open and stops with the last close. It runs at
 * low priority on any core of the process. Its memory comes from the NUMA node of the opener,
 * unless the process was started with another NUMA policy.
 *
 * The owner never waits for the thread: request and take are lock-free, and an unfinished chunk is
 * returned partly touched or not at all. Owner thread, unless stated otherwise. Only open
 * allocates. */
#ifndef SL_CORE_ARENA_AHEAD_H
#define SL_CORE_ARENA_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_ARENA_AHEAD_MAX 16 /* requested and not taken; a power of two */

struct sl_arena_ahead;

/* A chunk that an arena has mapped, allocated by malloc. */
struct sl_arena_chunk {
    struct sl_arena_chunk *next; /* in the owner's list, or the thread's list of those to unmap */
    uint8_t *base;
    size_t ordinary_bytes; /* when mapped */
    /* A late chunk; zeros until sl_arena_ahead_add_late. Then this part belongs to the thread. */
    struct sl_arena_late {
        struct sl_arena_chunk *next;
        struct sl_arena_ahead *ahead;
        size_t done;      /* offset of the next page to try; those before it are huge or refused */
        size_t collapsed; /* bytes before `done` that are huge */
        uint32_t refused; /* refusals of the page at `done` */
    } late;
};

/* Unmaps the chunk's memory and frees the chunk. Any thread. */
void sl_arena_chunk_unmap(struct sl_arena_chunk *chunk, size_t chunk_bytes);

/* For chunks of chunk_bytes from sl_arena_pages_map. Takes a lock briefly. NULL: no memory or no
 * thread. */
struct sl_arena_ahead *sl_arena_ahead_open(size_t chunk_bytes, bool huge);

/* Unmaps the chunks not taken, and nulls *ahead. Waits until the thread releases the arena: it ends
 * its work on this arena after the current huge page, and may prepare a chunk of each other arena
 * first. Late chunks stay mapped, and are the owner's again. */
void sl_arena_ahead_close(struct sl_arena_ahead **ahead);

/* Requests one more chunk; at most SL_ARENA_AHEAD_MAX may be pending (asserted). */
void sl_arena_ahead_request(struct sl_arena_ahead *ahead);

/* Ends the oldest request (asserted: there is one) and returns its chunk. The caller unmaps the
 * chunk, but not before close. NULL: the thread has not mapped the chunk, and never will. *touched:
 * whether all its pages are present; if not, the thread continues to touch them. */
void *sl_arena_ahead_take(struct sl_arena_ahead *ahead, bool *touched);

/* Whether take would return a fully touched chunk. */
bool sl_arena_ahead_ready(const struct sl_arena_ahead *ahead);

/* Whether the thread has served every request. */
bool sl_arena_ahead_is_idle(const struct sl_arena_ahead *ahead);

/* Hands a late chunk, from sl_arena_pages_map_aligned, to the thread, which turns each range of 2
 * MiB into a huge page after the owner has touched it. A range that the system refuses eight times
 * stays ordinary. Without effect if the system forbids transparent huge pages. */
void sl_arena_ahead_add_late(struct sl_arena_ahead *ahead, struct sl_arena_chunk *chunk);

/* Hands over a chunk that the owner does not use any more, for the thread, or close, to unmap. Its
 * memory may be one that the thread still touches or turns into huge pages. */
void sl_arena_ahead_unmap(struct sl_arena_ahead *ahead, struct sl_arena_chunk *chunk);

/* Huge pages that the system refused for good, in the whole process. Any thread. */
uint64_t sl_arena_ahead_refused_count(void);

#endif
