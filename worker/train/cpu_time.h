/* Processor time, to tell what a worker spends on its own arithmetic from what it spends on talking
 * to the ps: by the wall clock, waiting for a ps and waiting for a core look alike. Any thread. */
#ifndef SL_WORKER_TRAIN_CPU_TIME_H
#define SL_WORKER_TRAIN_CPU_TIME_H

#include <stdint.h>
#include <time.h>

#include "core/clock.h"

/* Nanoseconds, of CLOCK_THREAD_CPUTIME_ID (the calling thread's) or CLOCK_PROCESS_CPUTIME_ID. */
static inline uint64_t sl_cpu_time_ns(clockid_t clock)
{
    struct timespec spent = {0};
    (void)clock_gettime(clock, &spent);
    return (uint64_t)spent.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)spent.tv_nsec;
}

#endif
