#include <stdlib.h>

#include "bench/bare.h"
#include "bench/bare_peer.h"
#include "bench/bare_rows_loops.h"
#include "core/arena_pages.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"

#define PLACES_LEAST (1U << 22) /* drawn at first, and gone through again and again */
#define ACCUMULATOR  0.1F

struct sl_bench_bare_rows_memory {
    struct sl_bench_bare_rows options;
    struct sl_bench_bare_rows_view view;
    uint8_t *base;
    size_t bytes;
    uint32_t *places;
    uint32_t place_count; /* a multiple of the batch */
    float *out;           /* [batch][dim], where rows are gathered */
    float *gradients;     /* [batch][dim] */
};

/* One turn over a batch. */
typedef void (*batch_fn)(const struct sl_bench_bare_rows_memory *memory, const uint32_t *places);

static void fill(struct sl_bench_bare_rows_memory *memory)
{
    const struct sl_bench_bare_rows *options = &memory->options;
    for (uint64_t i = 0; i < options->rows; i++) {
        float *row = (float *)(void *)(memory->view.values + i * memory->view.stride_bytes);
        for (uint32_t k = 0; k < options->dim; k++) {
            row[k] = (float)(i % 1024) + (float)k / 1024;
            row[options->dim + k] = ACCUMULATOR;
        }
    }
    for (uint64_t i = 0; i < (uint64_t)options->batch * options->dim; i++) {
        memory->gradients[i] = (float)(i % 13) * 0.001F - 0.006F;
    }
    uint64_t state = options->seed;
    for (uint32_t i = 0; i < memory->place_count; i++) {
        memory->places[i] = (uint32_t)(sl_hash_random(&state) % options->rows);
    }
}

int sl_bench_bare_rows_create(const struct sl_bench_bare_rows *options,
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
    memory->options = *options;
    memory->place_count = (PLACES_LEAST / options->batch + 1) * options->batch;
    memory->bytes = (stride * options->rows + huge - 1) / huge * huge;
    memory->base = sl_arena_pages_map(memory->bytes, true);
    memory->places = malloc(memory->place_count * sizeof *memory->places);
    memory->out = malloc(block);
    memory->gradients = malloc(block);
    if (memory->base == NULL || memory->places == NULL || memory->out == NULL ||
        memory->gradients == NULL) {
        sl_log_error("baseline: no memory for %llu rows", (unsigned long long)options->rows);
        sl_bench_bare_rows_destroy(&memory);
        return SL_ERR_NO_MEMORY;
    }
    memory->view = (struct sl_bench_bare_rows_view){.values = memory->base + options->header_bytes,
                                                    .stride_bytes = stride,
                                                    .dim = options->dim};
    fill(memory);
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
    free((*memory)->places);
    free((*memory)->out);
    free((*memory)->gradients);
    free(*memory);
    *memory = NULL;
}

/* ns for a row, of the batches that began after the warm-up; one at least. */
static int measure(struct sl_bench_bare_rows_memory *memory, const struct sl_bench_common *common,
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
    uint64_t batches = 0;
    for (uint32_t at = 0;; at = (at + memory->options.batch) % memory->place_count) {
        const uint64_t now_ns = sl_clock_now_ns(clock);
        if (batches > 0 && now_ns - first_ns >= lasts_ns) {
            *ns = (double)(now_ns - first_ns) / ((double)batches * memory->options.batch);
            break;
        }
        if (first_ns == 0 && now_ns >= warm_until_ns) {
            first_ns = now_ns;
        }
        run(memory, memory->places + at);
        batches += first_ns != 0;
    }
    sl_bench_bare_pin_end(&pin);
    return 0;
}

static void gather(const struct sl_bench_bare_rows_memory *memory, const uint32_t *places)
{
    sl_bench_bare_rows_select()->gather(&memory->view, places, memory->options.batch, memory->out);
}

static void update(const struct sl_bench_bare_rows_memory *memory, const uint32_t *places)
{
    sl_bench_bare_rows_select()->update(&memory->view, places, memory->options.batch,
                                        memory->gradients);
}

int sl_bench_bare_rows_gather(struct sl_bench_bare_rows_memory *memory,
                              const struct sl_bench_common *common, double *ns)
{
    return measure(memory, common, gather, ns);
}

int sl_bench_bare_rows_update(struct sl_bench_bare_rows_memory *memory,
                              const struct sl_bench_common *common, double *ns)
{
    return measure(memory, common, update, ns);
}

int sl_bench_bare_rows_run(const struct sl_bench_bare_rows *options,
                           const struct sl_bench_common *common, double *gather_ns,
                           double *update_ns)
{
    struct sl_bench_bare_rows_memory *memory;
    int err = sl_bench_bare_rows_create(options, &memory);
    if (err != 0) {
        return err;
    }
    err = sl_bench_bare_rows_gather(memory, common, gather_ns);
    if (err == 0) {
        err = sl_bench_bare_rows_update(memory, common, update_ns);
    }
    sl_bench_bare_rows_destroy(&memory);
    return err;
}
