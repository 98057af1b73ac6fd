#include "core/end_signals.h"

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/thread.h"

static sem_t hangups;

/* On any thread that does not block the signal, such as one of OpenBLAS. */
static void end_signals_on_hangup(int number)
{
    (void)sem_post(&hangups);
}

/* Whether the signal is not ignored (a blocked one becomes pending all the same), and ends the
 * program. */
static bool hangup_ends(void)
{
    struct sigaction action;
    return sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler != SIG_IGN &&
           action.sa_handler != end_signals_on_hangup;
}

static void *end_signals_run_reloads(void *reload)
{
    sigset_t hangup;
    (void)sigemptyset(&hangup);
    (void)sigaddset(&hangup, SIGHUP);
    (void)pthread_sigmask(SIG_UNBLOCK, &hangup, NULL);
    for (;;) {
        if (sem_wait(&hangups) == 0) {
            (*(void (**)(void))reload)();
        }
    }
    return NULL;
}

int sl_end_signals_reload_at_hangup(void (*reload)(void))
{
    static void (*kept)(void);
    pthread_t thread;
    struct sigaction action = {.sa_handler = end_signals_on_hangup, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaddset(&action.sa_mask, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &action.sa_mask, NULL);
    (void)sem_init(&hangups, 0, 0);
    (void)sigaction(SIGHUP, &action, NULL);
    kept = reload;
    const int failed = sl_thread_start(&thread, "reload", end_signals_run_reloads, &kept);
    if (failed != 0) {
        sl_thread_log_failure("reload", failed);
        return SL_ERR_IO;
    }
    (void)pthread_detach(thread);
    return 0;
}

void sl_end_signals_add(sigset_t *set)
{
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGTERM);
    if (hangup_ends()) {
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
    if (hangup_ends()) {
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
