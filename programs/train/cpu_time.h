/* CPU time. It separates a worker's computation from communication: in wall-clock time, waiting for
 * a server and waiting for a core look alike. Any thread. */
#ifndef SL_PROGRAMS_TRAIN_CPU_TIME_H
#define SL_PROGRAMS_TRAIN_CPU_TIME_H

#include <stdint.h>
#include <time.h>

#include "core/clock.h"

/* Returns ns of CLOCK_THREAD_CPUTIME_ID (calling thread) or CLOCK_PROCESS_CPUTIME_ID. */
static inline uint64_t sl_cpu_time_ns(clockid_t clock)
{
    struct timespec spent = {0};
    (void)clock_gettime(clock, &spent);
    return (uint64_t)spent.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)spent.tv_nsec;
}

#endif
