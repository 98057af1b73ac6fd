#include <string.h>

#include "net/http/query.h"
#include "tests/support/unit.h"

static struct sl_query query;
static struct sl_reason reason;

static int parse(const char *text, const char *accepted)
{
    reason.text[0] = '\0';
    return sl_query_parse(text, accepted, &query, &reason);
}

SL_CASE(query_parse__takes_accepted_parameters)
{
    assert_int_equal(parse("of=shard%3A3&since=1.5", "since|of"), 0);
    assert_int_equal(query.count, 2);
    assert_string_equal(sl_query_get(&query, "of"), "shard:3");
    assert_string_equal(sl_query_get(&query, "since"), "1.5");
    assert_null(sl_query_get(&query, "sinc"));
}

SL_CASE(query_parse__takes_nothing)
{
    assert_int_equal(parse(NULL, NULL), 0);
    assert_int_equal(parse("", "a"), 0);
    assert_null(sl_query_get(&query, "a"));
}

SL_CASE(query_parse__takes_empty_values_and_blanks)
{
    assert_int_equal(parse("a=&b", "a|b|c"), 0);
    assert_string_equal(sl_query_get(&query, "a"), "");
    assert_string_equal(sl_query_get(&query, "b"), "");
    assert_int_equal(parse("c=x+y%20z&", "a|b|c"), 0);
    assert_string_equal(sl_query_get(&query, "c"), "x y z");
}

SL_CASE(query_parse__refuses_names_that_are_not_accepted)
{
    static const char *const names[] = {"de", "detai", "detail2", "detail|x", "|", "=1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(parse(names[i], "detail|x"), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "detail|x"));
    }
    assert_int_equal(parse("a=1", NULL), SL_ERR_INVALID);
    assert_string_equal(reason.text, "parameter \"a\": accepted here: no parameter");
}

SL_CASE(query_parse__refuses_wrong_values)
{
    static const char *const values[] = {"a=%",   "a=%4",   "a=%zz",  "a=%00",
                                         "a=%0A", "a=\x7f", "a=1&a=1"};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_int_equal(parse(values[i], "a"), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, "parameter a"));
    }
}

SL_CASE(query_parse__refuses_what_is_too_long)
{
    char text[SL_QUERY_BYTES_MAX + 1];
    memset(text, 'a', sizeof text);
    text[1] = '=';
    text[SL_QUERY_BYTES_MAX - 1] = '\0';
    assert_int_equal(parse(text, "a"), 0);
    text[SL_QUERY_BYTES_MAX - 1] = 'a';
    text[SL_QUERY_BYTES_MAX] = '\0';
    assert_int_equal(parse(text, "a"), SL_ERR_INVALID);
}
