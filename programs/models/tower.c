#include "programs/models/tower.h"

#include <string.h>

size_t sl_tower_activation_floats(const struct sl_tower_shape *shape)
{
    size_t floats = 0;
    for (uint32_t layer = 0; layer <= SL_TOWER_LAYERS; layer++) {
        floats += shape->widths[layer];
    }
    return floats;
}

static void add_scaled(float *restrict to, const float *restrict from, float scale, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        to[i] += scale * from[i];
    }
}

/* Four independent sums hide the latency of additions. */
static float dot(const float *restrict a, const float *restrict b, uint32_t count)
{
    float sums[4] = {0, 0, 0, 0};
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4) {
        for (uint32_t lane = 0; lane < 4; lane++) {
            sums[lane] += a[i + lane] * b[i + lane];
        }
    }
    for (; i < count; i++) {
        sums[0] += a[i] * b[i];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static void layer_forward(const float *matrix, const float *restrict in, uint32_t inputs,
                          float *restrict out, uint32_t outputs)
{
    memcpy(out, matrix + (size_t)inputs * outputs, outputs * sizeof *out);
    for (uint32_t i = 0; i < inputs; i++) {
        if (in[i] != 0) {
            add_scaled(out, matrix + (size_t)i * outputs, in[i], outputs);
        }
    }
}

static void layer_backward(const float *matrix, float *grads, const float *restrict in,
                           uint32_t inputs, const float *restrict out_slopes, uint32_t outputs,
                           float *restrict in_slopes)
{
    for (uint32_t i = 0; i < inputs; i++) {
        in_slopes[i] = dot(matrix + (size_t)i * outputs, out_slopes, outputs);
        if (in[i] != 0) {
            add_scaled(grads + (size_t)i * outputs, out_slopes, in[i], outputs);
        }
    }
    add_scaled(grads + (size_t)inputs * outputs, out_slopes, 1, outputs);
}

static void rectify(float *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        values[i] = values[i] < 0 ? 0 : values[i]; /* keeps NaN, so that it is detected */
    }
}

float sl_tower_forward(const struct sl_tower_shape *shape,
                       const float *const matrices[SL_TOWER_LAYERS], float *activations)
{
    float *in = activations;
    for (uint32_t layer = 0; layer < SL_TOWER_LAYERS; layer++) {
        float *out = in + shape->widths[layer];
        uint32_t outputs = shape->widths[layer + 1];
        layer_forward(matrices[layer], in, shape->widths[layer], out, outputs);
        if (layer + 1 < SL_TOWER_LAYERS) {
            rectify(out, outputs);
        }
        in = out;
    }
    return in[0];
}

void sl_tower_backward(const struct sl_tower_shape *shape,
                       const float *const matrices[SL_TOWER_LAYERS],
                       float *const grads[SL_TOWER_LAYERS], const float *activations, float slope,
                       float *slopes)
{
    size_t at = sl_tower_activation_floats(shape) - 1;
    slopes[at] = slope;
    for (uint32_t layer = SL_TOWER_LAYERS; layer-- > 0;) {
        uint32_t inputs = shape->widths[layer];
        const float *in = activations + at - inputs;
        float *in_slopes = slopes + at - inputs;
        layer_backward(matrices[layer], grads[layer], in, inputs, slopes + at,
                       shape->widths[layer + 1], in_slopes);
        for (uint32_t i = 0; layer > 0 && i < inputs; i++) {
            in_slopes[i] = in[i] > 0 ? in_slopes[i] : 0; /* derivative of ReLU */
        }
        at -= inputs;
    }
}
