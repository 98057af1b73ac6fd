#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "core/endpoint.h"
#include "tests/support/unit.h"

SL_CASE(endpoint_parse__accepts)
{
    static const struct {
        const char *text;
        enum sl_endpoint_scheme scheme;
        const char *host;
        uint16_t port;
        const char *formatted;
    } cases[] = {
        {"127.0.0.1:5555", SL_ENDPOINT_TCP, "127.0.0.1", 5555, "tcp://127.0.0.1:5555"},
        {"ps-0.train_job.svc:1", SL_ENDPOINT_TCP, "ps-0.train_job.svc", 1,
         "tcp://ps-0.train_job.svc:1"},
        {"tcp://localhost:0", SL_ENDPOINT_TCP, "localhost", 0, "tcp://localhost:0"},
        {"RDMA://10.0.0.1:65535", SL_ENDPOINT_RDMA, "10.0.0.1", 65535, "rdma://10.0.0.1:65535"},
        {"dpdk://h:9", SL_ENDPOINT_DPDK, "h", 9, "dpdk://h:9"},
        {"shm://h:9", SL_ENDPOINT_SHM, "h", 9, "shm://h:9"},
        {"[::1]:80", SL_ENDPOINT_TCP, "::1", 80, "tcp://[::1]:80"},
        {"[::]:0", SL_ENDPOINT_TCP, "::", 0, "tcp://[::]:0"},
        {"rdma://[fe80::1%eth0]:5", SL_ENDPOINT_RDMA, "fe80::1%eth0", 5, "rdma://[fe80::1%eth0]:5"},
        {"[::ffff:1.2.3.4]:7", SL_ENDPOINT_TCP, "::ffff:1.2.3.4", 7, "tcp://[::ffff:1.2.3.4]:7"},
        {"h:00080", SL_ENDPOINT_TCP, "h", 80, "tcp://h:80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint endpoint;
        struct sl_reason reason = {0};
        char text[SL_LIMIT_ENDPOINT_BYTES];
        assert_int_equal(sl_endpoint_parse(cases[i].text, &endpoint, &reason), 0);
        assert_string_equal(reason.text, "");
        assert_int_equal(endpoint.scheme, cases[i].scheme);
        assert_string_equal(endpoint.host, cases[i].host);
        assert_int_equal(endpoint.port, cases[i].port);
        sl_endpoint_format(&endpoint, text, sizeof text);
        assert_string_equal(text, cases[i].formatted);
    }
}

SL_CASE(endpoint_parse__refuses_with_a_reason)
{
    static const struct {
        const char *text, *reason;
    } cases[] = {
        {"", "port is missing"},
        {"host", "port is missing"},
        {"tcp://", "port is missing"},
        {":80", "host is empty"},
        {"tcp://:80", "host is empty"},
        {"[]:80", "host is empty"},
        {"host:", "port is not a number"},
        {"host:65536", "port is not a number"},
        {"host:-1", "port is not a number"},
        {"host:+1", "port is not a number"},
        {"host: 1", "port is not a number"},
        {"host:1 ", "port is not a number"},
        {"host:0x10", "port is not a number"},
        {"host:99999999999999999999", "port is not a number"},
        {"host:80/path", "port is not a number"},
        {"::1:80", "brackets"},
        {"fe80::1", "brackets"},
        {"[::1]", "expected [IPv6]:port"},
        {"[::1]80", "expected [IPv6]:port"},
        {"[::1:80", "expected [IPv6]:port"},
        {"[host]:80", "not an IPv6 address"},
        {"[127.0.0.1]:80", "not an IPv6 address"},
        {"[fe80::1%]:80", "not an IPv6 address"},
        {"[1:2:3:4:5:6:7:8:9]:80", "not an IPv6 address"},
        {"ho st:80", "neither a name nor"},
        {"host/x:80", "neither a name nor"},
        {"user@host:80", "neither a name nor"},
        {"256.0.0.1:80", "neither a name nor"},
        {"1.2.3:80", "neither a name nor"},
        {"http://host:80", "unknown scheme"},
        {"://host:80", "unknown scheme"},
        {"tcp:/host:80", "more than one colon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint endpoint = {.port = 4711};
        struct sl_reason reason = {0};
        const int err = sl_endpoint_parse(cases[i].text, &endpoint, &reason);
        if (err != SL_ERR_INVALID || strstr(reason.text, cases[i].reason) == NULL ||
            strstr(reason.text, cases[i].text) == NULL) {
            fail_msg("\"%s\": err %d, reason \"%s\"", cases[i].text, err, reason.text);
        }
        assert_int_equal(endpoint.port, 4711);
    }
}

SL_CASE(endpoint_parse__longest_host_is_written_whole_again)
{
    char text[600], back[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_endpoint endpoint;
    memset(text, 'a', sizeof text);
    memcpy(text + 240, ":65535", sizeof ":65535");
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), 0);
    sl_endpoint_format(&endpoint, back, sizeof back);
    assert_int_equal(strlen(back), strlen("tcp://") + 240 + strlen(":65535"));

    memset(text, 'a', sizeof text);
    memcpy(text + 241, ":65535", sizeof ":65535");
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), SL_ERR_INVALID);
}

