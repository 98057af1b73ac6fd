#include "bench/bulk_small.h"

#include <stdlib.h>

#include "bench/load.h"

enum { ROWS = 10000, DIM = 16 };

/* As the client library sends them: long ranges travel in pieces, as many as the credit allows. */
#define PIECE_BYTES ((uint64_t)1 << 20)

struct pair {
    struct sl_bench_load *pulls, *pushes; /* pushes NULL: none */
};

static int open_pulls(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
                      struct sl_bench_load **out)
{
    const struct sl_bench_load_options options = {
        .coordinator = sl_bench_ps_coordinator(small->ps),
        .table =
            {
                .name = "bulk/small",
                .kind = SL_TABLE_SPARSE,
                .dim = DIM,
                .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_ADAGRAD),
            },
        .operation = SL_BENCH_PULL,
        .connections = small->connections,
        .depth = 1,
        .keys = 1,
        .rows = ROWS,
        .seed = 1,
        .core = common->client_core,
        .congestion = small->congestion,
    };
    return sl_bench_load_open(&options, out);
}

static int open_pushes(const struct sl_bench_bulk_small *small,
                       const struct sl_bench_common *common, struct sl_bench_load *pulls,
                       struct sl_bench_load **out)
{
    const struct sl_bench_load_options options = {
        .coordinator = sl_bench_ps_coordinator(small->ps),
        .table =
            {
                .name = "bulk/beside",
                .kind = SL_TABLE_DENSE,
                .length = small->push_bytes / sizeof(float),
                .optimizer = sl_optimizer_defaults(small->optimizer),
            },
        .operation = SL_BENCH_PUSH,
        .connections = 1,
        .depth = (uint32_t)(small->push_bytes / PIECE_BYTES),
        .keys = PIECE_BYTES / sizeof(float),
        .core = small->push_core,
        .congestion = small->congestion,
        .host = small->push_core == common->client_core ? pulls : NULL,
    };
    return sl_bench_load_open(&options, out);
}

static int open_pair(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
                     struct pair *pair)
{
    *pair = (struct pair){0};
    int err = open_pulls(small, common, &pair->pulls);
    if (err == 0 && small->push_bytes > 0) {
        err = open_pushes(small, common, pair->pulls, &pair->pushes);
        if (err != 0) {
            sl_bench_load_close(&pair->pulls);
        }
    }
    return err;
}

static void close_pair(struct pair *pair)
{
    sl_bench_load_close(&pair->pushes);
    sl_bench_load_close(&pair->pulls);
}

/* The pushes end last. */
static int run_pair(const struct pair *pair, const struct sl_bench_common *common,
                    struct sl_bench_load_result *pulled, struct sl_bench_load_result *pushed)
{
    int err = sl_bench_load_begin(pair->pulls, common->warm_up, common->seconds);
    if (err != 0 || pair->pushes == NULL) {
        return err != 0 ? err : sl_bench_load_wait(pair->pulls, pulled);
    }
    err = sl_bench_load_run(pair->pushes, common->warm_up, common->seconds, pushed);
    int waited = sl_bench_load_wait(pair->pulls, pulled);
    return err != 0 ? err : waited;
}

static int measure(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
                   struct sl_bench_load_result *pulled, struct sl_bench_load_result *pushed)
{
    struct pair pair;
    sl_bench_ps_unpark(small->ps);
    int err = open_pair(small, common, &pair);
    if (err == 0) {
        err = run_pair(&pair, common, pulled, pushed);
        close_pair(&pair);
    }
    if (err != 0) {
        sl_bench_ps_show_log(small->ps);
    }
    sl_bench_ps_park(small->ps);
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct sl_bench_load_result *results = calloc(2, sizeof *results);
    if (results == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    struct sl_bench_load_result *pulled = &results[0], *pushed = &results[1];
    int err = measure(ctx, common, pulled, pushed);
    if (err == 0) {
        const double pushed_bytes = (double)(pushed->requests * PIECE_BYTES);
        values[SL_BENCH_BULK_SMALL_P50] = (double)sl_metric_quantile(&pulled->latency, 0.5) / 1e3;
        values[SL_BENCH_BULK_SMALL_P99] = (double)sl_metric_quantile(&pulled->latency, 0.99) / 1e3;
        values[SL_BENCH_BULK_SMALL_RATE] = (double)pulled->requests / pulled->seconds;
        values[SL_BENCH_BULK_SMALL_PUSHED] =
            pushed->requests == 0 ? 0 : pushed_bytes / pushed->seconds;
    }
    free(results);
    return err;
}

struct sl_bench_contestant sl_bench_bulk_small_contestant(const char *name,
                                                          struct sl_bench_bulk_small *small)
{
    static const struct sl_bench_quantity quantities[] = {
        [SL_BENCH_BULK_SMALL_P50] = {"p50", "us"},
        [SL_BENCH_BULK_SMALL_P99] = {"p99", "us"},
        [SL_BENCH_BULK_SMALL_RATE] = {"requests", "1/s"},
        [SL_BENCH_BULK_SMALL_PUSHED] = {"pushed bytes", "1/s"},
    };
    return (struct sl_bench_contestant){
        .name = name,
        .quantities = quantities,
        .quantity_count = sizeof quantities / sizeof quantities[0],
        .transport = "TCP",
        .run = run,
        .ctx = small,
    };
}
