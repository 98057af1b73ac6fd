/* starling-bench pull. */
#include "bench/bench.h"
#include "bench/exchange.h"

int sl_bench_pull_run(int argc, char **argv)
{
    return sl_bench_exchange_run(SL_BENCH_PULL, argc, argv);
}
