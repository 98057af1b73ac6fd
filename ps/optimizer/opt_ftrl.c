/* FTRL-Proximal, per coordinate:
 *     n' = n + g^2,   z += g - (n'^q - n^q) * w / lr
 *     w = (sign(z) * l1 - z) / (n'^q / lr + 2 * l2)  when |z| > l1, else 0.
 *
 * McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013, algorithm 1.
 * Differences: the exponent is free (q = -lr_power, 1/2 in the paper); the paper's beta is the
 * first value of the accumulator n (initial_accumulator); l2 counts twice, as in TensorFlow's
 * Ftrl, whose l2 multiplies the squared norm without a factor of one half. Slot 0: n. Slot 1: z,
 * from 0. */
#include "ps/optimizer/ftrl.h"

static inline __attribute__((always_inline)) void update(const struct sl_optimizer_spec *spec,
                                                         float lr, bool square_root, uint32_t dim,
                                                         float *restrict w, float *restrict n,
                                                         float *restrict z, const float *restrict g)
{
    const float q = -spec->lr_power;
    const float l1 = spec->l1;
    const float l2_twice = 2.0F * spec->l2;
    sl_ftrl_accumulate(q, lr, square_root, dim, w, n, z, g);
    for (uint32_t i = 0; i < dim; i++) {
        const float curvature = sl_ftrl_power(n[i], q, square_root) / lr + l2_twice;
        const float beyond = fabsf(z[i]) - l1;
        w[i] = sl_ftrl_divide(copysignf(beyond > 0.0F ? beyond : 0.0F, -z[i]), curvature);
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    sl_ftrl_apply(visit, w, s, g, update);
}

SL_SIMD_OPTIMIZER(ftrl, 2, 0, .init = sl_simd_init_accumulator);
