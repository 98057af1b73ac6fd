/* Gather kernel: copies rows out of a table, for every optimizer. It is compiled per SIMD variant
 * because wider moves copy faster. */
#include <string.h>

#include "ps/optimizer/simd.h"

#define LINE_FLOATS (SL_SIMD_CACHE_LINE / sizeof(float))

/* Copies one cache line at a time, so that the compiler emits vector moves instead of a call of
 * memcpy. */
static SL_SIMD_INLINE void copy(float *restrict to, const float *restrict from, size_t floats)
{
    for (; floats >= LINE_FLOATS; floats -= LINE_FLOATS) {
        memcpy(to, from, SL_SIMD_CACHE_LINE);
        to += LINE_FLOATS;
        from += LINE_FLOATS;
    }
    if (floats > 0) {
        memcpy(to, from, floats * sizeof *to);
    }
}

static SL_SIMD_INLINE void gather(struct sl_row *const *records, uint32_t count, uint32_t dim,
                                  float *values)
{
    const size_t bytes = dim * sizeof *values;
    const uint32_t ahead = sl_simd_ahead(bytes);
    for (uint32_t i = 0; i < ahead && i < count; i++) {
        sl_simd_fetch(records[i]->values, bytes);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > ahead) {
            sl_simd_fetch(records[i + ahead]->values, bytes);
        }
        copy(values + (size_t)i * dim, records[i]->values, dim);
    }
}

static void gather_rows(struct sl_row *const *records, uint32_t count, uint32_t dim, float *values)
{
#define LOOP(length) gather(records, count, (length), values)
    SL_SIMD_BY_LENGTH(LOOP, dim);
#undef LOOP
}

const sl_optimizer_gather_fn SL_SIMD_NAME(sl_gather) = gather_rows;
