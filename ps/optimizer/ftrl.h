/* The arithmetic that both FTRL optimizers share; a part of the kernel files that include it. */
#ifndef SL_PS_OPTIMIZER_FTRL_H
#define SL_PS_OPTIMIZER_FTRL_H

#include <math.h>
#include <stdbool.h>

#include "ps/optimizer/simd.h"

/* n^q for q = -lr_power >= 0. The square root, which nearly everybody uses, has instructions of its
 * own; any other power is the C library's, whose last bit may differ between machines. */
static inline float sl_ftrl_power(float n, float q, bool square_root)
{
    return square_root ? sqrtf(n) : powf(n, q);
}

/* step / curvature; 0 where the curvature is 0: a gradient whose square underflows leaves n at 0,
 * and nothing is known of the coordinate. A NaN stays one. The division itself is unconditional, or
 * the compiler would not vectorise it. */
static inline float sl_ftrl_divide(float step, float curvature)
{
    const float known = curvature <= 0.0F ? INFINITY : curvature;
    return step / known;
}

/* The first half of a visit: n' = n + g^2, z += g - (n'^q - n^q) * w / lr, slot by slot. */
static inline __attribute__((always_inline)) void
sl_ftrl_accumulate(const struct sl_optimizer_spec *spec, bool square_root, uint32_t dim,
                   const float *restrict w, float *restrict n, float *restrict z,
                   const float *restrict g)
{
    const float q = -spec->lr_power;
    const float lr = spec->lr;
    for (uint32_t i = 0; i < dim; i++) {
        const float next = n[i] + g[i] * g[i];
        const float change =
            sl_ftrl_power(next, q, square_root) - sl_ftrl_power(n[i], q, square_root);
        z[i] += g[i] - change * w[i] / lr;
        n[i] = next;
    }
}

#endif
