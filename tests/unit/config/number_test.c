#include "config/number.h"

#include <stdint.h>

#include "core/clock.h"
#include "tests/support/unit.h"

SL_CASE(number_parse_u32__bounds_are_included)
{
    uint32_t value = 0;
    assert_true(sl_number_parse_u32("7", 7, 9, &value));
    assert_true(sl_number_parse_u32("9", 7, 9, &value));
    assert_int_equal(value, 9);
    assert_false(sl_number_parse_u32("6", 7, 9, &value));
    assert_false(sl_number_parse_u32("10", 7, 9, &value));
    assert_true(sl_number_parse_u32("4294967295", 0, UINT32_MAX, &value));
    assert_int_equal(value, UINT32_MAX);
    assert_false(sl_number_parse_u32("4294967296", 0, UINT32_MAX, &value));
    assert_int_equal(value, UINT32_MAX);
}

SL_CASE(number_parse_size__suffixes)
{
    size_t bytes = 7;
    assert_true(sl_number_parse_size("0", &bytes));
    assert_int_equal(bytes, 0);
    assert_true(sl_number_parse_size("64G", &bytes));
    assert_int_equal(bytes, (size_t)64 << 30);
    static const char *const bad[] = {"", "G", "1g", "1GB", "-1", " 1", "16777216T", "1.5G"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(sl_number_parse_size(bad[i], &bytes));
    }
    assert_int_equal(bytes, (size_t)64 << 30);
}

SL_CASE(number_parse_duration__units)
{
    static const struct {
        const char *text;
        uint64_t ns;
        const char *printed;
    } cases[] = {
        {"0", 0, "0"},
        {"2", 2 * SL_CLOCK_NS_PER_S, "2s"},
        {"2s", 2 * SL_CLOCK_NS_PER_S, "2s"},
        {"200ms", 200 * SL_CLOCK_NS_PER_MS, "200ms"},
        {"1500ms", 1500 * SL_CLOCK_NS_PER_MS, "1500ms"},
        {"120", 120 * SL_CLOCK_NS_PER_S, "2m"},
        {"10m", 600 * SL_CLOCK_NS_PER_S, "10m"},
        {"90m", 5400 * SL_CLOCK_NS_PER_S, "90m"},
        {"2h", 7200 * SL_CLOCK_NS_PER_S, "2h"},
    };
    char text[SL_NUMBER_DURATION_BYTES];
    uint64_t ns = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_true(sl_number_parse_duration(cases[i].text, &ns));
        assert_int_equal(ns, cases[i].ns);
        sl_number_format_duration(ns, text);
        assert_string_equal(text, cases[i].printed);
    }
    static const char *const bad[] = {"",    "ms",  "1d", "1.5s",
                                      "-1s", "1 s", "1S", "18446744073709551615m"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(sl_number_parse_duration(bad[i], &ns));
    }
}
