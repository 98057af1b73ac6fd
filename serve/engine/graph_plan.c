#include "serve/engine/graph_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

#define ALIGNMENT 64

struct planner {
    struct sl_graph *graph;
    struct sl_graph_memory *memory;
    struct sl_reason *reason;
    uint32_t rows_max;
};

/* ---- Shapes ---------------------------------------------------------------------------------- */

static bool is_absent(const uint32_t *operands, uint32_t count, uint32_t i)
{
    return i >= count || operands[i] == SL_GRAPH_NONE;
}

/* Checks what the operator's table entry says: numbers of operands, and attributes. */
static int check_node(const struct sl_graph_infer *infer)
{
    const struct sl_graph_node *node = infer->node;
    const struct sl_graph_op *op = node->op;
    if (op == NULL) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the operator is not supported");
    }
    bool is_missing = is_absent(node->outputs, node->output_count, 0);
    for (uint32_t i = 0; i < op->inputs_min; i++) {
        is_missing = is_missing || is_absent(node->inputs, node->input_count, i);
    }
    if (is_missing || node->input_count > op->inputs_max || node->output_count > op->outputs_max) {
        return sl_graph_fail(
            infer, SL_ERR_INVALID, "%u inputs and %u outputs: accepted are %u to %u and 1 to %u",
            node->input_count, node->output_count, op->inputs_min, op->inputs_max, op->outputs_max);
    }
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        const struct sl_graph_attribute *a = &node->attributes[i];
        const uint32_t rule_count = sizeof op->attributes / sizeof op->attributes[0];
        uint32_t at = 0;
        while (at < rule_count && op->attributes[at].name != NULL &&
               strcmp(op->attributes[at].name, a->name) != 0) {
            at++;
        }
        if (at == rule_count || op->attributes[at].name == NULL) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "attribute \"%s\" is not supported",
                                 a->name);
        }
        if (a->type != op->attributes[at].type) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "attribute \"%s\" has type %d of ONNX, not %d", a->name,
                                 (int)a->type, (int)op->attributes[at].type);
        }
    }
    return 0;
}

static uint64_t type_bytes(uint32_t type)
{
    return type == SL_OBJECT_F32 ? 4 : type == SL_OBJECT_I64 ? 8 : 1;
}

/* Sets the bytes of a value whose shape is known. False: above the limits. */
static bool measure(struct sl_graph_value *value)
{
    uint64_t product = 1;
    sl_assert(value->rank <= SL_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < value->rank; i++) {
        if (value->shape[i] == 0 || value->shape[i] > SL_GRAPH_ELEMENTS_MAX ||
            product * value->shape[i] > SL_GRAPH_ELEMENTS_MAX) {
            return false;
        }
        product *= value->shape[i];
    }
    value->bytes = product * type_bytes(value->type);
    return true;
}

/* Lets the operator check the node, and infer its outputs. */
static int infer_node(const struct planner *planner, struct sl_graph_node *node)
{
    const struct sl_graph_value *inputs[SL_GRAPH_OPERANDS_MAX];
    struct sl_graph_value *outputs[SL_GRAPH_OPERANDS_MAX];
    struct sl_graph_value *values = planner->graph->values;
    struct sl_graph_infer infer = {.graph = planner->graph,
                                   .node = node,
                                   .inputs = inputs,
                                   .outputs = outputs,
                                   .rows_max = planner->rows_max,
                                   .reason = planner->reason};
    node->op = sl_graph_op_find(node->op_type);
    int err = check_node(&infer);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = node->inputs[i] == SL_GRAPH_NONE ? NULL : &values[node->inputs[i]];
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        outputs[i] = node->outputs[i] == SL_GRAPH_NONE ? NULL : &values[node->outputs[i]];
    }
    err = node->op->infer(&infer);
    for (uint32_t i = 0; err == 0 && i < node->output_count; i++) {
        if (outputs[i] != NULL && !measure(outputs[i])) {
            err = sl_graph_fail(&infer, SL_ERR_TOO_LARGE,
                                "output \"%s\" has no element, or more than 2^31 a row",
                                outputs[i]->name);
        }
    }
    node->flops = infer.flops;
    node->scratch_bytes = infer.scratch_bytes;
    return err;
}

/* Inputs and outputs are tensors of rows. */
static int infer_shapes(const struct planner *planner)
{
    struct sl_graph *graph = planner->graph;
    int err = 0;
    for (uint32_t i = 0; i < graph->input_count; i++) {
        (void)measure(&graph->values[graph->inputs[i]]); /* the reader has checked it */
    }
    for (uint32_t i = 0; err == 0 && i < graph->node_count; i++) {
        err = infer_node(planner, &graph->nodes[i]);
    }
    for (uint32_t i = 0; err == 0 && i < graph->output_count; i++) {
        const struct sl_graph_value *value = &graph->values[graph->outputs[i]];
        if (!value->has_rows || value->shape[0] != 1) {
            err =
                sl_reason_fail(planner->reason, SL_ERR_UNSUPPORTED,
                               "output \"%s\" of the model: its first dimension is not the number "
                               "of rows",
                               value->name);
        }
    }
    return err;
}

