#include <string.h>

#include "core/endpoint.h"
#include "core/endpoint_device.h"
#include "tests/support/unit.h"

SL_CASE(endpoint_device_parse__accepts)
{
    static const struct {
        const char *text;
        struct sl_endpoint_device device;
    } cases[] = {
        {"0000:3b:00.0?addr=10.0.0.1/24",
         {.name = "0000:3b:00.0", .address = "10.0.0.1/24", .host = "10.0.0.1"}},
        {"net_memif0?addr=10.0.0.1",
         {.name = "net_memif0", .address = "10.0.0.1", .host = "10.0.0.1"}},
        {"net_memif0,role=server,id=0,socket=/run/x.sock?addr=10.0.0.1&queues=4&mtu=2034",
         {.name = "net_memif0",
          .arguments = "role=server,id=0,socket=/run/x.sock",
          .address = "10.0.0.1",
          .host = "10.0.0.1",
          .mtu = 2034,
          .queues = 4}},
        {"a?gateway=fd00::1&addr=fd00:0:0:0:0:0:0:2/64",
         {.name = "a",
          .address = "fd00:0:0:0:0:0:0:2/64",
          .host = "fd00:0:0:0:0:0:0:2",
          .gateway = "fd00::1"}},
        {"a?addr=1.2.3.4/32&mtu=9600&queues=1024",
         {.name = "a", .address = "1.2.3.4/32", .host = "1.2.3.4", .mtu = 9600, .queues = 1024}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint_device got;
        struct sl_reason reason = {0};
        if (sl_endpoint_device_parse(cases[i].text, false, &got, &reason) != 0) {
            fail_msg("\"%s\": %s", cases[i].text, reason.text);
        }
        assert_string_equal(got.name, cases[i].device.name);
        assert_string_equal(got.arguments, cases[i].device.arguments);
        assert_string_equal(got.address, cases[i].device.address);
        assert_string_equal(got.host, cases[i].device.host);
        assert_string_equal(got.gateway, cases[i].device.gateway);
        assert_int_equal(got.mtu, cases[i].device.mtu);
        assert_int_equal(got.queues, cases[i].device.queues);
        assert_int_equal(got.port, 0);
    }
}

SL_CASE(endpoint_device_parse__refuses_with_a_reason)
{
    static const struct {
        const char *text, *reason;
        bool with_port;
    } cases[] = {
        {"", "addr is missing; expected DEVICE", false},
        {"net_memif0", "addr is missing; expected DEVICE", false},
        {"net_memif0?", "accepted are addr=, gateway=, mtu= and queues=", false},
        {"?addr=10.0.0.1", "the device is missing", false},
        {",role=server?addr=10.0.0.1", "the device is missing", false},
        {"--vdev?addr=10.0.0.1", "the device is missing", false},
        {"net memif?addr=10.0.0.1", "not a name of DPDK's", false},
        {"net/memif?addr=10.0.0.1", "not a name of DPDK's", false},
        {"net_memif0,?addr=10.0.0.1", "arguments, after the comma, are missing", false},
        {"net_memif0,role= x?addr=10.0.0.1", "have a blank", false},
        {"a?address=10.0.0.1", "accepted are addr=", false},
        {"a?addr=10.0.0.1&", "accepted are addr=", false},
        {"a?addr=10.0.0.1&port=9", "port is for endpoints", false},
        {"a?addr=10.0.0.1&addr=10.0.0.2", "addr is given twice", false},
        {"a?addr=", "not the IPv4 or IPv6 address", false},
        {"a?addr=host", "not the IPv4 or IPv6 address", false},
        {"a?addr=0.0.0.0", "not the IPv4 or IPv6 address", false},
        {"a?addr=224.0.0.1", "not the IPv4 or IPv6 address", false},
        {"a?addr=255.255.255.255", "not the IPv4 or IPv6 address", false},
        {"a?addr=ff02::1", "not the IPv4 or IPv6 address", false},
        {"a?addr=::ffff:10.0.0.1", "not the IPv4 or IPv6 address", false},
        {"a?addr=[fd00::1]", "not the IPv4 or IPv6 address", false},
        {"a?addr=10.0.0.1/", "from 0 to 32", false},
        {"a?addr=10.0.0.1/33", "from 0 to 32", false},
        {"a?addr=fd00::1/129", "from 0 to 128", false},
        {"a?addr=10.0.0.1&gateway=10.0.0", "gateway is not", false},
        {"a?addr=10.0.0.1&gateway=fd00::1", "not both IPv4", false},
        {"a?addr=10.0.0.1&gateway=10.0.0.2&gateway=10.0.0.3", "gateway is given twice", false},
        {"a?addr=10.0.0.1&mtu=575", "from 576 to 9600", false},
        {"a?addr=10.0.0.1&mtu=9601", "from 576 to 9600", false},
        {"a?addr=10.0.0.1&mtu=1500&mtu=1500", "mtu is given twice", false},
        {"a?addr=10.0.0.1&queues=0", "from 1 to 1024", false},
        {"a?addr=10.0.0.1&queues=x", "from 1 to 1024", false},
        {"a?addr=10.0.0.1&queues=2&queues=2", "queues is given twice", false},
        {"a?addr=10.0.0.1", "port is missing", true},
        {"a?addr=10.0.0.1&port=", "from 0 to 65535", true},
        {"a?addr=10.0.0.1&port=65536", "from 0 to 65535", true},
        {"a?addr=10.0.0.1&port=1&port=1", "port is given twice", true},
        {"a?addr=10.0.0.1&port=1&x=1", "accepted are addr=, port=", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint_device device = {.mtu = 4711};
        struct sl_reason reason = {0};
        const int err =
            sl_endpoint_device_parse(cases[i].text, cases[i].with_port, &device, &reason);
        if (err != SL_ERR_INVALID || strstr(reason.text, cases[i].reason) == NULL ||
            strstr(reason.text, cases[i].text) == NULL) {
            fail_msg("\"%s\": err %d, reason \"%s\"", cases[i].text, err, reason.text);
        }
        assert_int_equal(device.mtu, 4711);
    }
}

SL_CASE(endpoint_device_parse__refuses_what_is_too_long)
{
    char text[400];
    struct sl_endpoint_device device;
    struct sl_reason reason = {0};
    memset(text, 'a', sizeof text);
    memcpy(text + 64, "?addr=10.0.0.1", sizeof "?addr=10.0.0.1");
    assert_int_equal(sl_endpoint_device_parse(text, false, &device, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "not a name of DPDK's"));
    memmove(text, "a,", 2);
    memset(text + 2, 'a', 300);
    memcpy(text + 302, "?addr=10.0.0.1", sizeof "?addr=10.0.0.1");
    assert_int_equal(sl_endpoint_device_parse(text, false, &device, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "longer than 255 bytes"));
    assert_int_equal(sl_endpoint_device_parse(text, false, &device, NULL), SL_ERR_INVALID);
}

SL_CASE(endpoint_device_next__takes_one_after_the_other)
{
    const char *text = "; a?addr=1.0.0.1;b,c=d?addr=1.0.0.2&mtu=600 ;;";
    struct sl_endpoint_device device;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_device_next(&text, &device, &reason), 1);
    assert_string_equal(device.name, "a");
    assert_int_equal(sl_endpoint_device_next(&text, &device, &reason),
                     SL_ERR_INVALID); /* a blank behind the number */
    assert_non_null(strstr(reason.text, "from 576"));
    text = "b,c=d?addr=1.0.0.2;";
    assert_int_equal(sl_endpoint_device_next(&text, &device, &reason), 1);
    assert_string_equal(device.arguments, "c=d");
    assert_int_equal(sl_endpoint_device_next(&text, &device, &reason), 0);
    text = "";
    assert_int_equal(sl_endpoint_device_next(&text, &device, &reason), 0);
}

SL_CASE(endpoint_parse__of_dpdk_takes_a_device)
{
    struct sl_endpoint endpoint;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    assert_int_equal(
        sl_endpoint_parse("dpdk://net_memif0,id=1?addr=fd00::1/64&port=9200", &endpoint, NULL), 0);
    assert_int_equal(endpoint.scheme, SL_ENDPOINT_DPDK);
    assert_string_equal(endpoint.host, "fd00::1");
    assert_int_equal(endpoint.port, 9200);
    assert_string_equal(endpoint.device, "net_memif0,id=1?addr=fd00::1/64&port=9200");
    /* Peers are not told of it. */
    sl_endpoint_format(&endpoint, text, sizeof text);
    assert_string_equal(text, "dpdk://[fd00::1]:9200");
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), 0);
    assert_string_equal(endpoint.device, "");
}

SL_CASE(endpoint_parse__takes_a_device_of_dpdk_only)
{
    struct sl_endpoint endpoint;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_parse("rdma://mlx5_0?addr=10.0.0.1&port=1", &endpoint, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "only dpdk:// takes a device"));
    assert_int_equal(sl_endpoint_parse("dpdk://a?addr=10.0.0.1", &endpoint, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "port is missing"));
}
