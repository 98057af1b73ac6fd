/* A tower of dense layers, with ReLU between them and one linear output. Layer l has a matrix
 * [inputs + 1][outputs], input-major; the last row is the bias. Both passes walk it in memory order
 * and skip rows of zero inputs. Pure; any thread. */
#ifndef SL_PROGRAMS_MODELS_TOWER_H
#define SL_PROGRAMS_MODELS_TOWER_H

#include "programs/models/model.h"

#define SL_TOWER_LAYERS (SL_MODEL_HIDDEN + 1)

struct sl_tower_shape {
    uint32_t widths[SL_TOWER_LAYERS + 1]; /* inputs, hidden layers, 1 */
};

static inline size_t sl_tower_matrix_floats(const struct sl_tower_shape *shape, uint32_t layer)
{
    return ((size_t)shape->widths[layer] + 1) * shape->widths[layer + 1];
}

/* Number of activations (input first), and of their derivatives. */
size_t sl_tower_activation_floats(const struct sl_tower_shape *shape);

/* activations holds the input; fills the others. Returns the output. */
float sl_tower_forward(const struct sl_tower_shape *shape,
                       const float *const matrices[SL_TOWER_LAYERS], float *activations);

/* Adds slope * d output / d matrix to grads; sets slopes[] to slope * d output / d activations, the
 * input's first. */
void sl_tower_backward(const struct sl_tower_shape *shape,
                       const float *const matrices[SL_TOWER_LAYERS],
                       float *const grads[SL_TOWER_LAYERS], const float *activations, float slope,
                       float *slopes);

#endif
