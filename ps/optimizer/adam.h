/* Adam family: the shared update loop and bias correction, included by the kernel files. */
#ifndef SL_PS_OPTIMIZER_ADAM_H
#define SL_PS_OPTIMIZER_ADAM_H

#include <math.h>

#include "ps/optimizer/simd.h"

/* The differences between the Adam optimizers, as plain factors, so that one loop serves all:
 *     m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2
 *     w = keep * w - rate * m / (root * sqrt(v) + epsilon). */
struct sl_adam_factors {
    float beta1, beta2;
    float rate;
    float root;
    float keep;
    float epsilon;
};

/* Computes beta1^t and beta2^t by squaring in double. Unlike pow, this gives the same bits with
 * every C library. An arithmetic selection avoids an unpredictable branch. */
static inline void sl_adam_powers(const struct sl_optimizer_spec *spec, uint64_t t, double *power1,
                                  double *power2)
{
    double base1 = (double)spec->beta1;
    double base2 = (double)spec->beta2;
    *power1 = 1.0;
    *power2 = 1.0;
    for (; t != 0; t >>= 1) {
        const double odd = (double)(t & 1);
        const double even = 1.0 - odd;
        *power1 *= odd * base1 + even;
        *power2 *= odd * base2 + even;
        base1 *= base1;
        base2 *= base2;
    }
}

/* Computes the bias corrections of Kingma and Ba for the t-th visit: rate = lr / (1 - beta1^t) and
 * root = 1 / sqrt(1 - beta2^t).
 *
 * t counts visits of this row, not steps of the table. m and v are averages over the row's own
 * visits, so their bias depends on those. The result does not depend on the number of shards. */
static inline struct sl_adam_factors sl_adam_corrected(const struct sl_optimizer_visit *visit)
{
    const struct sl_optimizer_spec *spec = visit->spec;
    double power1;
    double power2;
    sl_adam_powers(spec, (uint64_t)visit->count + 1, &power1, &power2);
    return (struct sl_adam_factors){
        .beta1 = spec->beta1,
        .beta2 = spec->beta2,
        .rate = (float)((double)visit->lr / (1.0 - power1)),
        .root = (float)(1.0 / sqrt(1.0 - power2)),
        .keep = 1.0F,
        .epsilon = spec->epsilon,
    };
}

static inline void sl_adam_update(const struct sl_adam_factors *factors, uint32_t dim,
                                  float *restrict w, float *restrict m, float *restrict v,
                                  const float *restrict g)
{
    const struct sl_adam_factors f = *factors;
    const float fresh1 = 1.0F - f.beta1;
    const float fresh2 = 1.0F - f.beta2;
    for (uint32_t i = 0; i < dim; i++) {
        m[i] = f.beta1 * m[i] + fresh1 * g[i];
        v[i] = f.beta2 * v[i] + fresh2 * (g[i] * g[i]);
        w[i] = f.keep * w[i] - f.rate * m[i] / (f.root * sqrtf(v[i]) + f.epsilon);
    }
}

#endif
