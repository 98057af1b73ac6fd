/* Stochastic gradient descent: w -= lr * g.
 *
 * Robbins and Monro, "A Stochastic Approximation Method", 1951. No slots. */
#include "ps/optimizer/form.h"

static void apply(const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                  float *restrict r, const float *restrict g)
{
    const float lr = visit->spec->lr;
    (void)s;
    (void)r;
    for (uint32_t i = 0; i < visit->dim; i++) {
        w[i] -= lr * g[i];
    }
}

const struct sl_optimizer SL_FORM_NAME(sl_opt_sgd) = {.name = "sgd", .apply = apply};
