/* Which core a thread of a baseline runs on. A baseline on another core than it says would mislead,
 * so that a core that cannot be had is an error. */
#ifndef SL_BENCH_BARE_PIN_H
#define SL_BENCH_BARE_PIN_H

#include <sched.h>
#include <stdbool.h>

#include "core/err.h"

struct sl_bench_bare_pin {
    bool pinned;
    cpu_set_t before;
};

/* The calling thread, from now on; nothing for -1. Errors, logged: INVALID. */
int sl_bench_bare_pin_thread(int core);

/* The same until the end, after which it may run where it could before. */
int sl_bench_bare_pin_begin(struct sl_bench_bare_pin *pin, int core);
void sl_bench_bare_pin_end(struct sl_bench_bare_pin *pin);

/* Logs `what` with errno. Returns what stands for errno. */
int sl_bench_bare_fail(const char *what);

#endif
