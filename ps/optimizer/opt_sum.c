/* Sum: w += g.
 *
 * The default handler of ps-lite's servers (dmlc/ps-lite, KVServerDefaultHandle): what arrives is
 * added. No slots, no hyper-parameters. */
#include "ps/optimizer/form.h"

static void apply(const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                  float *restrict r, const float *restrict g)
{
    (void)s;
    (void)r;
    for (uint32_t i = 0; i < visit->dim; i++) {
        w[i] += g[i];
    }
}

const struct sl_optimizer SL_FORM_NAME(sl_opt_sum) = {.name = "sum", .apply = apply};
