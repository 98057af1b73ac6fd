/* Other processors: what the compiler makes of their baseline. */
#include "bench/bare_rows_loops.h"

extern const struct sl_bench_bare_rows_loops sl_bench_bare_rows_loops_native;

const struct sl_bench_bare_rows_loops *sl_bench_bare_rows_select(void)
{
    return &sl_bench_bare_rows_loops_native;
}
