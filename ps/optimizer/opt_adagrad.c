/* Adagrad:
 *     a += g^2,   w -= lr * g / (sqrt(a) + epsilon).
 *
 * Duchi, Hazan, Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic
 * Optimization", JMLR 12, 2011, figure 1 with diagonal matrices; epsilon outside the root as in
 * PyTorch's Adagrad, the first accumulator as in TensorFlow's. Slot 0: a, from
 * initial_accumulator. */
#include <math.h>

#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float lr = visit->lr;
    const float epsilon = visit->spec->epsilon;
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float a = s[i] + g[i] * g[i];
        s[i] = a;
        w[i] -= lr * g[i] / (sqrtf(a) + epsilon);
    }
}

SL_SIMD_OPTIMIZER(adagrad, 1, 0, .init = sl_simd_init_accumulator);
