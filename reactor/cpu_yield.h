/* Leaves a tenth of a reactor's core to threads that have none of their own and go behind it, as
 * long as they have work: beside a loop that is never idle, or spins when it is, they would not run
 * at all. A loop that sleeps as much anyway, or whose threads run elsewhere, gives nothing. Pure,
 * but for the clocks of the threads: time comes in as an argument. Owner reactor. */
#ifndef SL_REACTOR_CPU_YIELD_H
#define SL_REACTOR_CPU_YIELD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/clock.h"

/* How long a loop rests at a time, when one is due; and how often it is looked whether one is. */
#define SL_CPU_YIELD_NS       (100 * SL_CLOCK_NS_PER_US)
#define SL_CPU_YIELD_EVERY_NS SL_CLOCK_NS_PER_MS

/* A thread that has work, or two that do it in turns; their owner's storage. */
struct sl_cpu_yield_thread {
    clockid_t clocks[2]; /* of their processor time; the owner's */
    uint64_t ran_ns;     /* by these clocks, when it was last looked */
    struct sl_cpu_yield_thread *next;
};

struct sl_cpu_yield {
    struct sl_cpu_yield_thread *threads;
    uint64_t looked_ns;
    uint64_t slept_ns; /* since then */
};

/* From now on it has work. */
void sl_cpu_yield_add(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread);

/* It has none, or is about to end. It may be one that was not added. */
void sl_cpu_yield_remove(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread);

/* What the look does, when it is time for one. */
bool sl_cpu_yield_update(struct sl_cpu_yield *cpu_yield, uint64_t now_ns);

/* True: a thread has not had its part, neither by sleeps of the loop nor elsewhere, and the loop
 * should rest. */
static inline bool sl_cpu_yield_is_due(struct sl_cpu_yield *cpu_yield, uint64_t now_ns)
{
    return cpu_yield->threads != NULL && now_ns - cpu_yield->looked_ns >= SL_CPU_YIELD_EVERY_NS &&
           sl_cpu_yield_update(cpu_yield, now_ns);
}

#endif
