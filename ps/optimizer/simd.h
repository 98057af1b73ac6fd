/* Definitions shared by the kernel files. CMake compiles each kernel file once per SIMD variant,
 * with the variant's name in SL_SIMD. Its object is named sl_opt_<name>_<variant>. */
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
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_rowwise_adagrad);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_rowwise_adam);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_adadelta);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_lion);
extern const struct sl_optimizer SL_SIMD_NAME(sl_opt_lamb);

extern const sl_optimizer_gather_fn SL_SIMD_NAME(sl_gather);

extern const struct sl_select_kernels SL_SIMD_NAME(sl_simd_kernels);

/* For a kernel's `apply`: forces inlining into the loops over rows below. */
#define SL_SIMD_INLINE inline __attribute__((always_inline))

typedef void (*sl_simd_apply_fn)(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g);

#define SL_SIMD_CACHE_LINE  64
#define SL_SIMD_ALIGNMENT   16
#define SL_SIMD_FETCH_BYTES 512 /* the processor itself prefetches the rest of a longer record */

/* Prefetches the lines of a record or row, many rows before its visit. An unaligned record may end
 * on one more line, so the last byte is prefetched too. That is not needed for a remainder of 16
 * bytes: such a record has a length that is a multiple of 16, so its last 16 bytes share a line. */
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

/* Prefetch distance in rows: a few kilobytes. */
static SL_SIMD_INLINE uint32_t sl_simd_ahead(size_t bytes)
{
    return bytes <= 256 ? 16 : 8;
}

/* Prefetches one row between two visits. A burst of prefetches would fill the processor's queue of
 * cache misses and stall the arithmetic. */
static inline __attribute__((always_inline)) void
sl_simd_apply_each(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows,
                   uint32_t dim, uint32_t slots_per_value, uint32_t slots_per_row,
                   sl_simd_apply_fn apply)
{
    const struct sl_optimizer_rows all = *rows;
    const size_t floats = (size_t)dim * (1 + slots_per_value);
    const size_t bytes = sizeof(struct sl_row) + (floats + slots_per_row) * sizeof(float);
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
        record->count = one.count + (one.count < SL_ROW_COUNT_MAX);
        apply(&one, w, w + dim, w + floats, all.gradients + (size_t)i * dim);
    }
}

/* Calls LOOP(dim). Common row lengths have their own loops, with dim as a constant. */
#define SL_SIMD_BY_LENGTH(LOOP, dim)                                                               \
    ((dim) == 8     ? LOOP(8)                                                                      \
     : (dim) == 16  ? LOOP(16)                                                                     \
     : (dim) == 32  ? LOOP(32)                                                                     \
     : (dim) == 64  ? LOOP(64)                                                                     \
     : (dim) == 128 ? LOOP(128)                                                                    \
                    : LOOP(dim))

/* Body of each kernel's apply_rows. */
static inline __attribute__((always_inline)) void
sl_simd_apply_rows(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows,
                   uint32_t slots_per_value, uint32_t slots_per_row, sl_simd_apply_fn apply)
{
#define LOOP(dim) sl_simd_apply_each(visit, rows, (dim), slots_per_value, slots_per_row, apply)
    SL_SIMD_BY_LENGTH(LOOP, visit->dim);
#undef LOOP
}

/* Defines the optimizer of a kernel file, whose kernel is `apply`; then come members that it has
 * beside the usual ones. slots: of a value; row_slots: of a row. */
#define SL_SIMD_OPTIMIZER(optimizer, slots, row_slots, ...)                                        \
    static void apply_rows(const struct sl_optimizer_visit *visit,                                 \
                           const struct sl_optimizer_rows *rows)                                   \
    {                                                                                              \
        sl_simd_apply_rows(visit, rows, (slots), (row_slots), apply);                              \
    }                                                                                              \
    const struct sl_optimizer SL_SIMD_NAME(sl_opt_##optimizer) = {.name = #optimizer,              \
                                                                  .slots_per_value = (slots),      \
                                                                  .slots_per_row = (row_slots),    \
                                                                  .apply = apply,                  \
                                                                  .apply_rows = apply_rows,        \
                                                                  __VA_ARGS__}

/* Fills a slot with initial_accumulator. */
static inline void sl_simd_init_accumulator(const struct sl_optimizer_spec *spec, uint32_t dim,
                                            float *slot)
{
    for (uint32_t i = 0; i < dim; i++) {
        slot[i] = spec->initial_accumulator;
    }
}

#define SL_SIMD_LANES 16

/* Returns the sum of x^2: sixteen running sums, which are then added as a tree. Vectors of 4, 8 or
 * 16 floats can all follow this fixed order, so every SIMD variant gives the same bits. */
static inline float sl_simd_sum_squares(uint32_t dim, const float *restrict x)
{
    float sums[SL_SIMD_LANES] = {0};
    uint32_t i = 0;
    for (; i + SL_SIMD_LANES <= dim; i += SL_SIMD_LANES) {
        for (uint32_t lane = 0; lane < SL_SIMD_LANES; lane++) {
            sums[lane] += x[i + lane] * x[i + lane];
        }
    }
    for (uint32_t lane = 0; i + lane < dim; lane++) {
        sums[lane] += x[i + lane] * x[i + lane];
    }
    for (uint32_t half = SL_SIMD_LANES / 2; half > 0; half /= 2) {
        for (uint32_t lane = 0; lane < half; lane++) {
            sums[lane] += sums[lane + half];
        }
    }
    return sums[0];
}

#endif
