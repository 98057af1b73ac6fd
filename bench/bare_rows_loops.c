#include "bench/bare_rows_loops.h"

#include <math.h>
#include <string.h>

#define CACHE_LINE         64
#define PREFETCH_BYTES     512 /* of a row; the processor fetches the rest of a long one by itself */
#define LR                 0.05F
#define EPSILON            1e-10F

#define PASTE(name, form)  name##_##form
#define EXPAND(name, form) PASTE(name, form)
#define FORM_NAME(name)    EXPAND(name, SL_FORM)
#define ALWAYS_INLINE      inline __attribute__((always_inline))

extern const struct sl_bench_bare_rows_loops FORM_NAME(sl_bench_bare_rows_loops);

static ALWAYS_INLINE uint8_t *row_at(const struct sl_bench_bare_rows_view *view, uint32_t place)
{
    return view->values + place * view->stride_bytes;
}

/* Rows between a prefetch and its use. Measured: a gather of 128 columns took 1.4 times as long
 * with 16 as with 8, an update of 16 columns 1.1 times as long with 8 as with 16. */
static ALWAYS_INLINE uint32_t ahead(size_t bytes)
{
    return bytes <= 256 ? 16 : 8;
}

/* Inlined by force: GCC removes calls of a function that does nothing but prefetch. */
static ALWAYS_INLINE void prefetch(const uint8_t *row, size_t bytes)
{
    const size_t worth = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
    for (size_t at = 0; at < worth; at += CACHE_LINE) {
        __builtin_prefetch(row + at);
    }
    __builtin_prefetch(row + worth - 1);
}

static ALWAYS_INLINE void prefetch_first(const struct sl_bench_bare_rows_view *view,
                                         const uint32_t *places, uint32_t count, size_t bytes)
{
    for (uint32_t i = 0; i < count && i < ahead(bytes); i++) {
        prefetch(row_at(view, places[i]), bytes);
    }
}

static ALWAYS_INLINE void gather_dim(const struct sl_bench_bare_rows_view *view,
                                     const uint32_t *places, uint32_t count, uint32_t dim,
                                     float *rows)
{
    const size_t bytes = dim * sizeof(float);
    prefetch_first(view, places, count, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > ahead(bytes)) {
            prefetch(row_at(view, places[i + ahead(bytes)]), bytes);
        }
        memcpy(rows + (size_t)i * dim, row_at(view, places[i]), bytes);
    }
}

static ALWAYS_INLINE void adagrad(uint32_t dim, float *restrict w, float *restrict a,
                                  const float *restrict g)
{
    for (uint32_t i = 0; i < dim; i++) {
        const float sum = a[i] + g[i] * g[i];
        a[i] = sum;
        w[i] -= LR * g[i] / (sqrtf(sum) + EPSILON);
    }
}

static ALWAYS_INLINE void update_dim(const struct sl_bench_bare_rows_view *view,
                                     const uint32_t *places, uint32_t count, uint32_t dim,
                                     const float *gradients)
{
    const size_t bytes = 2 * dim * sizeof(float);
    prefetch_first(view, places, count, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > ahead(bytes)) {
            prefetch(row_at(view, places[i + ahead(bytes)]), bytes);
        }
        float *row = (float *)(void *)row_at(view, places[i]);
        adagrad(dim, row, row + dim, gradients + (size_t)i * dim);
    }
}

static void gather(const struct sl_bench_bare_rows_view *view, const uint32_t *places,
                   uint32_t count, float *rows)
{
    switch (view->dim) {
    case 16:
        gather_dim(view, places, count, 16, rows);
        break;
    case 64:
        gather_dim(view, places, count, 64, rows);
        break;
    case 128:
        gather_dim(view, places, count, 128, rows);
        break;
    default:
        gather_dim(view, places, count, view->dim, rows);
        break;
    }
}

static void update(const struct sl_bench_bare_rows_view *view, const uint32_t *places,
                   uint32_t count, const float *gradients)
{
    switch (view->dim) {
    case 16:
        update_dim(view, places, count, 16, gradients);
        break;
    case 64:
        update_dim(view, places, count, 64, gradients);
        break;
    case 128:
        update_dim(view, places, count, 128, gradients);
        break;
    default:
        update_dim(view, places, count, view->dim, gradients);
        break;
    }
}

const struct sl_bench_bare_rows_loops FORM_NAME(sl_bench_bare_rows_loops) = {
    .gather = gather,
    .update = update,
};
