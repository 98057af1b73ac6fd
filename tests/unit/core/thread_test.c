#include <sched.h>
#include <signal.h>
#include <stdbool.h>

#include "core/thread.h"
#include "tests/support/unit.h"

struct seen {
    bool blocks_signals;
    cpu_set_t cores;
};

static void *look(void *arg)
{
    struct seen *seen = arg;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    seen->blocks_signals =
        sigismember(&blocked, SIGTERM) == 1 && sigismember(&blocked, SIGUSR1) == 1;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    sl_thread_unpin();
    sched_getaffinity(0, sizeof seen->cores, &seen->cores);
    return NULL;
}

SL_CASE(thread_start__blocks_signals_in_the_thread_only)
{
    struct seen seen;
    pthread_t thread;
    cpu_set_t cores;
    sigset_t blocked;
    sched_getaffinity(0, sizeof cores, &cores);
    assert_int_equal(sl_thread_start(&thread, "a-name-that-is-too-long", look, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen.blocks_signals);
    assert_true(CPU_EQUAL(&seen.cores, &cores));
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    assert_int_equal(sigismember(&blocked, SIGTERM), 0);
}
