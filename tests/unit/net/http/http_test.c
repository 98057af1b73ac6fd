#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http/http.h"
#include "tests/support/unit.h"

static struct sl_secret make_token(const char *text)
{
    struct sl_secret token = {.byte_count = (uint32_t)strlen(text)};
    memcpy(token.bytes, text, token.byte_count);
    return token;
}

SL_CASE(http_check_token__compares_all_of_it)
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

SL_CASE(http_check_token__knows_everybody_without_a_token)
{
    const struct sl_secret none = {0};
    assert_int_equal(sl_http_check_token(&none, NULL), SL_HTTP_CALLER_KNOWN);
}

SL_CASE(http_format_error__escapes_and_replaces)
{
    struct sl_reason reason;
    (void)snprintf(reason.text, sizeof reason.text, "a \"quote\"\n<script>");
    char *body = sl_http_format_error(&reason);
    assert_string_equal(body, "{\"error\":\"a \\\"quote\\\"\\n<script>\"}");
    free(body);
    sl_reason_set(&reason, "no \xff UTF-8");
    body = sl_http_format_error(&reason);
    assert_string_equal(body, "{\"error\":\"no ? UTF-8\"}");
    free(body);
}

SL_CASE(http_listen__names_what_is_in_use)
{
    struct sl_endpoint endpoint;
    struct sl_reason reason;
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    assert_int_equal(sl_endpoint_parse("127.0.0.1:0", &endpoint, &reason), 0);
    const int fd = sl_http_listen(&endpoint, "--http", &reason);
    assert_true(fd >= 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    assert_int_equal(sl_endpoint_from_sockaddr(&address, &endpoint), 0);
    assert_int_equal(sl_http_listen(&endpoint, "--http", &reason), SL_ERR_IN_USE);
    assert_string_equal(reason.text, "--http: Address already in use");
    assert_int_equal(close(fd), 0);
}
