#include "serve/engine/graph_fold.h"

#include <math.h>
#include <string.h>

#include "serve/engine/onnx.h"

/* NULL: it is absent. */
static struct sl_graph_value *operand(struct sl_graph_value *const *operands, uint32_t count,
                                      uint32_t i)
{
    return i < count ? operands[i] : NULL;
}

static bool is(const struct sl_graph_node *node, const char *op_type)
{
    return strcmp(node->op_type, op_type) == 0;
}

/* The output of the node is its input, and not an output of the model, which has to keep its name.
 */
static bool is_identity(const struct sl_graph_node *node)
{
    const struct sl_graph_value *input = operand(node->inputs, node->input_count, 0);
    const struct sl_graph_value *training = operand(node->inputs, node->input_count, 2);
    const struct sl_graph_value *output = operand(node->outputs, node->output_count, 0);
    const struct sl_graph_value *mask = operand(node->outputs, node->output_count, 1);
    const bool trains = training != NULL && (training->kind != SL_GRAPH_CONSTANT ||
                                             *(const uint8_t *)training->data != 0);
    return (is(node, "Identity") || is(node, "Dropout")) && input != NULL && output != NULL &&
           !output->is_output && (mask == NULL || mask->uses == 0) && !trains;
}

/* The value's elements, in memory of the graph, if it is stored, of f32, and has `count`. */
static float *elements(const struct sl_graph_value *value, uint64_t count)
{
    return value != NULL && sl_graph_is_stored(value) && value->type == SL_OBJECT_F32 &&
                   sl_graph_elements(value, 0, value->rank) == count
               ? (float *)value->data
               : NULL;
}

/* Multiplies the BatchNormalization into the Conv before it, and makes that compute its output. The
 * Conv's own output, which nothing reads any more, becomes its bias. False: the nodes stay as they
 * are, since they are not as expected, or there is no memory. */
static bool fold_bn(struct sl_graph_node *conv, const struct sl_graph_node *bn,
                    struct sl_graph_memory *memory)
{
    struct sl_graph_value *w = operand(conv->inputs, conv->input_count, 1);
    struct sl_graph_value *b = operand(conv->inputs, conv->input_count, 2);
    if (!is(conv, "Conv") || w == NULL || conv->output_count != 1 ||
        !is(bn, "BatchNormalization") || bn->input_count != 5 || bn->output_count != 1 ||
        bn->outputs[0] == NULL || conv->outputs[0]->uses != 1 || w->uses != 1 ||
        sl_graph_attribute_int(bn, "training_mode", 0) != 0) {
        return false;
    }
    const uint64_t channels = w->rank > 0 ? w->shape[0] : 0;
    const uint64_t taps = sl_graph_elements(w, 1, w->rank);
    float *weights = elements(w, channels * taps);
    const float *before = elements(b, channels);
    const float *scale = elements(bn->inputs[1], channels);
    const float *shift = elements(bn->inputs[2], channels);
    const float *mean = elements(bn->inputs[3], channels);
    const float *variance = elements(bn->inputs[4], channels);
    const float epsilon = sl_graph_attribute_float(bn, "epsilon", 1e-5F);
    float *bias = sl_graph_memory_take(memory, channels, sizeof *bias);
    struct sl_graph_value **inputs = sl_graph_memory_take(memory, 3, sizeof *inputs);
    if (weights == NULL || (b != NULL && before == NULL) || scale == NULL || shift == NULL ||
        mean == NULL || variance == NULL || bias == NULL || inputs == NULL) {
        return false;
    }
    for (uint64_t c = 0; c < channels; c++) {
        const double factor = scale[c] / sqrt((double)variance[c] + epsilon);
        bias[c] = (float)(((before != NULL ? (double)before[c] : 0) - mean[c]) * factor + shift[c]);
        for (uint64_t i = c * taps; i < (c + 1) * taps; i++) {
            weights[i] = (float)(weights[i] * factor);
        }
    }
    struct sl_graph_value *added = conv->outputs[0];
    const uint64_t bias_bytes = channels * sizeof *bias;
    *added = (struct sl_graph_value){
        .name = added->name,
        .kind = bias_bytes > SL_ONNX_CONSTANT_BYTES ? SL_GRAPH_WEIGHT : SL_GRAPH_CONSTANT,
        .type = SL_OBJECT_F32,
        .rank = 1,
        .shape = {channels},
        .bytes = bias_bytes,
        .data = bias,
        .uses = 2}; /* as the input of the Conv, and still of the BatchNormalization */
    inputs[0] = conv->inputs[0];
    inputs[1] = w;
    inputs[2] = added;
    if (b != NULL) {
        b->uses--;
    }
    conv->inputs = inputs;
    conv->input_count = 3;
    conv->outputs = bn->outputs;
    bn->outputs[0]->producer = conv;
    return true;
}

void sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct sl_graph_node *node = &graph->nodes[i];
        for (uint32_t j = 0; j < node->input_count; j++) {
            const struct sl_graph_value *input = node->inputs[j];
            if (input != NULL && input->producer != NULL && input->producer->is_folded) {
                node->inputs[j] = input->producer->inputs[0]; /* that of an Identity */
            }
        }
        struct sl_graph_value *source = operand(node->inputs, node->input_count, 0);
        if (is_identity(node)) {
            node->is_folded = true;
            source->uses += node->outputs[0]->uses;
        } else if (source != NULL && source->producer != NULL) {
            node->is_folded = fold_bn(source->producer, node, memory);
        }
        for (uint32_t j = 0; node->is_folded && j < node->input_count; j++) {
            if (node->inputs[j] != NULL) {
                node->inputs[j]->uses--;
            }
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (!graph->nodes[i].is_folded) {
            graph->nodes[kept++] = graph->nodes[i];
        }
    }
    graph->node_count = kept;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        struct sl_graph_value *value = &graph->values[i];
        if (value->uses == 0 && value->kind != SL_GRAPH_INPUT) {
            value->kind = SL_GRAPH_COMPUTED; /* by no node: neither written nor placed */
        }
    }
}
