/* The loops of core/precision.h. CMake compiles this file once per SIMD variant, with the variant's
 * name in SL_SIMD; the loops do not branch by data, so that the compiler uses vectors. */
#include <string.h>

#include "core/assert.h"
#include "core/precision.h"

#define PASTE(name, simd)  name##_##simd
#define EXPAND(name, simd) PASTE(name, simd)

#define F32_SIGN           0x80000000U
#define F32_INFINITY       0x7f800000U
#define F32_HIDDEN         0x00800000U /* the bit above the mantissa */
#define BF16_MAX           0x7f7fU
#define F16_MAX            0x7bffU
#define F16_INFINITY       0x7c00U
#define F16_NAN            0x7e00U
#define EXPONENT_MIN       113U /* f32 exponent of the smallest normal f16, 2^-14 */
#define EXPONENT_ZERO      96U  /* of 2^-31: below, an f16 is 0 even with random rounding */
#define INT8_MOST          127.0F
#define INT8_EXPONENT_MAX  248U        /* f32 exponent of 2^121 */
#define ROUND_MAGIC        12582912.0F /* 1.5 * 2^23: adding it rounds to an integer */

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t load_u16(const uint8_t *from, uint32_t i)
{
    uint16_t value;
    memcpy(&value, from + (size_t)i * sizeof value, sizeof value);
    return value;
}

static inline void store_u16(uint8_t *to, uint32_t i, uint32_t bits)
{
    const uint16_t value = (uint16_t)bits;
    memcpy(to + (size_t)i * sizeof value, &value, sizeof value);
}

/* 32 random bits of a column: for each seed a bijection of the columns, with multipliers of
 * Wellons's hash-prospector. */
static inline uint32_t noise(uint64_t seed, uint32_t column)
{
    uint32_t x = column * 0x9e3779b9U + (uint32_t)seed;
    x ^= x >> 16;
    x *= 0x21f0aaadU;
    x ^= (x >> 15) ^ (uint32_t)(seed >> 32);
    x *= 0x735a2d97U;
    return x ^ (x >> 15);
}

/* Returns the number to add to `mantissa` before its low `shift` bits are dropped. */
static inline uint32_t rounding(uint32_t mantissa, uint32_t shift, bool random, uint32_t bits)
{
    const uint32_t ones = (1U << shift) - 1;
    return random ? bits & ones : (ones >> 1) + ((mantissa >> shift) & 1);
}

static inline uint32_t bf16_of(uint32_t bits, bool random, uint32_t random_bits)
{
    const uint32_t magnitude = bits & ~F32_SIGN;
    const uint32_t rounded = (magnitude + rounding(magnitude, 16, random, random_bits)) >> 16;
    const uint32_t finite = rounded < BF16_MAX ? rounded : BF16_MAX;
    const uint32_t nan = magnitude > F32_INFINITY ? magnitude >> 16 | 0x40U : F32_INFINITY >> 16;
    return ((bits & F32_SIGN) >> 16) | (magnitude < F32_INFINITY ? finite : nan);
}

static inline uint32_t f16_of(uint32_t bits, bool random, uint32_t random_bits)
{
    const uint32_t magnitude = bits & ~F32_SIGN;
    const uint32_t exponent = magnitude >> 23;
    const bool is_normal = exponent >= EXPONENT_MIN;
    const bool is_zero = exponent < EXPONENT_ZERO;
    const uint32_t fraction = is_zero ? 0 : (magnitude & (F32_HIDDEN - 1)) | F32_HIDDEN;
    const uint32_t mantissa = is_normal ? magnitude - ((EXPONENT_MIN - 1) << 23) : fraction;
    const uint32_t shift = is_normal ? 13 : is_zero ? 30 : EXPONENT_MIN + 13 - exponent;
    const uint32_t rounded = (mantissa + rounding(mantissa, shift, random, random_bits)) >> shift;
    const uint32_t finite = rounded < F16_MAX ? rounded : F16_MAX;
    const uint32_t nan =
        magnitude > F32_INFINITY ? F16_NAN | (magnitude >> 13 & 0x3ffU) : F16_INFINITY;
    return ((bits & F32_SIGN) >> 16) | (magnitude < F32_INFINITY ? finite : nan);
}

static inline float f16_widened(uint32_t half)
{
    const uint32_t magnitude = half & 0x7fffU;
    /* The multiplication corrects the exponent's bias, exactly, also of subnormals. Infinity and
     * NaN become finite by it, and their exponent is set. */
    const uint32_t finite = bits_of(float_of(magnitude << 13) * 0x1p112F);
    const uint32_t exponent = magnitude < F16_INFINITY ? 0 : F32_INFINITY;
    return float_of(finite | exponent | (half & 0x8000U) << 16);
}

/* INT8 */

