#include "programs/serve/engine/graph_plan.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/assert.h"
#include "programs/serve/engine/graph_check.h"

#define ALIGNMENT 64

struct planner {
    struct sl_graph *graph;
    struct sl_reason *reason;
    uint32_t rows_max;
    struct sl_graph_plan plan;
};

static uint64_t graph_plan_round_up(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

/* Inputs and outputs are tensors of rows. */
static int infer_shapes(struct planner *planner)
{
    struct sl_graph *graph = planner->graph;
    const uint32_t rows = graph->fixed_rows > 0 ? graph->fixed_rows : 1;
    double flops = 0; /* of those rows: of all nodes before */
    int err = sl_graph_check_operators(graph, planner->reason);
    for (uint32_t i = 0; err == 0 && i < graph->node_count; i++) {
        struct sl_graph_node *node = &graph->nodes[i];
        struct sl_graph_work work;
        err = sl_graph_check_node(graph, node, planner->rows_max, &work, planner->reason);
        if (err != 0) {
            break;
        }
        const uint64_t node_bytes = graph_plan_round_up(work.scratch_bytes);
        planner->plan.node_bytes =
            node_bytes > planner->plan.node_bytes ? node_bytes : planner->plan.node_bytes;
        node->flops = work.flops / rows;
        flops += work.operations;
        if (flops > SL_ENGINE_FLOPS_MAX) {
            err = sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                 "node \"%s\" (%s): with its %.3g operations the model has %.3g "
                                 "for %u row%s: at most %.3g are accepted",
                                 node->name, node->op_type, work.operations, flops, rows,
                                 rows == 1 ? "" : "s", SL_ENGINE_FLOPS_MAX);
        }
    }
    for (uint32_t i = 0; err == 0 && i < graph->output_count; i++) {
        const struct sl_graph_value *value = graph->outputs[i];
        if (value->rank == 0 || value->shape[0] != rows || value->row_axis != 0 ||
            value->has_rows != (graph->fixed_rows == 0)) {
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

/* No value is above the limit, so that no sum overflows. */
static int set_bytes(const struct planner *planner)
{
    const struct sl_graph *graph = planner->graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        struct sl_graph_value *value = &graph->values[i];
        value->place = value;
        if (sl_graph_is_stored(value)) {
            continue;
        }
        value->scratch_bytes =
            graph_plan_round_up(value->bytes * (value->has_rows ? planner->rows_max : 1));
        if (value->scratch_bytes > SL_GRAPH_PLAN_SCRATCH_MAX) {
            return sl_reason_fail(planner->reason, SL_ERR_TOO_LARGE,
                                  "\"%s\" needs more than %llu bytes of memory for %u rows",
                                  value->name, SL_GRAPH_PLAN_SCRATCH_MAX, planner->rows_max);
        }
    }
    return 0;
}

/* Finds when the bytes of each value are needed, and which values take the place of others. */
static void set_lives(const struct sl_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        for (uint32_t j = 0; j < node->output_count; j++) {
            if (node->outputs[j] != NULL) {
                node->outputs[j]->first = node->outputs[j]->last = i;
            }
        }
        for (uint32_t j = 0; j < node->input_count; j++) {
            if (node->inputs[j] != NULL) {
                node->inputs[j]->last = i;
            }
        }
    }
    for (uint32_t i = 0; i < graph->output_count; i++) {
        graph->outputs[i]->last = graph->node_count;
    }
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct sl_graph_node *node = &graph->nodes[i];
        const struct sl_graph_value *in =
            (node->op->flags & SL_GRAPH_IN_PLACE) != 0 ? node->inputs[0] : NULL;
        struct sl_graph_value *out = node->outputs[0];
        if (in != NULL && !sl_graph_is_stored(in) && in->last == i &&
            in->has_rows == out->has_rows && in->bytes == out->bytes) {
            out->place = in->place;
            out->scratch_bytes = 0;
            out->place->last = out->last;
        }
    }
}

/* Larger ones first; among equals the order in memory, so that a plan is always the same. */
static int compare_values(const void *a, const void *b)
{
    const struct sl_graph_value *const *one = a, *const *other = b;
    return (*one)->scratch_bytes != (*other)->scratch_bytes
               ? ((*one)->scratch_bytes < (*other)->scratch_bytes ? 1 : -1)
               : (*one > *other) - (*one < *other);
}

/* The first gap, from `end` on, in which the value fits among those that are needed at the same
 * time; placed: by offset. */
static uint64_t find_offset(const struct sl_graph_value *value,
                            struct sl_graph_value *const *placed, uint32_t count, uint64_t end)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_graph_value *other = placed[i];
        if (other->first > value->last || value->first > other->last) {
            continue;
        }
        if (other->scratch_offset >= end + value->scratch_bytes) {
            break;
        }
        const uint64_t other_end = other->scratch_offset + other->scratch_bytes;
        end = other_end > end ? other_end : end;
    }
    return end;
}

/* Places the values behind the memory of the nodes, the largest first, which leaves small gaps
 * (Pisarchyk and Lee 2020: greedy by size). sorted: room for all. */
static int place_values(struct planner *planner, struct sl_graph_value **sorted)
{
    struct sl_graph *graph = planner->graph;
    uint64_t end = planner->plan.node_bytes;
    uint32_t count = 0;
    int err = set_bytes(planner);
    if (err != 0) {
        return err;
    }
    set_lives(graph);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].scratch_bytes > 0) {
            sorted[count++] = &graph->values[i];
        }
    }
    qsort(sorted, count, sizeof *sorted, compare_values);
    for (uint32_t i = 0; i < count; i++) { /* those before i are placed, and sorted by offset */
        struct sl_graph_value *value = sorted[i];
        value->scratch_offset = find_offset(value, sorted, i, planner->plan.node_bytes);
        const uint64_t value_end = value->scratch_offset + value->scratch_bytes;
        end = value_end > end ? value_end : end;
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1]->scratch_offset > value->scratch_offset; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = value;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        graph->values[i].scratch_offset = graph->values[i].place->scratch_offset;
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
            const struct sl_graph_value *value = node->inputs[j];
            if (value != NULL && value->image_end > end) {
                end = value->image_end;
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
    struct sl_graph_value **sorted =
        sl_graph_memory_take(memory, graph->value_count, sizeof *sorted);
    struct planner planner = {.graph = graph, .reason = reason, .rows_max = rows_max};
    struct sl_graph_plan *plan = &planner.plan;
    sl_assert(rows_max > 0 && rows_max <= SL_GRAPH_PLAN_ROWS_MAX);
    plan->layers = sl_graph_memory_take(memory, graph->node_count, sizeof *plan->layers);
    plan->layer_ends = sl_graph_memory_take(memory, graph->node_count, sizeof *plan->layer_ends);
    if (sorted == NULL || plan->layers == NULL || plan->layer_ends == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the model's plan");
    }
    int err = infer_shapes(&planner);
    err = err != 0 ? err : place_values(&planner, sorted);
    if (err == 0) {
        make_layers(graph, graph_end, plan);
        *out = *plan;
    }
    return err;
}
