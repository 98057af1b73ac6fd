#include "core/clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t clock_now_ns(void *ctx)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)now.tv_nsec;
}

const struct sl_clock *sl_clock_system(void)
{
    static const struct sl_clock system = {.now_ns = clock_now_ns, .ctx = NULL};
    return &system;
}
