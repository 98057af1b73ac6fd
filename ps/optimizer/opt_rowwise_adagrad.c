/* Row-wise Adagrad: Adagrad with one accumulator a row, which saves the memory of the others:
 *     a += mean of g^2 over the row,   w -= lr * g / (sqrt(a) + epsilon).
 *
 * RowWiseSparseAdagrad of Caffe2 and EXACT_ROWWISE_ADAGRAD of FBGEMM. One slot a row: a, from
 * initial_accumulator. */
#include <math.h>

#include "ps/optimizer/simd.h"

static SL_SIMD_INLINE void apply(const struct sl_optimizer_visit *visit, float *restrict w,
                                 float *restrict s, float *restrict r, const float *restrict g)
{
    const float a = *r + sl_simd_sum_squares(visit->dim, g) / (float)visit->dim;
    const float lr = visit->lr;
    const float divisor = sqrtf(a) + visit->spec->epsilon;
    *r = a;
    for (uint32_t i = 0; i < visit->dim; i++) {
        w[i] -= lr * g[i] / divisor;
    }
}

static void init_row(const struct sl_optimizer_spec *spec, float *row_slots)
{
    *row_slots = spec->initial_accumulator;
}

SL_SIMD_OPTIMIZER(rowwise_adagrad, 0, 1, .init_row = init_row);
