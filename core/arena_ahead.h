/* One background thread, shared by all arenas of the process, prepares chunks ahead of need: it
 * maps a chunk and touches each page, which takes milliseconds; the owner has microseconds.
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

#define SL_ARENA_AHEAD_MAX 16 /* requested and not taken; a power of two */

struct sl_arena_ahead;

/* For chunks of chunk_bytes from sl_arena_pages_map. Takes a lock briefly. NULL: no memory or no
 * thread. */
struct sl_arena_ahead *sl_arena_ahead_open(size_t chunk_bytes, bool huge);

/* Unmaps the chunks not taken, and nulls *ahead. Waits until the thread releases the arena: up to
 * the time of one chunk of each other arena. */
void sl_arena_ahead_close(struct sl_arena_ahead **ahead);

/* Requests one more chunk; at most SL_ARENA_AHEAD_MAX may be pending (asserted). */
void sl_arena_ahead_request(struct sl_arena_ahead *ahead);

/* Ends the oldest request (asserted: there is one) and returns its chunk. The caller unmaps the
 * chunk, but not before close. NULL: the thread has not mapped the chunk, and never will. *touched:
 * whether all its pages are present; if not, the thread continues to touch them. */
void *sl_arena_ahead_take(struct sl_arena_ahead *ahead, bool *touched);

/* Whether take would return a fully touched chunk. */
bool sl_arena_ahead_ready(const struct sl_arena_ahead *ahead);

#endif
