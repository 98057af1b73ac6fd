/* Maps fresh memory, on huge pages if available, and touches it. Any thread. */
#ifndef SL_CORE_ARENA_PAGES_H
#define SL_CORE_ARENA_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#define SL_ARENA_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Maps `bytes` zeroed bytes: whole pages, huge ones if `huge`, aligned to one page of that size.
 * Touches nothing. NULL: no memory. */
void *sl_arena_pages_map(size_t bytes, bool huge);

void sl_arena_pages_unmap(void *base, size_t bytes);

/* Makes every page present. Keeps the contents, even while other threads write to them. */
void sl_arena_pages_touch(void *base, size_t bytes);

#endif
