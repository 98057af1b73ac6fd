/* AdamW, Adam with decoupled weight decay:
 *     w = (1 - lr * weight_decay) * w - lr * mhat / (sqrt(vhat) + epsilon),
 * m, v and their bias correction as in opt_adam.c.
 *
 * Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, algorithm 2, with
 * schedule multiplier 1 and the decay scaled by lr, as in PyTorch's AdamW. A sparse row decays only
 * on its visits. Slot 0: m, from 0. Slot 1: v, from 0. */
#include "ps/optimizer/adam.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    struct sl_adam_factors factors = sl_adam_corrected(visit);
    factors.keep = 1.0F - visit->lr * visit->spec->weight_decay;
    sl_adam_update(&factors, visit->dim, w, s, s + visit->slot_stride, g);
}

SL_SIMD_OPTIMIZER(adamw, 2, 0);
