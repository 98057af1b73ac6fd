#include "bench/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/hash.h"
#include "core/limits.h"
#include "core/log.h"

/* Zipf's law by rejection-inversion: Hörmann and Derflinger, "Rejection-Inversion to Generate
 * Variates from Monotone Discrete Distributions", ACM TOMACS 6, 1996. h is x^-s, its integral
 * h_integral from 1, which at s = 1 is the logarithm. */
static double h_integral(double x, double s)
{
    return s == 1.0 ? log(x) : expm1((1.0 - s) * log(x)) / (1.0 - s);
}

static double h_integral_inverse(double y, double s)
{
    return s == 1.0 ? exp(y) : exp(log1p(y * (1.0 - s)) / (1.0 - s));
}

void sl_bench_workload_init(struct sl_bench_workload *workload,
                            enum sl_bench_distribution distribution, uint64_t rows, double exponent,
                            uint64_t seed)
{
    sl_assert(rows >= 1);
    sl_assert(distribution == SL_BENCH_UNIFORM || exponent > 0);
    *workload = (struct sl_bench_workload){
        .distribution = distribution, .rows = rows, .state = seed, .exponent = exponent};
    if (distribution == SL_BENCH_ZIPF) {
        workload->h_first = h_integral(1.5, exponent) - 1.0;
        workload->h_last = h_integral((double)rows + 0.5, exponent);
        workload->accept_below =
            2.0 - h_integral_inverse(h_integral(2.5, exponent) - pow(2.0, -exponent), exponent);
    }
}

static double uniform(struct sl_bench_workload *workload)
{
    return (double)(sl_hash_random(&workload->state) >> 11) * 0x1p-53;
}

/* A rank from 1. */
static uint64_t zipf(struct sl_bench_workload *workload)
{
    const double s = workload->exponent;
    for (;;) {
        const double u =
            workload->h_last + uniform(workload) * (workload->h_first - workload->h_last);
        const double x = h_integral_inverse(u, s);
        const double k = fmin(fmax(floor(x + 0.5), 1.0), (double)workload->rows);
        if (k - x <= workload->accept_below || u >= h_integral(k + 0.5, s) - pow(k, -s)) {
            return (uint64_t)k;
        }
    }
}

uint64_t sl_bench_workload_key(uint64_t rank)
{
    return sl_hash_key(rank + 0x5eedULL);
}

uint64_t sl_bench_workload_next(struct sl_bench_workload *workload)
{
    if (workload->distribution == SL_BENCH_ZIPF) {
        return sl_bench_workload_key(zipf(workload) - 1);
    }
    return sl_bench_workload_key(sl_hash_random(&workload->state) % workload->rows);
}

/* ---- Rows ---------------------------------------------------------------------------------------
 */

#define CREATE_FLOATS (256U << 10) /* gradients, all zero, of one push that creates rows */

struct sl_table_spec sl_bench_rows_table(const char *name, uint64_t dim,
                                         enum sl_optimizer_kind optimizer)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .kind = SL_TABLE_SPARSE,
        .dim = (uint32_t)dim,
        .optimizer = sl_optimizer_defaults(optimizer),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -0.1F, .high = 0.1F, .seed = 1},
    };
    (void)snprintf(spec.name, sizeof spec.name, "%s", name);
    return spec;
}

int sl_bench_rows_finish(struct sl_step *step, int err, const char *what)
{
    err = err != 0 ? err : sl_step_submit(step, SL_BENCH_ROWS_TIMEOUT_MS);
    err = err != 0 ? err : sl_step_wait(step);
    if (err != 0) {
        sl_log_error("%s: %s: %s", what, sl_err_name(err), sl_step_error(step));
    }
    sl_step_destroy(&step);
    return err;
}

static int create_some(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                       uint32_t count, const float *zeros)
{
    struct sl_step *step;
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = sl_step_push(step, table, keys, count, zeros);
    return sl_bench_rows_finish(step, err, "rows cannot be created");
}

int sl_bench_rows_create(struct sl_client *client, struct sl_table *table, uint32_t dim,
                         uint64_t rows)
{
    const uint32_t most = CREATE_FLOATS / dim;
    uint64_t *keys = malloc(most * sizeof *keys);
    float *zeros = calloc(CREATE_FLOATS, sizeof *zeros);
    int err = keys == NULL || zeros == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint64_t rank = 0; err == 0 && rank < rows;) {
        uint32_t count = 0;
        while (count < most && rank < rows) {
            keys[count++] = sl_bench_workload_key(rank++);
        }
        err = create_some(client, table, keys, count, zeros);
    }
    free(keys);
    free(zeros);
    return err;
}
