/* RMSProp with momentum:
 *     a = rho * a + (1 - rho) * g^2
 *     v = momentum * v + lr * g / sqrt(a + epsilon),   w -= v.
 *
 * Tieleman and Hinton, lecture 6.5 of "Neural Networks for Machine Learning", 2012. Momentum, and
 * epsilon inside the root, are as in TensorFlow's RMSProp (not centred). Slot 0: a, from 0. Slot 1:
 * v, from 0; it exists also when momentum is 0, so that the record layout depends only on the
 * optimizer kind. */
#include <math.h>

#include "ps/optimizer/simd.h"

static void update(const struct sl_optimizer_spec *spec, float lr, uint32_t dim, float *restrict w,
                   float *restrict a, float *restrict v, const float *restrict g)
{
    const float rho = spec->rho;
    const float fresh = 1.0F - rho;
    const float momentum = spec->momentum;
    const float epsilon = spec->epsilon;
    for (uint32_t i = 0; i < dim; i++) {
        a[i] = rho * a[i] + fresh * (g[i] * g[i]);
        v[i] = momentum * v[i] + lr * g[i] / sqrtf(a[i] + epsilon);
        w[i] -= v[i];
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    update(visit->spec, visit->lr, visit->dim, w, s, s + visit->slot_stride, g);
}

SL_SIMD_OPTIMIZER(rmsprop, 2, 0);
