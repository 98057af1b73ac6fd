#include "bench/bare_pin.h"

#include <errno.h>
#include <string.h>

#include "core/log.h"

int sl_bench_bare_fail(const char *what)
{
    const int system_errno = errno;
    sl_log_error("baseline: %s: %s", what, strerror(system_errno));
    return sl_err_from_errno(system_errno);
}

int sl_bench_bare_pin_thread(int core)
{
    if (core < 0) {
        return 0;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((unsigned)core, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        sl_log_error("baseline: this process may not run on core %d: %s", core, strerror(errno));
        return SL_ERR_INVALID;
    }
    return 0;
}

int sl_bench_bare_pin_begin(struct sl_bench_bare_pin *pin, int core)
{
    pin->pinned = false;
    if (core < 0) {
        return 0;
    }
    if (sched_getaffinity(0, sizeof pin->before, &pin->before) != 0) {
        return sl_bench_bare_fail("sched_getaffinity");
    }
    int err = sl_bench_bare_pin_thread(core);
    pin->pinned = err == 0;
    return err;
}

void sl_bench_bare_pin_end(struct sl_bench_bare_pin *pin)
{
    if (pin->pinned) {
        (void)sched_setaffinity(0, sizeof pin->before, &pin->before);
        pin->pinned = false;
    }
}
