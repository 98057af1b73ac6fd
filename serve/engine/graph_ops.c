#include "serve/engine/graph_ops.h"

#include <inttypes.h>

const struct sl_graph_op *sl_graph_op_find(const char *op_type)
{
    static const struct sl_graph_op *const tables[] = {sl_graph_ops_elementwise,
                                                       sl_graph_ops_layout, sl_graph_ops_matrix,
                                                       sl_graph_ops_normalize, sl_graph_ops_window};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const struct sl_graph_op *op = tables[i]; op->name != NULL; op++) {
            if (strcmp(op->name, op_type) == 0) {
                return op;
            }
        }
    }
    return NULL;
}

void sl_graph_ops_set_output(const struct sl_graph_infer *infer, const struct sl_graph_value *value)
{
    struct sl_graph_value *output = infer->outputs[0];
    output->type = value->type;
    output->rank = value->rank;
    memcpy(output->shape, value->shape, sizeof output->shape);
    output->has_rows = value->has_rows;
}

int sl_graph_ops_axis(const struct sl_graph_infer *infer, int64_t absent, uint32_t rank,
                      uint32_t limit, uint32_t *axis)
{
    const int64_t given = sl_graph_attribute_int(infer->node, "axis", absent);
    const int64_t from_begin = given < 0 ? given + (int64_t)rank : given;
    if (from_begin < 0 || from_begin > (int64_t)limit) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "axis is %" PRId64 ", but must be -%u to %u",
                             given, rank, limit);
    }
    *axis = (uint32_t)from_begin;
    return 0;
}
