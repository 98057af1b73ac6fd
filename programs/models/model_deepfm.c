/* DeepFM (Guo, Tang, Ye, Li, He, IJCAI 2017): a factorization machine and a tower share the fields'
 * embeddings; the logit is the sum of both. The tower's input is the concatenation of x_i v_i of
 * each field i; a missing field is zero. */
#include <math.h>
#include <string.h>

#include "programs/models/fm.h"
#include "programs/models/tower.h"

enum { TOWER = SL_FM_TABLES, TABLES = SL_FM_TABLES + SL_TOWER_LAYERS };

static struct sl_tower_shape tower_shape(const struct sl_model_shape *shape)
{
    return (struct sl_tower_shape){
        .widths = {shape->fields * shape->factors, shape->hidden[0], shape->hidden[1], 1}};
}

static uint32_t model_deepfm_tables(const struct sl_model_shape *shape,
                                    struct sl_table_spec specs[SL_MODEL_TABLES])
{
    static const char *const names[SL_TOWER_LAYERS] = {"deepfm/tower1", "deepfm/tower2",
                                                       "deepfm/tower3"};
    struct sl_tower_shape tower = tower_shape(shape);
    sl_fm_tables(shape, "deepfm", specs);
    for (uint32_t layer = 0; layer < SL_TOWER_LAYERS; layer++) {
        struct sl_table_spec *spec = &specs[TOWER + layer];
        sl_model_dense_table(spec, names[layer], sl_tower_matrix_floats(&tower, layer));
        /* Glorot and Bengio 2010, equation 16. */
        float bound = sqrtf(6.0F / (float)(tower.widths[layer] + tower.widths[layer + 1]));
        spec->initializer = (struct sl_initializer_spec){.kind = SL_INITIALIZER_UNIFORM,
                                                         .low = -bound,
                                                         .high = bound,
                                                         .seed = shape->seed + 1 + layer};
    }
    return TABLES;
}

/* Scratch: the machine's sums, the tower's activations, their derivatives. */
static size_t model_deepfm_scratch_floats(const struct sl_model_shape *shape)
{
    struct sl_tower_shape tower = tower_shape(shape);
    return shape->factors + 2 * sl_tower_activation_floats(&tower);
}

static float model_deepfm_forward(const struct sl_model_pass *pass,
                                  const struct sl_model_example *example)
{
    struct sl_tower_shape tower = tower_shape(pass->shape);
    uint32_t factors = pass->shape->factors;
    float *input = pass->scratch + factors;
    memset(input, 0, tower.widths[0] * sizeof *input);
    for (uint32_t i = 0; i < example->count; i++) {
        const float *v = pass->params[SL_FM_FACTORS] + (size_t)example->features[i] * factors;
        for (uint32_t f = 0; f < factors; f++) {
            input[(size_t)i * factors + f] = v[f] * example->values[i];
        }
    }
    return sl_fm_forward(pass, example) + sl_tower_forward(&tower, pass->params + TOWER, input);
}

static void model_deepfm_backward(const struct sl_model_pass *pass,
                                  const struct sl_model_example *example, float slope)
{
    struct sl_tower_shape tower = tower_shape(pass->shape);
    uint32_t factors = pass->shape->factors;
    float *input = pass->scratch + factors;
    float *slopes = input + sl_tower_activation_floats(&tower);
    sl_fm_backward(pass, example, slope);
    sl_tower_backward(&tower, pass->params + TOWER, pass->grads + TOWER, input, slope, slopes);
    for (uint32_t i = 0; i < example->count; i++) {
        float *grads = pass->grads[SL_FM_FACTORS] + (size_t)example->features[i] * factors;
        for (uint32_t f = 0; f < factors; f++) {
            grads[f] += slopes[(size_t)i * factors + f] * example->values[i];
        }
    }
}

const struct sl_model sl_model_deepfm = {
    .name = "deepfm",
    .default_lr = 0.01F,
    .tables = model_deepfm_tables,
    .scratch_floats = model_deepfm_scratch_floats,
    .forward = model_deepfm_forward,
    .backward = model_deepfm_backward,
};
