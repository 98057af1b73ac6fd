#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/models/text.h"
#include "tests/support/unit.h"

static struct sl_bytes over(const char *text)
{
    return sl_bytes_over(text, strlen(text));
}

SL_CASE(text_u64__takes_digits_up_to_the_greatest)
{
    struct sl_bytes cursor = over("18446744073709551615:");
    uint64_t value = 0;
    assert_true(sl_text_u64(&cursor, &value));
    assert_true(value == UINT64_MAX);
    assert_int_equal(sl_text_peek(&cursor), ':');
}

SL_CASE(text_u64__refuses_overflow_and_nothing)
{
    const char *const bad[] = {"18446744073709551616", "99999999999999999999999", "", "x", "-1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sl_bytes cursor = over(bad[i]);
        uint64_t value = 7;
        assert_false(sl_text_u64(&cursor, &value));
        assert_int_equal(value, 7);
        assert_int_equal(cursor.left, strlen(bad[i]));
    }
}

SL_CASE(text_hex__takes_sixteen_digits_in_either_case)
{
    struct sl_bytes cursor = over("fFfFffffffffffff");
    uint64_t value = 0;
    assert_true(sl_text_hex(&cursor, &value));
    assert_true(value == UINT64_MAX);
    cursor = over("10000000000000000");
    assert_false(sl_text_hex(&cursor, &value));
    cursor = over("g");
    assert_false(sl_text_hex(&cursor, &value));
}

/* Any byte in any of ten places: the digits before it are taken, and it ends them or is one. */
SL_CASE(text_hex__ends_at_what_is_no_digit)
{
    for (int byte = 0; byte < 256; byte++) {
        for (size_t place = 0; place < 10; place++) {
            uint8_t text[11] = "1b2C3d4E5f";
            text[place] = (uint8_t)byte;
            struct sl_bytes cursor = sl_bytes_over(text, 10);
            const bool digit = byte < 128 && isxdigit(byte) != 0;
            const size_t taken = digit ? 10 : place;
            uint64_t value = 7;
            assert_int_equal(sl_text_hex(&cursor, &value), taken > 0);
            assert_int_equal(cursor.left, 10 - taken);
            text[taken] = '\0';
            assert_true(value == (taken > 0 ? strtoull((const char *)text, NULL, 16) : 7));
        }
    }
}

SL_CASE(text_float__agrees_with_strtof)
{
    const char *const numbers[] = {
        "0",
        "1",
        "-1",
        "+2.5",
        "0.1",
        ".5",
        "3.",
        "1e3",
        "1E-3",
        "-2.5e+2",
        "123456789012345678901234567890",
        "0.000000000000000000000000000001",
        "3.4028235e38",
        "1.17549435e-38",
        "7e-46",
        "1e-400",
        "0e999",
        "12345.678901234567890",
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sl_bytes cursor = over(numbers[i]);
        float value = 99;
        assert_true(sl_text_float(&cursor, &value));
        assert_int_equal(cursor.left, 0);
        assert_float_equal(value, strtof(numbers[i], NULL), 0);
    }
}

/* `before`, then `zero_count` zeros, then `after`. */
static float float_with_zeros(const char *before, size_t zero_count, const char *after)
{
    size_t room = strlen(before) + zero_count + strlen(after) + 1;
    char *text = malloc(room);
    assert_non_null(text);
    snprintf(text, room, "%s%0*d%s", before, (int)zero_count, 0, after);
    struct sl_bytes cursor = over(text);
    float value = 99;
    assert_true(sl_text_float(&cursor, &value));
    assert_int_equal(cursor.left, 0);
    free(text);
    return value;
}

/* A line holds a million digits, and each of them counts. */
SL_CASE(text_float__takes_any_number_of_digits)
{
    assert_float_equal(float_with_zeros("1.", 20000, ""), 1, 0);
    assert_float_equal(float_with_zeros("1.", 20000, "1"), 1, 0);
    assert_float_equal(float_with_zeros("5", 20000, "e-20000"), 5, 0);
    assert_float_equal(float_with_zeros(".", 20000, "5e20001"), 5, 0);
    assert_float_equal(float_with_zeros(".", 20000, "5"), 0, 0);
    assert_float_equal(float_with_zeros("2e", 20000, "1"), 20, 0);
    assert_float_equal(float_with_zeros("2e-1", 50, ""), 0, 0);
}

SL_CASE(text_float__refuses_what_is_no_finite_number)
{
    const char *const bad[] = {
        "", "-", "+", ".", "e5", "1e", "inf", "nan", "1e39", "--1", "1e999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sl_bytes cursor = over(bad[i]);
        float value = 7;
        assert_false(sl_text_float(&cursor, &value));
        assert_float_equal(value, 7, 0);
    }
}
