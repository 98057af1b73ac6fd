/* sl_kv_serve as a function: what one call is told is not for the next. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <starling_kv.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The exit status, and what was written to `fd`. */
static int serve(int fd, char *const *arguments, char *text, size_t text_bytes)
{
    char *argv[8] = {0};
    int argc = 0;
    for (; arguments[argc] != NULL; argc++) {
        argv[argc] = arguments[argc];
    }
    FILE *file = tmpfile();
    const int kept = dup(fd);
    assert_non_null(file);
    assert_true(kept >= 0);
    (void)fflush(NULL);
    assert_int_equal(dup2(fileno(file), fd), fd);
    const int status = sl_kv_serve(argc, argv, NULL);
    (void)fflush(NULL);
    assert_int_equal(dup2(kept, fd), fd);
    (void)close(kept);
    rewind(file);
    const size_t bytes = fread(text, 1, text_bytes - 1, file);
    text[bytes] = '\0';
    (void)fclose(file);
    return status;
}

static void kv_serve__begins_with_the_defaults(void **state)
{
    (void)state;
    static char before[32768], after[32768], reason[4096];
    char *const help[] = {"starling-ps", "--help", NULL};
    char *const bad[] = {"starling-ps", "--start-timeout", "7", "--replicas", "1", "--bogus", NULL};
    assert_int_equal(serve(STDOUT_FILENO, help, before, sizeof before), 0);
    assert_non_null(strstr(before, "Default: 60"));
    assert_int_equal(serve(STDERR_FILENO, bad, reason, sizeof reason), 2);
    assert_non_null(strstr(reason, "--bogus"));
    assert_int_equal(serve(STDOUT_FILENO, help, after, sizeof after), 0);
    assert_string_equal(after, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kv_serve__begins_with_the_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
