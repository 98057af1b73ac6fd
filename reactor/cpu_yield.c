#include "reactor/cpu_yield.h"

#include <stddef.h>

#define PART 10 /* the share of a thread is 1/PART of the time */

static uint64_t has_run_ns(const struct sl_cpu_yield_thread *thread)
{
    uint64_t sum_ns = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct timespec ran = {0};
        (void)clock_gettime(thread->clocks[i], &ran); /* an ended thread yields 0 */
        sum_ns += (uint64_t)ran.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)ran.tv_nsec;
    }
    return sum_ns;
}

void sl_cpu_yield_add(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread)
{
    thread->ran_ns = has_run_ns(thread);
    thread->next = cpu_yield->threads;
    cpu_yield->threads = thread;
}

void sl_cpu_yield_remove(struct sl_cpu_yield *cpu_yield, struct sl_cpu_yield_thread *thread)
{
    struct sl_cpu_yield_thread **link = &cpu_yield->threads;
    while (*link != NULL && *link != thread) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = thread->next;
    }
}

bool sl_cpu_yield_update(struct sl_cpu_yield *cpu_yield, uint64_t now_ns)
{
    const uint64_t part_ns = (now_ns - cpu_yield->looked_ns) / PART;
    bool has_starved = false;
    for (struct sl_cpu_yield_thread *thread = cpu_yield->threads; thread != NULL;
         thread = thread->next) {
        const uint64_t ran_ns = has_run_ns(thread);
        has_starved |= ran_ns - thread->ran_ns < part_ns;
        thread->ran_ns = ran_ns;
    }
    has_starved &= cpu_yield->slept_ns < part_ns;
    cpu_yield->looked_ns = now_ns;
    cpu_yield->slept_ns = 0;
    return has_starved;
}
