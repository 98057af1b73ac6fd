#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "tests/support/unit.h"
#include "worker/client/endpoint_list.h"

#define UNTOUCHED 77

struct places {
    struct sl_endpoint first, *others;
    uint32_t other_count;
};

static struct places parse(const char *text)
{
    struct places places = {.other_count = UNTOUCHED};
    struct sl_reason reason = {0};
    if (sl_endpoint_list_parse(text, &places.first, &places.others, &places.other_count, &reason) !=
        0) {
        fail_msg("refused: %s", reason.text);
    }
    return places;
}

static void refuse(const char *text, const char *why)
{
    struct places places = {.other_count = UNTOUCHED};
    struct sl_reason reason = {0};
    assert_int_equal(
        sl_endpoint_list_parse(text, &places.first, &places.others, &places.other_count, &reason),
        SL_ERR_INVALID);
    assert_null(places.others);
    assert_int_equal(places.other_count, UNTOUCHED);
    if (strstr(reason.text, why) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", why, reason.text);
    }
}

SL_CASE(parse__one)
{
    const struct places places = parse("tcp://host:12");
    assert_string_equal(places.first.host, "host");
    assert_int_equal(places.first.port, 12);
    assert_null(places.others);
    assert_int_equal(places.other_count, 0);
}

SL_CASE(parse__several_in_their_order)
{
    const struct places places = parse("a:1,tcp://b:2,[::1]:3");
    assert_string_equal(places.first.host, "a");
    assert_int_equal(places.other_count, 2);
    assert_string_equal(places.others[0].host, "b");
    assert_int_equal(places.others[0].port, 2);
    assert_string_equal(places.others[1].host, "::1");
    assert_int_equal(places.others[1].port, 3);
    free(places.others);
}

/* As many as there may be ps. */
static char *list_of(uint32_t count)
{
    const size_t bytes = (size_t)count * 8;
    char *text = calloc(bytes, 1);
    assert_non_null(text);
    size_t used = 0;
    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%sa:%u", i == 0 ? "" : ",", 1 + i % 9);
    }
    return text;
}

SL_CASE(parse__as_many_as_there_may_be_ps)
{
    char *text = list_of(SL_LIMIT_PS);
    const struct places places = parse(text);
    assert_int_equal(places.other_count, SL_LIMIT_PS - 1);
    free(places.others);
    free(text);
    text = list_of(SL_LIMIT_PS + 1);
    refuse(text, "more than 1024 endpoints");
    free(text);
}

SL_CASE(parse__what_is_none)
{
    char text[1024] = "a:1,";
    refuse("", "expected host:port");
    refuse("nonsense", "expected host:port");
    refuse("a:1,", "expected host:port");
    refuse(",a:1", "expected host:port");
    refuse("a:1,,b:1", "expected host:port");
    refuse("a:1,b:70000", "70000");
    memset(text + strlen(text), 'h', sizeof text - strlen(text) - 1);
    refuse(text, "an endpoint is longer than ");
}

SL_CASE(parse__of_one_kind)
{
    refuse("a:1,shm://b:2", "endpoints of several kinds");
    refuse("rdma://a:1,b:2", "endpoints of several kinds");
    const struct places places = parse("rdma://a:1,rdma://b:2");
    assert_int_equal(places.others[0].scheme, SL_ENDPOINT_RDMA);
    free(places.others);
}
