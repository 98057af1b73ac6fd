#include "core/end_signals.h"

#include <stdatomic.h>
#include <unistd.h>

#include "tests/support/unit.h"

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
}

SL_CASE(end_signals_add__hangup_is_one_of_them)
{
    sigset_t set;
    (void)sigemptyset(&set);
    sl_end_signals_add(&set);
    assert_true(sigismember(&set, SIGINT) && sigismember(&set, SIGTERM) &&
                sigismember(&set, SIGHUP));
    assert_false(sigismember(&set, SIGQUIT));
    assert_int_equal(sl_end_signals_number(SIGHUP), SIGTERM);
    assert_int_equal(sl_end_signals_number(SIGINT), SIGINT);
}

SL_CASE(end_signals_check__of_signals_that_are_blocked)
{
    struct sl_reason reason;
    sigset_t set, before;
    (void)sigemptyset(&set);
    sl_end_signals_add(&set);
    assert_int_equal(sigprocmask(SIG_BLOCK, &set, &before), 0);
    assert_int_equal(sl_end_signals_check(&reason), 0);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(sl_end_signals_check(&reason), SL_ERR_CANCELLED);
    assert_int_equal(sigwait(&set, &(int){0}), 0);
    assert_int_equal(sl_end_signals_check(&reason), 0);
    assert_int_equal(sigprocmask(SIG_SETMASK, &before, NULL), 0);
}

SL_CASE(end_signals__hangup_that_nohup_ignores_stays_ignored)
{
    sigset_t set;
    (void)signal(SIGHUP, SIG_IGN);
    (void)sigemptyset(&set);
    sl_end_signals_add(&set);
    sl_end_signals_catch(on_signal, 0);
    assert_false(sigismember(&set, SIGHUP));
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(caught, 0);
    (void)signal(SIGHUP, SIG_DFL);
    sl_end_signals_catch(on_signal, 0);
    assert_int_equal(raise(SIGHUP), 0);
    assert_int_equal(caught, SIGHUP);
    (void)signal(SIGHUP, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

static atomic_int reloads;

static void count_reload(void)
{
    atomic_fetch_add(&reloads, 1);
}

/* Last: the program stays a service. */
SL_CASE(end_signals_reload_at_hangup__a_service_does_not_end)
{
    sigset_t set;
    (void)signal(SIGHUP, SIG_IGN); /* as nohup does */
    assert_int_equal(sl_end_signals_reload_at_hangup(count_reload), 0);
    (void)sigemptyset(&set);
    sl_end_signals_add(&set);
    assert_false(sigismember(&set, SIGHUP));
    caught = 0;
    sl_end_signals_catch(on_signal, 0);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(kill(getpid(), SIGHUP), 0);
        while (atomic_load(&reloads) < i) {
            (void)usleep(1000);
        }
    }
    assert_int_equal(caught, 0);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}
