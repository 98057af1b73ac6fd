#include "core/precision.h"

#include <string.h>

#include "core/assert.h"
#include "core/hash.h"

extern const struct sl_precision_kernels sl_precision_kernels_scalar;
extern const struct sl_precision_kernels sl_precision_kernels_avx2;
extern const struct sl_precision_kernels sl_precision_kernels_avx512;

/* Each call checks the processor; resolution by the loader (ifunc) breaks sanitizers. */
const struct sl_precision_kernels *sl_precision_kernels(enum sl_precision_simd simd)
{
#if defined(__x86_64__)
    const bool has_avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    const bool is_best = simd == SL_PRECISION_SIMD_BEST;
    if (has_avx512 && (is_best || simd == SL_PRECISION_SIMD_AVX512)) {
        return &sl_precision_kernels_avx512;
    }
    if (__builtin_cpu_supports("avx2") && (is_best || simd == SL_PRECISION_SIMD_AVX2)) {
        return &sl_precision_kernels_avx2;
    }
#endif
    return simd == SL_PRECISION_SIMD_BEST || simd == SL_PRECISION_SIMD_SCALAR
               ? &sl_precision_kernels_scalar
               : NULL;
}

void sl_precision_widen_array(enum sl_precision precision, const void *array, uint64_t first,
                              uint64_t count, float *to)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const uint8_t *bytes = array;
    if (precision != SL_PRECISION_INT8) { /* rows without a scale are one row */
        sl_assert(count <= UINT32_MAX);
        kernels->widen(precision, bytes + first * sl_precision_row_bytes(precision, 1),
                       (uint32_t)count, to);
        return;
    }
    while (count > 0) {
        const uint64_t row = first / SL_PRECISION_ARRAY_ROW;
        const uint32_t column = (uint32_t)(first % SL_PRECISION_ARRAY_ROW);
        const uint64_t left = SL_PRECISION_ARRAY_ROW - column;
        const uint32_t here = (uint32_t)(count < left ? count : left);
        const uint8_t *at = bytes + row * sl_precision_row_bytes(precision, SL_PRECISION_ARRAY_ROW);
        float values[SL_PRECISION_ARRAY_ROW];
        if (column == 0) {
            kernels->widen(precision, at, here, to);
        } else { /* the scale is at the beginning of the row */
            kernels->widen(precision, at, column + here, values);
            memcpy(to, values + column, here * sizeof *to);
        }
        to += here;
        first += here;
        count -= here;
    }
}

static void precision_narrow_rows(enum sl_precision precision, const float *from, uint64_t count,
                                  bool random, uint64_t seed, uint8_t *to)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_BEST);
    const size_t row_bytes = sl_precision_row_bytes(precision, SL_PRECISION_ARRAY_ROW);
    for (uint64_t done = 0; done < count; done += SL_PRECISION_ARRAY_ROW, to += row_bytes) {
        const uint64_t left = count - done;
        const uint32_t here =
            left < SL_PRECISION_ARRAY_ROW ? (uint32_t)left : SL_PRECISION_ARRAY_ROW;
        if (random) {
            kernels->narrow_random(precision, from + done, here, sl_hash_key(seed + done), to);
        } else {
            kernels->narrow(precision, from + done, here, to);
        }
    }
}

void sl_precision_narrow_array(enum sl_precision precision, const float *from, uint64_t count,
                               void *array)
{
    precision_narrow_rows(precision, from, count, false, 0, array);
}

void sl_precision_narrow_array_random(enum sl_precision precision, const float *from,
                                      uint64_t count, uint64_t seed, void *array)
{
    precision_narrow_rows(precision, from, count, true, seed, array);
}
