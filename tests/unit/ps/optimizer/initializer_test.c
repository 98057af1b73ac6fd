#include <math.h>
#include <string.h>

#include "ps/optimizer/initializer.h"
#include "tests/support/unit.h"

#define COUNT 200000

static float values[COUNT];

static void fill(enum sl_initializer_kind kind, float a, float b)
{
    const struct sl_initializer_spec spec = {.kind = kind, .low = a, .high = b, .seed = 42};
    for (uint32_t key = 0; key < COUNT / 8; key++) {
        sl_initializer_fill(&spec, key, 0, 8, values + (size_t)key * 8);
    }
}

static double mean_of_power(int power)
{
    double sum = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        sum += pow((double)values[i], power);
    }
    return sum / COUNT;
}

static double share_below(double bound)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        count += (double)values[i] < bound;
    }
    return (double)count / COUNT;
}

static double normal_distribution(double z)
{
    return erfc(-z / sqrt(2)) / 2;
}

SL_CASE(initializer_fill__constants)
{
    fill(SL_INITIALIZER_CONSTANT, 1.5F, 9.0F);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(values[i] == 1.5F);
    }
    fill(SL_INITIALIZER_ZEROS, 1.5F, 9.0F);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(values[i] == 0.0F);
    }
}

SL_CASE(initializer_fill__uniform)
{
    fill(SL_INITIALIZER_UNIFORM, -2.0F, 6.0F);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(values[i] >= -2.0F);
        assert_true(values[i] < 6.0F);
    }
    for (int eighth = 0; eighth < 8; eighth++) {
        assert_float_equal((float)share_below(-2.0 + eighth), (float)eighth / 8, 0.005F);
    }
}

/* So narrow that most values would round up to b. */
SL_CASE(initializer_fill__uniform_stays_below_b)
{
    const float b = nextafterf(1.0F, 2.0F);
    fill(SL_INITIALIZER_UNIFORM, 1.0F, b);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(values[i] == 1.0F);
    }
    fill(SL_INITIALIZER_UNIFORM, 3.0F, 3.0F);
    assert_true(values[0] == 3.0F);
}

SL_CASE(initializer_fill__normal)
{
    fill(SL_INITIALIZER_NORMAL, 0.0F, 1.0F);
    assert_float_equal((float)mean_of_power(1), 0.0F, 0.01F);
    assert_float_equal((float)mean_of_power(2), 1.0F, 0.02F);
    assert_float_equal((float)mean_of_power(4), 3.0F, 0.15F);
    for (double z = -4; z <= 4; z += 0.25) {
        assert_float_equal((float)share_below(z), (float)normal_distribution(z), 0.005F);
    }
    fill(SL_INITIALIZER_NORMAL, 10.0F, 0.5F);
    assert_float_equal((float)mean_of_power(1), 10.0F, 0.01F);
}

SL_CASE(initializer_fill__truncated_normal)
{
    fill(SL_INITIALIZER_TRUNCATED_NORMAL, 1.0F, 2.0F);
    const double outside = normal_distribution(-2);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(values[i] >= -3.0F);
        assert_true(values[i] <= 5.0F);
    }
    for (double z = -2; z <= 2; z += 0.25) {
        const double expected = (normal_distribution(z) - outside) / (1 - 2 * outside);
        assert_float_equal((float)share_below(1 + 2 * z), (float)expected, 0.005F);
    }
}

/* A column does not depend on which others are asked for; keys, columns and seeds differ. */
SL_CASE(initializer_fill__pure_function_of_key_and_column)
{
    struct sl_initializer_spec spec = {.kind = SL_INITIALIZER_NORMAL, .stddev = 1.0F, .seed = 7};
    float whole[17];
    float part[17];
    sl_initializer_fill(&spec, UINT64_MAX, 0, 17, whole);
    sl_initializer_fill(&spec, UINT64_MAX, 5, 9, part + 5);
    assert_memory_equal(whole + 5, part + 5, 9 * sizeof(float));
    sl_initializer_fill(&spec, UINT64_MAX - 1, 0, 17, part);
    for (int i = 0; i < 17; i++) {
        assert_true(whole[i] != part[i]);
    }
    spec.seed = 8;
    sl_initializer_fill(&spec, UINT64_MAX, 0, 17, part);
    for (int i = 0; i < 17; i++) {
        assert_true(whole[i] != part[i]);
        assert_true(i == 0 || whole[i] != whole[i - 1]);
    }
}

/* Fixed bits: a compiler, a machine or a change that gives others breaks training that is resumed
 * elsewhere. */
SL_CASE(initializer_fill__same_bits_everywhere)
{
    static const uint32_t expected[3][4] = {
        {0x3f4d7a40, 0x3f5d0288, 0xbf33fbad, 0xbf022e4a}, /* uniform */
        {0x3e9408ab, 0x3ef9fe52, 0xc002c0c6, 0xbfd80ee8}, /* normal */
        {0x3e430262, 0x3eb4e318, 0xbffcf670, 0xbfd369ad}, /* truncated */
    };
    for (int row = 0; row < 3; row++) {
        const struct sl_initializer_spec spec = {
            .kind = (enum sl_initializer_kind)(SL_INITIALIZER_UNIFORM + row),
            .low = -1.0F,
            .high = 1.0F,
            .seed = 12345,
        };
        float got[4];
        uint32_t bits[4];
        sl_initializer_fill(&spec, 0x0123456789abcdefULL, 3, 4, got);
        memcpy(bits, got, sizeof bits);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(bits[i], expected[row][i]);
        }
    }
}
