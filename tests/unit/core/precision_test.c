#include "core/precision.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "tests/support/unit.h"

#define COUNT_MAX 300
#define DRAWS     200000

static const enum sl_precision all[] = {SL_PRECISION_F32, SL_PRECISION_F16, SL_PRECISION_BF16,
                                        SL_PRECISION_INT8};

static const struct sl_precision_kernels *scalar(void)
{
    return sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
}

static float narrowed(enum sl_precision precision, float value)
{
    uint8_t row[8];
    float back;
    scalar()->narrow(precision, &value, 1, row);
    scalar()->widen(precision, row, 1, &back);
    return back;
}

/* Every pattern of 16 bits is a value that narrowing finds again; a NaN stays one. */
SL_CASE(precision__narrowing_finds_every_half_again)
{
    for (uint32_t precision = SL_PRECISION_F16; precision <= SL_PRECISION_BF16; precision++) {
        for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
            const uint16_t half = (uint16_t)bits;
            uint16_t nearest, random;
            float value;
            scalar()->widen((enum sl_precision)precision, &half, 1, &value);
            scalar()->narrow((enum sl_precision)precision, &value, 1, &nearest);
            scalar()->narrow_random((enum sl_precision)precision, &value, 1, bits, &random);
            if (isnan(value)) {
                assert_true(isnan(narrowed((enum sl_precision)precision, value)));
            } else {
                assert_int_equal(nearest, half);
                assert_int_equal(random, half);
            }
        }
    }
}

/* The value of an f16, by its definition. */
static double f16_value(uint32_t half)
{
    const int exponent = (int)(half >> 10 & 31);
    const double fraction = half & 1023;
    const double magnitude =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

SL_CASE(precision__an_f16_has_the_value_of_the_standard)
{
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        const uint16_t half = (uint16_t)bits;
        float value;
        scalar()->widen(SL_PRECISION_F16, &half, 1, &value);
        if ((half & 0x7c00) != 0x7c00) {
            assert_true((double)value == f16_value(half));
        } else if ((half & 0x3ff) == 0) {
            assert_true(value == ((half & 0x8000) != 0 ? -INFINITY : INFINITY));
        } else {
            assert_true(isnan(value));
        }
    }
}

/* Between two neighbours the nearer one is taken, and of two that are equally near the even one. */
SL_CASE(precision__rounds_to_the_nearest)
{
    for (uint32_t bits = 0; bits < 0x7bff; bits++) {
        const uint16_t pair[2] = {(uint16_t)bits, (uint16_t)(bits + 1)};
        float ends[2];
        scalar()->widen(SL_PRECISION_F16, pair, 2, ends);
        const float middle = (ends[0] + ends[1]) / 2;
        assert_true(narrowed(SL_PRECISION_F16, middle) == ends[bits % 2]);
        assert_true(narrowed(SL_PRECISION_F16, nextafterf(middle, 0)) == ends[0]);
        assert_true(narrowed(SL_PRECISION_F16, -nextafterf(middle, 1e9F)) == -ends[1]);
    }
    assert_true(narrowed(SL_PRECISION_BF16, 1.0F + 0x1p-8F) == 1.0F);
    assert_true(narrowed(SL_PRECISION_BF16, 1.0F + 0x1p-8F + 0x1p-20F) == 1.0F + 0x1p-7F);
    assert_true(narrowed(SL_PRECISION_BF16, 1.0F + 3 * 0x1p-8F) == 1.0F + 0x1p-6F);
}

SL_CASE(precision__finite_stays_finite)
{
    assert_true(narrowed(SL_PRECISION_F16, 65504.0F) == 65504.0F);
    assert_true(narrowed(SL_PRECISION_F16, FLT_MAX) == 65504.0F);
    assert_true(narrowed(SL_PRECISION_F16, -1e6F) == -65504.0F);
    assert_true(isfinite(narrowed(SL_PRECISION_BF16, FLT_MAX)));
    assert_true(isfinite(narrowed(SL_PRECISION_INT8, -FLT_MAX)));
    assert_true(narrowed(SL_PRECISION_F16, INFINITY) == INFINITY);
    assert_true(narrowed(SL_PRECISION_BF16, -INFINITY) == -INFINITY);
    assert_true(isnan(narrowed(SL_PRECISION_INT8, INFINITY)));
    const float row[3] = {1, NAN, 2};
    float back[3];
    uint8_t bytes[7];
    scalar()->narrow(SL_PRECISION_INT8, row, 3, bytes);
    scalar()->widen(SL_PRECISION_INT8, bytes, 3, back);
    assert_true(isnan(back[0]) && isnan(back[1]) && isnan(back[2]));
}

