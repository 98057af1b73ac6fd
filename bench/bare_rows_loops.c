#include "bench/bare_rows_loops.h"

#include <math.h>
#include <string.h>

#define CACHE_LINE         64
#define PREFETCH_BYTES     512 /* of a row; the processor fetches the rest of a long one by itself */
#define LR                 0.05F
#define EPSILON            1e-10F

#define PASTE(name, form)  name##_##form
#define EXPAND(name, form) PASTE(name, form)
#define FORM_NAME(name)    EXPAND(name, SL_SIMD)
#define ALWAYS_INLINE      inline __attribute__((always_inline))

extern const struct sl_bench_bare_rows_loops FORM_NAME(sl_bench_bare_rows_loops);

/* Rows between a prefetch and its use. Measured: a gather of 128 columns took 1.4 times as long
 * with 16 as with 8, an update of 16 columns 1.1 times as long with 8 as with 16. */
static ALWAYS_INLINE uint32_t ahead(size_t bytes)
{
    return bytes <= 256 ? 16 : 8;
}

/* Inlined by force: GCC removes calls of a function that does nothing but prefetch. */
static ALWAYS_INLINE void prefetch(const float *row, size_t bytes)
{
    const uint8_t *at = (const uint8_t *)row;
    const size_t worth = bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES;
    for (size_t line = 0; line < worth; line += CACHE_LINE) {
        __builtin_prefetch(at + line);
    }
    __builtin_prefetch(at + worth - 1);
}

static ALWAYS_INLINE void prefetch_first(float *const *rows, uint32_t count, size_t bytes)
{
    for (uint32_t i = 0; i < count && i < ahead(bytes); i++) {
        prefetch(rows[i], bytes);
    }
}

/* Line by line: of 512 bytes at once GCC makes a string instruction, which is slower. */
static ALWAYS_INLINE void copy(float *restrict to, const float *restrict from, uint32_t dim)
{
    const uint32_t line = CACHE_LINE / sizeof *to;
    for (; dim >= line; dim -= line) {
        memcpy(to, from, CACHE_LINE);
        to += line;
        from += line;
    }
    if (dim > 0) {
        memcpy(to, from, dim * sizeof *to);
    }
}

static ALWAYS_INLINE void gather_dim(float *const *rows, uint32_t count, uint32_t dim,
                                     float *values)
{
    const size_t bytes = dim * sizeof(float);
    prefetch_first(rows, count, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > ahead(bytes)) {
            prefetch(rows[i + ahead(bytes)], bytes);
        }
        copy(values + (size_t)i * dim, rows[i], dim);
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

static ALWAYS_INLINE void update_dim(float *const *rows, uint32_t count, uint32_t dim,
                                     const float *gradients)
{
    const size_t bytes = 2 * dim * sizeof(float);
    prefetch_first(rows, count, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (count - i > ahead(bytes)) {
            prefetch(rows[i + ahead(bytes)], bytes);
        }
        float *row = rows[i];
        adagrad(dim, row, row + dim, gradients + (size_t)i * dim);
    }
}

static void gather(float *const *rows, uint32_t count, uint32_t dim, float *values)
{
    switch (dim) {
    case 16:
        gather_dim(rows, count, 16, values);
        break;
    case 64:
        gather_dim(rows, count, 64, values);
        break;
    case 128:
        gather_dim(rows, count, 128, values);
        break;
    default:
        gather_dim(rows, count, dim, values);
        break;
    }
}

static void update(float *const *rows, uint32_t count, uint32_t dim, const float *gradients)
{
    switch (dim) {
    case 16:
        update_dim(rows, count, 16, gradients);
        break;
    case 64:
        update_dim(rows, count, 64, gradients);
        break;
    case 128:
        update_dim(rows, count, 128, gradients);
        break;
    default:
        update_dim(rows, count, dim, gradients);
        break;
    }
}

const struct sl_bench_bare_rows_loops FORM_NAME(sl_bench_bare_rows_loops) = {
    .gather = gather,
    .update = update,
};
