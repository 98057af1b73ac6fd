#include "bench/bulk_small.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "bench/load.h"
#include "core/assert.h"
#include "core/log.h"

enum { ROWS = 10000, DIM = 16 };

/* The thread that pushes. */
struct pusher {
    const struct sl_bench_bulk_small *small;
    bool yields; /* to the small pulls, whose core it shares */
    sem_t stop, started;
    int err;
    struct sl_bench_bulk_result result;
    pthread_t thread;
};

static void *push(void *ctx)
{
    struct pusher *pusher = ctx;
    if (pusher->yields) {
        const struct sched_param none = {0};
        (void)sched_setscheduler(0, SCHED_IDLE, &none); /* the client's threads inherit it */
    }
    pusher->err = sl_bench_bulk_transfer_run(&pusher->small->pushes, pusher->small->push_core, 0, 0,
                                             &pusher->stop, &pusher->started, &pusher->result);
    (void)sem_post(&pusher->started); /* also when it has failed */
    return NULL;
}

static int start_pusher(struct pusher *pusher)
{
    if (pthread_create(&pusher->thread, NULL, push, pusher) != 0) {
        sl_log_error("no thread for the pushes");
        return SL_ERR_NO_MEMORY;
    }
    while (sem_wait(&pusher->started) != 0) {
        sl_assert(errno == EINTR);
    }
    return 0;
}

static int stop_pusher(struct pusher *pusher)
{
    (void)sem_post(&pusher->stop);
    (void)pthread_join(pusher->thread, NULL);
    return pusher->err;
}

static int open_load(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
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
        .congestion = small->pushes.congestion,
    };
    return sl_bench_load_open(&options, out);
}

static int run_beside(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
                      struct sl_bench_load *load, struct sl_bench_load_result *result,
                      double *pushed)
{
    struct pusher pusher = {.small = small, .yields = small->push_core == common->client_core};
    (void)sem_init(&pusher.stop, 0, 0);
    (void)sem_init(&pusher.started, 0, 0);
    int err = start_pusher(&pusher);
    if (err != 0) {
        return err;
    }
    err = sl_bench_load_run(load, common->warm_up, common->seconds, result);
    int stopped = stop_pusher(&pusher);
    err = err != 0 ? err : stopped;
    if (err == 0) {
        *pushed = (double)(pusher.result.steps * small->pushes.bytes) / pusher.result.seconds;
    }
    return err;
}

static int measure(const struct sl_bench_bulk_small *small, const struct sl_bench_common *common,
                   struct sl_bench_load_result *result, double *pushed)
{
    struct sl_bench_load *load;
    int err = open_load(small, common, &load);
    if (err != 0) {
        return err;
    }
    err = small->pushes.bytes == 0
              ? sl_bench_load_run(load, common->warm_up, common->seconds, result)
              : run_beside(small, common, load, result, pushed);
    sl_bench_load_close(&load);
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct sl_bench_bulk_small *small = ctx;
    struct sl_bench_load_result *result = malloc(sizeof *result);
    if (result == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    double pushed = 0;
    sl_bench_ps_unpark(small->ps);
    int err = measure(small, common, result, &pushed);
    if (err != 0) {
        sl_bench_ps_show_log(small->ps);
    } else {
        values[SL_BENCH_BULK_SMALL_P50] = (double)sl_metric_quantile(&result->latency, 0.5) / 1e3;
        values[SL_BENCH_BULK_SMALL_P99] = (double)sl_metric_quantile(&result->latency, 0.99) / 1e3;
        values[SL_BENCH_BULK_SMALL_RATE] = (double)result->requests / result->seconds;
        values[SL_BENCH_BULK_SMALL_PUSHED] = pushed;
    }
    sl_bench_ps_park(small->ps);
    free(result);
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
        .run = run,
        .ctx = small,
    };
}
