#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/assert.h"
#include "tests/support/unit.h"

/* Runs `child` in a process of its own; returns its wait status, and what it wrote to stderr. */
static int run_apart(void (*child)(void), char *said, size_t said_bytes)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* CMocka's handler would longjmp into the parent's copy */
        dup2(pipe_fds[1], STDERR_FILENO);
        child();
        _exit(0);
    }
    close(pipe_fds[1]);
    size_t used = 0;
    ssize_t got;
    while ((got = read(pipe_fds[0], said + used, said_bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    said[used] = '\0';
    close(pipe_fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_two_and_two_is_five(void)
{
    volatile int two = 2;
    sl_assert(two + two == 5);
}

SL_CASE(assert__false_names_the_condition_and_aborts)
{
    char said[512];
    const int status = run_apart(assert_two_and_two_is_five, said, sizeof said);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_non_null(strstr(said, "two + two == 5"));
    assert_non_null(strstr(said, "assert_test.c:"));
}
