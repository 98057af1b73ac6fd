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
    bool is_same = (is(node, "Identity") && node->input_count == 1 && node->output_count == 1) ||
                   (is(node, "Dropout") && node->input_count >= 1 && node->output_count >= 1);
    is_same = is_same && node->inputs[0] != SL_GRAPH_NONE && node->outputs[0] != SL_GRAPH_NONE;
    const uint32_t training = operand(node->inputs, node->input_count, 2);
    const uint32_t mask = operand(node->outputs, node->output_count, 1);
    if (is_same && training != SL_GRAPH_NONE) {
        const struct sl_graph_value *value = &graph->values[training];
        is_same = value->kind == SL_GRAPH_CONSTANT && *(const uint8_t *)value->data == 0;
    }
    is_same = is_same && (mask == SL_GRAPH_NONE || folding->uses[mask] == 0);
    for (uint32_t i = 0; is_same && i < graph->output_count; i++) {
        is_same = graph->outputs[i] != node->outputs[0];
    }
    return is_same;
}

/* The value's elements if it is stored, of f32, and has `count` elements. */
static const float *elements(const struct folding *folding, uint32_t at, uint64_t count)
{
    const struct sl_graph_value *value = at != SL_GRAPH_NONE ? &folding->graph->values[at] : NULL;
    return value != NULL && (value->kind == SL_GRAPH_WEIGHT || value->kind == SL_GRAPH_CONSTANT) &&
                   value->type == SL_OBJECT_F32 && sl_graph_elements(value, 0, value->rank) == count
               ? value->data
               : NULL;
}

/* Weights of a Conv, [channels][kernel_elements], its bias, and the parameters of the
 * BatchNormalization behind it, [channels]. */
struct conv_bn {
    uint64_t channels, kernel_elements;
    const float *weights, *bias; /* bias: or NULL */
    const float *scale, *shift, *mean, *variance;
    float epsilon;
};

/* False: they cannot be folded. */
static bool find_conv_bn(const struct folding *folding, const struct sl_graph_node *conv,
                         const struct sl_graph_node *bn, struct conv_bn *out)
{
    const uint32_t w = operand(conv->inputs, conv->input_count, 1);
    const uint32_t b = operand(conv->inputs, conv->input_count, 2);
    if (!is(conv, "Conv") || w == SL_GRAPH_NONE || conv->output_count != 1 ||
        bn->input_count != 5 || bn->output_count != 1 || bn->outputs[0] == SL_GRAPH_NONE ||
        folding->uses[conv->outputs[0]] != 1 || folding->uses[w] != 1 ||
        sl_graph_attribute_int(bn, "training_mode", 0) != 0) {
        return false;
    }
    const struct sl_graph_value *weights = &folding->graph->values[w];
    const uint64_t channels = weights->rank > 0 ? weights->shape[0] : 0;
    *out = (struct conv_bn){
        .channels = channels,
        .kernel_elements = sl_graph_elements(weights, 1, weights->rank),
        .weights = elements(folding, w, sl_graph_elements(weights, 0, weights->rank)),
        .bias = elements(folding, b, channels),
        .scale = elements(folding, bn->inputs[1], channels),
        .shift = elements(folding, bn->inputs[2], channels),
        .mean = elements(folding, bn->inputs[3], channels),
        .variance = elements(folding, bn->inputs[4], channels),
        .epsilon = sl_graph_attribute_float(bn, "epsilon", 1e-5F),
    };
    return channels > 0 && out->weights != NULL && (b == SL_GRAPH_NONE || out->bias != NULL) &&
           out->scale != NULL && out->shift != NULL && out->mean != NULL && out->variance != NULL;
}

