/* LAMB, Adam whose step is proportional to the length of the row:
 *     u = mhat / (sqrt(vhat) + epsilon) + weight_decay * w,   w -= lr * (||w|| / ||u||) * u,
 * m, v and their bias correction as in opt_adam.c.
 *
 * You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020,
 * algorithm 2 with phi(x) = x. The layer of the paper is a row. The ratio is 1 if a norm is 0, so
 * that a row of zeros can begin to learn. Slot 0: m, from 0. Slot 1: v, from 0. */
#include "core/limits.h"
#include "ps/optimizer/adam.h"

static void update(const struct sl_adam_factors *factors, float lr, float decay, uint32_t dim,
                   float *restrict w, float *restrict m, float *restrict v, const float *restrict g)
{
    const struct sl_adam_factors f = *factors;
    const float fresh1 = 1.0F - f.beta1;
    const float fresh2 = 1.0F - f.beta2;
    float u[SL_LIMIT_DIM];
    for (uint32_t i = 0; i < dim; i++) {
        m[i] = f.beta1 * m[i] + fresh1 * g[i];
        v[i] = f.beta2 * v[i] + fresh2 * (g[i] * g[i]);
        u[i] = f.rate * m[i] / (f.root * sqrtf(v[i]) + f.epsilon) + decay * w[i];
    }
    const float length = sqrtf(sl_simd_sum_squares(dim, w));
    const float step = sqrtf(sl_simd_sum_squares(dim, u));
    const float rate = length > 0.0F && step > 0.0F ? lr * (length / step) : lr;
    for (uint32_t i = 0; i < dim; i++) {
        w[i] -= rate * u[i];
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    struct sl_optimizer_visit without_lr = *visit;
    without_lr.lr = 1.0F;
    const struct sl_adam_factors factors = sl_adam_corrected(&without_lr);
    update(&factors, visit->lr, visit->spec->weight_decay, visit->dim, w, s, s + visit->slot_stride,
           g);
}

SL_SIMD_OPTIMIZER(lamb, 2, 0);
