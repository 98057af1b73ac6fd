/* Sum: w += g.
 *
 * The default handler of ps-lite's servers (dmlc/ps-lite, KVServerDefaultHandle). No slots, no
 * hyper-parameters. */
#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    for (uint32_t i = 0; i < visit->dim; i++) {
        w[i] += g[i];
    }
}

static void apply_rows(const struct sl_optimizer_visit *visit, const struct sl_optimizer_rows *rows)
{
    sl_simd_apply_rows(visit, rows, 0, apply);
}

const struct sl_optimizer SL_SIMD_NAME(sl_opt_sum) = {
    .name = "sum", .apply = apply, .apply_rows = apply_rows};
