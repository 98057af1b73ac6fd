/* Adadelta:
 *     a = rho * a + (1 - rho) * g^2,   d = sqrt(b + epsilon) / sqrt(a + epsilon) * g
 *     b = rho * b + (1 - rho) * d^2,   w -= lr * d.
 *
 * Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012, algorithm 1. The paper has no
 * learning rate; lr is that of PyTorch's Adadelta, usually 1. Slot 0: a, from 0. Slot 1: b, from
 * 0. */
#include <math.h>

#include "ps/optimizer/simd.h"

static void update(const struct sl_optimizer_spec *spec, float lr, uint32_t dim, float *restrict w,
                   float *restrict a, float *restrict b, const float *restrict g)
{
    const float rho = spec->rho;
    const float fresh = 1.0F - rho;
    const float epsilon = spec->epsilon;
    for (uint32_t i = 0; i < dim; i++) {
        a[i] = rho * a[i] + fresh * (g[i] * g[i]);
        const float d = sqrtf(b[i] + epsilon) / sqrtf(a[i] + epsilon) * g[i];
        b[i] = rho * b[i] + fresh * (d * d);
        w[i] -= lr * d;
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    update(visit->spec, visit->lr, visit->dim, w, s, s + visit->slot_stride, g);
}

SL_SIMD_OPTIMIZER(adadelta, 2, 0);
