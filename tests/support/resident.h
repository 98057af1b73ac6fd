/* How much of a mapping has memory now. For tests. */
#ifndef SL_TESTS_SUPPORT_RESIDENT_H
#define SL_TESTS_SUPPORT_RESIDENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "core/assert.h"

/* base is at the beginning of a page. */
static inline size_t resident_bytes(uint8_t *base, size_t bytes)
{
    enum { PAGE_BYTES = 4096, PAGES = 4096 };
    unsigned char pages[PAGES];
    size_t count = 0;
    for (size_t at = 0; at < bytes; at += (size_t)PAGES * PAGE_BYTES) {
        const size_t left = bytes - at;
        const size_t part = left < (size_t)PAGES * PAGE_BYTES ? left : (size_t)PAGES * PAGE_BYTES;
        sl_assert(mincore(base + at, part, pages) == 0);
        for (size_t i = 0; i < (part + PAGE_BYTES - 1) / PAGE_BYTES; i++) {
            count += pages[i] & 1;
        }
    }
    return count * PAGE_BYTES;
}

#endif
