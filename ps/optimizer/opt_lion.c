/* Lion, whose steps have the same size in every coordinate:
 *     w -= lr * sign(beta1 * m + (1 - beta1) * g),   m = beta2 * m + (1 - beta2) * g.
 *
 * Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023, algorithm 2; its
 * weight decay is the decoupled one of struct sl_update_spec. sign(0) is 0. Slot 0: m, from 0. */
#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float lr = visit->lr;
    const float beta1 = visit->spec->beta1;
    const float beta2 = visit->spec->beta2;
    const float fresh1 = 1.0F - beta1;
    const float fresh2 = 1.0F - beta2;
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float c = beta1 * s[i] + fresh1 * g[i];
        const float sign = c > 0.0F ? 1.0F : c < 0.0F ? -1.0F : c; /* NaN stays NaN */
        s[i] = beta2 * s[i] + fresh2 * g[i];
        w[i] -= lr * sign;
    }
}

SL_SIMD_OPTIMIZER(lion, 1, 0);
