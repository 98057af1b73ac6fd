/* A SCHED_IDLE thread that runs work on otherwise idle cores: any other thread preempts it at once.
 * One user passes it work and waits. If the cores are never idle, which the thread can neither
 * change nor predict, the user runs the next work itself and retries the thread later. */
#ifndef SL_REACTOR_IDLE_THREAD_H
#define SL_REACTOR_IDLE_THREAD_H

#include <time.h>

struct sl_idle_thread;

/* Starts the thread on the cores of the main thread, with all signals blocked. Errors: NO_MEMORY.
 * Any thread. */
int sl_idle_thread_create(const char *name, struct sl_idle_thread **out);

/* Runs work(ctx) on the thread or on the caller, and returns afterwards; without a deadline, since
 * idle cores may be rare. One caller at a time. The work must not allocate, map or free memory: a
 * preempted thread that holds a lock of the process would block all threads that need the lock. */
void sl_idle_thread_run(struct sl_idle_thread *idle_thread, void (*work)(void *ctx), void *ctx);

/* The thread's processor time. Any thread. */
clockid_t sl_idle_thread_clock(const struct sl_idle_thread *idle_thread);

/* Ends the thread without waiting for it. Nulls *idle_thread, which may be NULL. */
void sl_idle_thread_destroy(struct sl_idle_thread **idle_thread);

#endif
