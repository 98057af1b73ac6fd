

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/dpdk_settings.h"
#include "tests/support/unit.h"

#define VARIABLE "STARLING_DPDK_DEVICE"

static const struct sl_cli_list nothing;
static struct sl_dpdk_settings settings; /* large */

static int unset(void **state)
{
    return unsetenv(VARIABLE);
}

static const char *read_all(const struct sl_cli_list *flags)
{
    char reason[512] = "";
    if (sl_dpdk_settings_read(flags, &settings, reason, sizeof reason) != 0) {
        fail_msg("refused: %s", reason);
    }
    return settings.text;
}

static void refuse(const struct sl_cli_list *flags, int err, const char *source, const char *why)
{
    char reason[512] = "";
    (void)snprintf(settings.text, sizeof settings.text, "untouched");
    assert_int_equal(sl_dpdk_settings_read(flags, &settings, reason, sizeof reason), err);
    if (strncmp(reason, source, strlen(source)) != 0 || strstr(reason, why) == NULL) {
        fail_msg("\"%s\" and \"%s\" are not in \"%s\"", source, why, reason);
    }
    assert_string_equal(settings.text, "untouched");
}

SL_CASE_WITH(dpdk_settings_read__nothing_is_none, unset, NULL)
{
    assert_string_equal(read_all(&nothing), "");
    assert_int_equal(setenv(VARIABLE, "", 1), 0);
    assert_string_equal(read_all(&nothing), "");
}

SL_CASE_WITH(dpdk_settings_read__takes_several_flags, unset, NULL)
{
    const char *items[] = {"a?addr=10.0.0.1/24", "b,x=y?addr=10.0.0.2;c?addr=10.0.0.3"};
    const struct sl_cli_list flags = {.items = items, .count = 2};
    assert_string_equal(read_all(&flags), "a?addr=10.0.0.1/24;b,x=y?addr=10.0.0.2;c?addr=10.0.0.3");
    assert_string_equal(settings.first.name, "a");
    assert_string_equal(settings.first.host, "10.0.0.1");
}

SL_CASE_WITH(dpdk_settings_read__flags_go_before_the_variable, unset, NULL)
{
    const char *items[] = {"a?addr=10.0.0.1"};
    const struct sl_cli_list flags = {.items = items, .count = 1};
    assert_int_equal(setenv(VARIABLE, "b?addr=10.0.0.2;c?addr=10.0.0.3", 1), 0);
    assert_string_equal(read_all(&flags), items[0]);
    assert_string_equal(read_all(&nothing), "b?addr=10.0.0.2;c?addr=10.0.0.3");
    assert_string_equal(settings.first.name, "b");
}

SL_CASE_WITH(dpdk_settings_read__names_what_is_wrong, unset, NULL)
{
    const char *bad[] = {"net_memif0"}, *twice[] = {"a?addr=10.0.0.1", "a?addr=10.0.0.2"};
    refuse(&(struct sl_cli_list){.items = bad, .count = 1}, SL_ERR_INVALID,
           "--dpdk-device=\"net_memif0\": ", "addr is missing");
    refuse(&(struct sl_cli_list){.items = twice, .count = 2}, SL_ERR_INVALID,
           "--dpdk-device: ", "a is named twice");
    assert_int_equal(setenv(VARIABLE, "a?addr=10.0.0.1;b", 1), 0);
    refuse(&nothing, SL_ERR_INVALID, VARIABLE "=\"b\": ", "addr is missing");
}

SL_CASE_WITH(dpdk_settings_read__refuses_too_many, unset, NULL)
{
    char text[SL_DPDK_SETTINGS_DEVICES * 32 + 64] = "";
    size_t used = 0;
    for (int i = 0; i <= SL_DPDK_SETTINGS_DEVICES; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "n%d?addr=10.0.0.1;", i);
    }
    assert_int_equal(setenv(VARIABLE, text, 1), 0);
    refuse(&nothing, SL_ERR_TOO_LARGE, VARIABLE, "more than 64 devices");
}
