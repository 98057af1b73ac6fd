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

SL_SIMD_OPTIMIZER(sum, 0, 0);
