#include <stdlib.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "bench/bare_rows_loops.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"

#define ROWS_DRAWN  (1U << 22) /* at first, and gone through again and again */
#define ACCUMULATOR 0.1F

/* ---- Loops ----------------------------------------------------------------------------------- */

/* One turn over a batch. */
typedef void (*batch_fn)(const struct sl_bench_bare_rows *rows, uint64_t first, uint32_t count);

static void gather(const struct sl_bench_bare_rows *rows, uint64_t first, uint32_t count)
{
    sl_bench_bare_rows_select()->gather(rows->rows + first, count, rows->dim, rows->values);
}

static void update(const struct sl_bench_bare_rows *rows, uint64_t first, uint32_t count)
{
    sl_bench_bare_rows_select()->update(rows->rows + first, count, rows->dim, rows->gradients);
}

/* ns for a row, of the batches that began after the warm-up; one at least. */
static int measure(const struct sl_bench_bare_rows *rows, const struct sl_bench_common *common,
                   batch_fn run, double *ns)
{
    struct sl_bench_bare_pin pin;
    int err = sl_bench_bare_pin_begin(&pin, common->server_core);
    if (err != 0) {
        return err;
    }
    const struct sl_clock *clock = sl_clock_system();
    const uint64_t warm_until_ns = sl_clock_now_ns(clock) + (uint64_t)(common->warm_up * 1e9);
    const uint64_t lasts_ns = (uint64_t)(common->seconds * 1e9);
    uint64_t first_ns = 0;
    uint64_t done = 0;
    for (uint64_t at = 0;;) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (done > 0 && now_ns - first_ns >= lasts_ns) {
            *ns = (double)(now_ns - first_ns) / (double)done;
            break;
        }
        if (first_ns == 0 && now_ns >= warm_until_ns) {
            first_ns = now_ns;
        }
        const uint64_t left = rows->row_count - at;
        const uint32_t count = (uint32_t)(left < rows->batch ? left : rows->batch);
        run(rows, at, count);
        done += first_ns != 0 ? count : 0;
        at = left == count ? 0 : at + count;
    }
    sl_bench_bare_pin_end(&pin);
    return 0;
}

int sl_bench_bare_rows_gather(const struct sl_bench_bare_rows *rows,
                              const struct sl_bench_common *common, double *ns)
{
    return measure(rows, common, gather, ns);
}

int sl_bench_bare_rows_update(const struct sl_bench_bare_rows *rows,
                              const struct sl_bench_common *common, double *ns)
{
    return measure(rows, common, update, ns);
}

/* ---- Rows of their own ----------------------------------------------------------------------- */

struct sl_bench_bare_rows_memory {
    struct sl_bench_bare_rows measured;
    uint8_t *base;
    size_t bytes;
    float **rows; /* [measured.row_count] */
    float *values, *gradients;
};

static void fill(struct sl_bench_bare_rows_memory *memory,
                 const struct sl_bench_bare_rows_drawn *options, size_t stride)
{
    uint8_t *first = memory->base + options->header_bytes;
    for (uint64_t i = 0; i < options->rows; i++) {
        float *row = (float *)(void *)(first + i * stride);
        for (uint32_t k = 0; k < options->dim; k++) {
            row[k] = (float)(i % 1024) + (float)k / 1024;
            row[options->dim + k] = ACCUMULATOR;
        }
    }
    for (uint64_t i = 0; i < (uint64_t)options->batch * options->dim; i++) {
        memory->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    uint64_t state = options->seed;
    for (uint64_t i = 0; i < memory->measured.row_count; i++) {
        const uint64_t place = sl_hash_random(&state) % options->rows;
        memory->rows[i] = (float *)(void *)(first + place * stride);
    }
}

int sl_bench_bare_rows_create(const struct sl_bench_bare_rows_drawn *options,
                              struct sl_bench_bare_rows_memory **out)
{
    sl_assert(options->rows >= 1);
    sl_assert(options->rows <= UINT32_MAX);
    sl_assert(options->dim >= 1);
    sl_assert(options->batch >= 1);
    sl_assert(options->header_bytes % sizeof(float) == 0);
    struct sl_bench_bare_rows_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const size_t stride = options->header_bytes + 2 * options->dim * sizeof(float);
    const size_t block = options->batch * options->dim * sizeof(float);
    const size_t huge = SL_ARENA_HUGE_PAGE_BYTES;
    const uint64_t row_count = (ROWS_DRAWN / options->batch + 1) * (uint64_t)options->batch;
    memory->bytes = (stride * options->rows + huge - 1) / huge * huge;
    memory->base = sl_arena_pages_map(memory->bytes, true);
    memory->rows = malloc(row_count * sizeof(float *));
    memory->values = malloc(block);
    memory->gradients = malloc(block);
    if (memory->base == NULL || memory->rows == NULL || memory->values == NULL ||
        memory->gradients == NULL) {
        sl_log_error("baseline: no memory for %llu rows", (unsigned long long)options->rows);
        sl_bench_bare_rows_destroy(&memory);
        return SL_ERR_NO_MEMORY;
    }
    memory->measured = (struct sl_bench_bare_rows){.rows = memory->rows,
                                                   .row_count = row_count,
                                                   .dim = options->dim,
                                                   .batch = options->batch,
                                                   .values = memory->values,
                                                   .gradients = memory->gradients};
    fill(memory, options, stride);
    *out = memory;
    return 0;
}

void sl_bench_bare_rows_destroy(struct sl_bench_bare_rows_memory **memory)
{
    if (*memory == NULL) {
        return;
    }
    if ((*memory)->base != NULL) {
        sl_arena_pages_unmap((*memory)->base, (*memory)->bytes);
    }
    free((*memory)->rows);
    free((*memory)->values);
    free((*memory)->gradients);
    free(*memory);
    *memory = NULL;
}

const struct sl_bench_bare_rows *
sl_bench_bare_rows_of(const struct sl_bench_bare_rows_memory *memory)
{
    return &memory->measured;
}
