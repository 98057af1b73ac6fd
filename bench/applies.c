/* The load `applies`: pushes to one dense table in this process: what a server does with a dense
 * push, without the network. */
#include <string.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/turns.h"
#include "core/arena_pages.h"
#include "core/log.h"
#include "ps/table/dense_table.h"

#define BYTES_MAX ((uint64_t)256 << 20)

struct applies {
    uint64_t depth; /* gradients of so many pushes, in turns */
    int optimizer;
    float *gradients; /* [depth][bytes / 4] of the longest turn so far, in huge pages */
    size_t gradient_bytes;
};

/* Returns how many pushes were applied until then; *now_ns is when that was. */
static uint64_t apply_until(const struct applies *applies, struct sl_dense_table *table,
                            uint64_t count, uint64_t end_ns, uint64_t *now_ns)
{
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

/* On the server's core. */
static int measure(const struct applies *applies, struct sl_dense_table *table, uint64_t count,
                   const struct sl_bench_common *common, double *bytes_per_s)
{
    cpu_set_t before;
    const int err = sl_bench_pin_begin(common->server_core, &before);
    if (err == 0) {
        uint64_t begun_ns = sl_bench_now_ns(), ended_ns;
        (void)apply_until(applies, table, count, begun_ns + sl_bench_ns(common->warm_up),
                          &begun_ns);
        const uint64_t pushes =
            apply_until(applies, table, count, begun_ns + sl_bench_ns(common->seconds), &ended_ns);
        sl_bench_pin_end(&before);
        *bytes_per_s =
            (double)(pushes * count * sizeof(float)) / sl_bench_seconds(ended_ns - begun_ns);
    }
    return err;
}

static int grow(struct applies *applies, uint64_t bytes)
{
    const size_t page = SL_ARENA_HUGE_PAGE_BYTES;
    const size_t needed = (applies->depth * bytes + page - 1) / page * page;
    if (needed > applies->gradient_bytes) {
        if (applies->gradients != NULL) {
            sl_arena_pages_unmap(applies->gradients, applies->gradient_bytes);
        }
        applies->gradients = sl_arena_pages_map(needed, true);
        applies->gradient_bytes = applies->gradients == NULL ? 0 : needed;
        if (applies->gradients == NULL) {
            sl_log_error("no memory for %zu bytes", needed);
            return SL_ERR_NO_MEMORY;
        }
        memset(applies->gradients, 0, needed);
    }
    return 0;
}

/* Word of a turn: bytes of a push, and of the table. */
static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    struct applies *applies = ctx;
    const char *words = common->words;
    uint64_t bytes;
    struct sl_dense_table *table = NULL;
    int err = sl_bench_turns_number(&words, sizeof(float), BYTES_MAX, &bytes);
    err = err != 0 ? err : grow(applies, bytes);
    if (err != 0) {
        return err;
    }
    const struct sl_table_spec spec = {
        .name = "applies",
        .kind = SL_TABLE_DENSE,
        .length = bytes / sizeof(float),
        .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)applies->optimizer),
    };
    err = sl_dense_table_create(&spec, 0, spec.length, 0, &table);
    if (err != 0) {
        sl_log_error("no memory for a dense table of %llu bytes", (unsigned long long)bytes);
        return err;
    }
    err = measure(applies, table, spec.length, common, &values[0]);
    sl_dense_table_destroy(&table);
    return err;
}

int sl_bench_applies_run(int argc, char **argv)
{
    static const struct sl_bench_quantity quantity = {"bytes", "1/s"};
    struct sl_bench_common common = sl_bench_common_defaults();
    struct applies applies = {.depth = 4};
    const struct sl_cli_option own[] = {
        sl_bench_number("depth", &applies.depth, 1, 64, "Gradients, in turns."),
        sl_bench_choice("optimizer", &applies.optimizer, "sum|sgd", "Of the table."),
    };
    const int parsed =
        sl_bench_parse_load("applies", own, sizeof own / sizeof own[0], &common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    const int status = sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = &quantity, .quantity_count = 1, .run = run, .ctx = &applies},
        &common);
    if (applies.gradients != NULL) {
        sl_arena_pages_unmap(applies.gradients, applies.gradient_bytes);
    }
    return status;
}
