#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/options.h"
#include "bench/turns.h"
#include "reactor/topology.h"
#include "tests/support/unit.h"

static struct sl_bench_common common;
static uint64_t depth;
static int keys;
static const char *name, *congestion;
static char said[2048]; /* on stderr */

/* Parses one or two flags as a benchmark does, and keeps what it says. */
static int parse(char *first, char *second)
{
    char *argv[] = {(char *)"pull", first, second, NULL};
    const struct sl_cli_option own[] = {
        sl_bench_number("depth", &depth, 1, 128, "Requests under way."),
        sl_bench_choice("keys", &keys, "uniform|zipf", "How keys are drawn."),
        sl_bench_text("name", &name, "NAME", "A name."),
        sl_bench_congestion(&congestion),
    };
    const struct sl_bench_program program = {
        .name = "pull", .summary = "Pulls.", .usage = "[options]"};
    FILE *file = tmpfile();
    common = sl_bench_common_defaults();
    depth = 8;
    congestion = NULL;
    (void)fflush(stderr);
    const int kept = dup(STDERR_FILENO);
    (void)dup2(fileno(file), STDERR_FILENO);
    const int argc = first == NULL ? 1 : second == NULL ? 2 : 3;
    const int result = sl_bench_parse_program(&program, own, 4, &common, argc, argv);
    (void)fflush(stderr);
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = '\0';
    (void)fclose(file);
    return result;
}

SL_CASE(bench_parse__takes_own_and_common_flags)
{
    char first[] = "--depth=32";
    char second[] = "--json=/tmp/report.json";
    assert_int_equal(parse(first, second), SL_CLI_RUN);
    assert_int_equal(depth, 32);
    assert_string_equal(common.json, "/tmp/report.json");
    assert_string_equal(said, "");
}

/* Two cores, if there are two, whichever of them was given. */
SL_CASE(bench_parse__chooses_the_cores_left_open)
{
    char flag[32];
    int first;
    assert_int_equal(sl_topology_core_for(0, false, &first), 0);
    assert_int_equal(parse(NULL, NULL), SL_CLI_RUN);
    assert_int_equal(common.server_core, first);
    assert_int_equal(common.client_core != first, sl_topology_core_count() > 1);
    (void)snprintf(flag, sizeof flag, "--client-core=%d", first);
    assert_int_equal(parse(flag, NULL), SL_CLI_RUN);
    assert_int_equal(common.client_core, first);
    assert_int_equal(common.server_core != first, sl_topology_core_count() > 1);
}

SL_CASE(bench_parse__names_what_is_accepted)
{
    static const struct {
        const char *flag, *accepts;
    } cases[] = {
        {"--depth=129", "128"},
        {"--keys=normal", "zipf"},
        {"--json=/nowhere/report.json", "cannot be written"},
        {"--jsom=x", "json"},
        {"--server-core=1022", "may not run there; accepts"},
        {"--congestion=nosuch", "no such congestion control; accepts "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char flag[64];
        (void)snprintf(flag, sizeof flag, "%s", cases[i].flag);
        assert_true(parse(flag, NULL) < 0);
        assert_non_null(strstr(said, cases[i].accepts));
    }
}

SL_CASE(bench_list__reads_numbers_between_commas)
{
    static const char *const wrong[] = {
        "",   ",",    "1,", ",1", "1,,2",     "x",       "1x",
        "1k", "1 ,2", "-1", "0",  "21000000", "1,2,3,4", "99999999999999999999"};
    uint64_t values[3];
    uint32_t count = 0;
    assert_int_equal(
        sl_bench_list("table", "rows", "1000000,16,5000", 1, 20000000, values, 3, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(values[0], 1000000);
    assert_int_equal(values[1], 16);
    assert_int_equal(values[2], 5000);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(sl_bench_list("table", "rows", wrong[i], 1, 20000000, values, 3, &count),
                         SL_ERR_INVALID);
    }
}

/* The soft limit is raised; what the hard one does not allow is refused. */
SL_CASE(bench_check_connections__knows_the_limit)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit low = {.rlim_cur = 128, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(sl_bench_check_connections("pull", 128), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
    assert_int_equal(sl_bench_check_connections("pull", limit.rlim_max), SL_ERR_INVALID);
}

SL_CASE(bench_turns__words_are_taken_one_by_one)
{
    const char *words = " push 65536 7 beside";
    uint64_t value = 0;
    assert_false(sl_bench_turns_word(&words, "pus"));
    assert_false(sl_bench_turns_word(&words, "pull"));
    assert_true(sl_bench_turns_word(&words, "push"));
    assert_int_equal(sl_bench_turns_number(&words, 1, 65535, &value), SL_ERR_INVALID);
    assert_int_equal(sl_bench_turns_number(&words, 1, 65536, &value), 0);
    assert_int_equal(value, 65536);
    assert_int_equal(sl_bench_turns_number(&words, 0, 9, &value), 0);
    assert_int_equal(sl_bench_turns_number(&words, 0, 9, &value), SL_ERR_INVALID);
    assert_true(sl_bench_turns_word(&words, "beside"));
    assert_string_equal(words, "");
}