/* Returns the largest magnitude, as bits; above those of infinity if there is a NaN. */
static inline uint32_t largest_of(const float *from, uint32_t count)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t magnitude = bits_of(from[i]) & ~F32_SIGN;
        most = magnitude > most ? magnitude : most;
    }
    return most;
}

/* Returns the bits of the smallest power of two, from 2^-126 to 2^121, such that 127 times it
 * reaches the magnitude; 0 for 0. 127 is 2^7 less 2^0: a mantissa of up to 1.984375 needs exponent
 * - 6, else one more. Values beyond 127 * 2^121 become that. */
static inline uint32_t scale_of(uint32_t largest)
{
    const bool is_over = (largest & (F32_HIDDEN - 1)) > 0x007e0000U;
    const uint32_t exponent = (largest >> 23) + is_over;
    const uint32_t scale = exponent > 7 ? exponent - 6 : 1;
    return largest == 0 ? 0 : (scale < INT8_EXPONENT_MAX ? scale : INT8_EXPONENT_MAX) << 23;
}

static inline void narrow_int8(const float *from, uint32_t count, bool random, uint64_t seed,
                               uint8_t *to)
{
    const uint32_t largest = largest_of(from, count);
    const uint32_t scale = largest < F32_INFINITY ? scale_of(largest) : F32_INFINITY | 0x400000U;
    const bool has_values = scale != 0 && largest < F32_INFINITY;
    const float inverse = has_values ? float_of((254U << 23) - scale) : 0;
    memcpy(to, &scale, sizeof scale);
    to += sizeof scale;
    if (!has_values) {
        memset(to, scale == 0 ? 0 : 1, count); /* 1 * NaN */
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        const float exact = from[i] * inverse;
        const float below = exact < INT8_MOST ? exact : INT8_MOST;
        const float q = below > -INT8_MOST ? below : -INT8_MOST;
        /* The sum is above 0, so the conversion cuts off its fraction. 16 random bits: with more,
         * the sum could be rounded up to the next integer. */
        const float up = (float)(noise(seed, i) >> 16) * 0x1p-16F;
        const int32_t rounded =
            random ? (int32_t)(q + up + 128.0F) - 128 : (int32_t)((q + ROUND_MAGIC) - ROUND_MAGIC);
        to[i] = (uint8_t)(int8_t)rounded;
    }
}

static inline void widen_int8(const uint8_t *from, uint32_t count, float *to)
{
    float scale;
    memcpy(&scale, from, sizeof scale);
    from += sizeof scale;
    for (uint32_t i = 0; i < count; i++) {
        to[i] = (float)(int8_t)from[i] * scale;
    }
}

/* Rows */

static inline __attribute__((always_inline)) void narrow_row(enum sl_precision precision,
                                                             const float *restrict from,
                                                             uint32_t count, bool random,
                                                             uint64_t seed, uint8_t *restrict to)
{
    switch (precision) {
    case SL_PRECISION_F32:
        memcpy(to, from, count * sizeof *from);
        break;
    case SL_PRECISION_F16:
        for (uint32_t i = 0; i < count; i++) {
            store_u16(to, i, f16_of(bits_of(from[i]), random, noise(seed, i)));
        }
        break;
    case SL_PRECISION_BF16:
        for (uint32_t i = 0; i < count; i++) {
            store_u16(to, i, bf16_of(bits_of(from[i]), random, noise(seed, i)));
        }
        break;
    case SL_PRECISION_INT8:
        narrow_int8(from, count, random, seed, to);
        break;
    }
}

static void narrow(enum sl_precision precision, const float *from, uint32_t count, void *to)
{
    narrow_row(precision, from, count, false, 0, to);
}

static void narrow_random(enum sl_precision precision, const float *from, uint32_t count,
                          uint64_t seed, void *to)
{
    narrow_row(precision, from, count, true, seed, to);
}

static void widen(enum sl_precision precision, const void *restrict from, uint32_t count,
                  float *restrict to)
{
    const uint8_t *bytes = from;
    switch (precision) {
    case SL_PRECISION_F32:
        memcpy(to, from, count * sizeof *to);
        break;
    case SL_PRECISION_F16:
        for (uint32_t i = 0; i < count; i++) {
            to[i] = f16_widened(load_u16(bytes, i));
        }
        break;
    case SL_PRECISION_BF16:
        for (uint32_t i = 0; i < count; i++) {
            to[i] = float_of((uint32_t)load_u16(bytes, i) << 16);
        }
        break;
    case SL_PRECISION_INT8:
        widen_int8(bytes, count, to);
        break;
    }
}

extern const struct sl_precision_kernels EXPAND(sl_precision_kernels, SL_SIMD);
const struct sl_precision_kernels EXPAND(sl_precision_kernels, SL_SIMD) = {
    .widen = widen, .narrow = narrow, .narrow_random = narrow_random};
