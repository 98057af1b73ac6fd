/* Makes a reactor sleep so that a low-priority thread with work, and without a core of its own,
 * gets about 10 % of the reactor's core: beside a loop that is busy or spinning it would starve. A
 * loop that sleeps as much anyway, or whose threads run on other cores, yields nothing. Pure except
 * for reading thread clocks: time is an argument. Owner reactor. */
#ifndef SL_REACTOR_CPU_YIELD_H
#define SL_REACTOR_CPU_YIELD_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "core/clock.h"

/* Duration of one sleep, and interval between checks whether one is due. */
#define SL_CPU_YIELD_NS       (100 * SL_CLOCK_NS_PER_US)
#define SL_CPU_YIELD_EVERY_NS SL_CLOCK_NS_PER_MS

/* A thread with work, or two threads that alternate. Storage of the caller. */
struct sl_cpu_yield_thread {
    clockid_t clocks[2]; /* processor time of the threads; set by the caller */
    uint64_t ran_ns;     /* sum of the clocks at the last check */
    struct sl_cpu_yield_thread *next;
};

struct sl_cpu_yield {
    struct sl_cpu_yield_thread *threads;
    uint64_t looked_ns;
    uint64_t slept_ns; /* since the last check */
};

/* The thread has work from now on. */
void sl_cpu_yield_add(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread);

/* The thread has no more work, or is about to end. It need not have been added. */
void sl_cpu_yield_remove(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread);

/* Performs a check that is due. */
bool sl_cpu_yield_update(struct sl_cpu_yield *cpu_yield, uint64_t now_ns);

/* True: the loop should sleep, because some thread got less than its share, and the loop has slept
 * less than that since the last check. */
static inline bool sl_cpu_yield_is_due(struct sl_cpu_yield *cpu_yield, uint64_t now_ns)
{
    return cpu_yield->threads != NULL && now_ns - cpu_yield->looked_ns >= SL_CPU_YIELD_EVERY_NS &&
           sl_cpu_yield_update(cpu_yield, now_ns);
}

#endif
