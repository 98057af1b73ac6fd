#include "core/arena_pages.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static void *map_pages(size_t bytes, int more_flags)
{
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Maps ordinary pages at a 2 MiB boundary: maps one huge page more than needed, unmaps both ends,
 * and requests transparent huge pages. A system without them is no error. */
static void *map_transparent(size_t bytes)
{
    uint8_t *wide = map_pages(bytes + SL_ARENA_HUGE_PAGE_BYTES, 0);
    if (wide == NULL) {
        return NULL;
    }
    const size_t beyond = (uintptr_t)wide % SL_ARENA_HUGE_PAGE_BYTES;
    const size_t before = beyond == 0 ? 0 : SL_ARENA_HUGE_PAGE_BYTES - beyond;
    const size_t after = SL_ARENA_HUGE_PAGE_BYTES - before;
    uint8_t *base = wide + before;
    if (before > 0) {
        munmap(wide, before);
    }
    munmap(base + bytes, after);
    madvise(base, bytes, MADV_HUGEPAGE);
    return base;
}

/* Prevents transparent huge pages, so that first touches stay short. */
static void *map_ordinary(size_t bytes)
{
    void *base = map_pages(bytes, 0);
    if (base != NULL) {
        madvise(base, bytes, MADV_NOHUGEPAGE);
    }
    return base;
}

void *sl_arena_pages_map(size_t bytes, bool huge)
{
    if (!huge) {
        return map_ordinary(bytes);
    }
    /* Names the size, since the default huge page may be 1 GiB. Without MAP_NORESERVE the call
     * reserves the pages or fails: no SIGBUS at first touch. */
    void *base = map_pages(bytes, MAP_HUGETLB | (21 << MAP_HUGE_SHIFT));
    return base != NULL ? base : map_transparent(bytes);
}

void sl_arena_pages_unmap(void *base, size_t bytes)
{
    munmap(base, bytes);
}

/* ThreadSanitizer would report a touch as a race with the owner's writes. For Clang only this
 * attribute, unknown to GCC, excludes atomics from instrumentation. Inlined, the function would be
 * instrumented with its caller. */
#if __has_attribute(disable_sanitizer_instrumentation)
#define UNSANITIZED __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define UNSANITIZED __attribute__((no_sanitize("thread"), noinline))
#endif

/* Replaces a zero by a zero and leaves any other value: causes the page fault of a write without
 * changing data that the owner may write meanwhile. */
static UNSANITIZED void touch(uint8_t *base, size_t bytes, size_t page)
{
    for (size_t at = 0; at < bytes; at += page) {
        uint32_t zero = 0;
        atomic_compare_exchange_strong((_Atomic uint32_t *)(void *)(base + at), &zero, 0);
    }
}

/* Not madvise(MADV_POPULATE_WRITE): that holds the lock of the whole address space, so every other
 * mapping call waits; a page fault locks only its mapping (Linux 6.4 and later). Measured: mmap and
 * munmap in another thread ran at a quarter of the rate beside madvise. */
void sl_arena_pages_touch(void *base, size_t bytes)
{
    touch(base, bytes, (size_t)sysconf(_SC_PAGESIZE));
}
