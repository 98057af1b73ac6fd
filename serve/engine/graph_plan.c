#include "serve/engine/graph_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

#define ALIGNMENT 64

struct planner {
    struct sl_graph *graph;
    struct sl_reason *reason;
    uint32_t rows_max;
    struct sl_graph_plan plan;
};

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

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

/* Lets the operator check the node, and infer its outputs. */
static int infer_node(struct planner *planner, struct sl_graph_node *node)
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
        if (outputs[i] != NULL && !sl_graph_measure(outputs[i])) {
            err = sl_graph_fail(&infer, SL_ERR_TOO_LARGE,
                                "output \"%s\" has no element, or more than 2^31 a row",
                                outputs[i]->name);
        }
    }
    node->flops = infer.flops;
    planner->plan.node_bytes =
        round_up(infer.scratch_bytes > planner->plan.node_bytes ? infer.scratch_bytes
                                                                : planner->plan.node_bytes);
    return err;
}

/* Inputs and outputs are tensors of rows. */
static int infer_shapes(struct planner *planner)
{
    struct sl_graph *graph = planner->graph;
    int err = 0;
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

/* Memory of a value. */
struct buffer {
    uint64_t bytes, offset;
    uint32_t first, last; /* nodes during which its bytes are needed */
    uint32_t owner;       /* the value whose memory it has: its own, or that of one it replaces */
};

/* No value is above the limit, so that no sum overflows. */
static int set_bytes(const struct planner *planner, struct buffer *buffers)
{
    const struct sl_graph *graph = planner->graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct sl_graph_value *value = &graph->values[i];
        if (sl_graph_is_stored(value)) {
            continue;
        }
        buffers[i].bytes = round_up(value->bytes * (value->has_rows ? planner->rows_max : 1));
        if (buffers[i].bytes > SL_GRAPH_PLAN_SCRATCH_MAX) {
            return sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                  "\"%s\" needs more than %llu bytes of memory for %u rows",
                                  value->name, SL_GRAPH_PLAN_SCRATCH_MAX, planner->rows_max);
        }
    }
    return 0;
}

/* The first output may lie where the first input lies, which nothing reads later. */
static bool can_replace_input(const struct planner *planner, const struct buffer *buffers,
                              uint32_t number)
{
    const struct sl_graph_node *node = &planner->graph->nodes[number];
    if (!node->op->in_place) {
        return false;
    }
    const struct sl_graph_value *in = &planner->graph->values[node->inputs[0]];
    const struct sl_graph_value *out = &planner->graph->values[node->outputs[0]];
    return !sl_graph_is_stored(in) && buffers[node->inputs[0]].last == number &&
           in->has_rows == out->has_rows && in->bytes == out->bytes;
}

/* Finds when the bytes of each value are needed, and which values replace others. */
static void set_lives(const struct planner *planner, struct buffer *buffers)
{
    const struct sl_graph *graph = planner->graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        buffers[i].owner = i;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        for (uint32_t j = 0; j < node->output_count; j++) {
            if (node->outputs[j] != SL_GRAPH_NONE) {
                buffers[node->outputs[j]].first = buffers[node->outputs[j]].last = i;
            }
        }
        for (uint32_t j = 0; j < node->input_count; j++) {
            if (node->inputs[j] != SL_GRAPH_NONE) {
                buffers[node->inputs[j]].last = i;
            }
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        buffers[graph->outputs[i]].last = graph->node_count;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        if (can_replace_input(planner, buffers, i)) {
            struct buffer *output = &buffers[graph->nodes[i].outputs[0]];
            output->owner = buffers[graph->nodes[i].inputs[0]].owner;
            output->bytes = 0;
            buffers[output->owner].last = output->last;
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

/* The first gap, from `end` on, in which the buffer fits among those that are needed at the same
 * time; placed: by offset. */
static uint64_t find_offset(const struct buffer *buffer, struct buffer *const *placed,
                            uint32_t count, uint64_t end)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct buffer *other = placed[i];
        if (other->first > buffer->last || buffer->first > other->last) {
            continue;
        }
        if (other->offset >= end + buffer->bytes) {
            break;
        }
        const uint64_t other_end = other->offset + other->bytes;
        end = other_end > end ? other_end : end;
    }
    return end;
}

/* Places the values behind the memory of the nodes, the largest first, which leaves small gaps
 * (Pisarchyk and Lee 2020: greedy by size). buffers: zero; sorted: room for as many. */
static int place_values(struct planner *planner, struct buffer *buffers, struct buffer **sorted)
{
    struct sl_graph *graph = planner->graph;
    uint64_t end = planner->plan.node_bytes;
    uint32_t count = 0;
    int err = set_bytes(planner, buffers);
    if (err != 0) {
        return err;
    }
    set_lives(planner, buffers);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (buffers[i].bytes > 0) {
            sorted[count++] = &buffers[i];
        }
    }
    qsort(sorted, count, sizeof *sorted, compare_buffers);
    for (uint32_t i = 0; i < count; i++) { /* those before i are placed, and sorted by offset */
        struct buffer *buffer = sorted[i];
        buffer->offset = find_offset(buffer, sorted, i, planner->plan.node_bytes);
        end = buffer->offset + buffer->bytes > end ? buffer->offset + buffer->bytes : end;
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1]->offset > buffer->offset; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = buffer;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        graph->values[i].scratch_offset = buffers[buffers[i].owner].offset;
    }
    planner->plan.scratch_bytes = end;
    return end <= SL_GRAPH_PLAN_SCRATCH_MAX
               ? 0
               : sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                "the model needs %" PRIu64 " bytes for the values of %u rows: at "
                                "most %llu are accepted",
                                end, planner->rows_max, SL_GRAPH_PLAN_SCRATCH_MAX);
}

/* ---- Layers ---------------------------------------------------------------------------------- */

static void make_layers(const struct sl_graph *graph, uint64_t graph_end,
                        struct sl_graph_plan *plan)
{
    uint64_t end = graph_end;
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
}

int sl_graph_plan_make(struct sl_graph *graph, uint32_t rows_max, uint64_t graph_end,
                       struct sl_graph_memory *memory, struct sl_graph_plan *out,
                       struct sl_reason *reason)
{
    struct buffer *buffers = sl_graph_memory_take(memory, graph->value_count, sizeof *buffers);
    struct buffer **sorted = sl_graph_memory_take(memory, graph->value_count, sizeof *sorted);
    struct planner planner = {.graph = graph, .reason = reason, .rows_max = rows_max};
    struct sl_graph_plan *plan = &planner.plan;
    sl_assert(rows_max > 0 && rows_max <= SL_GRAPH_PLAN_ROWS_MAX);
    plan->layers = sl_graph_memory_take(memory, graph->node_count, sizeof *plan->layers);
    plan->layer_ends = sl_graph_memory_take(memory, graph->node_count, sizeof *plan->layer_ends);
    if (buffers == NULL || sorted == NULL || plan->layers == NULL || plan->layer_ends == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the model's plan");
    }
    int err = infer_shapes(&planner);
    err = err != 0 ? err : place_values(&planner, buffers, sorted);
    if (err == 0) {
        make_layers(graph, graph_end, plan);
        *out = *plan;
    }
    return err;
}
