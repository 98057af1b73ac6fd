/* Momentum (heavy ball):
 *     v = momentum * v + g,   w -= lr * v.
 *
 * Polyak, "Some methods of speeding up the convergence of iteration methods", 1964, in the form of
 * TensorFlow's MomentumOptimizer and PyTorch's SGD, not Nesterov's. The velocity holds gradients,
 * so a changed learning rate applies at once. Slot 0: v, from 0. */
#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float lr = visit->lr;
    const float momentum = visit->spec->momentum;
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float v = momentum * s[i] + g[i];
        s[i] = v;
        w[i] -= lr * v;
    }
}

SL_SIMD_OPTIMIZER(momentum, 1, 0);
