/* Operators with which exporters compute shapes: Shape, Cast, Gather, Slice. Indices and bounds are
 * constants. */
#include <inttypes.h>

#include "programs/serve/engine/graph_ops.h"

/* Shape */

static int infer_shape(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const int64_t rank = x->rank, fixed = infer->graph->fixed_rows;
    int64_t ends[2] = {sl_graph_attribute_int(infer->node, "start", 0),
                       sl_graph_attribute_int(infer->node, "end", rank)};
    int64_t sizes[SL_GRAPH_RANK_MAX] = {0}, count = 0;
    for (uint32_t i = 0; i < 2; i++) {
        ends[i] += ends[i] < 0 ? rank : 0;
        ends[i] = ends[i] < 0 ? 0 : ends[i] > rank ? rank : ends[i];
    }
    for (int64_t i = ends[0]; i < ends[1]; i++) {
        const uint64_t size = x->shape[i];
        sizes[count++] = i > 0 || !x->has_rows ? (int64_t)size
                         : fixed > 0           ? (int64_t)size * fixed
                                               : sl_graph_rows(size);
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
    if ((to != 1 && to != 9 && !is_whole) || (type != x->type && !sl_graph_is_stored(x))) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "to is %" PRId64 " of ONNX: accepted are 1, 6, 7 and 9 (float, int32, "
                             "int64, bool) for a constant, and for another value its own type",
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
    for (uint64_t i = 0; i < sl_graph_elements(x, 0, x->rank); i++) { /* a constant: no rows */
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

/* Gather and Slice choose elements of a list. */

struct choice {
    int64_t size, first, step; /* first and step: unless the indices are input 1 */
    bool has_indices;
};

static int infer_choice(struct sl_graph_infer *infer, int64_t axis)
{
    const struct sl_graph_value *x = infer->inputs[0];
    sl_graph_ops_set_output(infer, x);
    return x->rank == 1 && !x->has_rows && (axis == 0 || axis == -1)
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "%s must be a list without rows, as the shape of a tensor", x->name);
}

static int infer_gather(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *indices = infer->inputs[1];
    const struct choice p = {.size = (int64_t)infer->inputs[0]->shape[0], .has_indices = true};
    int err = infer_choice(infer, sl_graph_attribute_int(infer->node, "axis", 0));
    if (err == 0 && (indices->kind != SL_GRAPH_CONSTANT || indices->type != SL_OBJECT_I64)) {
        err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                            "%s, the indices, must be constants of int64", indices->name);
    }
    for (uint64_t i = 0; err == 0 && i < sl_graph_elements(indices, 0, indices->rank); i++) {
        const int64_t index = ((const int64_t *)indices->data)[i];
        if (index < -p.size || index >= p.size) {
            err =
                sl_graph_fail(infer, SL_ERR_INVALID,
                              "index %" PRId64 " is outside of a list of %" PRId64, index, p.size);
        }
    }
    infer->outputs[0]->rank = indices->rank;
    memcpy(infer->outputs[0]->shape, indices->shape, sizeof indices->shape);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return err;
}

/* A bound of a slice, from the begin of the list, and within least to most. */
static int64_t clamp(int64_t at, int64_t size, int64_t least, int64_t most)
{
    at += at < 0 ? size : 0;
    return at < least ? least : at > most ? most : at;
}

static int infer_slice(struct sl_graph_infer *infer)
{
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    int64_t given[4] = {0, 0, 0, 1};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < 4; i++) {
        struct sl_graph_list list;
        err = sl_graph_ops_read_list(infer, i + 1, names[i], &list);
        given[i] = err == 0 && list.count == 1 ? list.numbers[0] : given[i];
        if (err == 0 && (list.count > 1 || (list.count == 0 && i < 2) ||
                         sl_graph_rows_times(given[i]) > 0 || (i == 3 && given[i] == 0))) {
            err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                "%s must have one number, not that of rows, and steps not 0",
                                names[i]);
        }
    }
    err = err != 0 ? err : infer_choice(infer, given[2]);
    if (err != 0) {
        return err;
    }
    const int64_t size = (int64_t)infer->inputs[0]->shape[0];
    const bool is_back = given[3] < 0;
    const int64_t most = is_back ? size - 1 : size;
    struct choice p = {.size = size,
                       .first = clamp(given[0], size, 0, most),
                       .step = given[3] < -size  ? -size
                               : given[3] > size ? size
                                                 : given[3]};
    const int64_t end = clamp(given[1], size, is_back ? -1 : 0, most);
    const int64_t span = is_back ? p.first - end : end - p.first;
    const int64_t stride = is_back ? -p.step : p.step;
    infer->outputs[0]->shape[0] = span > 0 ? (uint64_t)((span + stride - 1) / stride) : 0;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

static int run_choice(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct choice *p = sl_graph_ops_params(node);
    const struct sl_graph_value *output = node->outputs[0];
    const uint64_t count = sl_graph_elements(output, 0, output->rank),
                   bytes = output->bytes / count;
    for (uint64_t i = 0; i < count; i++) {
        int64_t at =
            p->has_indices ? ((const int64_t *)run->inputs[1])[i] : p->first + (int64_t)i * p->step;
        at += at < 0 ? p->size : 0;
        memcpy((uint8_t *)run->outputs[0] + i * bytes,
               (const uint8_t *)run->inputs[0] + (uint64_t)at * bytes, bytes);
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_shape[] = {
    SL_GRAPH_OPS_ENTRY("Shape", 1, 1, SL_GRAPH_ANY_TYPE | SL_GRAPH_OF_SHAPE, infer_shape, run_shape,
                       {"start", SL_GRAPH_INT}, {"end", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Cast", 1, 1, SL_GRAPH_OPS_COPY, infer_cast, run_cast, {"to", SL_GRAPH_INT},
                       {"saturate", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Gather", 2, 2, SL_GRAPH_ANY_TYPE, infer_gather, run_choice,
                       {"axis", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Slice", 1, 5, SL_GRAPH_ANY_TYPE, infer_slice, run_choice,
                       {"starts", SL_GRAPH_INTS}, {"ends", SL_GRAPH_INTS}, {"axes", SL_GRAPH_INTS}),
    {.name = NULL},
};
