#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/security.h"
#include "tests/support/unit.h"

static const char missing_path[] = "/nonexistent/secret";

/* A file of that text, which only we may read; its name in path[64]. */
static void make_file(char *path, const char *text)
{
    (void)snprintf(path, 64, "/tmp/sl_security_XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
}

SL_CASE(security_resolve__reads_the_secret)
{
    char a[64];
    make_file(a, "the secret of the flag\n");
    struct sl_security security;
    struct sl_security_flags flags = {.secret_file = a};
    assert_int_equal(sl_security_resolve(&flags, &security, NULL), 0);
    assert_int_equal(security.secret.byte_count, strlen("the secret of the flag"));
    flags.secret_file = NULL;
    assert_int_equal(sl_security_resolve(&flags, &security, NULL), 0);
    assert_int_equal(security.secret.byte_count, 0);
    assert_false(security.tls);
    (void)unlink(a);
}

SL_CASE(security_resolve__a_file_that_is_missing_is_an_error)
{
    struct sl_reason reason = {0};
    struct sl_security security = {.tls = true};
    struct sl_security_flags flags = {.secret_file = missing_path};
    assert_int_equal(sl_security_resolve(&flags, &security, &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, missing_path));
    assert_true(security.tls); /* written on success only */
    flags.secret_file = "";
    assert_int_equal(sl_security_resolve(&flags, &security, &reason), SL_ERR_NOT_FOUND);
}

SL_CASE(security_check_flags__tls_has_all_three_files_or_none)
{
    for (unsigned given = 0; given < 8; given++) {
        struct sl_reason reason = {0};
        struct sl_security_flags flags = {
            .tls_cert = (given & 1) != 0 ? "cert" : NULL,
            .tls_key = (given & 2) != 0 ? "key" : NULL,
            .tls_ca = (given & 4) != 0 ? "ca" : NULL,
        };
        int err = sl_security_check_flags(&flags, &reason);
        if (given == 0 || given == 7) {
            assert_int_equal(err, 0);
            continue;
        }
        assert_int_equal(err, SL_ERR_INVALID);
        const char *missing = (given & 1) == 0   ? "--tls-cert is missing"
                              : (given & 2) == 0 ? "--tls-key is missing"
                                                 : "--tls-ca is missing";
        assert_non_null(strstr(reason.text, missing));
    }
    struct sl_reason reason;
    const struct sl_security_flags flags = {.tls_name = "ps"};
    assert_int_equal(sl_security_check_flags(&flags, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--tls-name ps: has no effect without --tls-cert"));
}

SL_CASE(security_resolve__tls_files_are_there)
{
    struct sl_reason reason = {0};
    char path[64];
    make_file(path, "any text");
    struct sl_security security;
    const struct sl_security_flags good = {
        .tls_cert = path, .tls_key = path, .tls_ca = path, .tls_name = "ps"};
    assert_int_equal(sl_security_resolve(&good, &security, &reason), 0);
    assert_true(security.tls);
    assert_ptr_equal(security.certificate, good.tls_cert);
    assert_ptr_equal(security.key, good.tls_key);
    assert_ptr_equal(security.authority, good.tls_ca);
    assert_string_equal(security.peer_name, "ps");
    struct sl_security_flags bad[] = {good, good, good};
    bad[0].tls_cert = bad[1].tls_key = bad[2].tls_ca = missing_path;
    static const char *const flags[] = {"--tls-cert", "--tls-key", "--tls-ca"};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sl_security_resolve(&bad[i], &security, &reason), SL_ERR_NOT_FOUND);
        char wanted[128];
        (void)snprintf(wanted, sizeof wanted, "%s=%s: No such file", flags[i], missing_path);
        assert_non_null(strstr(reason.text, wanted));
    }
    (void)unlink(path);
}

SL_CASE(security_check_exposure__lets_nobody_in_without_a_secret)
{
    const struct sl_endpoint open = {.port = 3333, .host = "10.0.0.1"};
    const struct sl_endpoint local = {.port = 3333, .host = "127.0.0.1"};
    struct sl_reason reason = {0};
    assert_int_equal(sl_security_check_exposure(false, "data", &open, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "data endpoint tcp://10.0.0.1:3333"));
    assert_non_null(
        strstr(reason.text, "--secret-file, or --insecure when the network is trusted"));
    assert_int_equal(sl_security_check_exposure(true, "data", &open, &reason), 0);
    assert_int_equal(sl_security_check_exposure(false, "data", &local, &reason), 0);
}

/* The rows stand in a program's table, and fill the flags. */
