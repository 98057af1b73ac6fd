/* Adam:
 *     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
 *     w -= lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon).
 *
 * Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1. t is the
 * number of visits of the row, this one included (reason: adam.h). A push does not change m and v
 * of rows that it does not name. Slot 0: m, from 0. Slot 1: v, from 0. */
#include "ps/optimizer/adam.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const struct sl_adam_factors factors = sl_adam_corrected(visit);
    sl_adam_update(&factors, visit->dim, w, s, s + visit->slot_stride, g);
}

SL_SIMD_OPTIMIZER(adam, 2, 0);
