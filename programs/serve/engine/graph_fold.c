#include "programs/serve/engine/graph_fold.h"

#include <math.h>
#include <string.h>

#include "programs/serve/engine/graph_check.h"
#include "programs/serve/engine/onnx.h"

/* Of all nodes whose inputs are constants: a second or so, of the slowest operator. Nodes beyond
 * are computed in each run. */
#define FOLD_OPERATIONS_MAX 1e8

struct folder {
    struct sl_graph_memory *memory;
    struct sl_reason *reason;
    double operations_left;
};

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
    const struct sl_graph_value *in = node->inputs[0], *out = node->outputs[0];
    return (node->op->flags & SL_GRAPH_COPIES) != 0 && !out->is_output && in->type == out->type &&
           in->has_rows == out->has_rows && in->row_axis == out->row_axis &&
           in->row_outer == out->row_outer && in->rank == out->rank &&
           memcmp(in->shape, out->shape, in->rank * sizeof in->shape[0]) == 0;
}

/* Computes a node whose inputs are known, and makes its output a constant or a weight. The node
 * stays as it is if that needs more memory or operations than there are. Errors: the operator's. */
static int fold_constant(struct folder *folder, struct sl_graph_node *node,
                         const struct sl_graph_work *work)
{
    struct sl_graph_value *out = node->outputs[0];
    if (node->output_count != 1 || out == NULL) {
        return 0;
    }
    bool is_known = !out->is_output && !out->has_rows &&
                    work->operations <= folder->operations_left &&
                    (out->type == SL_OBJECT_F32 || out->bytes <= SL_ONNX_CONSTANT_BYTES_MAX);
    const void *inputs[SL_GRAPH_OPERANDS_MAX];
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct sl_graph_value *in = node->inputs[i];
        inputs[i] = in != NULL ? in->data : NULL;
        is_known = is_known && ((node->op->flags & SL_GRAPH_OF_SHAPE) != 0 || in == NULL ||
                                (sl_graph_is_stored(in) && in->data != NULL));
    }
    if (!is_known) {
        return 0;
    }
    folder->operations_left -= work->operations;
    void *to = sl_graph_memory_take(folder->memory, out->bytes, 1);
    const struct sl_graph_run run = {
        .inputs = inputs,
        .outputs = &to,
        .scratch = sl_graph_memory_take(folder->memory, work->scratch_bytes, 1),
        .rows = 1,
        .reason = folder->reason};
    if (to == NULL || run.scratch == NULL) {
        return 0;
    }
    const int err = node->op->run(node, &run);
    out->kind = sl_onnx_stored_kind(out);
    out->data = to;
    out->producer = NULL;
    node->is_folded = true;
    return err;
}

/* The value's elements if it is stored: in memory of the graph. */
static float *elements(const struct sl_graph_value *value)
{
    return value != NULL && sl_graph_is_stored(value) ? (float *)value->data : NULL;
}

/* Multiplies the BatchNormalization into the Conv before it, and makes that compute its output. The
 * Conv's own output, which nothing reads any more, becomes its bias. False: the nodes stay as they
 * are, since they are not as expected, or there is no memory. */
static bool fold_bn(struct sl_graph_node *conv, const struct sl_graph_node *bn,
                    struct sl_graph_memory *memory)
{
    struct sl_graph_value *w = operand(conv->inputs, conv->input_count, 1);
    struct sl_graph_value *b = operand(conv->inputs, conv->input_count, 2);
    if (!is(conv, "Conv") || !is(bn, "BatchNormalization") || conv->outputs[0]->uses != 1 ||
        w->uses != 1) {
        return false;
    }
    const uint64_t channels = w->shape[0], taps = sl_graph_elements(w, 1, w->rank);
    float *weights = elements(w);
    const float *before = elements(b), *scale = elements(bn->inputs[1]);
    const float *shift = elements(bn->inputs[2]), *mean = elements(bn->inputs[3]);
    const float *variance = elements(bn->inputs[4]);
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
    *added = (struct sl_graph_value){
        .name = added->name,
        .type = SL_OBJECT_F32,
        .rank = 1,
        .shape = {channels},
        .bytes = channels * sizeof *bias,
        .data = bias,
        .uses = 2}; /* as the input of the Conv, and still of the BatchNormalization */
    added->kind = sl_onnx_stored_kind(added);
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

static int fold_node(struct folder *folder, const struct sl_graph *graph,
                     struct sl_graph_node *node)
{
    struct sl_graph_work work;
    for (uint32_t j = 0; j < node->input_count; j++) {
        const struct sl_graph_value *input = node->inputs[j];
        if (input != NULL && input->producer != NULL && input->producer->is_folded) {
            node->inputs[j] = input->producer->inputs[0]; /* that of a copy */
        }
    }
    int err = sl_graph_check_node(graph, node, 1, &work, folder->reason);
    if (err != 0) {
        return err;
    }
    struct sl_graph_value *source = node->inputs[0];
    if (is_identity(node)) {
        node->is_folded = true;
        source->uses += node->outputs[0]->uses;
    } else if (source->producer != NULL && fold_bn(source->producer, node, folder->memory)) {
        node->is_folded = true;
    } else {
        err = fold_constant(folder, node, &work);
    }
    for (uint32_t j = 0; node->is_folded && j < node->input_count; j++) {
        if (node->inputs[j] != NULL) {
            node->inputs[j]->uses--;
        }
    }
    return err;
}

int sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory, struct sl_reason *reason)
{
    struct folder folder = {
        .memory = memory, .reason = reason, .operations_left = FOLD_OPERATIONS_MAX};
    uint32_t kept = 0;
    int err = sl_graph_check_operators(graph, reason);
    for (uint32_t i = 0; err == 0 && i < graph->node_count; i++) {
        err = fold_node(&folder, graph, &graph->nodes[i]);
    }
    if (err != 0) {
        return err;
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
    return 0;
}
