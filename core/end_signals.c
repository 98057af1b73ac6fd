#include "core/end_signals.h"

#include <stdbool.h>
#include <stddef.h>

/* A blocked signal becomes pending although it is ignored. */
static int hangup_is_ignored(void)
{
    struct sigaction action;
    return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void sl_end_signals_add(sigset_t *set)
{
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    if (!hangup_is_ignored()) {
        (void)sigaddset(set, SIGHUP);
    }
}

sigset_t sl_end_signals_mask(int how)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    sl_end_signals_add(&signals);
    (void)pthread_sigmask(how, &signals, NULL);
    return signals;
}

void sl_end_signals_catch(void (*handler)(int number), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    if (!hangup_is_ignored()) {
        (void)sigaction(SIGHUP, &action, NULL);
    }
}

int sl_end_signals_check(struct sl_reason *reason)
{
    sigset_t pending;
    const bool has_come = sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 ||
                                                        sigismember(&pending, SIGTERM) == 1 ||
                                                        sigismember(&pending, SIGHUP) == 1);
    return has_come ? sl_reason_fail(reason, SL_ERR_CANCELLED, "interrupted by a signal") : 0;
}

int sl_end_signals_number(int number)
{
    return number == SIGHUP ? SIGTERM : number;
}