SL_CASE(endpoint_same__compares_scheme_host_and_port)
{
    static const struct {
        struct sl_endpoint other;
        bool is_same;
    } cases[] = {
        {{SL_ENDPOINT_TCP, 80, "host", "", ""}, true},
        {{SL_ENDPOINT_TCP, 80, "host", "name", ""}, true},
        {{SL_ENDPOINT_RDMA, 80, "host", "", ""}, false},
        {{SL_ENDPOINT_TCP, 81, "host", "", ""}, false},
        {{SL_ENDPOINT_TCP, 80, "hosts", "", ""}, false},
    };
    const struct sl_endpoint endpoint = {SL_ENDPOINT_TCP, 80, "host", "", ""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(sl_endpoint_same(&endpoint, &cases[i].other), cases[i].is_same);
        assert_int_equal(sl_endpoint_same(&cases[i].other, &endpoint), cases[i].is_same);
    }
}

SL_CASE(endpoint_resolve__numeric_addresses_come_back)
{
    const char *const texts[] = {"tcp://127.0.0.1:81", "tcp://[::1]:82", "tcp://0.0.0.0:0"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sl_endpoint endpoint, back;
        struct sockaddr_storage address;
        socklen_t bytes;
        char text[SL_LIMIT_ENDPOINT_BYTES];
        assert_int_equal(sl_endpoint_parse(texts[i], &endpoint, NULL), 0);
        assert_int_equal(sl_endpoint_resolve(&endpoint, true, &address, &bytes, NULL), 0);
        assert_true(bytes == sizeof(struct sockaddr_in) || bytes == sizeof(struct sockaddr_in6));
        assert_int_equal(sl_endpoint_from_sockaddr(&address, &back), 0);
        sl_endpoint_format(&back, text, sizeof text);
        assert_string_equal(text, texts[i]);
    }
}

SL_CASE(endpoint_resolve__unknown_host_is_not_found)
{
    /* No resolver is asked: a label of more than 63 bytes is no name. */
    struct sl_endpoint endpoint = {.port = 80};
    memset(endpoint.host, 'x', 100);
    struct sockaddr_storage address;
    socklen_t bytes;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_resolve(&endpoint, false, &address, &bytes, &reason),
                     SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, endpoint.host));
}

SL_CASE(endpoint_is_loopback__knows_this_machine)
{
    static const struct {
        const char *host;
        bool loopback;
    } cases[] = {
        {"127.0.0.1", true},
        {"127.255.3.4", true},
        {"::1", true},
        {"localhost", true},
        {"LocalHost", true},
        {"::ffff:127.0.0.1", true},
        {"0.0.0.0", false},
        {"::", false},
        {"128.0.0.1", false},
        {"10.127.0.1", false},
        {"fe80::1", false},
        {"node1", false},
        {"::ffff:10.0.0.1", false},
        {"localhost.example", false},
        {"127.0.0.1.example", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint endpoint = {.port = 1};
        (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", cases[i].host);
        if (sl_endpoint_is_loopback(&endpoint) != cases[i].loopback) {
            fail_msg("%s", cases[i].host);
        }
    }
}

SL_CASE(endpoint_is_any__knows_every_notation)
{
    static const struct {
        const char *host;
        bool any;
    } cases[] = {
        {"0.0.0.0", true},  {"::", true},   {"0:0::0", true}, {"::0", true},
        {"0.0.0.1", false}, {"::1", false}, {"node1", false}, {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint endpoint = {.port = 1};
        (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", cases[i].host);
        if (sl_endpoint_is_any(&endpoint) != cases[i].any) {
            fail_msg("%s", cases[i].host);
        }
    }
}