/* ---- Scratch --------------------------------------------------------------------------------- */

/* Memory of a value, or of a node for its run. */
struct buffer {
    uint64_t bytes, offset;
    uint32_t first, last; /* nodes during which its bytes are needed */
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t bytes_of(const struct planner *planner, const struct sl_graph_value *value)
{
    return round_up(value->bytes * (value->has_rows ? planner->rows_max : 1));
}

static bool is_placed(const struct sl_graph_value *value)
{
    return value->kind == SL_GRAPH_INPUT || value->kind == SL_GRAPH_COMPUTED;
}

/* No value and no memory of a node is above the limit, so that no sum overflows. */
static int check_sizes(const struct planner *planner)
{
    const struct sl_graph *graph = planner->graph;
    const char *name = NULL;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct sl_graph_value *value = &graph->values[i];
        if (is_placed(value) && bytes_of(planner, value) > SL_GRAPH_PLAN_SCRATCH_MAX) {
            name = value->name;
        }
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i].scratch_bytes > SL_GRAPH_PLAN_SCRATCH_MAX) {
            name = graph->nodes[i].name;
        }
    }
    return name == NULL ? 0
                        : sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                         "\"%s\" needs more than %llu bytes of memory for %u rows",
                                         name, SL_GRAPH_PLAN_SCRATCH_MAX, planner->rows_max);
}

static void extend(struct buffer *buffer, uint32_t node)
{
    buffer->last = node > buffer->last ? node : buffer->last;
}

/* The first output may lie where the first input lies, which nothing reads later. */
static bool can_replace_input(const struct planner *planner, const struct buffer *values,
                              uint32_t number)
{
    const struct sl_graph_node *node = &planner->graph->nodes[number];
    if (!node->op->in_place || is_absent(node->inputs, node->input_count, 0)) {
        return false;
    }
    const struct sl_graph_value *in = &planner->graph->values[node->inputs[0]];
    const struct sl_graph_value *out = &planner->graph->values[node->outputs[0]];
    return is_placed(in) && values[node->inputs[0]].last == number &&
           in->has_rows == out->has_rows && in->bytes == out->bytes;
}

/* Fills the buffers of values and nodes. owners[value]: the value whose buffer it has: itself, or
 * the one that it replaces. */
static void find_buffers(const struct planner *planner, struct buffer *values, struct buffer *nodes,
                         uint32_t *owners)
{
    const struct sl_graph *graph = planner->graph;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        nodes[i] = (struct buffer){.bytes = round_up(node->scratch_bytes), .first = i, .last = i};
        for (uint32_t j = 0; j < node->output_count; j++) {
            if (node->outputs[j] != SL_GRAPH_NONE) {
                values[node->outputs[j]].first = values[node->outputs[j]].last = i;
            }
        }
        for (uint32_t j = 0; j < node->input_count; j++) {
            if (node->inputs[j] != SL_GRAPH_NONE) {
                extend(&values[node->inputs[j]], i);
            }
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        extend(&values[graph->outputs[i]], graph->node_count);
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        owners[i] = i;
        values[i].bytes = is_placed(&graph->values[i]) ? bytes_of(planner, &graph->values[i]) : 0;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (can_replace_input(planner, values, i)) {
            const uint32_t output = graph->nodes[i].outputs[0];
            owners[output] = owners[graph->nodes[i].inputs[0]];
            extend(&values[owners[output]], values[output].last);
            values[output].bytes = 0;
        }
    }
}

/* Larger ones first; among equals the order in memory, so that a plan is always the same. */
static int compare_buffers(const void *a, const void *b)
{
    const struct buffer *const *one = a, *const *other = b;
    return (*one)->bytes != (*other)->bytes ? ((*one)->bytes < (*other)->bytes ? 1 : -1)
                                            : (*one > *other) - (*one < *other);
}

/* Where the buffer fits among those that are needed at the same time: in the smallest gap, else
 * behind them. placed: by offset. */
static uint64_t find_offset(const struct buffer *buffer, struct buffer *const *placed,
                            uint32_t count)
{
    uint64_t end = 0, best = UINT64_MAX, best_bytes = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct buffer *other = placed[i];
        if (other->first > buffer->last || buffer->first > other->last) {
            continue;
        }
        const uint64_t gap = other->offset > end ? other->offset - end : 0;
        if (gap >= buffer->bytes && gap < best_bytes) {
            best = end;
            best_bytes = gap;
        }
        const uint64_t other_end = other->offset + other->bytes;
        end = other_end > end ? other_end : end;
    }
    return best != UINT64_MAX ? best : end;
}

