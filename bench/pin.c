#include "bench/pin.h"

#include <errno.h>
#include <string.h>

#include "core/log.h"

int sl_bench_pin_thread(int core)
{
    if (core < 0) {
        return 0;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        sl_log_error("this process may not run on core %d: %s", core, strerror(errno));
        return SL_ERR_INVALID;
    }
    return 0;
}

int sl_bench_pin_begin(int core, cpu_set_t *before)
{
    CPU_ZERO(before);
    (void)sched_getaffinity(0, sizeof *before, before);
    return sl_bench_pin_thread(core);
}

void sl_bench_pin_end(const cpu_set_t *before)
{
    if (CPU_COUNT(before) > 0) {
        (void)sched_setaffinity(0, sizeof *before, before);
    }
}
