#include "programs/serve/engine/graph_ops.h"

#include <inttypes.h>

const struct sl_graph_op *sl_graph_op_find(const char *op_type)
{
    static const struct sl_graph_op *const tables[] = {
        sl_graph_ops_elementwise, sl_graph_ops_broadcast, sl_graph_ops_layout,
        sl_graph_ops_move,        sl_graph_ops_matrix,    sl_graph_ops_normalize,
        sl_graph_ops_recurrent,   sl_graph_ops_reduce,    sl_graph_ops_resize,
        sl_graph_ops_shape,       sl_graph_ops_window};
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
    output->row_axis = value->row_axis;
    output->row_outer = value->row_outer;
}

int sl_graph_ops_check_rows_first(const struct sl_graph_infer *infer,
                                  const struct sl_graph_value *value)
{
    return !value->has_rows || value->row_axis == 0
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "the first dimension of %s must count rows, not dimension %u",
                               value->name, value->row_axis);
}

int sl_graph_ops_resolve(const struct sl_graph_infer *infer, int64_t given, uint32_t rank,
                         uint32_t limit, uint32_t *axis)
{
    const int64_t from_begin = given < 0 ? given + (int64_t)rank : given;
    if (from_begin < 0 || from_begin > (int64_t)limit) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "axis is %" PRId64 ", but must be -%u to %u",
                             given, rank, limit);
    }
    *axis = (uint32_t)from_begin;
    return 0;
}

int sl_graph_ops_axis(const struct sl_graph_infer *infer, int64_t absent, uint32_t rank,
                      uint32_t limit, uint32_t *axis)
{
    const int64_t given = sl_graph_attribute_int(infer->node, "axis", absent);
    return sl_graph_ops_resolve(infer, given, rank, limit, axis);
}

int sl_graph_ops_read_list(const struct sl_graph_infer *infer, uint32_t input, const char *name,
                           struct sl_graph_list *out)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(infer->node, name);
    const struct sl_graph_value *value =
        sl_graph_ops_has(infer, input) ? infer->inputs[input] : NULL;
    if (value != NULL && (a != NULL || value->kind != SL_GRAPH_CONSTANT ||
                          value->type != SL_OBJECT_I64 || value->rank > 1)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s must be a constant list of int64, as input %u or as attribute",
                             name, input);
    }
    *out = (struct sl_graph_list){0};
    if (value != NULL) {
        *out =
            (struct sl_graph_list){value->data, (uint32_t)sl_graph_elements(value, 0, value->rank)};
    } else if (a != NULL) {
        *out = (struct sl_graph_list){a->ints, a->count};
    }
    return 0;
}

int sl_graph_ops_read_shape(const struct sl_graph_infer *infer, uint32_t input,
                            struct sl_graph_value *out)
{
    struct sl_graph_list list;
    const int err = sl_graph_ops_read_list(infer, input, "shape", &list);
    if (err != 0) {
        return err;
    }
    if (list.count > SL_GRAPH_RANK_MAX) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "a shape has at most %d dimensions",
                             SL_GRAPH_RANK_MAX);
    }
    *out = (struct sl_graph_value){
        .name = infer->inputs[input]->name, .type = SL_OBJECT_F32, .rank = list.count};
    for (uint32_t i = 0; i < list.count; i++) {
        const int64_t given = list.numbers[i];
        const uint64_t times = sl_graph_rows_times(given);
        if (times > 0 ? out->has_rows : given < 1 || given > (int64_t)SL_GRAPH_ELEMENTS_MAX) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "dimension %u of the shape is %" PRId64
                                 ", but must be a size, or, once, the number of rows",
                                 i, times > 0 ? -1 : given);
        }
        out->shape[i] = times > 0 ? times : (uint64_t)given;
        if (times > 0) {
            out->has_rows = true;
            out->row_axis = i;
            out->row_outer = 1;
        }
    }
    return 0;
}
