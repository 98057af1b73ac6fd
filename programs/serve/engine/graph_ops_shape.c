/* Operators with which exporters compute shapes: Shape, Cast, ConstantOfShape, Range; and Gather,
 * which also looks up rows of a weight. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

/* Shape */

static int infer_shape(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const int64_t rank = x->rank;
    int64_t ends[2] = {sl_graph_attribute_int(infer->node, "start", 0),
                       sl_graph_attribute_int(infer->node, "end", rank)};
    int64_t sizes[SL_GRAPH_RANK_MAX] = {0}, count = 0;
    for (uint32_t i = 0; i < 2; i++) {
        ends[i] += ends[i] < 0 ? rank : 0;
        ends[i] = ends[i] < 0 ? 0 : ends[i] > rank ? rank : ends[i];
    }
    for (int64_t i = ends[0]; i < ends[1]; i++) {
        const uint64_t size = x->shape[i];
        sizes[count++] = sl_graph_ops_is_rows(x, (uint32_t)i) ? sl_graph_rows(size) : (int64_t)size;
    }
    struct sl_graph_value *output = infer->outputs[0];
    output->type = SL_OBJECT_I64;
    output->rank = 1;
    output->shape[0] = (uint64_t)count;
    output->has_rows = false;
    sl_graph_ops_save(infer->node, sizes, sizeof sizes);
    return 0;
}

static int run_shape(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    memcpy(run->outputs[0], sl_graph_ops_params(node), node->outputs[0]->bytes);
    return 0;
}

/* Cast */

static int infer_cast(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const int64_t to = sl_graph_attribute_int(infer->node, "to", 0);
    const bool is_whole = to == 6 || to == 7; /* ONNX's int32, which is computed as int64 */
    const uint32_t type = to == 1 ? SL_OBJECT_F32 : is_whole ? SL_OBJECT_I64 : SL_OBJECT_BOOL;
    if (to != 1 && to != 9 && !is_whole) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "to is %" PRId64 " of ONNX: accepted are 1, 6, 7 and 9 (float, int32, "
                             "int64, bool)",
                             to);
    }
    sl_graph_ops_set_output(infer, x);
    infer->outputs[0]->type = type;
    return 0;
}

static int run_cast(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct sl_graph_value *x = node->inputs[0];
    const uint32_t type = node->outputs[0]->type;
    const void *in = run->inputs[0];
    if (type == x->type) {
        memmove(run->outputs[0], in, sl_graph_ops_bytes(node, run, 0));
        return 0;
    }
    const uint64_t count = sl_graph_elements(x, 0, x->rank) * sl_graph_ops_blocks(node, run, 0);
    for (uint64_t i = 0; i < count; i++) {
        const float f = x->type == SL_OBJECT_F32 ? ((const float *)in)[i] : 0;
        const bool is_in_range = f > -0x1p63F && f < 0x1p63F;
        const int64_t n = x->type == SL_OBJECT_I64    ? ((const int64_t *)in)[i]
                          : x->type == SL_OBJECT_BOOL ? ((const uint8_t *)in)[i]
                          : is_in_range               ? (int64_t)f
                                                      : INT64_MIN;
        if (sl_graph_rows_times(n) > 0) {
            return sl_reason_fail(run->reason, SL_ERR_INVALID,
                                  "node \"%s\" (%s): the number of rows is no constant", node->name,
                                  node->op_type);
        }
        if (type == SL_OBJECT_F32) {
            ((float *)run->outputs[0])[i] = (float)n;
        } else if (type == SL_OBJECT_I64) {
            ((int64_t *)run->outputs[0])[i] = n;
        } else {
            ((uint8_t *)run->outputs[0])[i] = x->type == SL_OBJECT_F32 ? f != 0 : n != 0;
        }
    }
    return 0;
}

/* Gather: [outer][size][...] by [count] indices becomes [outer][count][...]. Rows are those of the
 * input or, along axis 0, of the indices. */

