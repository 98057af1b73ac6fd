#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/env.h"
#include "core/limits.h"
#include "tests/support/unit.h"

static const char *const names[] = {
    "NETWORK_PS_CORE_NUMBER", "NETWORK_WORKER_CORE_NUMBER", "PS_ENABLE_POLLING",
    "WORKER_ENABLE_POLLING",  "PS_DISABLE_PIN_CORES",       "WORKER_DISABLE_PIN_CORES",
    "STARLING_LOG",           "STARLING_TCP_CONGESTION",    "STARLING_SHM",
    "STARLING_RDMA",
};

static int clear(void **state)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsetenv(names[i]);
    }
    return 0;
}

SL_CASE_WITH(env_read__defaults, clear, clear)
{
    struct sl_env env;
    char reason[128] = "";
    assert_int_equal(sl_env_read(4, &env, reason, sizeof reason), 0);
    assert_int_equal(env.ps_reactors, 4);
    assert_int_equal(env.worker_reactors, 4);
    assert_false(env.ps_polling || env.worker_polling);
    assert_false(env.ps_pin || env.worker_pin);
    assert_int_equal(env.log_level, SL_LOG_INFO);
    assert_string_equal(env.congestion_control, "");
    assert_true(env.shm && env.rdma);
    assert_int_equal(sl_env_read(96, &env, reason, sizeof reason), 0);
    assert_int_equal(env.ps_reactors, 16);
    setenv("NETWORK_WORKER_CORE_NUMBER", "0", 1);
    assert_int_equal(sl_env_read(4, &env, reason, sizeof reason), 0);
    assert_int_equal(env.worker_reactors, 0);
}

SL_CASE_WITH(env_read__takes_every_variable, clear, clear)
{
    static const char *const values[] = {"2",     "256",  "TRUE", "1", "0",
                                         "False", "Warn", "bbr",  "0", "0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv(names[i], values[i], 1);
    }
    struct sl_env env;
    char reason[128] = "";
    assert_int_equal(sl_env_read(4, &env, reason, sizeof reason), 0);
    assert_int_equal(env.ps_reactors, 2);
    assert_int_equal(env.worker_reactors, 256);
    assert_true(env.ps_polling && env.worker_polling);
    assert_true(env.ps_pin && env.worker_pin);
    assert_int_equal(env.log_level, SL_LOG_WARN);
    assert_string_equal(env.congestion_control, "bbr");
    assert_false(env.shm || env.rdma);
}

SL_CASE_WITH(env_read__bad_value_names_variable_value_and_accepted, clear, clear)
{
    static const struct {
        const char *name, *value, *accepted;
    } cases[] = {
        {"NETWORK_PS_CORE_NUMBER", "0", "1 to 256"},
        {"NETWORK_PS_CORE_NUMBER", "257", "1 to 256"},
        {"NETWORK_PS_CORE_NUMBER", "", "1 to 256"},
        {"NETWORK_PS_CORE_NUMBER", "-1", "1 to 256"},
        {"NETWORK_PS_CORE_NUMBER", " 4", "1 to 256"},
        {"NETWORK_PS_CORE_NUMBER", "4x", "1 to 256"},
        {"NETWORK_WORKER_CORE_NUMBER", "18446744073709551617", "0 to 256"},
        {"NETWORK_WORKER_CORE_NUMBER", "4294967297", "0 to 256"},
        {"PS_ENABLE_POLLING", "yes", "0, 1, true or false"},
        {"WORKER_ENABLE_POLLING", "", "0, 1, true or false"},
        {"PS_DISABLE_PIN_CORES", "2", "0, 1, true or false"},
        {"WORKER_DISABLE_PIN_CORES", "true ", "0, 1, true or false"},
        {"STARLING_LOG", "loud", "debug, info, warn, error or off"},
        {"STARLING_TCP_CONGESTION", "sixteen-letters-", "such as cubic"},
        {"STARLING_TCP_CONGESTION", "cu bic", "such as cubic"},
        {"STARLING_SHM", "off", "0, 1, true or false"},
        {"STARLING_RDMA", "2", "0, 1, true or false"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        clear(NULL);
        setenv(cases[i].name, cases[i].value, 1);
        struct sl_env env = {.ps_reactors = 4711};
        char reason[256] = "", begins[128];
        assert_int_equal(sl_env_read(4, &env, reason, sizeof reason), SL_ERR_INVALID);
        snprintf(begins, sizeof begins, "%s=%s: accepts ", cases[i].name, cases[i].value);
        if (strncmp(reason, begins, strlen(begins)) != 0 ||
            strstr(reason, cases[i].accepted) == NULL) {
            fail_msg("%s=%s: reason \"%s\"", cases[i].name, cases[i].value, reason);
        }
        assert_int_equal(env.ps_reactors, 4711);
    }
}

SL_CASE(env_parse_u32__bounds_are_included)
{
    uint32_t value = 0;
    assert_true(sl_env_parse_u32("7", 7, 9, &value));
    assert_true(sl_env_parse_u32("9", 7, 9, &value));
    assert_int_equal(value, 9);
    assert_false(sl_env_parse_u32("6", 7, 9, &value));
    assert_false(sl_env_parse_u32("10", 7, 9, &value));
    assert_true(sl_env_parse_u32("4294967295", 0, UINT32_MAX, &value));
    assert_int_equal(value, UINT32_MAX);
    assert_false(sl_env_parse_u32("4294967296", 0, UINT32_MAX, &value));
}
