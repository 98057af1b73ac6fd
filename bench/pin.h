/* This thread on one core: the threads and processes that it starts meanwhile stay there. Figures
 * of another core would mislead, so that a core that cannot be had is an error. */
#ifndef SL_BENCH_PIN_H
#define SL_BENCH_PIN_H

#include <sched.h>

#include "core/err.h"

/* From now on; -1: nothing changes. Errors, logged: INVALID. */
int sl_bench_pin_thread(int core);

/* Until sl_bench_pin_end, which *before is for, also after an error. */
int sl_bench_pin_begin(int core, cpu_set_t *before);
void sl_bench_pin_end(const cpu_set_t *before);

#endif