static void multiply(const struct conv_bn *of, float *weights, float *bias)
{
    for (uint64_t c = 0; c < of->channels; c++) {
        const double factor = of->scale[c] / sqrt((double)of->variance[c] + of->epsilon);
        const double before = of->bias != NULL ? of->bias[c] : 0;
        bias[c] = (float)((before - of->mean[c]) * factor + of->shift[c]);
        for (uint64_t i = c * of->kernel_elements; i < (c + 1) * of->kernel_elements; i++) {
            weights[i] = (float)(of->weights[i] * factor);
        }
    }
}

/* Makes the Conv compute the output of the BatchNormalization. Its own output, which nothing reads
 * any more, becomes the bias. */
static int fold_bn(struct folding *folding, struct sl_graph_node *conv,
                   const struct sl_graph_node *bn, const struct conv_bn *of)
{
    struct sl_graph_value *values = folding->graph->values;
    struct sl_graph_memory *memory = folding->memory;
    float *weights =
        sl_graph_memory_take(memory, of->channels * of->kernel_elements, sizeof *weights);
    float *bias = sl_graph_memory_take(memory, of->channels + 16, sizeof *bias);
    uint32_t *inputs = sl_graph_memory_take(memory, 3, sizeof *inputs);
    if (weights == NULL || bias == NULL || inputs == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    multiply(of, weights, bias);
    inputs[0] = conv->inputs[0];
    inputs[1] = conv->inputs[1];
    inputs[2] = conv->outputs[0];
    values[inputs[1]].data = weights;
    const uint64_t bias_bytes = of->channels * sizeof *bias;
    values[inputs[2]] = (struct sl_graph_value){
        .name = values[inputs[2]].name,
        .kind = bias_bytes > SL_ONNX_CONSTANT_BYTES ? SL_GRAPH_WEIGHT : SL_GRAPH_CONSTANT,
        .type = SL_OBJECT_F32,
        .rank = 1,
        .shape = {of->channels},
        .bytes = bias_bytes,
        .data = bias};
    conv->inputs = inputs;
    conv->input_count = 3;
    conv->outputs = bn->outputs;
    folding->producers[bn->outputs[0]] = (uint32_t)(conv - folding->graph->nodes);
    return 0;
}

/* Replaces operands that were renamed. The arrays are the reader's, in the graph's memory. */
static void rename_inputs(const struct folding *folding, const struct sl_graph_node *node)
{
    uint32_t *inputs = (uint32_t *)node->inputs;
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = inputs[i] != SL_GRAPH_NONE ? folding->renames[inputs[i]] : SL_GRAPH_NONE;
    }
}

/* Keeps the nodes that are left, in their order. */
static int fold_nodes(struct folding *folding)
{
    struct sl_graph *graph = folding->graph;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node node = graph->nodes[i];
        rename_inputs(folding, &node);
        if (is_identity(folding, &node)) {
            folding->renames[node.outputs[0]] = node.inputs[0];
            folding->uses[node.inputs[0]] += folding->uses[node.outputs[0]] - 1;
            continue;
        }
        struct conv_bn of;
        const uint32_t source = operand(node.inputs, node.input_count, 0);
        const uint32_t conv = source != SL_GRAPH_NONE ? folding->producers[source] : SL_GRAPH_NONE;
        if (conv != SL_GRAPH_NONE && is(&node, "BatchNormalization") &&
            find_conv_bn(folding, &graph->nodes[conv], &node, &of)) {
            const int err = fold_bn(folding, &graph->nodes[conv], &node, &of);
            if (err != 0) {
                return err;
            }
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
    return 0;
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
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) {
        folding.producers[i] = SL_GRAPH_NONE;
        folding.renames[i] = i;
    }
    count_uses(&folding);
    if (fold_nodes(&folding) != 0) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for folded weights");
    }
    count_uses(&folding);
    for (uint32_t i = 0; i < count; i++) {
        struct sl_graph_value *value = &graph->values[i];
        if (folding.uses[i] == 0 && value->kind != SL_GRAPH_INPUT) {
            value->kind = SL_GRAPH_COMPUTED; /* by no node: neither written nor placed */
        }
    }
    return 0;
}
