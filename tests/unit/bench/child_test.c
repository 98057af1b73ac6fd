#include "bench/child.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/support/unit.h"

enum { PATIENCE_MS = 30000 };

static struct sl_bench_child start(const char *script, bool reads)
{
    const char *const argv[] = {"/bin/sh", "-c", script, NULL};
    static const char *const environment[] = {"STARLING_CHILD_TEST=seen", NULL};
    const struct sl_bench_child_options options = {
        .argv = argv, .environment = environment, .core = -1, .reads = reads};
    struct sl_bench_child child;
    assert_int_equal(sl_bench_child_start(&options, &child), 0);
    return child;
}

SL_CASE(collect__is_all_that_was_written)
{
    struct sl_bench_child child =
        start("i=0; while [ $i -lt 20000 ]; do echo 0123456; i=$((i+1)); done; "
              "echo $STARLING_CHILD_TEST",
              true);
    char *text = NULL;
    assert_int_equal(sl_bench_child_collect(&child, PATIENCE_MS, &text), 0);
    assert_int_equal(strlen(text), 20000 * 8 + 5);
    assert_string_equal(text + 20000 * 8, "seen\n");
    assert_int_equal(child.pid, 0);
    free(text);
}

SL_CASE(collect__tells_a_bad_end)
{
    char *text = NULL;
    struct sl_bench_child child = start("echo words; exit 3", true);
    assert_int_equal(sl_bench_child_collect(&child, PATIENCE_MS, &text), SL_ERR_CLOSED);
    assert_null(text);
}

SL_CASE(collect__kills_at_the_deadline)
{
    char *text = NULL;
    struct sl_bench_child child = start("exec sleep 1000", true);
    pid_t pid = child.pid;
    assert_int_equal(sl_bench_child_collect(&child, 50, &text), SL_ERR_DEADLINE);
    assert_int_equal(kill(pid, 0), -1);
}

SL_CASE(line__is_read_up_to_its_end)
{
    char line[8];
    struct sl_bench_child child = start("echo ready; echo longer than the room; exit 0", true);
    assert_int_equal(sl_bench_child_line(&child, line, sizeof line, PATIENCE_MS), 0);
    assert_string_equal(line, "ready");
    assert_int_equal(sl_bench_child_line(&child, line, sizeof line, PATIENCE_MS), SL_ERR_TOO_LARGE);
    sl_bench_child_stop(&child);
    assert_int_equal(child.pid, 0);
    child = start("printf half", true);
    assert_int_equal(sl_bench_child_line(&child, line, sizeof line, PATIENCE_MS), SL_ERR_CLOSED);
    assert_int_equal(sl_bench_child_wait(&child, PATIENCE_MS), 0);
    child = start("exec sleep 1000", true);
    assert_int_equal(sl_bench_child_line(&child, line, sizeof line, 20), SL_ERR_DEADLINE);
    sl_bench_child_stop(&child);
}

SL_CASE(stop__ends_one_that_is_parked)
{
    struct sl_bench_child child = start("exec sleep 1000", false);
    pid_t pid = child.pid;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    sl_bench_child_stop(&child);
    assert_int_equal(kill(pid, 0), -1);
    sl_bench_child_stop(&child); /* again: nothing */
}

SL_CASE(wait__a_program_that_is_not_there)
{
    const char *const argv[] = {"/nowhere/to/be/found", NULL};
    const struct sl_bench_child_options options = {.argv = argv, .core = -1};
    struct sl_bench_child child;
    assert_int_equal(sl_bench_child_start(&options, &child), 0);
    assert_int_equal(sl_bench_child_wait(&child, PATIENCE_MS), SL_ERR_CLOSED);
}

SL_CASE(find__looks_along_the_path)
{
    char path[SL_BENCH_PATH_BYTES];
    assert_true(sl_bench_child_find("sh", path));
    assert_string_equal(strrchr(path, '/'), "/sh");
    assert_false(sl_bench_child_find("no-program-has-this-name", path));
    assert_true(sl_bench_child_beside("unit_bench_threads", path));
}

SL_CASE(listens__not_before_somebody_does)
{
    uint16_t port;
    assert_int_equal(sl_bench_child_port(&port), 0);
    assert_false(sl_bench_child_listens(port));
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
