#include "programs/models/fm.h"

#include <stdio.h>
#include <string.h>

/* Embeddings begin as small noise: at zero their gradient is zero too. */
#define FACTOR_DEVIATION 0.01F

void sl_fm_tables(const struct sl_model_shape *shape, const char *prefix,
                  struct sl_table_spec specs[SL_MODEL_TABLES])
{
    char name[SL_TABLE_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s/weights", prefix);
    sl_model_sparse_table(&specs[SL_FM_WEIGHTS], name, 1);
    (void)snprintf(name, sizeof name, "%s/factors", prefix);
    sl_model_sparse_table(&specs[SL_FM_FACTORS], name, shape->factors);
    specs[SL_FM_FACTORS].initializer = (struct sl_initializer_spec){
        .kind = SL_INITIALIZER_NORMAL, .stddev = FACTOR_DEVIATION, .seed = shape->seed};
    (void)snprintf(name, sizeof name, "%s/bias", prefix);
    sl_model_dense_table(&specs[SL_FM_BIAS], name, 1);
}

float sl_fm_forward(const struct sl_model_pass *pass, const struct sl_model_example *example)
{
    float *restrict sums = pass->scratch;
    uint32_t factors = pass->shape->factors;
    const float *weights = pass->params[SL_FM_WEIGHTS];
    float linear = pass->params[SL_FM_BIAS][0];
    float squares = 0;
    memset(sums, 0, factors * sizeof *sums);
    for (uint32_t i = 0; i < example->count; i++) {
        uint32_t feature = example->features[i];
        float x = example->values[i];
        const float *restrict v = pass->params[SL_FM_FACTORS] + (size_t)feature * factors;
        linear += weights[feature] * x;
        for (uint32_t f = 0; f < factors; f++) {
            float term = v[f] * x;
            sums[f] += term;
            squares += term * term;
        }
    }
    float whole = 0;
    for (uint32_t f = 0; f < factors; f++) {
        whole += sums[f] * sums[f];
    }
    return linear + 0.5F * (whole - squares);
}

void sl_fm_backward(const struct sl_model_pass *pass, const struct sl_model_example *example,
                    float slope)
{
    const float *restrict sums = pass->scratch;
    uint32_t factors = pass->shape->factors;
    float *weight_grads = pass->grads[SL_FM_WEIGHTS];
    pass->grads[SL_FM_BIAS][0] += slope;
    for (uint32_t i = 0; i < example->count; i++) {
        uint32_t feature = example->features[i];
        float x = example->values[i];
        float scaled = slope * x;
        const float *restrict v = pass->params[SL_FM_FACTORS] + (size_t)feature * factors;
        float *restrict grads = pass->grads[SL_FM_FACTORS] + (size_t)feature * factors;
        weight_grads[feature] += scaled;
        for (uint32_t f = 0; f < factors; f++) {
            grads[f] += scaled * (sums[f] - v[f] * x);
        }
    }
}
