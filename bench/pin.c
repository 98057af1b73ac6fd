#include "bench/pin.h"

#include "core/log.h"

void sl_bench_pin_begin(int core, cpu_set_t *before)
{
    CPU_ZERO(before);
    if (sched_getaffinity(0, sizeof *before, before) != 0 || core < 0) {
        return;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        sl_log_warn("cannot run on core %d only: the figures are of other cores too", core);
    }
}

void sl_bench_pin_end(const cpu_set_t *before)
{
    if (CPU_COUNT(before) > 0) {
        (void)sched_setaffinity(0, sizeof *before, before);
    }
}
