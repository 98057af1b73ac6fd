#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/hosts.h"
#include "core/limits.h"
#include "tests/support/unit.h"

SL_CASE(hosts_append_list__keeps_the_order)
{
    struct sl_hosts hosts = {0};
    assert_int_equal(sl_hosts_append_list(&hosts, "b:2,tcp://a:1,[::1]:3,a:4", "--x", NULL), 0);
    assert_int_equal(hosts.count, 4);
    assert_string_equal(hosts.items[0].host, "b");
    assert_string_equal(hosts.items[1].host, "a");
    assert_string_equal(hosts.items[2].host, "::1");
    assert_int_equal(hosts.items[3].port, 4);
    sl_hosts_fini(&hosts);
    assert_int_equal(hosts.count, 0);
}

SL_CASE(hosts_append_list__refuses_with_source_and_item)
{
    static const struct {
        const char *list, *reason;
    } cases[] = {
        {"", "item 0"},
        {",a:1", "item 0"},
        {"a:1,", "item 1"},
        {"a:1,,b:2", "item 1"},
        {"a:1, b:2", "item 1"},
        {"a:1,b", "port is missing"},
        {"a:1,b:99999", "0 to 65535"},
        {"a:0", "1 to 65535"},
        {"rdma://a:1", "is tcp"},
        {"a:1,b:2,A:1", "items 0 and 2 are both"},
        {"a:1;b:2", "more than one colon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_hosts hosts = {0};
        struct sl_reason reason = {0};
        const int err = sl_hosts_append_list(&hosts, cases[i].list, "--ps-hosts", &reason);
        if (err != SL_ERR_INVALID || strncmp(reason.text, "--ps-hosts", 10) != 0 ||
            strstr(reason.text, cases[i].reason) == NULL) {
            fail_msg("\"%s\": err %d, reason \"%s\"", cases[i].list, err, reason.text);
        }
        sl_hosts_fini(&hosts);
    }
}

SL_CASE(hosts_append__stops_at_the_limit)
{
    struct sl_hosts hosts = {0};
    struct sl_reason reason = {0};
    char text[32];
    for (int i = 0; i < SL_LIMIT_PS; i++) {
        snprintf(text, sizeof text, "h:%d", i + 1);
        assert_int_equal(sl_hosts_append(&hosts, text, "--x", &reason), 0);
    }
    assert_int_equal(sl_hosts_append(&hosts, "h:65000", "--x", &reason), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "1024"));
    assert_int_equal(hosts.count, SL_LIMIT_PS);
    sl_hosts_fini(&hosts);
}

SL_CASE(hosts_count_workers__ports_are_optional)
{
    uint32_t count = 0;
    struct sl_reason reason = {0};
    assert_int_equal(
        sl_hosts_count_workers("a,b:1,10.0.0.1,[::1],[::1]:5,a", "--x", &count, &reason), 0);
    assert_int_equal(count, 6);
    const char *const bad[] = {"", "a,", "a,,b", "a b", "a:99999", "::1", "[::1", "1.2.3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sl_hosts_count_workers(bad[i], "--x", &count, &reason), SL_ERR_INVALID);
        assert_memory_equal(reason.text, "--x", 3);
        assert_int_equal(count, 6);
    }
}

SL_CASE(hosts_count_workers__stops_at_the_limit)
{
    char *list = malloc(2 * (SL_LIMIT_WORKERS + 1));
    assert_non_null(list);
    for (size_t i = 0; i <= SL_LIMIT_WORKERS; i++) {
        list[2 * i] = 'a';
        list[2 * i + 1] = ',';
    }
    list[2 * SL_LIMIT_WORKERS + 1] = '\0';
    uint32_t count = 0;
    assert_int_equal(sl_hosts_count_workers(list, "--x", &count, NULL), SL_ERR_TOO_LARGE);
    list[2 * SL_LIMIT_WORKERS - 1] = '\0';
    assert_int_equal(sl_hosts_count_workers(list, "--x", &count, NULL), 0);
    assert_int_equal(count, SL_LIMIT_WORKERS);
    free(list);
}
