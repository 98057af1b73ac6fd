/* What the kernel files share. CMake compiles each of them once for every form of vector unit and
 * names the form in SL_SIMD; a file's object is called sl_opt_<name>_<form>. */
#ifndef SL_PS_OPTIMIZER_SIMD_H
#define SL_PS_OPTIMIZER_SIMD_H

#include "ps/optimizer/select.h"

#define SL_SIMD_PASTE(name, form)  name##_##form
#define SL_SIMD_EXPAND(name, form) SL_SIMD_PASTE(name, form)
#define SL_SIMD_NAME(name)         SL_SIMD_EXPAND(name, SL_SIMD)

extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_sum);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_sgd);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_momentum);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adagrad);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adagrad_decay);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_rmsprop);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adam);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adamw);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adam_async);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_ftrl);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_ftrl_group);

extern const sl_optimizer_gather_fn SL_SIMD_NAME(sl_gather);

/* All of the above. */
extern const struct sl_select_kernels SL_SIMD_NAME(sl_simd_kernels);

/* Of a kernel's `apply`: it is inlined by force into the loops over rows below. */
#define SL_SIMD_INLINE inline __attribute__((always_inline))

typedef void (*sl_simd_apply_fn)(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g);

#define SL_SIMD_CACHE_LINE  64
#define SL_SIMD_ALIGNMENT   16
#define SL_SIMD_FETCH_BYTES 512 /* the processor fetches the rest of a long record itself */

/* Asks for the cache lines of a record or a row, many rows ahead of its visit. The last byte may
 * lie on a line of its own, but not where the last step leaves 16 bytes: records that are a
 * multiple of 16 long lie at multiples of 16. */
static SL_SIMD_INLINE void sl_simd_fetch(const void *from, size_t bytes)
{
    const char *at = from;
    const size_t worth = bytes < SL_SIMD_FETCH_BYTES ? bytes : SL_SIMD_FETCH_BYTES;
    const size_t rest = worth % SL_SIMD_CACHE_LINE;
    for (size_t line = 0; line < worth; line += SL_SIMD_CACHE_LINE) {
        __builtin_prefetch(at + line);
    }
    if (rest != SL_SIMD_ALIGNMENT) {
        __builtin_prefetch(at + worth - 1);
    }
}

/* Rows between a fetch and the visit: as many as are a few kilobytes. */
static SL_SIMD_INLINE uint32_t sl_simd_ahead(size_t bytes)
{
    return bytes <= 256 ? 16 : 8;
}

/* Fetches stand between the visits, one row's at a time: a burst of them fills the processor's
 * queue of misses, and no arithmetic gets past it. */
static inline __attribute__((always_inline)) void
sl_simd_apply_each(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows,
                   uint32_t dim, uint32_t slots_per_value, sl_simd_apply_fn apply)
{
    const struct sl_optimizer_rows all = *rows;
    const size_t floats = (size_t)dim * (1 + slots_per_value);
    const size_t bytes = sizeof(struct sl_row) + floats * sizeof(float);
    const uint32_t ahead = sl_simd_ahead(bytes);
    struct sl_optimizer_visit one = *visit;
    one.dim = dim;
    one.slot_stride = dim;
    for (uint32_t i = 0; i < ahead && i < all.count; i++) {
        sl_simd_fetch(all.records[i], bytes);
    }
    for (uint32_t i = 0; i < all.count; i++) {
        struct sl_row *record = all.records[i];
        float *w = record->values;
        if (all.count - i > ahead) {
            sl_simd_fetch(all.records[i + ahead], bytes);
        }
        one.count = record->count;
        record->last_step = (uint32_t)one.step;
        record->count = one.count + (one.count < UINT32_MAX);
        apply(&one, w, w + dim, w + floats, all.gradients + (size_t)i * dim);
    }
}

/* What each kernel file makes its apply_rows of. The usual lengths of a row have loops of their
 * own, in which nothing is left to be asked about the length. */
static inline __attribute__((always_inline)) void
sl_simd_apply_rows(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows,
                   uint32_t slots_per_value, sl_simd_apply_fn apply)
{
    switch (visit->dim) {
    case 8:
        sl_simd_apply_each(visit, rows, 8, slots_per_value, apply);
        break;
    case 16:
        sl_simd_apply_each(visit, rows, 16, slots_per_value, apply);
        break;
    case 32:
        sl_simd_apply_each(visit, rows, 32, slots_per_value, apply);
        break;
    case 64:
        sl_simd_apply_each(visit, rows, 64, slots_per_value, apply);
        break;
    case 128:
        sl_simd_apply_each(visit, rows, 128, slots_per_value, apply);
        break;
    default:
        sl_simd_apply_each(visit, rows, visit->dim, slots_per_value, apply);
        break;
    }
}

/* Fills a slot with the accumulator's first value. */
static inline void sl_simd_init_accumulator(const struct sl_optimizer_spec *spec, uint32_t dim,
                                            float *slot)
{
    for (uint32_t i = 0; i < dim; i++) {
        slot[i] = spec->initial_accumulator;
    }
}

#endif
