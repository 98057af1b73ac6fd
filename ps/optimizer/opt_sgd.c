/* Stochastic gradient descent: w -= lr * g.
 *
 * Robbins and Monro, "A Stochastic Approximation Method", 1951. No slots. */
#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float lr = visit->lr;
    for (uint32_t i = 0; i < visit->dim; i++) {
        w[i] -= lr * g[i];
    }
}

static void apply_rows(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows)
{
    sl_simd_apply_rows(visit, rows, 0, apply);
}

const struct sl_optimizer SL_SIMD_NAME(sl_opt_sgd) = {
    .name = "sgd", .apply = apply, .apply_rows = apply_rows};
