#include "core/etcd_url.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

static struct sl_etcd_url out;
static struct sl_reason why;

SL_CASE(parse__servers_and_prefix)
{
    assert_int_equal(sl_etcd_url_parse("etcds://a:2379,[::1]:2380,10.0.0.1:1/jobs/b//", &out, NULL),
                     0);
    assert_int_equal(out.server_count, 3);
    assert_string_equal(out.servers[0], "a:2379");
    assert_string_equal(out.servers[1], "[::1]:2380");
    assert_string_equal(out.prefix, "/jobs/b");
    assert_true(out.tls);
    assert_int_equal(sl_etcd_url_parse("etcd://b:1/v", &out, NULL), 0);
    assert_false(out.tls);
    assert_string_equal(out.servers[0], "b:1");
    assert_int_equal(sl_etcd_url_parse("a:1", &out, NULL), 0);
    assert_int_equal(out.server_count, 1);
    assert_string_equal(out.prefix, "");
    assert_int_equal(sl_etcd_url_parse("a:1/", &out, NULL), 0);
    assert_string_equal(out.prefix, "");
}

SL_CASE(parse__refusals)
{
    static const char *const CASES[][2] = {
        {"", "an endpoint is missing"},
        {"/a", "an endpoint is missing"},
        {"a:1,", "an endpoint is missing"},
        {"a:1,,b:1", "an endpoint is missing"},
        {"a", "an endpoint is not host:port"},
        {"a:0", "an endpoint is not host:port"},
        {"a:65536", "an endpoint is not host:port"},
        {"user@a:1", "an endpoint is not host:port"},
        {"etcd://a:1,tcp://b:1", "an endpoint is not host:port"},
        {"zookeeper://a:1", "unknown scheme"},
        {"a:1/b c", "the prefix has more than 127 characters, or others"},
        {"a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1", "more than 9 endpoints"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        assert_int_equal(sl_etcd_url_parse(CASES[i][0], &out, &why), SL_ERR_INVALID);
        if (strstr(why.text, CASES[i][1]) == NULL) {
            fail_msg("%s: %s", CASES[i][0], why.text);
        }
    }
    (void)snprintf(text, sizeof text, "a:1/%0126d", 0);
    assert_int_equal(sl_etcd_url_parse(text, &out, &why), 0);
    (void)snprintf(text, sizeof text, "a:1/%0127d", 0);
    assert_int_equal(sl_etcd_url_parse(text, &out, &why), SL_ERR_INVALID);
    (void)snprintf(text, sizeof text, "%0254d:1", 0);
    assert_int_equal(sl_etcd_url_parse(text, &out, &why), SL_ERR_INVALID);
    assert_non_null(strstr(why.text, "too long"));
}
