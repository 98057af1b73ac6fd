#include "core/format.h"
#include "tests/support/unit.h"

SL_CASE(format_add__puts_the_separator_between_texts)
{
    char text[16] = "";
    assert_true(sl_format_add(text, sizeof text, ", ", "%s/%u", "ps", 1));
    assert_string_equal(text, "ps/1");
    assert_true(sl_format_add(text, sizeof text, ", ", "ps/%u", 12));
    assert_string_equal(text, "ps/1, ps/12");
}

SL_CASE(format_add__tells_that_the_text_is_cut)
{
    char text[8] = "12345";
    assert_false(sl_format_add(text, sizeof text, "-", "%s", "78"));
    assert_string_equal(text, "12345-7");
    assert_false(sl_format_add(text, sizeof text, "-", "9")); /* not even the separator fits */
    assert_string_equal(text, "12345-7");
}
