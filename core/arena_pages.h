/* Fresh memory from the system, on huge pages where there are any, and first touches of it. Any
 * thread. */
#ifndef SL_CORE_ARENA_PAGES_H
#define SL_CORE_ARENA_PAGES_H

#include <stdbool.h>
#include <stddef.h>

#define SL_ARENA_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* `bytes` zeroed bytes, a whole number of pages (huge ones where `huge`), aligned to one of them;
 * NULL when the system has no more. Touches nothing. */
void *sl_arena_pages_map(size_t bytes, bool huge);

void sl_arena_pages_unmap(void *base, size_t bytes);

/* Makes the system put memory behind each page. What stands there stays as it is, whoever writes
 * to it at this very moment. */
void sl_arena_pages_touch(void *base, size_t bytes);

#endif
