/* Maps fresh memory, on huge pages if available, touches it, and turns ordinary pages into huge
 * ones. Any thread. */
#ifndef SL_CORE_ARENA_PAGES_H
#define SL_CORE_ARENA_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_ARENA_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Maps `bytes` zeroed bytes: whole pages, huge ones if `huge`, aligned to one page of that size.
 * Touches nothing. NULL: no memory. */
void *sl_arena_pages_map(size_t bytes, bool huge);

/* The same on ordinary pages, aligned to a huge page, for a later sl_arena_pages_collapse. `bytes`:
 * whole huge pages. */
void *sl_arena_pages_map_aligned(size_t bytes);

void sl_arena_pages_unmap(void *base, size_t bytes);

/* Makes every page present. Keeps the contents, even while other threads write to them. */
void sl_arena_pages_touch(void *base, size_t bytes);

enum sl_arena_pages_collapse {
    SL_ARENA_PAGES_COLLAPSED, /* one huge page */
    SL_ARENA_PAGES_UNTOUCHED, /* less than half of the pages are present: nothing is done */
    SL_ARENA_PAGES_REFUSED    /* by the system: no huge page, a pinned page, Linux before 6.1 */
};

/* Turns SL_ARENA_HUGE_PAGE_BYTES of ordinary pages into one huge page. Keeps the contents, even
 * while other threads write to them; these wait during the copy, about half a millisecond. */
enum sl_arena_pages_collapse sl_arena_pages_collapse(void *base);

/* Whether the system allows transparent huge pages. */
bool sl_arena_pages_transparent(void);

/* Bytes of all arenas that are mapped on ordinary pages: changes and returns the sum. */
void sl_arena_pages_count_ordinary(int64_t more);
uint64_t sl_arena_pages_ordinary_bytes(void);

#endif
