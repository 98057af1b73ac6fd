#include "worker/train/text.h"

#include <math.h>

#define EXPONENT_MAX (INT64_C(1) << 48)

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

/* Digits add to *mantissa while it has room for them; returns how many there are, and in *dropped
 * how many of them it had no room for. */
static int64_t take_digits(struct sl_bytes *at, uint64_t *mantissa, int64_t *dropped)
{
    int64_t count = 0;
    int digit;
    *dropped = 0;
    while ((digit = digit_of(sl_text_peek(at))) >= 0) {
        if (*mantissa < (UINT64_MAX - 9) / 10) {
            *mantissa = *mantissa * 10 + (uint64_t)digit;
        } else {
            (*dropped)++;
        }
        (void)sl_bytes_take(at, 1);
        count++;
    }
    return count;
}

/* One that is over EXPONENT_MAX is as good as any other: no text is long enough to make up for it.
 */
static bool take_exponent(struct sl_bytes *at, int64_t *out)
{
    *out = 0;
    if (!sl_text_skip(at, 'e') && !sl_text_skip(at, 'E')) {
        return true;
    }
    bool negative = sl_text_skip(at, '-');
    if (!negative) {
        (void)sl_text_skip(at, '+');
    }
    uint64_t value = 0;
    int64_t dropped;
    if (take_digits(at, &value, &dropped) == 0) {
        return false;
    }
    int64_t bounded = value > EXPONENT_MAX ? EXPONENT_MAX : (int64_t)value;
    *out = negative ? -bounded : bounded;
    return true;
}

/* mantissa * 10^exponent. Within a few units in the last place of a double, so the float is the
 * nearest one or, in rare cases, its neighbour. */
static double scale(uint64_t mantissa, int64_t exponent)
{
    double value = (double)mantissa;
    if (mantissa == 0) {
        return 0;
    }
    if (exponent < -300) { /* in two parts, since 10^-exponent alone would overflow */
        return value / pow(10, 300) / pow(10, (double)(-300 - exponent));
    }
    return exponent < 0 ? value / pow(10, (double)-exponent) : value * pow(10, (double)exponent);
}

bool sl_text_float(struct sl_bytes *cursor, float *out)
{
    struct sl_bytes at = *cursor;
    bool negative = sl_text_skip(&at, '-');
    if (!negative) {
        (void)sl_text_skip(&at, '+');
    }
    uint64_t mantissa = 0;
    int64_t exponent = 0;
    int64_t dropped;
    int64_t digits = take_digits(&at, &mantissa, &dropped);
    int64_t shift = dropped;
    if (sl_text_skip(&at, '.')) {
        int64_t behind = take_digits(&at, &mantissa, &dropped);
        digits += behind;
        shift -= behind - dropped;
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
