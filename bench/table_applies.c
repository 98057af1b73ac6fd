#include "bench/table_applies.h"

#include "bench/fork.h"
#include "bench/now.h"
#include "core/log.h"
#include "ps/table/dense_table.h"

/* Returns how many pushes were applied until then; *now_ns is when that was. */
static uint64_t apply_until(const struct sl_bench_table_applies *applies,
                            struct sl_dense_table *table, uint64_t end_ns, uint64_t *now_ns)
{
    const uint64_t count = applies->bytes / sizeof(float);
    uint64_t pushes = 0;
    do {
        pushes++;
        const struct sl_optimizer_push push = {.step = pushes, .rate = 1};
        sl_dense_table_apply(table, 0, count, applies->gradients + pushes % applies->depth * count,
                             &push);
        *now_ns = sl_bench_now_ns();
    } while (*now_ns < end_ns);
    return pushes;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    const struct sl_bench_table_applies *applies = ctx;
    const struct sl_table_spec spec = {
        .name = "applies",
        .kind = SL_TABLE_DENSE,
        .length = applies->bytes / sizeof(float),
        .optimizer = sl_optimizer_defaults(applies->optimizer),
    };
    struct sl_dense_table *table;
    int err = sl_dense_table_create(&spec, 0, spec.length, 0, &table);
    if (err != 0) {
        sl_log_error("no memory for a dense table of %llu bytes",
                     (unsigned long long)applies->bytes);
        return err;
    }
    cpu_set_t before;
    err = sl_bench_pin_begin(common->server_core, &before);
    if (err == 0) {
        uint64_t begun_ns = sl_bench_now_ns(), ended_ns;
        (void)apply_until(applies, table, begun_ns + sl_bench_ns(common->warm_up), &begun_ns);
        const uint64_t pushes =
            apply_until(applies, table, begun_ns + sl_bench_ns(common->seconds), &ended_ns);
        sl_bench_pin_end(&before);
        values[0] =
            (double)(pushes * applies->bytes) * SL_CLOCK_NS_PER_S / (double)(ended_ns - begun_ns);
    }
    sl_dense_table_destroy(&table);
    return err;
}

struct sl_bench_contestant sl_bench_table_applies_contestant(const char *name,
                                                             struct sl_bench_table_applies *applies)
{
    static const struct sl_bench_quantity bytes = {"bytes", "1/s"};
    return (struct sl_bench_contestant){
        .name = name, .quantities = &bytes, .quantity_count = 1, .run = run, .ctx = applies};
}
