/* This thread on one core for a while: the threads that it starts meanwhile stay there. */
#ifndef SL_BENCH_PIN_H
#define SL_BENCH_PIN_H

#include <sched.h>

/* *before: the cores that it may run on, for sl_bench_pin_end. A core below 0 changes nothing. */
void sl_bench_pin_begin(int core, cpu_set_t *before);
void sl_bench_pin_end(const cpu_set_t *before);

#endif
