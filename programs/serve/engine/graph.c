#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "programs/serve/engine/graph.h"

bool sl_graph_measure(struct sl_graph_value *value)
{
    const uint64_t item_bytes = sl_graph_item_bytes(value);
    uint64_t elements = 1;
    sl_assert(value->rank <= SL_GRAPH_RANK_MAX);
    for (uint32_t i = 0; i < value->rank; i++) {
        if (value->shape[i] > SL_GRAPH_ELEMENTS_MAX) {
            return false;
        }
        elements *= value->shape[i];
        if (elements == 0 || elements > SL_GRAPH_ELEMENTS_MAX) {
            return false;
        }
    }
    value->bytes = elements * item_bytes;
    return true;
}

const struct sl_graph_attribute *sl_graph_attribute_find(const struct sl_graph_node *node,
                                                         const char *name)
{
    for (uint32_t i = 0; i < node->attribute_count; i++) {
        if (strcmp(node->attributes[i].name, name) == 0) {
            return &node->attributes[i];
        }
    }
    return NULL;
}

int64_t sl_graph_attribute_int(const struct sl_graph_node *node, const char *name, int64_t absent)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(node, name);
    return a != NULL ? a->i : absent;
}

float sl_graph_attribute_float(const struct sl_graph_node *node, const char *name, float absent)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(node, name);
    return a != NULL ? a->f : absent;
}

int sl_graph_fail(const struct sl_graph_infer *infer, int err, const char *format, ...)
{
    char text[512];
    SL_FORMAT(text, format);
    return sl_reason_fail(infer->reason, err, "node \"%s\" (%s): %s", infer->node->name,
                          infer->node->op_type, text);
}
