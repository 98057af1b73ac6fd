#include "bench/rows.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench/workload.h"
#include "core/limits.h"
#include "core/log.h"

#define CREATE_KEYS (64U << 10) /* rows created by one pull */

struct sl_table_spec sl_bench_rows_table(const char *name, uint64_t dim,
                                         enum sl_optimizer_kind optimizer)
{
    struct sl_table_spec spec = {
        .kind = SL_TABLE_SPARSE,
        .dim = (uint32_t)dim,
        .optimizer = sl_optimizer_defaults(optimizer),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .a = -0.1F, .b = 0.1F, .seed = 1},
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

/* Sums of many rows are asked for, since nobody wants the rows yet. */
static int create_some(struct sl_client *client, struct sl_table *table, const uint64_t *keys,
                       uint32_t count, float *sum)
{
    struct sl_step *step;
    int err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    err = sl_step_pull_pooled(step, table, keys, count, &count, 1, SL_POOLING_SUM, sum);
    return sl_bench_rows_finish(step, err, "rows cannot be created");
}

int sl_bench_rows_create(struct sl_client *client, struct sl_table *table, uint64_t rows)
{
    uint64_t *keys = malloc(CREATE_KEYS * sizeof *keys);
    float *sum = malloc(SL_LIMIT_DIM * sizeof *sum);
    int err = keys == NULL || sum == NULL ? SL_ERR_NO_MEMORY : 0;
    for (uint64_t rank = 0; err == 0 && rank < rows;) {
        uint32_t count = 0;
        while (count < CREATE_KEYS && rank < rows) {
            keys[count++] = sl_bench_workload_key(rank++);
        }
        err = create_some(client, table, keys, count, sum);
    }
    free(keys);
    free(sum);
    return err;
}
