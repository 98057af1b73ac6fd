/* The factorization machine as a model. */
#include "worker/train/fm.h"

static uint32_t tables(const struct sl_model_shape *shape,
                       struct sl_table_spec specs[SL_MODEL_TABLES])
{
    sl_fm_tables(shape, "fm", specs);
    return SL_FM_TABLES;
}

static size_t scratch_floats(const struct sl_model_shape *shape)
{
    return shape->factors;
}

static float forward(const struct sl_model_pass *pass, const struct sl_model_example *example)
{
    return sl_fm_forward(pass, example, pass->scratch);
}

static void backward(const struct sl_model_pass *pass, const struct sl_model_example *example,
                     float slope)
{
    sl_fm_backward(pass, example, pass->scratch, slope);
}

const struct sl_model sl_model_fm = {
    .name = "fm",
    .default_lr = 0.04F,
    .tables = tables,
    .scratch_floats = scratch_floats,
    .forward = forward,
    .backward = backward,
};
