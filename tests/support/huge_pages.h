/* Waits until the arena thread has turned ordinary pages into huge ones. */
#ifndef SL_TESTS_SUPPORT_HUGE_PAGES_H
#define SL_TESTS_SUPPORT_HUGE_PAGES_H

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/arena_ahead.h"
#include "core/arena_pages.h"
#include "core/clock.h"
#include "tests/support/unit.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Skips the case if this system does not turn ordinary pages into a huge one. */
static inline void huge_pages_need(void)
{
    uint8_t *page = sl_arena_pages_map_aligned(SL_ARENA_HUGE_PAGE_BYTES);
    assert_non_null(page);
    memset(page, 1, SL_ARENA_HUGE_PAGE_BYTES);
    const bool can = sl_arena_pages_transparent() &&
                     madvise(page, SL_ARENA_HUGE_PAGE_BYTES, MADV_HUGEPAGE) == 0 &&
                     madvise(page, SL_ARENA_HUGE_PAGE_BYTES, MADV_COLLAPSE) == 0;
    sl_arena_pages_unmap(page, SL_ARENA_HUGE_PAGE_BYTES);
    if (!can) {
        print_message("this system forbids huge pages or refuses MADV_COLLAPSE\n");
        skip();
    }
}

/* Until at most so many bytes are on ordinary pages, beside those that the system refused to turn
 * into huge ones. The arena thread has the lowest priority: on a busy machine this takes minutes.
 */
static inline void huge_pages_wait(uint64_t most)
{
    const uint64_t start = sl_clock_now_ns(sl_clock_system());
    while (sl_arena_pages_ordinary_bytes() >
           most + sl_arena_ahead_refused_count() * SL_ARENA_HUGE_PAGE_BYTES) {
        const struct timespec nap = {.tv_nsec = 1000000};
        assert_true(sl_clock_now_ns(sl_clock_system()) - start < 600 * SL_CLOCK_NS_PER_S);
        nanosleep(&nap, NULL);
    }
}

#endif