/* Places the buffers, the largest first, which leaves small gaps (Pisarchyk and Lee 2020: greedy by
 * size). Returns the size of all. */
static uint64_t place_buffers(struct buffer *buffers, uint32_t count, struct buffer **sorted,
                              struct buffer **placed)
{
    uint64_t end = 0;
    uint32_t sorted_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (buffers[i].bytes > 0) {
            sorted[sorted_count++] = &buffers[i];
        }
    }
    qsort(sorted, sorted_count, sizeof *sorted, compare_buffers);
    for (uint32_t i = 0; i < sorted_count; i++) {
        struct buffer *buffer = sorted[i];
        buffer->offset = find_offset(buffer, placed, i);
        end = buffer->offset + buffer->bytes > end ? buffer->offset + buffer->bytes : end;
        uint32_t at = i;
        for (; at > 0 && placed[at - 1]->offset > buffer->offset; at--) {
            placed[at] = placed[at - 1];
        }
        placed[at] = buffer;
    }
    return end;
}

static int place_values(const struct planner *planner, uint64_t *scratch_bytes)
{
    struct sl_graph *graph = planner->graph;
    const uint32_t count = graph->value_count + graph->node_count;
    struct buffer *values = sl_graph_memory_take(planner->memory, count, sizeof *values);
    struct buffer **sorted = sl_graph_memory_take(planner->memory, count, sizeof *sorted);
    struct buffer **placed = sl_graph_memory_take(planner->memory, count, sizeof *placed);
    uint32_t *owners = sl_graph_memory_take(planner->memory, graph->value_count, sizeof *owners);
    if (values == NULL || sorted == NULL || placed == NULL || owners == NULL) {
        return sl_reason_fail(planner->reason, SL_ERR_NO_MEMORY, "no memory for the model's plan");
    }
    struct buffer *nodes = values + graph->value_count;
    find_buffers(planner, values, nodes, owners);
    *scratch_bytes = place_buffers(values, count, sorted, placed);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        graph->values[i].scratch_offset = values[owners[i]].offset;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        graph->nodes[i].scratch_offset = nodes[i].offset;
    }
    return *scratch_bytes <= SL_GRAPH_PLAN_SCRATCH_MAX
               ? 0
               : sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                "the model needs %" PRIu64 " bytes for the values of %u rows: at "
                                "most %llu are accepted",
                                *scratch_bytes, planner->rows_max, SL_GRAPH_PLAN_SCRATCH_MAX);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static int make_layers(const struct planner *planner, uint64_t graph_end,
                       struct sl_graph_plan *plan)
{
    const struct sl_graph *graph = planner->graph;
    uint64_t end = graph_end;
    plan->layer_count = 0;
    plan->layers =
        sl_graph_memory_take(planner->memory, graph->node_count + 1, sizeof *plan->layers);
    plan->layer_ends =
        sl_graph_memory_take(planner->memory, graph->node_count + 1, sizeof *plan->layer_ends);
    if (plan->layers == NULL || plan->layer_ends == NULL) {
        return sl_reason_fail(planner->reason, SL_ERR_NO_MEMORY, "no memory for the model's plan");
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        const uint64_t end_before = end;
        for (uint32_t j = 0; j < node->input_count; j++) {
            const uint32_t at = node->inputs[j];
            if (at != SL_GRAPH_NONE && graph->values[at].kind == SL_GRAPH_WEIGHT &&
                graph->values[at].image_end > end) {
                end = graph->values[at].image_end;
            }
        }
        plan->layer_count += i == 0 || end > end_before;
        struct sl_engine_layer *layer = &plan->layers[plan->layer_count - 1];
        layer->image_end = end;
        layer->flops += node->flops;
        plan->layer_ends[plan->layer_count - 1] = i + 1;
    }
    return 0;
}

int sl_graph_plan_make(struct sl_graph *graph, uint32_t rows_max, uint64_t graph_end,
                       struct sl_graph_memory *memory, struct sl_graph_plan *out,
                       struct sl_reason *reason)
{
    struct planner planner = {
        .graph = graph, .memory = memory, .reason = reason, .rows_max = rows_max};
    struct sl_graph_plan plan;
    sl_assert(rows_max > 0 && rows_max <= SL_GRAPH_PLAN_ROWS_MAX);
    int err = infer_shapes(&planner);
    err = err != 0 ? err : check_sizes(&planner);
    err = err != 0 ? err : place_values(&planner, &plan.scratch_bytes);
    err = err != 0 ? err : make_layers(&planner, graph_end, &plan);
    if (err == 0) {
        *out = plan;
    }
    return err;
}
