/* AdamAsync: Adam for asynchronous training, with one bias correction per table instead of per row:
 *     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
 *     w -= lr * sqrt(1 - B2) / (1 - B1) * m / (sqrt(v) + epsilon)
 * and after each push B1 *= beta1, B2 *= beta2.
 *
 * DeepRec's AdamAsync optimizer (documentation, "AdamAsync Optimizer"), without its sparse RMSProp
 * mode. The form of alpha is from the last paragraph of section 2 of Kingma and Ba, ICLR 2015. B1
 * and B2 start as beta1 and beta2 and advance once a push, after its last row, as in TensorFlow and
 * DeepRec. Each shard counts the pushes that reach it. Slot 0: m, from 0. Slot 1: v, from 0. */
#include "ps/optimizer/adam.h"

static void end_push(const struct sl_optimizer_spec *spec, struct sl_optimizer_state *state)
{
    state->beta1_power *= spec->beta1;
    state->beta2_power *= spec->beta2;
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const struct sl_optimizer_spec *spec = visit->spec;
    const struct sl_optimizer_state *state = visit->state;
    const struct sl_adam_factors factors = {
        .beta1 = spec->beta1,
        .beta2 = spec->beta2,
        .rate = visit->lr * sqrtf(1.0F - state->beta2_power) / (1.0F - state->beta1_power),
        .root = 1.0F,
        .keep = 1.0F,
        .epsilon = spec->epsilon,
    };
    sl_adam_update(&factors, visit->dim, w, s, s + visit->slot_stride, g);
}

SL_SIMD_OPTIMIZER(adam_async, 2, 0, .end_push = end_push);
