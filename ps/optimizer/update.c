#include "ps/optimizer/update.h"

#include <math.h>

#include "core/assert.h"
#include "core/limits.h"

bool sl_update_is_asked(const struct sl_update_spec *update)
{
    return update->decay != SL_DECAY_NONE || update->clip_norm > 0 || update->value_bound > 0;
}

/* Returns the factor that shortens the gradient to clip_norm (Pascanu, Mikolov, Bengio, "On the
 * difficulty of training recurrent neural networks", ICML 2013). In double, where no square
 * overflows. An infinite gradient has the factor 0, and thus becomes NaN; NaN stays. */
static double clip(float clip_norm, uint32_t dim, const float *g)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++) {
        sum += (double)g[i] * (double)g[i];
    }
    const double norm = sqrt(sum);
    return norm > (double)clip_norm ? (double)clip_norm / norm : 1;
}

/* Writes the gradient for the kernel to out[dim]; decoupled decay changes the values instead. */
static void before_kernel(const struct sl_update_spec *update,
                          const struct sl_optimizer_visit *visit, float *restrict w,
                          const float *restrict g, float *restrict out)
{
    const uint32_t dim = visit->dim;
    const float decay = visit->spec->weight_decay;
    const double scale = update->clip_norm > 0 ? clip(update->clip_norm, dim, g) : 1;
    sl_assert(dim <= SL_LIMIT_DIM);
    for (uint32_t i = 0; i < dim; i++) {
        out[i] = (float)((double)g[i] * scale);
    }
    for (uint32_t i = 0; i < dim && update->decay == SL_DECAY_L2; i++) {
        out[i] += decay * w[i];
    }
    for (uint32_t i = 0; i < dim && update->decay == SL_DECAY_DECOUPLED; i++) {
        w[i] *= 1.0F - visit->lr * decay;
    }
}

static void after_kernel(const struct sl_update_spec *update, uint32_t dim, float *w)
{
    const float bound = update->value_bound > 0 ? update->value_bound : INFINITY;
    for (uint32_t i = 0; i < dim; i++) {
        w[i] = w[i] > bound ? bound : w[i] < -bound ? -bound : w[i];
    }
}

void sl_update_apply(const struct sl_update_spec *update, const struct sl_optimizer *optimizer,
                     const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                     float *restrict r, const float *restrict g)
{
    float gradient[SL_LIMIT_DIM];
    before_kernel(update, visit, w, g, gradient);
    optimizer->apply(visit, w, s, r, gradient);
    after_kernel(update, visit->dim, w);
}

void sl_update_apply_rows(const struct sl_update_spec *update, const struct sl_optimizer *optimizer,
                          const struct sl_optimizer_visit *visit,
                          const struct sl_optimizer_rows *rows)
{
    float gradient[SL_LIMIT_DIM];
    for (uint32_t i = 0; i < rows->count; i++) {
        float *w = rows->records[i]->values;
        const struct sl_optimizer_rows row = {1, &rows->records[i], gradient};
        before_kernel(update, visit, w, rows->gradients + (size_t)i * visit->dim, gradient);
        optimizer->apply_rows(visit, &row);
        after_kernel(update, visit->dim, w);
    }
}
