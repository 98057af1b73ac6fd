/* FTRL-Proximal by row groups. It keeps or zeroes whole rows, so that a table learns which keys it
 * needs:
 *     n' = n + g^2,   z += g - (n'^q - n^q) * w / lr                     per coordinate
 *     w = z * (l1 - ||z||) / ((n'^q / lr + 2 * l2) * ||z||)  when ||z|| > l1, else the row is 0.
 *
 * The group lasso of Yang, Xu, King, Lyu, "Online Learning for Group Lasso", ICML 2010, applied to
 * the FTRL of opt_ftrl.c as in Ni et al., "Feature Selection for Facebook Feed Ranking System via a
 * Group-Sparsity-Regularized Training Algorithm", CIKM 2019: the Euclidean norm of the row replaces
 * the absolute value of a coordinate. n and z are per coordinate, so the columns of a row have
 * different step sizes. In a dense table the group is the block, or the part of the block that a
 * push names. Slot 0: n, from initial_accumulator. Slot 1: z, from 0. */
#include "ps/optimizer/ftrl.h"

static inline __attribute__((always_inline)) void update(const struct sl_optimizer_spec *spec,
                                                         float lr, bool square_root, uint32_t dim,
                                                         float *restrict w, float *restrict n,
                                                         float *restrict z, const float *restrict g)
{
    const float q = -spec->lr_power;
    const float l2_twice = 2.0F * spec->l2;
    sl_ftrl_accumulate(q, lr, square_root, dim, w, n, z, g);
    const float length = sqrtf(sl_simd_sum_squares(dim, z));
    if (length <= spec->l1) {
        for (uint32_t i = 0; i < dim; i++) {
            w[i] = 0.0F;
        }
        return;
    }
    const float shrink = (spec->l1 - length) / length;
    for (uint32_t i = 0; i < dim; i++) {
        const float curvature = sl_ftrl_power(n[i], q, square_root) / lr + l2_twice;
        w[i] = sl_ftrl_divide(z[i] * shrink, curvature);
    }
}

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    sl_ftrl_apply(visit, w, s, g, update);
}

SL_SIMD_OPTIMIZER(ftrl_group, 2, 0, .init = sl_simd_init_accumulator);
