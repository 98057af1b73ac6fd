/* A completion: any thread waits until a reactor has ended a piece of work. Unlike mail to a port
 * it may be waited for, or polled, by another thread than the one that began the work.
 *
 * Begin and wait: the work's owner, one thread at a time. End: the reactor, once for each begin. */
#ifndef SL_REACTOR_COMPLETION_H
#define SL_REACTOR_COMPLETION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_completion {
    _Atomic uint32_t state; /* zero: nothing has begun, or it has ended */
};

void sl_completion_begin(struct sl_completion *completion);

/* Ends the work. No later access to the completion follows, so its owner may free it at once. A
 * thread that sees the end also sees what the reactor wrote before. Costs a system call only if a
 * thread sleeps in wait. */
void sl_completion_end(struct sl_completion *completion);

static inline bool sl_completion_ended(const struct sl_completion *completion)
{
    return atomic_load_explicit(&completion->state, memory_order_acquire) == 0;
}

/* Spins for a few microseconds as long as that has recently been enough, then sleeps. */
void sl_completion_wait(struct sl_completion *completion);

#endif
