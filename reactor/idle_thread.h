/* A thread that takes what others leave of the cores (SCHED_IDLE): whoever wakes has its core back
 * at once. Its one user has it do something, and waits. Where others leave nothing, which a thread
 * of this kind can neither end nor tell beforehand, the user does what comes next itself, and tries
 * again later. */
#ifndef SL_REACTOR_IDLE_THREAD_H
#define SL_REACTOR_IDLE_THREAD_H

#include <time.h>

struct sl_idle_thread;

/* Makes the thread, which has the main thread's cores and takes no signals. Errors: NO_MEMORY. Any
 * thread. */
int sl_idle_thread_create(const char *name, struct sl_idle_thread **out);

/* Returns when work(ctx) has been run: there, or on the caller. One caller at a time, which needs
 * no deadline of its own: it waits as long as others leave nothing. The work must not allocate, map
 * or free: a thread that is preempted with a lock of the process would stop all that need the lock.
 */
void sl_idle_thread_run(struct sl_idle_thread *idle_thread, void (*work)(void *ctx), void *ctx);

/* Of the thread's processor time. Any thread. */
clockid_t sl_idle_thread_clock(const struct sl_idle_thread *idle_thread);

/* Ends the thread, and does not wait for that. Nulls *spare, which may be NULL. */
void sl_idle_thread_destroy(struct sl_idle_thread **idle_thread);

#endif
