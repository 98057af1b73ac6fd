#include <string.h>

#include "net/http/token.h"
#include "tests/support/unit.h"

static struct sl_secret make_token(const char *text)
{
    struct sl_secret token = {.byte_count = (uint32_t)strlen(text)};
    memcpy(token.bytes, text, token.byte_count);
    return token;
}

SL_CASE(token_check__compares_all_of_it)
{
    const struct sl_secret token = make_token("0123456789abcdef");
    static const char *const wrong[] = {
        "Bearer ",
        "Bearer 0123456789abcde",
        "Bearer 0123456789abcdef0",
        "Bearer 0123456789abcdeg",
        "Bearer  0123456789abcdef",
        "Bearer 0123456789abcdef0123456789abcdef",
    };
    assert_int_equal(sl_http_check_token(&token, "Bearer 0123456789abcdef"), SL_HTTP_CALLER_KNOWN);
    assert_int_equal(sl_http_check_token(&token, "bearer 0123456789abcdef"), SL_HTTP_CALLER_KNOWN);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(sl_http_check_token(&token, wrong[i]), SL_HTTP_CALLER_WRONG_TOKEN);
    }
    assert_int_equal(sl_http_check_token(&token, NULL), SL_HTTP_CALLER_NO_TOKEN);
    assert_int_equal(sl_http_check_token(&token, "Basic 0123456789abcdef"),
                     SL_HTTP_CALLER_NO_TOKEN);
}

SL_CASE(token_check__knows_everybody_without_a_token)
{
    const struct sl_secret none = {0};
    assert_int_equal(sl_http_check_token(&none, NULL), SL_HTTP_CALLER_KNOWN);
}
