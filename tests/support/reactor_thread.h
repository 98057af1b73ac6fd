/* A reactor with a thread of its own, on which a test runs functions and waits for mail. */
#ifndef SL_TESTS_SUPPORT_REACTOR_THREAD_H
#define SL_TESTS_SUPPORT_REACTOR_THREAD_H

#include "reactor/completion.h"
#include "reactor/reactor.h"

struct reactor_thread {
    struct sl_reactor *reactor;
    struct sl_mailbox_lane *lane; /* of the test's thread */
    bool is_used;                 /* it is another's */
};

/* Creates the reactor; tests may use it before its start. clock: NULL: the system's. */
void reactor_thread_init(struct reactor_thread *thread, const char *name,
                         const struct sl_clock *clock);
void reactor_thread_start(struct reactor_thread *thread);
/* Instead of both: a reactor that is another's, and outlives the use. */
void reactor_thread_use(struct reactor_thread *thread, struct sl_reactor *reactor);
/* Stops and frees it, or ends the use. */
void reactor_thread_fini(struct reactor_thread *thread);

/* Runs run(ctx) there and waits for its end. */
void reactor_thread_run(struct reactor_thread *thread, void (*run)(void *ctx), void *ctx);

#endif
