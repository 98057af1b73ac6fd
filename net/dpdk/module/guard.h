/* Keeps reactors out of memif's queues while its driver takes them away. The driver hears of its
 * peer's end on the EAL's thread for interrupts, and unmaps the memory that a reactor may be
 * copying from at that moment. But before it does anything upon a message it says so, to those who
 * log its debug lines: there it waits until no reactor is inside. Nothing is locked on the way of
 * packets: that thread alone pays, by a membarrier. */
#ifndef SL_NET_DPDK_MODULE_GUARD_H
#define SL_NET_DPDK_MODULE_GUARD_H

#include <stdatomic.h>
#include <stdbool.h>

struct sl_module_guard {
    struct sl_module_guard *next;
    atomic_bool inside; /* written by its reactor */
};

extern atomic_bool sl_module_guard_closed;

/* Once, when the EAL has started. */
void sl_module_guard_start(void);
/* Not inside; one thread's. */
void sl_module_guard_add(struct sl_module_guard *guard);
void sl_module_guard_remove(struct sl_module_guard *guard);
/* A line of DPDK's log is being written on this thread, of this type. */
void sl_module_guard_hear(int log_type);

/* False: not now. True: leave follows. */
static inline bool sl_module_guard_enter(struct sl_module_guard *guard)
{
    atomic_store_explicit(&guard->inside, true, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the rest of it is the membarrier */
    if (__builtin_expect(atomic_load_explicit(&sl_module_guard_closed, memory_order_acquire), 0)) {
        atomic_store_explicit(&guard->inside, false, memory_order_release);
        return false;
    }
    return true;
}

static inline void sl_module_guard_leave(struct sl_module_guard *guard)
{
    atomic_store_explicit(&guard->inside, false, memory_order_release);
}

#endif
