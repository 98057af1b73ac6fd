/* Row-wise Adam: Adam with one second moment a row:
 *     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * (mean of g^2 over the row)
 *     w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
 *
 * PARTIAL_ROWWISE_ADAM of FBGEMM; t as in opt_adam.c, while FBGEMM counts the steps of the table.
 * Slot 0: m, from 0. One slot a row: v, from 0. */
#include "ps/optimizer/adam.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const struct sl_adam_factors f = sl_adam_corrected(visit);
    const float fresh1 = 1.0F - f.beta1;
    const float fresh2 = 1.0F - f.beta2;
    const float mean = sl_simd_sum_squares(visit->dim, g) / (float)visit->dim;
    const float v = f.beta2 * *r + fresh2 * mean;
    const float divisor = f.root * sqrtf(v) + f.epsilon;
    *r = v;
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float m = f.beta1 * s[i] + fresh1 * g[i];
        s[i] = m;
        w[i] -= f.rate * m / divisor;
    }
}

SL_SIMD_OPTIMIZER(rowwise_adam, 1, 1);
