#include "programs/models/text.h"

#include <math.h>
#include <string.h>

#define EXPONENT_MAX   (INT64_C(1) << 48)
#define HEX_DIGITS_MAX 16

static int digit_of(int byte)
{
    return byte >= '0' && byte <= '9' ? byte - '0' : -1;
}

/* Value of a hexadecimal digit plus 1; 0: no digit. Click logs are mostly such digits, and a table
 * lookup is faster than comparisons. */
static const uint8_t HEX_DIGITS[256] = {
    ['0'] = 1,  ['1'] = 2,  ['2'] = 3,  ['3'] = 4,  ['4'] = 5,  ['5'] = 6,  ['6'] = 7,  ['7'] = 8,
    ['8'] = 9,  ['9'] = 10, ['a'] = 11, ['b'] = 12, ['c'] = 13, ['d'] = 14, ['e'] = 15, ['f'] = 16,
    ['A'] = 11, ['B'] = 12, ['C'] = 13, ['D'] = 14, ['E'] = 15, ['F'] = 16,
};

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

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Sets the highest bit of each byte (all below 128) that is >= `least`. */
static uint64_t at_least(uint64_t bytes, uint64_t least)
{
    return (bytes + EACH(128 - least)) & EACH(128);
}

/* Parses eight hexadecimal digits at once, the first in the lowest byte. False: not all are
 * digits. */
static bool hex_word(uint64_t bytes, uint64_t *out)
{
    const uint64_t lower = bytes | EACH(0x20);
    const uint64_t numbers = at_least(bytes, '0') & ~at_least(bytes, '9' + 1);
    const uint64_t letters = at_least(lower, 'a') & ~at_least(lower, 'f' + 1);
    if ((bytes & EACH(128)) != 0 || (numbers | letters) != EACH(128)) {
        return false;
    }
    uint64_t value = (bytes & EACH(0x0f)) + 9 * (bytes >> 6 & EACH(1));
    value = (value << 4 | value >> 8) & UINT64_C(0x00ff00ff00ff00ff);
    value = (value << 8 | value >> 16) & UINT64_C(0x0000ffff0000ffff);
    *out = (value << 16 | value >> 32) & UINT64_C(0xffffffff);
    return true;
}

bool sl_text_hex(struct sl_bytes *cursor, uint64_t *out)
{
    const size_t most = cursor->left < HEX_DIGITS_MAX + 1 ? cursor->left : HEX_DIGITS_MAX + 1;
    uint64_t value = 0;
    size_t count = 0;
    uint8_t digit;
    uint64_t word;
    if (most >= sizeof word) {
        memcpy(&word, cursor->next, sizeof word);
        count = hex_word(word, &value) ? sizeof word : 0;
    }
    while (count < most && (digit = HEX_DIGITS[cursor->next[count]]) != 0) {
        value = value << 4 | (uint64_t)(digit - 1);
        count++;
    }
    if (count == 0 || count > HEX_DIGITS_MAX) {
        return false;
    }
    (void)sl_bytes_take(cursor, count);
    *out = value;
    return true;
}

/* Appends digits to *mantissa while they fit. Returns the number of digits; *dropped: those that
 * did not fit. */
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

/* Clamps to EXPONENT_MAX: no text has enough digits to compensate for a larger exponent. */
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

/* mantissa * 10^exponent, exact within a few units in the last place of a double: the float is the
 * nearest one or, rarely, its neighbour. */
static double scale(uint64_t mantissa, int64_t exponent)
{
    double value = (double)mantissa;
    if (mantissa == 0) {
        return 0;
    }
    if (exponent < -300) { /* in two parts: 10^-exponent alone would overflow */
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
