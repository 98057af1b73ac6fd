/* Conversion of f32 values to and from the narrower forms of enum sl_precision, in which tables
 * store rows and messages carry values. Pure functions; any thread. The narrow form needs no
 * alignment, and may not overlap the floats.
 *
 *   F16, BF16  2 bytes a value
 *   INT8       a row is its scale, an f32, and a signed byte q for each value: q * scale, with q
 * from -127 to 127. Narrowing takes the smallest power of two for which all values fit, of 2^-126
 * to 2^121, or 0 in a row of zeros; widening accepts any scale.
 *
 * What these functions have narrowed and widened keeps its values when it is narrowed again. A
 * finite value stays finite: beyond the largest value it becomes that. Infinities and NaN stay
 * such, but an INT8 row that has one becomes NaN in all columns. F16 has no magnitudes between 0
 * and 2^-24: below 2^-31, also random rounding gives 0.
 *
 * The SIMD variants of the kernels give the same bits. */
#ifndef SL_CORE_PRECISION_H
#define SL_CORE_PRECISION_H

#include <starling_table.h>
#include <stddef.h>
#include <stdint.h>

/* Values that share a scale where INT8 values form an array without rows: each section of a message
 * to a dense or KV table is a sequence of such rows, of which the last may be shorter. */
#define SL_PRECISION_ARRAY_ROW 256

/* Bytes of a row of `count` values. */
static inline size_t sl_precision_row_bytes(enum sl_precision precision, uint32_t count)
{
    return precision == SL_PRECISION_F32    ? count * sizeof(float)
           : precision == SL_PRECISION_INT8 ? sizeof(float) + count
                                            : count * sizeof(uint16_t);
}

/* Bytes of an array of `count` values in rows of SL_PRECISION_ARRAY_ROW. */
static inline uint64_t sl_precision_array_bytes(enum sl_precision precision, uint64_t count)
{
    const uint64_t rows = (count + SL_PRECISION_ARRAY_ROW - 1) / SL_PRECISION_ARRAY_ROW;
    return precision == SL_PRECISION_F32    ? count * sizeof(float)
           : precision == SL_PRECISION_INT8 ? count + rows * sizeof(float)
                                            : count * sizeof(uint16_t);
}

/* Most values of such an array that has no more than `bytes`. */
static inline uint64_t sl_precision_array_count(enum sl_precision precision, uint64_t bytes)
{
    const uint64_t row_bytes = sizeof(float) + SL_PRECISION_ARRAY_ROW, last = bytes % row_bytes;
    return precision == SL_PRECISION_F32    ? bytes / sizeof(float)
           : precision == SL_PRECISION_INT8 ? bytes / row_bytes * SL_PRECISION_ARRAY_ROW +
                                                  (last > sizeof(float) ? last - sizeof(float) : 0)
                                            : bytes / sizeof(uint16_t);
}

struct sl_precision_kernels {
    /* Writes the values of a row to to[count]. */
    void (*widen)(enum sl_precision precision, const void *from, uint32_t count, float *to);
    /* Writes from[count] as a row, each value rounded to the nearest, ties to even. */
    void (*narrow)(enum sl_precision precision, const float *from, uint32_t count, void *to);
    /* The same with random rounding: up or down, so that the expected value is `from`, but for
     * what is said above, and 2^-17 of a step of INT8. The random
     * numbers are a function of the seed, which the caller has mixed well, and of the column. */
    void (*narrow_random)(enum sl_precision precision, const float *from, uint32_t count,
                          uint64_t seed, void *to);
};

enum sl_precision_simd {
    SL_PRECISION_SIMD_BEST, /* the fastest that this processor supports */
    SL_PRECISION_SIMD_SCALAR,
    SL_PRECISION_SIMD_AVX2,
    SL_PRECISION_SIMD_AVX512,
};
#define SL_PRECISION_SIMD_COUNT 4

/* Returns NULL if this build or processor does not support the variant. BEST and SCALAR exist
 * always. */
const struct sl_precision_kernels *sl_precision_kernels(enum sl_precision_simd simd);

/* Writes values [first, first + count) of an array in rows of SL_PRECISION_ARRAY_ROW to
 * to[count]. */
void sl_precision_widen_array(enum sl_precision precision, const void *array, uint64_t first,
                              uint64_t count, float *to);

/* Writes from[count] as such an array; the second function with random rounding. */
void sl_precision_narrow_array(enum sl_precision precision, const float *from, uint64_t count,
                               void *array);
void sl_precision_narrow_array_random(enum sl_precision precision, const float *from,
                                      uint64_t count, uint64_t seed, void *array);

#endif
