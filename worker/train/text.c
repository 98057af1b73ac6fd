#include "worker/train/text.h"

#include <math.h>

static int digit_of(int byte)
{
    return byte >= '0' && byte <= '9' ? byte - '0' : -1;
}

static int hex_digit_of(int byte)
{
    if (byte >= 'a' && byte <= 'f') {
        return byte - 'a' + 10;
    }
    if (byte >= 'A' && byte <= 'F') {
        return byte - 'A' + 10;
    }
    return digit_of(byte);
}

bool sl_text_u64(struct sl_bytes *cursor, uint64_t *out)
{
    struct sl_bytes at = *cursor;
    uint64_t value = 0;
    int digit;
    while ((digit = digit_of(sl_text_peek(&at))) >= 0) {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value)) {
            return false;
        }
        (void)sl_bytes_take(&at, 1);
    }
    if (at.next == cursor->next) {
        return false;
    }
    *cursor = at;
    *out = value;
    return true;
}

bool sl_text_hex(struct sl_bytes *cursor, uint64_t *out)
{
    struct sl_bytes at = *cursor;
    uint64_t value = 0;
    int digit;
    while ((digit = hex_digit_of(sl_text_peek(&at))) >= 0) {
        if (at.next - cursor->next == 16) {
            return false;
        }
        value = value << 4 | (uint64_t)digit;
        (void)sl_bytes_take(&at, 1);
    }
    if (at.next == cursor->next) {
        return false;
    }
    *cursor = at;
    *out = value;
    return true;
}

/* Digits add to *mantissa while it has room for them; *dropped counts those that it had not. */
static uint32_t take_digits(struct sl_bytes *at, uint64_t *mantissa, int *dropped)
{
    uint32_t count = 0;
    int digit;
    *dropped = 0;
    while ((digit = digit_of(sl_text_peek(at))) >= 0) {
        if (*mantissa < (UINT64_MAX - 9) / 10) {
            *mantissa = *mantissa * 10 + (uint64_t)digit;
        } else if (*dropped < 10000) {
            (*dropped)++;
        }
        (void)sl_bytes_take(at, 1);
        count++;
    }
    return count;
}

static bool take_exponent(struct sl_bytes *at, int *out)
{
    *out = 0;
    if (!sl_text_skip(at, 'e') && !sl_text_skip(at, 'E')) {
        return true;
    }
    bool negative = sl_text_skip(at, '-');
    if (!negative) {
        (void)sl_text_skip(at, '+');
    }
    uint64_t value;
    if (!sl_text_u64(at, &value)) {
        return false;
    }
    int bounded = value > 10000 ? 10000 : (int)value;
    *out = negative ? -bounded : bounded;
    return true;
}

/* mantissa * 10^exponent. Within a few units in the last place of a double, so the float is the
 * nearest one or, in rare cases, its neighbour. */
static double scale(uint64_t mantissa, int exponent)
{
    double value = (double)mantissa;
    if (mantissa == 0) {
        return 0;
    }
    if (exponent < -300) { /* in two parts, since 10^-exponent alone would overflow */
        return value / pow(10, 300) / pow(10, -300 - exponent);
    }
    return exponent < 0 ? value / pow(10, -exponent) : value * pow(10, exponent);
}

bool sl_text_float(struct sl_bytes *cursor, float *out)
{
    struct sl_bytes at = *cursor;
    bool negative = sl_text_skip(&at, '-');
    if (!negative) {
        (void)sl_text_skip(&at, '+');
    }
    uint64_t mantissa = 0;
    int whole_dropped = 0;
    int fraction_dropped = 0;
    int exponent = 0;
    uint32_t digits = take_digits(&at, &mantissa, &whole_dropped);
    int shift = whole_dropped;
    if (sl_text_skip(&at, '.')) {
        size_t before = at.left;
        digits += take_digits(&at, &mantissa, &fraction_dropped);
        size_t taken = before - at.left;
        shift -= taken > 10000 ? 10000 : (int)taken - fraction_dropped;
    }
    if (digits == 0 || !take_exponent(&at, &exponent)) {
        return false;
    }
    double value = exponent + shift == 0 ? (double)mantissa : scale(mantissa, exponent + shift);
    float narrow = (float)value;
    if (!isfinite(narrow)) {
        return false;
    }
    *cursor = at;
    *out = negative ? -narrow : narrow;
    return true;
}
