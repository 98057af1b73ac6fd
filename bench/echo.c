#include "bench/echo.h"

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    static struct sl_metric_histogram latency;
    int err = sl_bench_bare_echo_run(ctx, common, &values[SL_BENCH_ECHO_REQUESTS], &latency);
    if (err == 0) {
        values[SL_BENCH_ECHO_P50] = (double)sl_metric_quantile(&latency, 0.5) / 1e3;
        values[SL_BENCH_ECHO_P99] = (double)sl_metric_quantile(&latency, 0.99) / 1e3;
    }
    return err;
}

struct sl_bench_contestant sl_bench_echo_contestant(const char *name,
                                                    struct sl_bench_bare_echo *echo)
{
    static const struct sl_bench_quantity quantities[SL_BENCH_ECHO_QUANTITIES] = {
        [SL_BENCH_ECHO_REQUESTS] = {"requests", "1/s"},
        [SL_BENCH_ECHO_P50] = {"p50", "us"},
        [SL_BENCH_ECHO_P99] = {"p99", "us"},
    };
    return (struct sl_bench_contestant){
        .name = name,
        .quantities = quantities,
        .quantity_count = SL_BENCH_ECHO_QUANTITIES,
        .transport = "TCP",
        .run = run,
        .ctx = echo,
    };
}
