/* The engine of ONNX models: sl_engine_graph. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "programs/serve/engine/engine.h"
#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/graph_memory.h"
#include "programs/serve/engine/graph_plan.h"
#include "programs/serve/engine/onnx.h"

#define MEMORY_MAX (256U << 20) /* of an open model, which its messages and arrays take */

struct model {
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_plan plan;
    struct sl_engine_info info;
};

static int graph_engine_fail_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to open the model");
}

/* Finds the weights: their tensors follow each other in the order in which nodes read them. */
static int bind_weights(struct model *model, const struct sl_engine_image *image,
                        struct sl_reason *reason)
{
    const struct sl_graph *graph = &model->graph;
    uint32_t next = 1;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        for (uint32_t j = 0; j < graph->nodes[i].input_count; j++) {
            struct sl_graph_value *value = graph->nodes[i].inputs[j];
            if (value == NULL || value->kind != SL_GRAPH_WEIGHT || value->image_end > 0) {
                continue;
            }
            const struct sl_object_tensor *tensor = &image->tensors[next];
            if (next == image->count || strcmp(tensor->name, value->name) != 0 ||
                tensor->type != SL_OBJECT_F32 || tensor->rank != value->rank ||
                memcmp(tensor->shape, value->shape, value->rank * sizeof value->shape[0]) != 0) {
                return sl_reason_fail(reason, SL_ERR_CORRUPT,
                                      "tensor %u of the version is not \"%s\", of the type and "
                                      "shape that its graph names",
                                      next, value->name);
            }
            value->data = tensor->data;
            value->image_end = image->offsets[next++] + tensor->bytes;
        }
    }
    return 0;
}

static int read_image(struct model *model, const struct sl_engine_image *image,
                      struct sl_reason *reason)
{
    const struct sl_object_tensor *graph = image->tensors;
    if (image->count == 0 || strcmp(graph->name, SL_GRAPH_IMAGE_NAME) != 0 ||
        graph->type != SL_OBJECT_U8 || graph->bytes > SL_GRAPH_IMAGE_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                              "the first tensor of the version is not \"" SL_GRAPH_IMAGE_NAME
                              "\" of u8 with at most %u bytes: it is no model of starling-serve "
                              "deploy",
                              SL_GRAPH_IMAGE_BYTES_MAX);
    }
    int err =
        sl_onnx_read(graph->data, graph->bytes, false, NULL, &model->memory, &model->graph, reason);
    return err != 0 ? err : bind_weights(model, image, reason);
}

/* The tensors of inputs or outputs; NULL: no memory. */
static const struct sl_engine_tensor *describe(struct model *model,
                                               struct sl_graph_value *const *values, uint32_t count)
{
    struct sl_engine_tensor *tensors = sl_graph_memory_take(&model->memory, count, sizeof *tensors);
    for (uint32_t i = 0; tensors != NULL && i < count; i++) {
        const struct sl_graph_value *value = values[i];
        tensors[i] = (struct sl_engine_tensor){.name = value->name,
                                               .type = value->type,
                                               .rank = value->rank,
                                               .row_bytes = value->bytes / value->shape[0],
                                               .scratch_offset = value->scratch_offset};
        memcpy(tensors[i].shape, value->shape, value->rank * sizeof value->shape[0]);
        tensors[i].shape[0] = model->graph.fixed_rows;
    }
    return tensors;
}

static int make_info(struct model *model, struct sl_reason *reason)
{
    const struct sl_graph *graph = &model->graph;
    model->info = (struct sl_engine_info){
        .inputs = describe(model, graph->inputs, graph->input_count),
        .outputs = describe(model, graph->outputs, graph->output_count),
        .layers = model->plan.layers,
        .input_count = graph->input_count,
        .output_count = graph->output_count,
        .layer_count = model->plan.layer_count,
        .fixed_rows = graph->fixed_rows,
        .scratch_bytes = model->plan.scratch_bytes,
    };
    return model->info.inputs == NULL || model->info.outputs == NULL
               ? graph_engine_fail_memory(reason)
               : 0;
}

static void graph_engine_close_model(void **at)
{
    struct model *model = *at;
    if (model != NULL) {
        sl_graph_memory_fini(&model->memory);
        free(model);
        *at = NULL;
    }
}

static int graph_engine_open_model(const struct sl_engine_image *image, uint32_t rows_max,
                                   struct sl_reason *reason, void **out)
{
    struct model *model = calloc(1, sizeof *model);
    if (model == NULL) {
        return graph_engine_fail_memory(reason);
    }
    sl_graph_memory_init(&model->memory, MEMORY_MAX);
    int err = read_image(model, image, reason);
    const uint32_t fixed_rows = model->graph.fixed_rows;
    if (err == 0 && fixed_rows > rows_max) {
        err = sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                             "the model computes %u rows at a time: at most %u are accepted",
                             fixed_rows, rows_max);
    }
    err = err != 0 ? err
                   : sl_graph_plan_make(&model->graph, fixed_rows > 0 ? 1 : rows_max,
                                        image->offsets[0] + image->tensors[0].bytes, &model->memory,
                                        &model->plan, reason);
    err = err != 0 ? err : make_info(model, reason);
    void *opened = model;
    if (err != 0) {
        graph_engine_close_model(&opened);
        return err;
    }
    *out = opened;
    return 0;
}

static const struct sl_engine_info *graph_engine_info_of(const void *model)
{
    return &((const struct model *)model)->info;
}

static void *address(const struct sl_graph_value *value, uint8_t *scratch)
{
    if (value == NULL) {
        return NULL;
    }
    return sl_graph_is_stored(value) ? (void *)value->data : scratch + value->scratch_offset;
}

static int run_node(const struct sl_graph_node *node, uint8_t *scratch, uint32_t rows,
                    struct sl_reason *reason)
{
    const void *inputs[SL_GRAPH_OPERANDS_MAX];
    void *outputs[SL_GRAPH_OPERANDS_MAX];
    const struct sl_graph_run run = {
        .inputs = inputs, .outputs = outputs, .scratch = scratch, .rows = rows, .reason = reason};
    for (uint32_t i = 0; i < node->input_count; i++) {
        inputs[i] = address(node->inputs[i], scratch);
    }
    for (uint32_t i = 0; i < node->output_count; i++) {
        outputs[i] = address(node->outputs[i], scratch);
    }
    return node->op->run(node, &run);
}

static int graph_engine_run_layer(void *of, uint8_t *scratch, uint32_t layer, uint32_t rows,
                                  struct sl_reason *reason)
{
    const struct model *model = of;
    const uint32_t *ends = model->plan.layer_ends;
    const uint32_t blocks = model->graph.fixed_rows > 0 ? 1 : rows;
    sl_assert(layer < model->plan.layer_count);
    int err = 0;
    for (uint32_t i = layer > 0 ? ends[layer - 1] : 0; err == 0 && i < ends[layer]; i++) {
        err = run_node(&model->graph.nodes[i], scratch, blocks, reason);
    }
    return err;
}

const struct sl_engine sl_engine_graph = {
    .name = "graph",
    .open = graph_engine_open_model,
    .info = graph_engine_info_of,
    .run = graph_engine_run_layer,
    .close = graph_engine_close_model,
};
