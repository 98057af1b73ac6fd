#include "serve/engine/graph_plan.h"

#include <inttypes.h>
#include <string.h>

#include "core/assert.h"

#define ALIGNMENT 64

struct planner {
    struct sl_graph *graph;
    struct sl_graph_memory *memory;
    struct sl_reason *reason;
    uint32_t rows_max;
    uint32_t *last_uses; /* [value]: the last node that reads it, or NEVER */
};

#define NEVER  UINT32_MAX       /* nothing reads it */
#define AT_END (UINT32_MAX - 1) /* an output of the model */

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

/* Ranges of the scratch that are free, ascending, none next to another; all behind `end` is free
 * too. */
struct scratch {
    struct range {
        uint64_t offset, bytes;
    } * ranges;
    uint32_t count;
    uint64_t end;
};

/* Takes the smallest range that suffices. */
static uint64_t take(struct scratch *scratch, uint64_t bytes)
{
    uint32_t best = scratch->count;
    for (uint32_t i = 0; i < scratch->count; i++) {
        if (scratch->ranges[i].bytes >= bytes &&
            (best == scratch->count || scratch->ranges[i].bytes < scratch->ranges[best].bytes)) {
            best = i;
        }
    }
    if (best == scratch->count) {
        scratch->end += bytes;
        return scratch->end - bytes;
    }
    struct range *range = &scratch->ranges[best];
    const uint64_t offset = range->offset;
    range->offset += bytes;
    range->bytes -= bytes;
    if (range->bytes == 0) {
        scratch->count--;
        memmove(range, range + 1, (scratch->count - best) * sizeof *range);
    }
    return offset;
}

/* There is room for a range for each value that is alive, and one more. */
static void give(struct scratch *scratch, uint64_t offset, uint64_t bytes)
{
    uint32_t at = 0;
    while (at < scratch->count && scratch->ranges[at].offset < offset) {
        at++;
    }
    struct range *range = &scratch->ranges[at];
    memmove(range + 1, range, (scratch->count - at) * sizeof *range);
    *range = (struct range){.offset = offset, .bytes = bytes};
    scratch->count++;
    if (at + 1 < scratch->count && offset + bytes == range[1].offset) {
        range->bytes += range[1].bytes;
        scratch->count--;
        memmove(range + 1, range + 2, (scratch->count - at - 1) * sizeof *range);
    }
    if (at > 0 && range[-1].offset + range[-1].bytes == offset) {
        range[-1].bytes += range->bytes;
        scratch->count--;
        memmove(range, range + 1, (scratch->count - at) * sizeof *range);
    }
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static uint64_t bytes_of(const struct planner *planner, const struct sl_graph_value *value)
{
    return round_up(value->bytes * (value->has_rows ? planner->rows_max : 1));
}

/* The first output may lie where the first input lies, which nothing reads later. */
static bool can_replace_input(const struct planner *planner, uint32_t number)
{
    const struct sl_graph_node *node = &planner->graph->nodes[number];
    if (!node->op->in_place || is_absent(node->inputs, node->input_count, 0) ||
        planner->last_uses[node->inputs[0]] != number) {
        return false;
    }
    const struct sl_graph_value *in = &planner->graph->values[node->inputs[0]];
    const struct sl_graph_value *out = &planner->graph->values[node->outputs[0]];
    return (in->kind == SL_GRAPH_INPUT || in->kind == SL_GRAPH_COMPUTED) &&
           in->has_rows == out->has_rows && in->bytes == out->bytes;
}

/* Places the outputs and the memory of a node, then frees what nothing reads later. */
static void place_node(const struct planner *planner, struct scratch *scratch, uint32_t number)
{
    struct sl_graph_node *node = &planner->graph->nodes[number];
    struct sl_graph_value *values = planner->graph->values;
    const bool replaces = can_replace_input(planner, number);
    for (uint32_t i = 0; i < node->output_count; i++) {
        if (node->outputs[i] != SL_GRAPH_NONE) {
            struct sl_graph_value *value = &values[node->outputs[i]];
            value->scratch_offset = i == 0 && replaces ? values[node->inputs[0]].scratch_offset
                                                       : take(scratch, bytes_of(planner, value));
        }
    }
    if (node->scratch_bytes > 0) {
        const uint64_t bytes = round_up(node->scratch_bytes);
        node->scratch_offset = take(scratch, bytes);
        give(scratch, node->scratch_offset, bytes);
    }
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint32_t at = node->inputs[i];
        if (at == SL_GRAPH_NONE || planner->last_uses[at] != number) {
            continue;
        }
        planner->last_uses[at] = NEVER; /* so that a second input of this name frees nothing */
        if (values[at].kind <= SL_GRAPH_COMPUTED && !(replaces && at == node->inputs[0])) {
            give(scratch, values[at].scratch_offset, bytes_of(planner, &values[at]));
        }
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        const uint32_t at = node->outputs[i];
        if (at != SL_GRAPH_NONE && planner->last_uses[at] == NEVER) {
            give(scratch, values[at].scratch_offset, bytes_of(planner, &values[at]));
        }
    }
}

/* No value and no memory of a node is above the limit, so that no sum overflows. */
static int check_sizes(const struct planner *planner)
{
    const struct sl_graph *graph = planner->graph;
    const char *name = NULL;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct sl_graph_value *value = &graph->values[i];
        const bool is_placed = value->kind == SL_GRAPH_INPUT || value->kind == SL_GRAPH_COMPUTED;
        if (is_placed && bytes_of(planner, value) > SL_GRAPH_PLAN_SCRATCH_MAX) {
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

static int place_values(struct planner *planner, uint64_t *scratch_bytes)
{
    const struct sl_graph *graph = planner->graph;
    struct scratch scratch = {.ranges = sl_graph_memory_take(
                                  planner->memory, graph->value_count + 2, sizeof *scratch.ranges)};
    planner->last_uses =
        sl_graph_memory_take(planner->memory, graph->value_count, sizeof *planner->last_uses);
    if (scratch.ranges == NULL || planner->last_uses == NULL) {
        return sl_reason_fail(planner->reason, SL_ERR_NO_MEMORY, "no memory for the model's plan");
    }
    memset(planner->last_uses, 0xff, graph->value_count * sizeof *planner->last_uses);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        for (uint32_t j = 0; j < node->input_count; j++) {
            if (node->inputs[j] != SL_GRAPH_NONE) {
                planner->last_uses[node->inputs[j]] = i;
            }
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        planner->last_uses[graph->outputs[i]] = AT_END;
    }
    for (uint32_t i = 0; i < graph->input_count; i++) {
        struct sl_graph_value *value = &graph->values[graph->inputs[i]];
        value->scratch_offset = take(&scratch, bytes_of(planner, value));
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        place_node(planner, &scratch, i);
    }
    *scratch_bytes = scratch.end;
    return scratch.end <= SL_GRAPH_PLAN_SCRATCH_MAX
               ? 0
               : sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                "the model needs %" PRIu64 " bytes for the values of %u rows: at "
                                "most %llu are accepted",
                                scratch.end, planner->rows_max, SL_GRAPH_PLAN_SCRATCH_MAX);
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
