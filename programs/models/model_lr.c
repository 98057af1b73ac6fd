/* Logistic regression: z = b + sum over features of w x. */
#include "programs/models/model.h"

enum { WEIGHTS, BIAS, TABLES };

static uint32_t model_lr_tables(const struct sl_model_shape *shape,
                                struct sl_table_spec specs[SL_MODEL_TABLES])
{
    sl_model_sparse_table(&specs[WEIGHTS], "lr/weights", 1);
    sl_model_dense_table(&specs[BIAS], "lr/bias", 1);
    return TABLES;
}

static size_t model_lr_scratch_floats(const struct sl_model_shape *shape)
{
    return 0;
}

static float model_lr_forward(const struct sl_model_pass *pass,
                              const struct sl_model_example *example)
{
    const float *weights = pass->params[WEIGHTS];
    float logit = pass->params[BIAS][0];
    for (uint32_t i = 0; i < example->count; i++) {
        logit += weights[example->features[i]] * example->values[i];
    }
    return logit;
}

static void model_lr_backward(const struct sl_model_pass *pass,
                              const struct sl_model_example *example, float slope)
{
    float *grads = pass->grads[WEIGHTS];
    pass->grads[BIAS][0] += slope;
    for (uint32_t i = 0; i < example->count; i++) {
        grads[example->features[i]] += slope * example->values[i];
    }
}

const struct sl_model sl_model_lr = {
    .name = "lr",
    .default_lr = 0.07F,
    .tables = model_lr_tables,
    .scratch_floats = model_lr_scratch_floats,
    .forward = model_lr_forward,
    .backward = model_lr_backward,
};