static float random_float(uint64_t *random)
{
    static const uint32_t special[] = {0,          0x80000000, 0x00000001, 0x007fffff, 0x00800000,
                                       0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                       0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x38800000,
                                       0x387fffff, 0x2fffffff, 0x30000000};
    const uint64_t drawn = sl_hash_random(random);
    const uint32_t bits = drawn % 4 == 0
                              ? special[(drawn >> 8) % (sizeof special / sizeof special[0])]
                              : (uint32_t)(drawn >> 32);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Every variant gives the bits of the scalar one, of rows of any length and at any address. */
SL_CASE(precision__simd_gives_the_same_bits)
{
    uint64_t random = 1;
    uint8_t expected[4 * COUNT_MAX + 1], found[4 * COUNT_MAX + 1];
    float from[COUNT_MAX], widened[2][COUNT_MAX];
    for (uint32_t round = 0; round < 4000; round++) {
        const enum sl_precision precision = all[round % 4];
        const uint32_t count = (uint32_t)(sl_hash_random(&random) % COUNT_MAX);
        const bool is_plain = sl_hash_random(&random) % 2 == 0;
        for (uint32_t i = 0; i < count; i++) {
            from[i] = is_plain ? ldexpf((float)(int32_t)sl_hash_random(&random), -33)
                               : random_float(&random);
        }
        const size_t bytes = sl_precision_row_bytes(precision, count);
        for (int simd = SL_PRECISION_SIMD_BEST; simd < SL_PRECISION_SIMD_COUNT; simd++) {
            const struct sl_precision_kernels *kernels =
                sl_precision_kernels((enum sl_precision_simd)simd);
            if (kernels == NULL) {
                continue;
            }
            scalar()->narrow(precision, from, count, expected + 1);
            kernels->narrow(precision, from, count, found + 1);
            assert_memory_equal(found + 1, expected + 1, bytes);
            scalar()->narrow_random(precision, from, count, round, expected + 1);
            kernels->narrow_random(precision, from, count, round, found + 1);
            assert_memory_equal(found + 1, expected + 1, bytes);
            scalar()->widen(precision, expected + 1, count, widened[0]);
            kernels->widen(precision, found + 1, count, widened[1]);
            assert_memory_equal(widened[1], widened[0], count * sizeof(float));
        }
    }
}

/* The mean of many random roundings is the value itself, within five standard errors; neighbouring
 * columns, and the same column under following seeds, are rounded independently. */
SL_CASE(precision__random_rounding_has_no_bias)
{
    static const float values[] = {1.003F, -0.7001F, 3.14159e-3F, 5.1e-6F, 4.3e-8F, 123.456F};
    for (uint32_t v = 0; v < sizeof values / sizeof values[0]; v++) {
        for (uint32_t p = SL_PRECISION_F16; p <= SL_PRECISION_INT8; p++) {
            const float row[4] = {values[v], 255 * values[v] / 256, values[v] / 3, values[v] / 77};
            double sum[4] = {0}, squares[4] = {0}, both = 0;
            for (uint64_t draw = 0; draw < DRAWS; draw++) {
                uint8_t bytes[16];
                float back[4];
                const uint64_t seed = sl_hash_key(draw);
                scalar()->narrow_random((enum sl_precision)p, row, 4, seed, bytes);
                scalar()->widen((enum sl_precision)p, bytes, 4, back);
                for (uint32_t i = 0; i < 4; i++) {
                    const double off = (double)back[i] - (double)row[i];
                    sum[i] += off;
                    squares[i] += off * off;
                }
                both += ((double)back[2] - (double)row[2]) * ((double)back[3] - (double)row[3]);
            }
            for (uint32_t i = 0; i < 4; i++) {
                const double error = sqrt(squares[i]) / DRAWS;
                assert_true(fabs(sum[i] / DRAWS) <= 5 * error + 1e-12 * fabs((double)row[i]));
            }
            assert_true(fabs(both) <= 5 * sqrt(squares[2] * squares[3] / DRAWS) + 1e-30);
        }
    }
}

/* An INT8 row keeps each value within half a step of its scale, and finds its own bytes again. */
SL_CASE(precision__an_int8_row_is_close)
{
    uint64_t random = 7;
    for (uint32_t round = 0; round < 2000; round++) {
        float from[64], back[64];
        uint8_t bytes[68], again[68];
        float most = 0, scale;
        const int exponent = (int)(sl_hash_random(&random) % 240) - 120;
        for (uint32_t i = 0; i < 64; i++) {
            from[i] = ldexpf((float)(int32_t)sl_hash_random(&random), exponent - 31);
            most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
        }
        scalar()->narrow(SL_PRECISION_INT8, from, 64, bytes);
        scalar()->widen(SL_PRECISION_INT8, bytes, 64, back);
        memcpy(&scale, bytes, sizeof scale);
        assert_true(most <= 127 * scale && (most > 63.5F * scale || scale == FLT_MIN));
        for (uint32_t i = 0; i < 64; i++) {
            assert_true(fabsf(back[i] - from[i]) <= scale / 2);
        }
        scalar()->narrow_random(SL_PRECISION_INT8, back, 64, round, again);
        scalar()->widen(SL_PRECISION_INT8, again, 64, from);
        assert_memory_equal(from, back, sizeof back);
    }
    const float zeros[64] = {0};
    uint8_t bytes[68];
    scalar()->narrow(SL_PRECISION_INT8, zeros, 64, bytes);
    for (uint32_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(bytes[i], 0);
    }
}

/* Parts of an array are those of the whole. */
SL_CASE(precision__parts_of_an_array)
{
    float from[1000], whole[1000], part[1000];
    uint8_t array[4000];
    for (uint32_t i = 0; i < 1000; i++) {
        from[i] = (float)sin(i) * (float)(1 + i);
    }
    for (uint32_t p = 0; p < 4; p++) {
        for (uint64_t count = 0; count <= 1000; count += 125) {
            const uint64_t bytes = sl_precision_array_bytes(all[p], count);
            memset(array, 0xee, sizeof array);
            sl_precision_narrow_array_random(all[p], from, count, 5, array);
            assert_true(bytes <= sizeof array);
            assert_true(bytes == sizeof array || array[bytes] == 0xee);
            sl_precision_widen_array(all[p], array, 0, count, whole);
            for (uint64_t first = 0; first < count; first += 77) {
                const uint64_t here = count - first < 300 ? count - first : 300;
                sl_precision_widen_array(all[p], array, first, here, part);
                assert_memory_equal(part, whole + first, here * sizeof(float));
            }
        }
    }
}
