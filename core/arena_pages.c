#include "core/arena_pages.h"

#include "core/text_file.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define PAGES_MAX 512 /* ordinary ones in a huge page */

static _Atomic int64_t ordinary_bytes;

static void *map_pages(size_t bytes, int more_flags)
{
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more_flags, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

/* Maps at a 2 MiB boundary: maps one huge page more than needed, unmaps both ends, and requests
 * transparent huge pages or prevents them. A system without them is no error. */
static void *map_aligned(size_t bytes, int advice)
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
    madvise(base, bytes, advice);
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
    return base != NULL ? base : map_aligned(bytes, MADV_HUGEPAGE);
}

void *sl_arena_pages_map_aligned(size_t bytes)
{
    return map_aligned(bytes, MADV_NOHUGEPAGE);
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

static size_t count_present(void *base)
{
    unsigned char present[PAGES_MAX];
    size_t count = 0;
    if (mincore(base, SL_ARENA_HUGE_PAGE_BYTES, present) == 0) {
        for (size_t i = 0; i < SL_ARENA_HUGE_PAGE_BYTES / (size_t)sysconf(_SC_PAGESIZE); i++) {
            count += present[i] & 1;
        }
    }
    return count;
}

/* Touches a huge page and frees it: the next huge page of this thread is most likely the same one.
 * On a virtual machine the first touch of physical memory takes up to 70 ms, and 0.5 ms later. */
static void warm_page(void)
{
    void *page = map_aligned(SL_ARENA_HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    if (page != NULL) {
        *(volatile uint8_t *)page = 0;
        munmap(page, SL_ARENA_HUGE_PAGE_BYTES);
    }
}

/* After a refusal, prevents huge pages again: khugepaged would copy into a cold page. */
enum sl_arena_pages_collapse sl_arena_pages_collapse(void *base)
{
    if (count_present(base) < PAGES_MAX / 2) {
        return SL_ARENA_PAGES_UNTOUCHED;
    }
    warm_page();
    madvise(base, SL_ARENA_HUGE_PAGE_BYTES, MADV_HUGEPAGE);
    if (madvise(base, SL_ARENA_HUGE_PAGE_BYTES, MADV_COLLAPSE) == 0) {
        return SL_ARENA_PAGES_COLLAPSED;
    }
    madvise(base, SL_ARENA_HUGE_PAGE_BYTES, MADV_NOHUGEPAGE);
    return SL_ARENA_PAGES_REFUSED;
}

bool sl_arena_pages_transparent(void)
{
    char text[64];
    return sl_text_file_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text) &&
           strstr(text, "[never]") == NULL;
}

void sl_arena_pages_count_ordinary(int64_t more)
{
    atomic_fetch_add_explicit(&ordinary_bytes, more, memory_order_relaxed);
}

uint64_t sl_arena_pages_ordinary_bytes(void)
{
    return (uint64_t)atomic_load_explicit(&ordinary_bytes, memory_order_relaxed);
}
