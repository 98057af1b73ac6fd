#include "serve/engine/graph_fold.h"

#include <math.h>
#include <string.h>

#include "serve/engine/onnx.h"

struct folding {
    struct sl_graph *graph;
    struct sl_graph_memory *memory;
    uint32_t *uses;      /* [value]: operands that are this value, and outputs of the model */
    uint32_t *producers; /* [value]: the node that computes it, or SL_GRAPH_NONE */
    uint32_t *renames;   /* [value]: the value that is used instead */
};

static uint32_t operand(const uint32_t *operands, uint32_t count, uint32_t i)
{
    return i < count ? operands[i] : SL_GRAPH_NONE;
}

static bool is(const struct sl_graph_node *node, const char *op_type)
{
    return strcmp(node->op_type, op_type) == 0;
}

static void count_uses(struct folding *folding)
{
    const struct sl_graph *graph = folding->graph;
    memset(folding->uses, 0, graph->value_count * sizeof *folding->uses);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        for (uint32_t j = 0; j < node->input_count; j++) {
            if (node->inputs[j] != SL_GRAPH_NONE) {
                folding->uses[node->inputs[j]]++;
            }
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        folding->uses[graph->outputs[i]]++;
    }
}

/* The output of the node is its input, and not an output of the model, which has to keep its name.
 */
static bool is_identity(const struct folding *folding, const struct sl_graph_node *node)
{
    const struct sl_graph *graph = folding->graph;
    const uint32_t input = operand(node->inputs, node->input_count, 0);
    const uint32_t training = operand(node->inputs, node->input_count, 2);
    const uint32_t output = operand(node->outputs, node->output_count, 0);
    const uint32_t mask = operand(node->outputs, node->output_count, 1);
    if ((!is(node, "Identity") && !is(node, "Dropout")) || input == SL_GRAPH_NONE ||
        output == SL_GRAPH_NONE || (mask != SL_GRAPH_NONE && folding->uses[mask] > 0)) {
        return false;
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == output) {
            return false;
        }
    }
    return training == SL_GRAPH_NONE || (graph->values[training].kind == SL_GRAPH_CONSTANT &&
                                         *(const uint8_t *)graph->values[training].data == 0);
}

/* The value's elements, in memory of the graph, if it is stored, of f32, and has `count`. */
static float *elements(const struct folding *folding, uint32_t at, uint64_t count)
{
    const struct sl_graph_value *value = at != SL_GRAPH_NONE ? &folding->graph->values[at] : NULL;
    return value != NULL && sl_graph_is_stored(value) && value->type == SL_OBJECT_F32 &&
                   sl_graph_elements(value, 0, value->rank) == count
               ? (float *)value->data
               : NULL;
}

/* Multiplies the BatchNormalization into the Conv before it, and makes that compute its output. The
 * Conv's own output, which nothing reads any more, becomes its bias. False: the nodes stay as they
 * are, since they are not as expected, or there is no memory. */