struct gather {
    uint64_t outer, count, item_bytes;
    int64_t size;
};

/* Whether each index chooses one of `size`. */
static int check_indices(const struct sl_graph_node *node, const int64_t *indices, uint64_t count,
                         int64_t size, struct sl_reason *reason)
{
    for (uint64_t i = 0; i < count; i++) {
        if (indices[i] < -size || indices[i] >= size) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "node \"%s\" (%s): index %" PRId64 " of \"%s\" is outside of "
                                  "\"%s\", which has %" PRId64,
                                  node->name, node->op_type, indices[i], node->inputs[1]->name,
                                  node->inputs[0]->name, size);
        }
    }
    return 0;
}

static int infer_gather(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *indices = infer->inputs[1];
    struct sl_graph_value *output = infer->outputs[0];
    uint32_t axis = 0;
    int err =
        x->rank == 0 ? SL_ERR_INVALID : sl_graph_ops_axis(infer, 0, x->rank, x->rank - 1, &axis);
    const uint32_t rank = x->rank + indices->rank - 1;
    if (x->rank == 0 || indices->type != SL_OBJECT_I64 || rank > SL_GRAPH_RANK_MAX ||
        sl_graph_ops_is_rows(x, axis) || (indices->has_rows && (x->has_rows || axis > 0))) {
        return sl_graph_fail(
            infer, SL_ERR_UNSUPPORTED,
            "%s must be of int64; rows are those of %s, along another axis than the axis, "
            "or those of the indices, of axis 0",
            indices->name, x->name);
    }
    if (err != 0) {
        return err;
    }
    const uint64_t inner = sl_graph_elements(x, axis + 1, x->rank);
    const struct gather p = {.outer = sl_graph_elements(x, 0, axis),
                             .count = sl_graph_elements(indices, 0, indices->rank),
                             .item_bytes = inner * (x->bytes / sl_graph_elements(x, 0, x->rank)),
                             .size = (int64_t)x->shape[axis]};
    sl_graph_ops_set_output(infer, x);
    output->rank = rank;
    if (indices->has_rows) {
        output->has_rows = true;
        output->row_axis = indices->row_axis;
        output->row_outer = indices->row_outer;
    } else if (axis < x->row_axis) {
        output->row_axis = x->row_axis + indices->rank - 1;
    }
    memcpy(output->shape + axis, indices->shape, indices->rank * sizeof indices->shape[0]);
    memcpy(output->shape + axis + indices->rank, x->shape + axis + 1,
           (x->rank - axis - 1) * sizeof x->shape[0]);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return indices->kind == SL_GRAPH_CONSTANT
               ? check_indices(infer->node, indices->data, p.count, p.size, infer->reason)
               : 0;
}

static int run_gather(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct gather *p = sl_graph_ops_params(node);
    const uint64_t count = p->count * sl_graph_ops_blocks(node, run, 1);
    const int64_t *indices = run->inputs[1];
    const uint8_t *in = run->inputs[0];
    uint8_t *out = run->outputs[0];
    const int err = check_indices(node, indices, count, p->size, run->reason);
    for (uint64_t i = 0; err == 0 && i < p->outer * sl_graph_ops_blocks(node, run, 0); i++) {
        for (uint64_t j = 0; j < count; j++, out += p->item_bytes) {
            const int64_t at = indices[j] < 0 ? indices[j] + p->size : indices[j];
            memcpy(out, in + (uint64_t)at * p->item_bytes, p->item_bytes);
        }
        in += (uint64_t)p->size * p->item_bytes;
    }
    return err;
}

/* ConstantOfShape */

static int infer_constant_of_shape(struct sl_graph_infer *infer)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(infer->node, "value");
    struct sl_graph_value shape;
    const int err = sl_graph_ops_read_shape(infer, 0, &shape);
    if (err == 0 && a != NULL &&
        (a->tensor == NULL || a->tensor->data == NULL ||
         sl_graph_elements(a->tensor, 0, a->tensor->rank) != 1)) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "value must be a tensor of one element");
    }
    if (err == 0) {
        sl_graph_ops_set_output(infer, &shape);
        infer->outputs[0]->type = a != NULL ? a->tensor->type : SL_OBJECT_F32;
    }
    return err;
}

