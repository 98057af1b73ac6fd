#include <string.h>

#include "net/dpdk/device_list.h"
#include "tests/support/unit.h"

static struct sl_endpoint endpoint(const char *text)
{
    struct sl_endpoint parsed;
    struct sl_reason reason = {0};
    if (sl_endpoint_parse(text, &parsed, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    return parsed;
}

static struct sl_dpdk_device_list *create(const char *text, const struct sl_endpoint *listens)
{
    struct sl_dpdk_device_list *list = NULL;
    struct sl_reason reason = {0};
    if (sl_dpdk_device_list_create(text, listens, &list, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    return list;
}

SL_CASE(device_list_create__is_what_the_transport_takes)
{
    struct sl_dpdk_device_list *list =
        create("a?addr=10.0.0.1/24&gateway=10.0.0.9&mtu=9000;b,c=d?addr=10.0.1.1&queues=4", NULL);
    const struct sl_dpdk_options *options = sl_dpdk_device_list_options(list);
    assert_int_equal(options->device_count, 2);
    assert_int_equal(options->port_base, 0);
    assert_string_equal(options->devices[0].name, "a");
    assert_null(options->devices[0].arguments);
    assert_string_equal(options->devices[0].address, "10.0.0.1/24");
    assert_string_equal(options->devices[0].gateway, "10.0.0.9");
    assert_int_equal(options->devices[0].mtu, 9000);
    assert_string_equal(options->devices[1].arguments, "c=d");
    assert_null(options->devices[1].gateway);
    assert_int_equal(options->devices[1].queues, 4);
    assert_int_equal(options->devices[1].reactors, 0);
    sl_dpdk_device_list_share(list, 1, 3);
    assert_int_equal(options->devices[0].first_reactor, 1);
    assert_int_equal(options->devices[1].reactors, 3);
    sl_dpdk_device_list_destroy(&list);
    assert_null(list);
}

SL_CASE(device_list_create__without_devices_is_none)
{
    const struct sl_endpoint plain = endpoint("dpdk://10.0.0.1:5");
    assert_null(create("", NULL));
    assert_null(create("", &plain));
    assert_null(sl_dpdk_device_list_options(NULL));
}

SL_CASE(device_list_create__an_endpoints_own_comes_first)
{
    const struct sl_endpoint own = endpoint("dpdk://b,e=f?addr=10.0.0.2/24&port=77");
    struct sl_dpdk_device_list *list = create("a?addr=10.0.0.1", &own);
    const struct sl_dpdk_options *options = sl_dpdk_device_list_options(list);
    assert_int_equal(options->device_count, 2);
    assert_int_equal(options->port_base, 77);
    assert_string_equal(options->devices[0].name, "b");
    assert_string_equal(options->devices[0].arguments, "e=f");
    assert_string_equal(options->devices[1].name, "a");
    sl_dpdk_device_list_destroy(&list);
    /* What this process says of the device goes before what the cluster's map says. */
    list = create("a?addr=10.0.0.1;b?addr=10.0.0.2&mtu=600", &own);
    options = sl_dpdk_device_list_options(list);
    assert_int_equal(options->device_count, 2);
    assert_string_equal(options->devices[1].name, "b");
    assert_null(options->devices[1].arguments);
    assert_int_equal(options->devices[1].mtu, 600);
    sl_dpdk_device_list_destroy(&list);
}

SL_CASE(device_list_create__refuses)
{
    struct sl_dpdk_device_list *list = NULL;
    struct sl_reason reason = {0};
    assert_int_equal(
        sl_dpdk_device_list_create("a?addr=1.0.0.1;a?addr=1.0.0.2", NULL, &list, &reason),
        SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "named twice"));
    assert_int_equal(sl_dpdk_device_list_create("a", NULL, &list, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "addr is missing"));
    assert_null(list);
}

SL_CASE(device_list_has__knows_addresses)
{
    struct sl_dpdk_device_list *list = create("a?addr=10.0.0.1/24;b?addr=fd00::1", NULL);
    static const struct {
        const char *text;
        bool has;
    } cases[] = {
        {"dpdk://10.0.0.1:5", true},   {"dpdk://10.0.0.2:5", false},
        {"dpdk://0.0.0.0:5", true},    {"dpdk://[fd00:0:0:0::1]:5", true},
        {"dpdk://[fd00::2]:5", false}, {"dpdk://[::]:5", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct sl_endpoint asked = endpoint(cases[i].text);
        assert_int_equal(sl_dpdk_device_list_has(list, &asked), cases[i].has);
    }
    sl_dpdk_device_list_destroy(&list);
}
