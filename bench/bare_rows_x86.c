/* x86-64: asked of the processor at run time, as for the optimizers' kernels. */
#include "bench/bare_rows_loops.h"

extern const struct sl_bench_bare_rows_loops sl_bench_bare_rows_loops_scalar;
extern const struct sl_bench_bare_rows_loops sl_bench_bare_rows_loops_avx2;
extern const struct sl_bench_bare_rows_loops sl_bench_bare_rows_loops_avx512;

const struct sl_bench_bare_rows_loops *sl_bench_bare_rows_select(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
        return &sl_bench_bare_rows_loops_avx512;
    }
    return __builtin_cpu_supports("avx2") ? &sl_bench_bare_rows_loops_avx2
                                          : &sl_bench_bare_rows_loops_scalar;
}
