/* starling-bench push. */
#include "bench/bench.h"
#include "bench/exchange.h"

int sl_bench_push_run(int argc, char **argv)
{
    return sl_bench_exchange_run(SL_BENCH_PUSH, argc, argv);
}
