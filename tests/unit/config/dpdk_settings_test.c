#include <stdio.h>
#include <stdlib.h>

#include "config/dpdk_settings.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

#define VARIABLE "STARLING_DPDK_DEVICE"

static struct parsed parsed;             /* large */
static struct sl_dpdk_settings settings; /* large */

static int read_devices(const char *const *arguments)
{
    assert_int_equal(parse_settings(SL_PROGRAM_WORKER, arguments, &parsed), SL_CLI_RUN);
    struct sl_cli_list *devices = &parsed.settings.flags.dpdk_devices;
    int err = sl_dpdk_settings_read(devices, sl_settings_given(&parsed.cli, devices), &settings,
                                    &parsed.reason);
    sl_cli_list_fini(devices);
    return err;
}

static void expect(const char *const *arguments, const char *expected)
{
    if (read_devices(arguments) != 0) {
        fail_msg("refused: %s", parsed.reason.text);
    }
    assert_string_equal(settings.text, expected);
}

static void refuse(const char *const *arguments, int err, const char *source, const char *why)
{
    (void)snprintf(settings.text, sizeof settings.text, "untouched");
    assert_int_equal(read_devices(arguments), err);
    expect_words(parsed.reason.text, WORDS(source, why));
    assert_string_equal(settings.text, "untouched");
}

#define CASE(name)                                                                                 \
    SL_CASE_WITH(name, assert_int_equal(unsetenv(VARIABLE), 0),                                    \
                 assert_int_equal(unsetenv(VARIABLE), 0))

CASE(dpdk_settings_read__nothing_is_none)
{
    expect(NO_ARGUMENTS, "");
    assert_int_equal(setenv(VARIABLE, "", 1), 0);
    expect(NO_ARGUMENTS, "");
}

CASE(dpdk_settings_read__takes_several_flags)
{
    expect(ARGUMENTS("--dpdk-device", "a?addr=10.0.0.1/24", "--dpdk-device",
                     "b,x=y?addr=10.0.0.2;c?addr=10.0.0.3"),
           "a?addr=10.0.0.1/24;b,x=y?addr=10.0.0.2;c?addr=10.0.0.3");
    assert_string_equal(settings.first.name, "a");
    assert_string_equal(settings.first.host, "10.0.0.1");
}

CASE(dpdk_settings_read__flags_go_before_the_variable)
{
    assert_int_equal(setenv(VARIABLE, "b?addr=10.0.0.2;c?addr=10.0.0.3", 1), 0);
    expect(ARGUMENTS("--dpdk-device", "a?addr=10.0.0.1"), "a?addr=10.0.0.1");
    expect(NO_ARGUMENTS, "b?addr=10.0.0.2;c?addr=10.0.0.3");
    assert_string_equal(settings.first.name, "b");
}

CASE(dpdk_settings_read__names_what_is_wrong)
{
    refuse(ARGUMENTS("--dpdk-device", "net_memif0"), SL_ERR_INVALID,
           "--dpdk-device=\"net_memif0\": ", "addr is missing");
    refuse(ARGUMENTS("--dpdk-device", "a?addr=10.0.0.1", "a?addr=10.0.0.2"), SL_ERR_INVALID,
           "--dpdk-device: ", "a is named twice");
    assert_int_equal(setenv(VARIABLE, "a?addr=10.0.0.1;b", 1), 0);
    refuse(NO_ARGUMENTS, SL_ERR_INVALID, VARIABLE "=\"b\": ", "addr is missing");
}

CASE(dpdk_settings_read__refuses_too_many)
{
    char text[SL_DPDK_SETTINGS_DEVICES * 32 + 64] = "";
    size_t used = 0;
    for (int i = 0; i <= SL_DPDK_SETTINGS_DEVICES; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "n%d?addr=10.0.0.1;", i);
    }
    assert_int_equal(setenv(VARIABLE, text, 1), 0);
    refuse(NO_ARGUMENTS, SL_ERR_TOO_LARGE, VARIABLE, "more than 64 devices");
}
