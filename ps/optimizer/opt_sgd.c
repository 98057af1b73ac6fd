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

SL_SIMD_OPTIMIZER(sgd, 0, 0);
