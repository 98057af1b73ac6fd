#include "reactor/completion.h"

#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/clock.h"
#include "reactor/spin.h"

#define SPIN_NS (20 * SL_CLOCK_NS_PER_US)

enum { ENDED, RUNNING, SLEEPING };

/* Of the waiting thread: how long it waited recently. */
static _Thread_local struct sl_spin thread_spin;
static _Thread_local bool thread_has_spin;

static void futex(struct sl_completion *completion, int operation, uint32_t value)
{
    (void)syscall(SYS_futex, &completion->state, operation, value, NULL, NULL, 0);
}

void sl_completion_begin(struct sl_completion *completion)
{
    sl_assert(sl_completion_ended(completion));
    atomic_store_explicit(&completion->state, RUNNING, memory_order_relaxed);
}

void sl_completion_end(struct sl_completion *completion)
{
    /* After the exchange the owner may free the memory. A wake-up of an address without sleepers
     * has no effect. */
    if (atomic_exchange_explicit(&completion->state, ENDED, memory_order_acq_rel) == SLEEPING) {
        futex(completion, FUTEX_WAKE_PRIVATE, INT32_MAX);
    }
}

static bool spin(struct sl_completion *completion)
{
    if (!thread_has_spin) {
        sl_spin_init(&thread_spin, SPIN_NS);
        thread_has_spin = true;
    }
    while (!sl_completion_ended(completion)) {
        if (!sl_spin_idle(&thread_spin, sl_clock_now_ns(sl_clock_system()))) {
            return false;
        }
    }
    return true;
}

void sl_completion_wait(struct sl_completion *completion)
{
    while (!sl_completion_ended(completion) && !spin(completion)) {
        uint32_t expected = RUNNING;
        if (atomic_compare_exchange_strong_explicit(&completion->state, &expected, SLEEPING,
                                                    memory_order_acquire, memory_order_acquire) ||
            expected == SLEEPING) {
            futex(completion, FUTEX_WAIT_PRIVATE, SLEEPING);
        }
    }
    if (thread_has_spin) {
        sl_spin_busy(&thread_spin, sl_clock_now_ns(sl_clock_system()));
    }
}
