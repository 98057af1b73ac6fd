#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "reactor/idle_thread.h"
#include "tests/support/unit.h"

struct look {
    pthread_t thread;
    int policy;
    uint32_t count;
    long sleep_ms;
};

static void look(void *ctx)
{
    struct look *look = ctx;
    look->thread = pthread_self();
    look->policy = sched_getscheduler(0);
    look->count++;
    const struct timespec time = {.tv_nsec = look->sleep_ms * 1000000};
    (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &time, NULL);
}

SL_CASE(run__is_done_by_a_thread_behind_all_others)
{
    struct sl_idle_thread *idle_thread;
    struct look seen = {0};
    assert_int_equal(sl_idle_thread_create("test", &idle_thread), 0);
    for (uint32_t i = 1; i <= 3; i++) {
        sl_idle_thread_run(idle_thread, look, &seen);
        assert_int_equal(seen.count, i);
    }
    /* A busy machine may have starved it by now; the first time it was tried. */
    sl_idle_thread_destroy(&idle_thread);
    assert_null(idle_thread);
    sl_idle_thread_destroy(&idle_thread); /* NULL is fine */
    seen.count = 0;
    assert_int_equal(sl_idle_thread_create("test", &idle_thread), 0);
    sl_idle_thread_run(idle_thread, look, &seen);
    assert_int_equal(seen.policy, SCHED_IDLE);
    assert_false(pthread_equal(seen.thread, pthread_self()));
    sl_idle_thread_destroy(&idle_thread);
}

/* Without a processor for a while, as far as anybody can tell: the next is done by the caller. */
SL_CASE(run__is_done_here_where_it_starved)
{
    struct sl_idle_thread *idle_thread;
    struct look seen = {.sleep_ms = 40};
    assert_int_equal(sl_idle_thread_create("test", &idle_thread), 0);
    sl_idle_thread_run(idle_thread, look, &seen);
    assert_false(pthread_equal(seen.thread, pthread_self()));
    seen.sleep_ms = 0;
    sl_idle_thread_run(idle_thread, look, &seen);
    assert_true(pthread_equal(seen.thread, pthread_self()));
    assert_int_equal(seen.count, 2);
    sl_idle_thread_destroy(&idle_thread);
}