static bool fold_bn(struct folding *folding, struct sl_graph_node *conv,
                    const struct sl_graph_node *bn)
{
    const uint32_t w = operand(conv->inputs, conv->input_count, 1);
    const uint32_t b = operand(conv->inputs, conv->input_count, 2);
    if (!is(conv, "Conv") || w == SL_GRAPH_NONE || conv->output_count != 1 ||
        !is(bn, "BatchNormalization") || bn->input_count != 5 || bn->output_count != 1 ||
        bn->outputs[0] == SL_GRAPH_NONE || folding->uses[conv->outputs[0]] != 1 ||
        folding->uses[w] != 1 || sl_graph_attribute_int(bn, "training_mode", 0) != 0) {
        return false;
    }
    const struct sl_graph_value *filters = &folding->graph->values[w];
    const uint64_t channels = filters->rank > 0 ? filters->shape[0] : 0;
    const uint64_t taps = sl_graph_elements(filters, 1, filters->rank);
    float *weights = elements(folding, w, channels * taps);
    const float *before = elements(folding, b, channels);
    const float *scale = elements(folding, bn->inputs[1], channels);
    const float *shift = elements(folding, bn->inputs[2], channels);
    const float *mean = elements(folding, bn->inputs[3], channels);
    const float *variance = elements(folding, bn->inputs[4], channels);
    const float epsilon = sl_graph_attribute_float(bn, "epsilon", 1e-5F);
    float *bias = sl_graph_memory_take(folding->memory, channels, sizeof *bias);
    uint32_t *inputs = sl_graph_memory_take(folding->memory, 3, sizeof *inputs);
    if (weights == NULL || (b != SL_GRAPH_NONE && before == NULL) || scale == NULL ||
        shift == NULL || mean == NULL || variance == NULL || bias == NULL || inputs == NULL) {
        return false;
    }
    for (uint64_t c = 0; c < channels; c++) {
        const double factor = scale[c] / sqrt((double)variance[c] + epsilon);
        bias[c] = (float)(((before != NULL ? before[c] : 0) - mean[c]) * factor + shift[c]);
        for (uint64_t i = c * taps; i < (c + 1) * taps; i++) {
            weights[i] = (float)(weights[i] * factor);
        }
    }
    struct sl_graph_value *added = &folding->graph->values[conv->outputs[0]];
    const uint64_t bias_bytes = channels * sizeof *bias;
    *added = (struct sl_graph_value){
        .name = added->name,
        .kind = bias_bytes > SL_ONNX_CONSTANT_BYTES ? SL_GRAPH_WEIGHT : SL_GRAPH_CONSTANT,
        .type = SL_OBJECT_F32,
        .rank = 1,
        .shape = {channels},
        .bytes = bias_bytes,
        .data = bias};
    inputs[0] = conv->inputs[0];
    inputs[1] = w;
    inputs[2] = conv->outputs[0];
    conv->inputs = inputs;
    conv->input_count = 3;
    conv->outputs = bn->outputs;
    folding->producers[bn->outputs[0]] = (uint32_t)(conv - folding->graph->nodes);
    return true;
}

/* Keeps the nodes that are left, in their order. */
static void fold_nodes(struct folding *folding)
{
    struct sl_graph *graph = folding->graph;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node node = graph->nodes[i];
        uint32_t *inputs = (uint32_t *)node.inputs; /* the reader's array, in the graph's memory */
        for (uint32_t j = 0; j < node.input_count; j++) {
            inputs[j] = inputs[j] != SL_GRAPH_NONE ? folding->renames[inputs[j]] : SL_GRAPH_NONE;
        }
        if (is_identity(folding, &node)) {
            folding->renames[node.outputs[0]] = inputs[0];
            folding->uses[inputs[0]] += folding->uses[node.outputs[0]] - 1;
            continue;
        }
        const uint32_t source = operand(inputs, node.input_count, 0);
        const uint32_t conv = source != SL_GRAPH_NONE ? folding->producers[source] : SL_GRAPH_NONE;
        if (conv != SL_GRAPH_NONE && fold_bn(folding, &graph->nodes[conv], &node)) {
            continue;
        }
        for (uint32_t j = 0; j < node.output_count; j++) {
            if (node.outputs[j] != SL_GRAPH_NONE) {
                folding->producers[node.outputs[j]] = kept;
            }
        }
        graph->nodes[kept++] = node;
    }
    graph->node_count = kept;
}

int sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory, struct sl_reason *reason)
{
    const uint32_t count = graph->value_count;
    struct folding folding = {
        .graph = graph,
        .memory = memory,
        .uses = sl_graph_memory_take(memory, count, sizeof *folding.uses),
        .producers = sl_graph_memory_take(memory, count, sizeof *folding.producers),
        .renames = sl_graph_memory_take(memory, count, sizeof *folding.renames),
    };
    if (folding.uses == NULL || folding.producers == NULL || folding.renames == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to fold the model");
    }
    for (uint32_t i = 0; i < count; i++) {
        folding.producers[i] = SL_GRAPH_NONE;
        folding.renames[i] = i;
    }
    count_uses(&folding);
    fold_nodes(&folding);
    count_uses(&folding);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_graph_value *value = &graph->values[i];
        if (folding.uses[i] == 0 && value->kind != SL_GRAPH_INPUT) {
            value->kind = SL_GRAPH_COMPUTED; /* by no node: neither written nor placed */
        }
    }
    return 0;
}
