#include "net/store/address.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

static struct sl_metastore_address out;
static struct sl_reason reason;

static int parse(const char *text)
{
    reason.text[0] = '\0';
    return sl_metastore_address_parse(text, &out, &reason);
}

SL_CASE(address_parse__none)
{
    assert_int_equal(parse("P2PHANDSHAKE"), 0);
    assert_int_equal(out.kind, SL_METASTORE_ADDRESS_NONE);
    assert_int_equal(parse("p2phandshake"), 0); /* as Mooncake */
    assert_int_equal(out.kind, SL_METASTORE_ADDRESS_NONE);
}

SL_CASE(address_parse__etcd)
{
    assert_int_equal(parse("etcd://a:2379,[::1]:2380,10.0.0.1:1/jobs/b/"), 0);
    assert_int_equal(out.kind, SL_METASTORE_ADDRESS_ETCD);
    assert_false(out.etcd.tls);
    assert_int_equal(out.etcd.server_count, 3);
    assert_string_equal(out.etcd.servers[1], "[::1]:2380");
    assert_string_equal(out.etcd.prefix, "/jobs/b");
    assert_int_equal(parse("etcds://a:2379"), 0);
    assert_true(out.etcd.tls);
    assert_string_equal(out.etcd.prefix, "");
    assert_int_equal(parse("etcd://a:2379/"), 0);
    assert_string_equal(out.etcd.prefix, "");
    assert_int_equal(parse("10.0.0.1:2379,10.0.0.2:2379"), 0);
    assert_int_equal(out.kind, SL_METASTORE_ADDRESS_ETCD);
    assert_int_equal(out.etcd.server_count, 2);
    assert_int_equal(parse("10.0.0.1:2379;10.0.0.2:2379"), 0); /* as Mooncake */
    assert_int_equal(out.etcd.server_count, 2);
    assert_string_equal(out.etcd.servers[1], "10.0.0.2:2379");
    assert_int_equal(parse("etcd://a:1;b:2,c:3/jobs"), 0);
    assert_int_equal(out.etcd.server_count, 3);
    assert_string_equal(out.etcd.prefix, "/jobs");
    assert_int_equal(parse("a:1;"), SL_ERR_INVALID);
}

SL_CASE(address_parse__http)
{
    assert_int_equal(parse("http://meta:8080/metadata"), 0);
    assert_int_equal(out.kind, SL_METASTORE_ADDRESS_HTTP);
    assert_string_equal(out.url, "http://meta:8080/metadata");
    assert_int_equal(out.etcd.server_count, 0);
    assert_int_equal(parse("https://[::1]:443"), 0);
    assert_string_equal(out.url, "https://[::1]:443");
}

SL_CASE(address_is_loopback__first_server)
{
    static const struct {
        const char *text;
        bool is_loopback;
    } CASES[] = {{"etcd://127.0.0.1:1,10.0.0.1:1/a", true},
                 {"10.0.0.1:1,127.0.0.1:1", false},
                 {"http://localhost:1/metadata", true},
                 {"https://[::1]:1", true},
                 {"http://meta:1/127.0.0.1", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        assert_int_equal(parse(CASES[i].text), 0);
        assert_int_equal(sl_metastore_address_is_loopback(&out), CASES[i].is_loopback);
    }
}

SL_CASE(address_parse__refusals)
{
    char text[2048];
    static const char *const BAD[] = {
        "redis://10.0.0.1:6379",
        "zk://a:1",
        "://a:1",
        "",
        "p2phandshakes",
        "a",
        "a:0",
        "a:65536",
        "a:1,",
        ",a:1",
        "a:1,,b:1",
        "etcd://",
        "etcd://a:1,tcp://b:1",
        "etcd://user@a:1",
        "etcd://a:1/has space",
        "etcd://a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1",
        "http://",
        "http://a/metadata",
        "http:///metadata",
        "http://a:1/?x=1",
        "http://user:password@a:1/",
        "http://a:1/ ",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(parse(BAD[i]), SL_ERR_INVALID);
        if (strstr(reason.text, BAD[i]) == NULL ||
            strstr(reason.text, "etcd://host:port") == NULL ||
            strstr(reason.text, "P2PHANDSHAKE") == NULL || strstr(reason.text, "http://") == NULL) {
            fail_msg("%s: %s", BAD[i], reason.text);
        }
    }
    assert_int_equal(parse("http://a:1/\n"), SL_ERR_INVALID);
    (void)snprintf(text, sizeof text, "http://a:1/%0600d", 0);
    assert_int_equal(parse(text), SL_ERR_INVALID);
    (void)snprintf(text, sizeof text, "a:1/%0200d", 0);
    assert_int_equal(parse(text), SL_ERR_INVALID);
    (void)snprintf(text, sizeof text, "%0300d:1", 0);
    assert_int_equal(parse(text), SL_ERR_INVALID);
}
