#include "ps/optimizer/initializer.h"

#include <math.h>

#include "core/hash.h"

#define GOLDEN          0x9e3779b97f4a7c15ULL

/* The normal distribution function at -2, and the probability between -2 and 2. */
#define BELOW_MINUS_TWO 0.022750131948179207
#define WITHIN_TWO      (1.0 - 2.0 * BELOW_MINUS_TWO)

/* Start of a row's SplitMix64 stream (core/hash.h). Two rounds of the mix keep the streams of
 * neighbouring keys and of neighbouring seeds unrelated. */
static uint64_t row_stream(uint64_t seed, uint64_t key)
{
    return sl_hash_key(sl_hash_key(key + GOLDEN) ^ sl_hash_key(seed + 2 * GOLDEN));
}

/* The stream's number for `column`: uniform in the open interval (0, 1). Adding half a unit to 52
 * bits excludes both ends. */
static double column_uniform(uint64_t stream, uint32_t column)
{
    const uint64_t bits = sl_hash_key(stream + ((uint64_t)column + 1) * GOLDEN);
    return ((double)(bits >> 12) + 0.5) * 0x1p-52;
}

/* Natural logarithm of 0 < x < 1, to about 1e-15. x = m * 2^e with m between sqrt(1/2) and sqrt(2);
 * log m = 2 atanh(s), s = (m - 1) / (m + 1), by its series. The C library's log may differ in the
 * last bit between machines. */
static double logarithm(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0.70710678118654752) {
        m *= 2;
        exponent--;
    }
    const double s = (m - 1) / (m + 1);
    const double square = s * s;
    double sum = 0;
    for (int term = 21; term >= 1; term -= 2) {
        sum = sum * square + 1.0 / term;
    }
    return 2 * s * sum + exponent * 0.69314718055994531;
}

/* Quantile of the normal distribution, to 1e-7: Wichura, "Algorithm AS 241: The Percentage Points
 * of the Normal Distribution", Applied Statistics 37, 1988, routine PPND7. */
static double normal_quantile(double p)
{
    const double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        const double r = 0.180625 - q * q;
        return q * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
               (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
    }
    double r = sqrt(-logarithm(q < 0 ? p : 1 - p));
    double z;
    if (r <= 5) {
        r -= 1.6;
        z = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
            ((0.12021132975 * r + 0.73700164250) * r + 1);
    } else {
        r -= 5;
        z = (((0.017337203997 * r + 0.42868294337) * r + 3.0812263860) * r + 6.6579051150) /
            ((0.012258202635 * r + 0.24197894225) * r + 1);
    }
    return q < 0 ? -z : z;
}

static void fill_constant(float value, uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

static void fill_uniform(const struct sl_initializer_spec *spec, uint64_t stream, uint32_t first,
                         uint32_t count, float *out)
{
    const double width = (double)spec->high - (double)spec->low;
    /* Rounding to float may give `high`, which the interval excludes. */
    const float most = spec->high > spec->low ? nextafterf(spec->high, spec->low) : spec->low;
    for (uint32_t i = 0; i < count; i++) {
        const float value = (float)((double)spec->low + width * column_uniform(stream, first + i));
        out[i] = value < most ? value : most;
    }
}

static void fill_normal(const struct sl_initializer_spec *spec, uint64_t stream, uint32_t first,
                        uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const double z = normal_quantile(column_uniform(stream, first + i));
        out[i] = (float)((double)spec->mean + (double)spec->stddev * z);
    }
}

/* Quantile of a number uniform between the distribution function at -2 and at 2. One draw gives the
 * distribution of redrawing until the value is within two standard deviations. */
static void fill_truncated(const struct sl_initializer_spec *spec, uint64_t stream, uint32_t first,
                           uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const double p = BELOW_MINUS_TWO + WITHIN_TWO * column_uniform(stream, first + i);
        const double z = fmin(fmax(normal_quantile(p), -2.0), 2.0);
        out[i] = (float)((double)spec->mean + (double)spec->stddev * z);
    }
}

void sl_initializer_fill(const struct sl_initializer_spec *spec, uint64_t key,
                         uint32_t first_column, uint32_t count, float *out)
{
    switch (spec->kind) {
    case SL_INITIALIZER_ZEROS:
        fill_constant(0.0F, count, out);
        break;
    case SL_INITIALIZER_CONSTANT:
        fill_constant(spec->value, count, out);
        break;
    case SL_INITIALIZER_UNIFORM:
        fill_uniform(spec, row_stream(spec->seed, key), first_column, count, out);
        break;
    case SL_INITIALIZER_NORMAL:
        fill_normal(spec, row_stream(spec->seed, key), first_column, count, out);
        break;
    case SL_INITIALIZER_TRUNCATED_NORMAL:
        fill_truncated(spec, row_stream(spec->seed, key), first_column, count, out);
        break;
    }
}
