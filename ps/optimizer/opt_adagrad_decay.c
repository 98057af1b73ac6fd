/* Adagrad with a decaying accumulator, so that rows of an endless stream keep learning:
 *     when floor(step / T) > c:  a = max(rho * a, baseline), c += 1
 *     a += g^2,   w -= lr * g / (sqrt(a) + epsilon).
 *
 * DeepRec's AdagradDecay optimizer (documentation, "AdagradDecay Optimizer"). T is decay_steps,
 * baseline is decay_baseline. One visit applies at most one decay period: a row that was not
 * visited for many periods decays once on each of its next visits. Slot 0: a, from
 * initial_accumulator. One slot a row: c, a u32 in the bits of a float, from 0. */
#include <math.h>
#include <string.h>

#include "ps/optimizer/simd.h"

static void discount(const struct sl_optimizer_visit *visit, float *restrict a)
{
    const float rho = visit->spec->rho;
    const float baseline = visit->spec->decay_baseline;
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float decayed = rho * a[i];
        a[i] = decayed > baseline ? decayed : baseline;
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float lr = visit->lr;
    const float epsilon = visit->spec->epsilon;
    uint32_t periods;
    memcpy(&periods, r, sizeof periods);
    if (visit->step / visit->spec->decay_steps > periods) {
        discount(visit, s);
        periods++;
        memcpy(r, &periods, sizeof periods);
    }
    for (uint32_t i = 0; i < visit->dim; i++) {
        const float a = s[i] + g[i] * g[i];
        s[i] = a;
        w[i] -= lr * g[i] / (sqrtf(a) + epsilon);
    }
}

SL_SIMD_OPTIMIZER(adagrad_decay, 1, 1, .init = sl_simd_init_accumulator);
