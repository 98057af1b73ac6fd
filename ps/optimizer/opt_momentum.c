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

static void apply_rows(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows)
{
    sl_simd_apply_rows(visit, rows, 1, apply);
}

const struct sl_optimizer SL_SIMD_NAME(sl_opt_momentum) = {
    .name = "momentum",
    .slots_per_value = 1,
    .apply = apply,
    .apply_rows = apply_rows,
};
