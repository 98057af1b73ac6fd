/* The factorization machine as a model. */
#include "programs/models/fm.h"

static uint32_t model_fm_tables(const struct sl_model_shape *shape,
                                struct sl_table_spec specs[SL_MODEL_TABLES])
{
    sl_fm_tables(shape, "fm", specs);
    return SL_FM_TABLES;
}

static size_t model_fm_scratch_floats(const struct sl_model_shape *shape)
{
    return shape->factors;
}

const struct sl_model sl_model_fm = {
    .name = "fm",
    .default_lr = 0.04F,
    .tables = model_fm_tables,
    .scratch_floats = model_fm_scratch_floats,
    .forward = sl_fm_forward,
    .backward = sl_fm_backward,
};