static int run_constant_of_shape(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct sl_graph_attribute *a = sl_graph_attribute_find(node, "value");
    const struct sl_graph_value *output = node->outputs[0];
    const uint64_t item_bytes = sl_graph_item_bytes(output);
    const uint64_t bytes = output->bytes * (output->has_rows ? run->rows : 1);
    uint8_t *out = run->outputs[0];
    memset(out, 0, bytes);
    for (uint64_t at = 0; a != NULL && at < bytes; at += item_bytes) {
        memcpy(out + at, a->tensor->data, item_bytes);
    }
    return 0;
}

/* Range, of constants. */

#define RANGE_INPUTS 3 /* start, limit, step */

static int infer_range(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *const *in = (const struct sl_graph_value *const *)infer->inputs;
    double x[RANGE_INPUTS];
    for (uint32_t i = 0; i < RANGE_INPUTS; i++) {
        if (in[i]->kind != SL_GRAPH_CONSTANT || in[i]->type != in[0]->type ||
            in[i]->type == SL_OBJECT_BOOL || sl_graph_elements(in[i], 0, in[i]->rank) != 1 ||
            (in[i]->type == SL_OBJECT_I64 &&
             sl_graph_rows_times(*(const int64_t *)in[i]->data) > 0)) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "%s must be a constant number of float32 or int64, as all three "
                                 "inputs, and not the number of rows",
                                 in[i]->name);
        }
        x[i] = in[i]->type == SL_OBJECT_F32 ? (double)*(const float *)in[i]->data
                                            : (double)*(const int64_t *)in[i]->data;
    }
    const double count = ceil((x[1] - x[0]) / x[2]);
    if (!(count >= 1) || count > SL_GRAPH_ELEMENTS_MAX) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%g to %g by %g is no element, or more than %llu", x[0], x[1], x[2],
                             SL_GRAPH_ELEMENTS_MAX);
    }
    struct sl_graph_value *output = infer->outputs[0];
    output->type = in[0]->type;
    output->rank = 1;
    output->shape[0] = (uint64_t)count;
    output->has_rows = false;
    return 0;
}

static int run_range(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const uint64_t count = node->outputs[0]->shape[0];
    const float *f = run->inputs[0], *f_step = run->inputs[2];
    const uint64_t *n = run->inputs[0], *n_step = run->inputs[2]; /* unsigned: cannot overflow */
    for (uint64_t i = 0; i < count; i++) {
        if (node->outputs[0]->type == SL_OBJECT_F32) {
            ((float *)run->outputs[0])[i] = *f + (float)i * *f_step;
        } else {
            ((uint64_t *)run->outputs[0])[i] = *n + i * *n_step;
        }
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_shape[] = {
    SL_GRAPH_OPS_ENTRY("Shape", 1, 1, SL_GRAPH_ANY_TYPE | SL_GRAPH_OF_SHAPE, infer_shape, run_shape,
                       {"start", SL_GRAPH_INT}, {"end", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Cast", 1, 1, SL_GRAPH_OPS_COPY, infer_cast, run_cast, {"to", SL_GRAPH_INT},
                       {"saturate", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Gather", 2, 2, SL_GRAPH_ANY_TYPE, infer_gather, run_gather,
                       {"axis", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("ConstantOfShape", 1, 1, SL_GRAPH_ANY_TYPE, infer_constant_of_shape,
                       run_constant_of_shape, {"value", SL_GRAPH_TENSOR}),
    SL_GRAPH_OPS_ENTRY("Range", 3, 3, SL_GRAPH_ANY_TYPE, infer_range, run_range),
    {.name = NULL},
};
