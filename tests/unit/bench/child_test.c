#include "bench/child.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"

enum { PATIENCE_MS = 30000 };

static pid_t start(const char *script)
{
    struct sl_bench_arguments arguments = {0};
    pid_t pid;
    sl_bench_arguments_add(&arguments, "%s", "sh"); /* along PATH */
    sl_bench_arguments_add(&arguments, "-c");
    sl_bench_arguments_add(&arguments, "%s", script);
    assert_int_equal(sl_bench_child_start(&arguments, false, &pid), 0);
    return pid;
}

SL_CASE(wait__returns_how_it_ended)
{
    pid_t pid = start("exit 0");
    assert_int_equal(sl_bench_child_wait(&pid, PATIENCE_MS), 0);
    assert_int_equal(pid, 0);
    pid = start("exit 3");
    assert_int_equal(sl_bench_child_wait(&pid, PATIENCE_MS), SL_ERR_CLOSED);
    pid = start("exec /nowhere/to/be/found");
    assert_int_equal(sl_bench_child_wait(&pid, PATIENCE_MS), SL_ERR_CLOSED);
}

SL_CASE(wait__kills_at_the_deadline)
{
    pid_t pid = start("exec sleep 1000");
    const pid_t id = pid;
    assert_int_equal(sl_bench_child_wait(&pid, 50), SL_ERR_DEADLINE);
    assert_int_equal(kill(id, 0), -1);
}

SL_CASE(stop__ends_the_child)
{
    pid_t pid = start("exec sleep 1000");
    const pid_t id = pid;
    sl_bench_child_stop(&pid);
    assert_int_equal(kill(id, 0), -1);
    assert_int_equal(pid, 0);
    sl_bench_child_stop(&pid); /* again: nothing */
}

SL_CASE(script__is_in_the_source_tree)
{
    char path[SL_BENCH_PATH_BYTES];
    assert_true(sl_bench_child_beside("unit_bench_threads", X_OK, path));
    assert_false(sl_bench_child_beside("no-program-has-this-name", F_OK, path));
    sl_bench_child_script("driver.py", path);
    assert_string_equal(strrchr(path, '/'), "/driver.py");
    assert_int_equal(access(path, R_OK), 0);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
