/* FTRL family: arithmetic shared by both FTRL optimizers, included by their kernel files. */
#ifndef SL_PS_OPTIMIZER_FTRL_H
#define SL_PS_OPTIMIZER_FTRL_H

#include <math.h>
#include <stdbool.h>

#include "ps/optimizer/simd.h"

/* n^q for q = -lr_power >= 0. The square root is the usual case and has its own instructions. Other
 * powers use powf, whose last bit may differ between machines. */
static inline float sl_ftrl_power(float n, float q, bool square_root)
{
    return square_root ? sqrtf(n) : powf(n, q);
}

/* step / curvature, or 0 when the curvature is 0. The curvature is 0 when the square of a gradient
 * underflows and leaves n at 0. NaN stays NaN. The division is unconditional so that the compiler
 * can vectorise it. */
static inline float sl_ftrl_divide(float step, float curvature)
{
    const float known = curvature <= 0.0F ? INFINITY : curvature;
    return step / known;
}

/* First half of a visit: n' = n + g^2, z += g - (n'^q - n^q) * w / lr, per value. */
static inline __attribute__((always_inline)) void
sl_ftrl_accumulate(float q, float lr, bool square_root, uint32_t dim, const float *restrict w,
                   float *restrict n, float *restrict z, const float *restrict g)
{
    for (uint32_t i = 0; i < dim; i++) {
        const float next = n[i] + g[i] * g[i];
        const float change =
            sl_ftrl_power(next, q, square_root) - sl_ftrl_power(n[i], q, square_root);
        z[i] += g[i] - change * w[i] / lr;
        n[i] = next;
    }
}

typedef void (*sl_ftrl_update_fn)(const struct sl_optimizer_spec *spec, float lr, bool square_root,
                                  uint32_t dim, float *restrict w, float *restrict n,
                                  float *restrict z, const float *restrict g);

/* Body of each kernel's apply: the usual power has its own loops. */
static SL_SIMD_INLINE void sl_ftrl_apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                         float *restrict n, const float *restrict g,
                                         sl_ftrl_update_fn update)
{
    float *z = n + visit->slot_stride;
    if (visit->spec->lr_power == -0.5F) {
        update(visit->spec, visit->lr, true, visit->dim, w, n, z, g);
    } else {
        update(visit->spec, visit->lr, false, visit->dim, w, n, z, g);
    }
}

#endif
