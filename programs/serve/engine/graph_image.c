#include "programs/serve/engine/graph_image.h"

#include <string.h>

#include "objects/catalogue/message.h"
#include "programs/serve/engine/onnx.h"

#define GROUP_NAME_BYTES 256

static void graph_image_append(struct sl_graph_image *image, const struct sl_object_tensor *tensor,
                               const char *group)
{
    image->tensors[image->count] = *tensor;
    image->offsets[image->count] = (image->bytes + 63) / 64 * 64;
    image->bytes = image->offsets[image->count] + tensor->bytes;
    image->groups[image->count++] = group;
}

/* Appends the weights that the node reads first. */
static void append_weights(struct sl_graph_image *image, const struct sl_graph_node *node)
{
    const bool is_name =
        node->name[0] != '\0' && sl_objects_text_is_valid(node->name, GROUP_NAME_BYTES);
    const char *group = is_name ? node->name : "node";
    for (uint32_t i = 0; i < node->input_count; i++) {
        struct sl_graph_value *value = node->inputs[i];
        if (value == NULL || value->kind != SL_GRAPH_WEIGHT || value->image_end > 0) {
            continue;
        }
        struct sl_object_tensor tensor = {.name = value->name,
                                          .type = value->type,
                                          .rank = value->rank,
                                          .data = value->data,
                                          .bytes = value->bytes};
        memcpy(tensor.shape, value->shape, sizeof tensor.shape);
        graph_image_append(image, &tensor, group);
        value->image_end = image->bytes;
        group = NULL;
    }
}

int sl_graph_image_make(struct sl_graph *graph, struct sl_graph_memory *memory,
                        struct sl_graph_image *out, struct sl_reason *reason)
{
    const uint32_t count_max = graph->value_count + 2;
    const char *lookup = sl_onnx_metadata(graph, SL_GRAPH_IMAGE_LOOKUP_KEY);
    struct sl_object_tensor text = {.name = SL_GRAPH_IMAGE_LOOKUP, .type = SL_OBJECT_U8, .rank = 1};
    struct sl_object_tensor model = {.name = SL_GRAPH_IMAGE_NAME, .type = SL_OBJECT_U8, .rank = 1};
    uint8_t *bytes = NULL;
    size_t byte_count;
    struct sl_graph_image image = {
        .tensors = sl_graph_memory_take(memory, count_max, sizeof *image.tensors),
        .offsets = sl_graph_memory_take(memory, count_max, sizeof *image.offsets),
        .groups = sl_graph_memory_take(memory, count_max, sizeof(char *)),
    };
    if (image.tensors == NULL || image.offsets == NULL || image.groups == NULL ||
        sl_onnx_write(graph, false, memory, &bytes, &byte_count) != 0) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the model's image");
    }
    if (byte_count > SL_GRAPH_IMAGE_BYTES_MAX) {
        return sl_reason_fail(
            reason, SL_ERR_TOO_LARGE,
            "the model without its weights has %zu bytes: at most %u are accepted", byte_count,
            SL_GRAPH_IMAGE_BYTES_MAX);
    }
    if (lookup != NULL) {
        text.data = lookup;
        text.bytes = text.shape[0] = strlen(lookup);
        graph_image_append(&image, &text, NULL);
    }
    model.data = bytes;
    model.bytes = model.shape[0] = byte_count;
    graph_image_append(&image, &model, NULL);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        append_weights(&image, &graph->nodes[i]);
    }
    *out = image;
    return 0;
}

struct sl_engine_image sl_graph_image_of(const struct sl_graph_image *image)
{
    return (struct sl_engine_image){.tensors = image->tensors,
                                    .offsets = image->offsets,
                                    .count = image->count,
                                    .bytes = image->bytes,
                                    .note = ""};
}
