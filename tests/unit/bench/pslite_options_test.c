#include "bench/pslite_options.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS_MAX = 8 };

/* Parses "pslite" and these words. */
static int parse(struct sl_bench_pslite_load *load, const char *words, int *taken,
                 struct sl_reason *reason)
{
    static char copy[128];
    char *argv[ARGUMENTS_MAX + 1] = {NULL};
    int argc = 0;
    char *rest = copy;
    (void)strncpy(copy, words, sizeof copy - 1);
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && argc < ARGUMENTS_MAX;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    return sl_bench_pslite_options_arguments(load, argc, argv, taken, reason);
}

static void refuses(const char *words, const char *why)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    struct sl_reason reason = {0};
    int taken = -1;
    assert_int_equal(parse(&load, words, &taken, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, why));
    assert_int_equal(taken, -1);
    assert_int_equal(load.len, 1024000);
}

SL_CASE(arguments__none_are_the_defaults_of_test_benchmark)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    int taken = -1;
    assert_int_equal(parse(&load, "pslite --local", &taken, NULL), 0);
    assert_int_equal(taken, 0);
    assert_int_equal(load.len, 1024000);
    assert_int_equal(load.repeat, 10);
    assert_int_equal(load.mode, SL_BENCH_PSLITE_PUSH_PULL);
    assert_int_equal(load.keys_per_server, 40);
    assert_int_equal(load.log_rounds, 10);
}

SL_CASE(arguments__stand_in_front_of_the_flags)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    int taken = -1;
    assert_int_equal(parse(&load, "pslite 4096 3 0 --json 7", &taken, NULL), 0);
    assert_int_equal(taken, 3);
    assert_int_equal(load.len, 4096);
    assert_int_equal(load.repeat, 3);
    assert_int_equal(load.mode, SL_BENCH_PSLITE_PUSH_THEN_PULL);
    assert_int_equal(parse(&load, "pslite 8192", &taken, NULL), 0);
    assert_int_equal(taken, 1);
    assert_int_equal(load.len, 8192);
}

SL_CASE(arguments__what_is_none_is_named)
{
    refuses("pslite 4k", "LEN=4k: accepts a number from 1 to 1073741824");
    refuses("pslite 0", "LEN=0");
    refuses("pslite 1073741825", "LEN=1073741825");
    refuses("pslite 99999999999999999999999", "LEN=");
    refuses("pslite 4096 0", "REPEAT=0");
    refuses("pslite 4096 many", "REPEAT=many");
    refuses("pslite 4096 1 4", "MODE=4: accepts 0 (push, then pull), 1");
    refuses("pslite 4096 1 x", "MODE=x");
    refuses("pslite 4096 1 1 1", "accepts LEN, REPEAT and MODE only");
}

SL_CASE(environment__is_read_where_it_is_set)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    assert_int_equal(setenv("NUM_KEY_PER_SERVER", "7", 1), 0);
    assert_int_equal(setenv("LOG_DURATION", "2", 1), 0);
    assert_int_equal(setenv("TOTAL_DURATION", "", 1), 0);
    assert_int_equal(sl_bench_pslite_options_environment(&load, NULL), 0);
    assert_int_equal(load.keys_per_server, 7);
    assert_int_equal(load.log_rounds, 2);
    assert_int_equal(sl_bench_pslite_options_rounds(&load), 10);
    assert_int_equal(setenv("TOTAL_DURATION", "30", 1), 0);
    assert_int_equal(sl_bench_pslite_options_environment(&load, NULL), 0);
    assert_int_equal(sl_bench_pslite_options_rounds(&load), 30);
}

SL_CASE(environment__what_is_none_is_named)
{
    static const char *const names[] = {"NUM_KEY_PER_SERVER", "LOG_DURATION", "TOTAL_DURATION"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
        struct sl_reason reason = {0};
        assert_int_equal(setenv(names[i], "-1", 1), 0);
        assert_int_equal(sl_bench_pslite_options_environment(&load, &reason), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, names[i]));
        assert_non_null(strstr(reason.text, "=-1: accepts a number from 1 to "));
        assert_int_equal(unsetenv(names[i]), 0);
    }
}

SL_CASE(check__sums_are_of_whole_floats)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    struct sl_reason reason = {0};
    load.len = 4098;
    assert_int_equal(sl_bench_pslite_options_check(&load, &reason), 0);
    load.handler = SL_BENCH_PSLITE_SUM;
    assert_int_equal(sl_bench_pslite_options_check(&load, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "LEN=4098: accepts multiples of 4"));
    load.len = 4096;
    assert_int_equal(sl_bench_pslite_options_check(&load, &reason), 0);
}

SL_CASE(setting__says_what_the_server_does)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    char text[256];
    sl_bench_pslite_options_setting(&load, text, sizeof text);
    assert_non_null(strstr(text, "push_pull, 1024000 bytes of each of 40 keys"));
    assert_non_null(strstr(text, "keeps the first push"));
    load.handler = SL_BENCH_PSLITE_SUM;
    load.mode = SL_BENCH_PSLITE_PUSH_THEN_PULL;
    sl_bench_pslite_options_setting(&load, text, sizeof text);
    assert_non_null(strstr(text, "push then pull, 1024000 bytes of one key of each server"));
    assert_non_null(strstr(text, "adds pushes up"));
}
