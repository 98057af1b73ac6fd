/* What can be seen of a ps process from outside while it runs. One thread. */
#ifndef SL_BENCH_PS_LOOK_H
#define SL_BENCH_PS_LOOK_H

#include "bench/ps_process.h"

/* What the kernel says of its memory, in bytes: what it has of it now, and the most since the last
 * sl_bench_ps_look_forget_peak. Errors, logged: IO. */
struct sl_bench_ps_memory {
    uint64_t resident, peak;
};
int sl_bench_ps_look_memory(const struct sl_bench_ps *ps, struct sl_bench_ps_memory *out);
int sl_bench_ps_look_forget_peak(const struct sl_bench_ps *ps);

/* Turns that were too long, as its reactors' lines in the log since *at have it, which is moved to
 * the end of the log. Such a line names the longest only of one second, and how many there were: a
 * turn may be told of in a later line than its own. */
struct sl_bench_ps_stalls {
    uint64_t count;
    double longest_ms;
};
struct sl_bench_ps_stalls sl_bench_ps_look_stalls(const struct sl_bench_ps *ps, uint64_t *at);

#endif
