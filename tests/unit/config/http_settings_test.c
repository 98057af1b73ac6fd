#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/http_settings.h"
#include "tests/support/unit.h"

static const struct sl_cli_given by_flag = {.source = "--http"};
static struct sl_http_settings settings;
static struct sl_reason reason;

static int resolve(const char *address, const char *token_file, bool is_insecure)
{
    const struct sl_http_settings_flags flags = {.address = address, .token_file = token_file};
    reason.text[0] = '\0';
    return sl_http_settings_resolve(&flags, &by_flag, &is_insecure, &settings, &reason);
}

SL_CASE(http_settings_parse__takes_addresses_and_off)
{
    const char *target;
    static const char *const wrong[] = {"",          "nonsense", "1.2.3.4",   "a:99999",
                                        "tcp://a:1", "OFF",      "rdma://a:1"};
    assert_true(sl_http_settings_parse("off", &target));
    assert_true(sl_http_settings_parse("[::1]:0", &target));
    assert_true(sl_http_settings_parse("node1:9480", &target));
    assert_string_equal(target, "node1:9480");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(sl_http_settings_parse(wrong[i], &target));
    }
}

SL_CASE(http_settings_resolve__refuses_a_network_without_a_token)
{
    assert_int_equal(resolve("127.0.0.1:0", NULL, false), 0);
    assert_true(settings.is_on);
    assert_int_equal(resolve("off", NULL, false), 0);
    assert_false(settings.is_on);
    assert_int_equal(resolve("0.0.0.0:0", NULL, true), 0);
    assert_int_equal(resolve("0.0.0.0:0", NULL, false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http=0.0.0.0:0"));
    assert_non_null(strstr(reason.text, "--http-token-file"));
}

static void write_token(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs(text, file) >= 0, 1);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

SL_CASE(http_settings_resolve__reads_a_private_token)
{
    char path[] = "/tmp/sl_token_XXXXXX";
    assert_int_equal(close(mkstemp(path)), 0);
    write_token(path, "0123456789abcdef\n", 0600);
    assert_int_equal(resolve("0.0.0.0:0", path, false), 0);
    assert_int_equal(settings.token.byte_count, 16);
    write_token(path, "0123456789abcdef\n", 0640);
    assert_int_equal(resolve("0.0.0.0:0", path, false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "chmod 600"));
    write_token(path, "0123456789 abcdef\n", 0600);
    assert_int_equal(resolve("0.0.0.0:0", path, false), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "printable"));
    assert_int_equal(unlink(path), 0);
}
