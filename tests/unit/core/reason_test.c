#include <string.h>

#include "core/reason.h"
#include "tests/support/unit.h"

SL_CASE(reason_fail__writes_the_text_and_is_the_error)
{
    struct sl_reason reason;
    assert_int_equal(sl_reason_fail(&reason, SL_ERR_INVALID, "%s: line %d", "map", 7),
                     SL_ERR_INVALID);
    assert_string_equal(reason.text, "map: line 7");
}

SL_CASE(reason_set__truncates_what_is_too_long)
{
    struct sl_reason reason;
    char text[SL_REASON_BYTES + 1];
    memset(text, 'a', SL_REASON_BYTES);
    text[SL_REASON_BYTES] = '\0';
    sl_reason_set(&reason, "%s", text);
    assert_int_equal(strlen(reason.text), SL_REASON_BYTES - 1);
}

SL_CASE(reason_set__escapes_control_characters)
{
    struct sl_reason reason;
    char text[SL_REASON_BYTES];
    sl_reason_set(&reason, "a \x1b[31m\n\x7f \xc3\xa9%s", "\t");
    assert_string_equal(reason.text, "a \\x1b[31m\\x0a\\x7f \xc3\xa9\\x09");
    memset(text, 'a', sizeof text - 1);
    text[0] = text[sizeof text - 2] = '\n';
    text[sizeof text - 1] = '\0';
    sl_reason_set(&reason, "%s", text);
    assert_memory_equal(reason.text, "\\x0aaa", 6);
    assert_true(strlen(reason.text) < SL_REASON_BYTES && strchr(reason.text, '\n') == NULL);
}

SL_CASE(reason_set__without_a_reason_does_nothing)
{
    assert_int_equal(sl_reason_fail(NULL, SL_ERR_IO, "%s", "text"), SL_ERR_IO);
}

SL_CASE(reason_copy_printable__of_a_peers_text)
{
    char text[8];
    sl_reason_copy_printable(text, sizeof text, "a\x1b[\x80~\x7f", 6);
    assert_string_equal(text, "a?[?~?");
    sl_reason_copy_printable(text, sizeof text, "more than fits", 14);
    assert_string_equal(text, "more th");
    sl_reason_copy_printable(text, sizeof text, NULL, 0);
    assert_string_equal(text, "");
}
