/* Threads of the runtime: they block all signals, which are for the program's own threads. */
#ifndef SL_CORE_THREAD_H
#define SL_CORE_THREAD_H

#include <pthread.h>

/* Starts run(arg) with all signals blocked, named `name` (at most 15 characters; NULL: like the
 * caller). Returns 0 or an errno: EAGAIN at a limit on threads. Any thread. */
int sl_thread_start(pthread_t *thread, const char *name, void *(*run)(void *arg), void *arg);

/* Logs that the thread `name` could not be started, with the cause and, at a limit on threads,
 * where it is set. failed: of sl_thread_start. */
void sl_thread_log_failure(const char *name, int failed);

/* Lets the calling thread run on the cores of the main thread, which is never pinned. */
void sl_thread_unpin(void);

/* Lowers the priority of the calling thread: below reactors, yet not starved on a busy machine. */
void sl_thread_lower_priority(void);

#endif
