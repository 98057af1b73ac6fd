#include "core/thread.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/log.h"

#define LOW_PRIORITY_NICE 10

int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0 && name != NULL) {
        pthread_setname_np(*thread, name);
    }
    return failed;
}

void sl_thread_log_failure(const char *name, int failed)
{
    sl_log_error("%s: cannot start its thread: %s%s", name, strerror(failed),
                 failed == EAGAIN ? ": the user's or the container's limit on threads is reached "
                                    "(ulimit -u, pids.max)"
                                  : "");
}

void sl_thread_unpin(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(getpid(), sizeof cores, &cores) == 0) {
        (void)sched_setaffinity(0, sizeof cores, &cores);
    }
}

void sl_thread_lower_priority(void)
{
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOW_PRIORITY_NICE);
}
