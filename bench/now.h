/* The clock, for code that measures. Any thread. */
#ifndef SL_BENCH_NOW_H
#define SL_BENCH_NOW_H

#include <time.h>

#include "core/clock.h"

static inline uint64_t sl_bench_now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static inline uint64_t sl_bench_ns(double seconds)
{
    return (uint64_t)(seconds * (double)SL_CLOCK_NS_PER_S);
}

static inline double sl_bench_seconds(uint64_t ns)
{
    return (double)ns / (double)SL_CLOCK_NS_PER_S;
}

/* Processor time of this process, or with CLOCK_THREAD_CPUTIME_ID of this thread. */
static inline uint64_t sl_bench_cpu_ns(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline void sl_bench_sleep_ns(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / SL_CLOCK_NS_PER_S),
                                  .tv_nsec = (long)(ns % SL_CLOCK_NS_PER_S)};
    (void)nanosleep(&time, NULL);
}

#endif
