#include "bench/cell.h"

#include "core/assert.h"
#include "core/log.h"

const struct sl_bench_quantity sl_bench_cell_quantities[SL_BENCH_CELL_QUANTITIES] = {
    [SL_BENCH_CELL_REQUESTS] = {"requests", "1/s"},
    [SL_BENCH_CELL_KEYS] = {"keys", "1/s"},
    [SL_BENCH_CELL_P50] = {"p50", "us"},
    [SL_BENCH_CELL_P99] = {"p99", "us"},
    [SL_BENCH_CELL_P999] = {"p99.9", "us"},
    [SL_BENCH_CELL_CLIENT_CPU] = {"client cpu", "us/request"},
    [SL_BENCH_CELL_SERVER_CPU] = {"server cpu", "us/request"},
};

#define TRIES 5

/* Sums over the loads. */
struct total {
    double requests_per_s, keys_per_s, cpu_seconds;
    uint64_t requests, all_requests;
};

static int open_load(struct sl_bench_cell *cell, uint32_t index)
{
    const uint32_t all = cell->options.connections;
    struct sl_bench_load_options options = cell->options;
    options.coordinator =
        cell->ps == NULL ? cell->options.coordinator : sl_bench_ps_coordinator(cell->ps);
    options.connections = all / cell->load_count + (index < all % cell->load_count ? 1 : 0);
    options.rate = options.rate * options.connections / all;
    options.seed += index;
    options.core = cell->cores[index];
    return sl_bench_load_open(&options, &cell->loads[index]);
}

/* Every load that was begun is waited for, whatever happens to another. */
static int run_loads(struct sl_bench_cell *cell, const struct sl_bench_common *common,
                     struct total *total)
{
    uint32_t begun = 0;
    int err = 0;
    while (err == 0 && begun < cell->load_count) {
        err = sl_bench_load_begin(cell->loads[begun], common->warm_up, common->seconds);
        begun += err == 0 ? 1 : 0;
    }
    for (uint32_t i = 0; i < begun; i++) {
        struct sl_bench_load_result *result = &cell->result;
        const int load_err = sl_bench_load_wait(cell->loads[i], result);
        err = err != 0 ? err : load_err;
        if (load_err == 0) {
            total->requests += result->requests;
            total->all_requests += result->all_requests;
            total->requests_per_s += (double)result->requests / result->seconds;
            total->keys_per_s += (double)result->keys / result->seconds;
            total->cpu_seconds += result->cpu_seconds;
            sl_metric_merge(&cell->round, &result->latency);
        }
    }
    return err;
}

static double quantile_us(const struct sl_bench_cell *cell, double share)
{
    return (double)sl_metric_quantile(&cell->round, share) / 1e3;
}

static int measure(struct sl_bench_cell *cell, const struct sl_bench_common *common, double *values)
{
    struct total total = {0};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < cell->load_count; i++) {
        err = cell->loads[i] == NULL ? open_load(cell, i) : 0;
    }
    const double cpu_before = cell->ps == NULL ? 0 : sl_bench_ps_cpu_seconds(cell->ps);
    sl_metric_init(&cell->round);
    /* On a machine that stands still a time may pass without an answer: then it is the next that
     * counts. */
    for (uint32_t i = 0; err == 0 && total.requests == 0 && i < TRIES; i++) {
        err = run_loads(cell, common, &total);
    }
    if (err == 0 && total.requests == 0) {
        sl_log_error("not one request was answered in %g s", common->seconds);
        err = SL_ERR_DEADLINE;
    }
    if (err != 0) {
        return err;
    }
    values[SL_BENCH_CELL_REQUESTS] = total.requests_per_s;
    values[SL_BENCH_CELL_KEYS] = total.keys_per_s;
    values[SL_BENCH_CELL_P50] = quantile_us(cell, 0.5);
    values[SL_BENCH_CELL_P99] = quantile_us(cell, 0.99);
    values[SL_BENCH_CELL_P999] = quantile_us(cell, 0.999);
    values[SL_BENCH_CELL_CLIENT_CPU] = total.cpu_seconds / (double)total.requests * 1e6;
    if (cell->ps != NULL) {
        values[SL_BENCH_CELL_SERVER_CPU] =
            (sl_bench_ps_cpu_seconds(cell->ps) - cpu_before) / (double)total.all_requests * 1e6;
    }
    sl_metric_merge(&cell->latency, &cell->round);
    return 0;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_cell *cell = ctx;
    if (cell->parks) {
        sl_bench_ps_unpark(cell->ps);
    }
    const int err = measure(cell, common, values);
    if (err != 0 && cell->ps != NULL) {
        sl_bench_ps_show_log(cell->ps);
    }
    if (cell->parks) {
        sl_bench_ps_park(cell->ps);
    }
    return err;
}

struct sl_bench_contestant sl_bench_cell_contestant(struct sl_bench_cell *cell)
{
    sl_assert(cell->load_count >= 1);
    sl_assert(cell->load_count <= SL_BENCH_CELL_LOADS_MAX);
    sl_assert(cell->load_count <= cell->options.connections);
    sl_assert(cell->ps != NULL || !cell->parks);
    sl_metric_init(&cell->latency);
    return (struct sl_bench_contestant){
        .name = cell->name,
        .quantities = sl_bench_cell_quantities,
        .quantity_count = cell->ps == NULL ? SL_BENCH_CELL_SERVER_CPU : SL_BENCH_CELL_QUANTITIES,
        .transport = "TCP",
        .run = run,
        .ctx = cell,
    };
}

void sl_bench_cell_fini(struct sl_bench_cell *cell)
{
    for (uint32_t i = 0; i < cell->load_count; i++) {
        sl_bench_load_close(&cell->loads[i]);
    }
}
