/* The source of time. All code that waits or measures takes a struct sl_clock, so that a simulation
 * can drive it. Any thread. */
#ifndef SL_CORE_CLOCK_H
#define SL_CORE_CLOCK_H

#include <stdint.h>

#define SL_CLOCK_NS_PER_US 1000ULL
#define SL_CLOCK_NS_PER_MS 1000000ULL
#define SL_CLOCK_NS_PER_S  1000000000ULL
#define SL_CLOCK_NEVER     UINT64_MAX

struct sl_clock {
    /* Monotonic nanoseconds; the origin is arbitrary. */
    uint64_t (*now_ns)(void *ctx);
    void *ctx;
};

/* CLOCK_MONOTONIC. Static storage. */
const struct sl_clock *sl_clock_system(void);

static inline uint64_t sl_clock_now_ns(const struct sl_clock *clock)
{
    return clock->now_ns(clock->ctx);
}

#endif
