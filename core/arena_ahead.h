/* Chunks made ready ahead of need, by one background thread that all arenas of the process share:
 * it maps them and touches each page, which takes milliseconds where the owner has microseconds.
 *
 * The thread starts with the first sl_arena_ahead that is opened, runs at low priority on any core
 * that the process may use, and ends with the last one that is closed. Its memory comes from the
 * NUMA node that the opener runs on, unless the process was started with a policy of its own.
 *
 * The owner never waits for the thread: neither request nor take holds a lock, and a chunk that is
 * asked for too early is handed over half done or not at all. Owner thread, but for what is said.
 * Allocates in open only. */
#ifndef SL_CORE_ARENA_AHEAD_H
#define SL_CORE_ARENA_AHEAD_H

#include <stdbool.h>
#include <stddef.h>

#define SL_ARENA_AHEAD_MAX 16 /* chunks requested and not taken; a power of two */

struct sl_arena_ahead;

/* For chunks of chunk_bytes as sl_arena_pages_map makes them. Holds a lock for a moment. NULL when
 * memory or threads have run out. */
struct sl_arena_ahead *sl_arena_ahead_open(size_t chunk_bytes, bool huge);

/* Unmaps what was made and not taken. Waits for the thread to let go of the arena, which may be as
 * long as one chunk of each other arena takes it. Nulls *ahead. */
void sl_arena_ahead_close(struct sl_arena_ahead **ahead);

/* Asks for one chunk more. At most SL_ARENA_AHEAD_MAX are asked for at a time (asserted). */
void sl_arena_ahead_request(struct sl_arena_ahead *ahead);

/* Ends the oldest request (there is one: asserted): with its chunk, which is the caller's to unmap
 * then, but not before close; with NULL when the thread has not mapped it yet, and never will.
 * *touched: whether all of its pages are there; the thread goes on if not. */
void *sl_arena_ahead_take(struct sl_arena_ahead *ahead, bool *touched);

/* Whether a take would find its chunk with all pages. */
bool sl_arena_ahead_ready(const struct sl_arena_ahead *ahead);

#endif
