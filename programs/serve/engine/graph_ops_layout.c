/* Operators that move elements, or give them another shape. A block of the output has the elements
 * of a block of the input. */
#include <inttypes.h>

#include "programs/serve/engine/graph_ops.h"

/* The output is the input. */
static int infer_copy(struct sl_graph_infer *infer)
{
    sl_graph_ops_set_output(infer, infer->inputs[0]);
    return 0;
}

static int run_copy(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    if (run->outputs[0] != run->inputs[0]) {
        memcpy(run->outputs[0], run->inputs[0], sl_graph_ops_bytes(node, run, 0));
    }
    return 0;
}

/* Dropout drops nothing unless it trains. */
static int infer_dropout(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *trains = sl_graph_ops_has(infer, 2) ? infer->inputs[2] : NULL;
    if (trains != NULL && (trains->kind != SL_GRAPH_CONSTANT || *(const uint8_t *)trains->data)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "training_mode must be the constant false");
    }
    return infer_copy(infer);
}

static int infer_flatten(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    uint32_t axis;
    int err = sl_graph_ops_axis(infer, 1, x->rank, x->rank, &axis);
    if (err == 0 && axis == 0 && x->has_rows) {
        err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "axis 0 would join the rows of requests");
    }
    if (err != 0) {
        return err;
    }
    (void)infer_copy(infer);
    infer->outputs[0]->rank = 2;
    infer->outputs[0]->shape[0] = sl_graph_elements(x, 0, axis);
    infer->outputs[0]->shape[1] = sl_graph_elements(x, axis, x->rank);
    return 0;
}

static int infer_reshape(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *shape = infer->inputs[1];
    const bool allows_zero = sl_graph_attribute_int(infer->node, "allowzero", 0) != 0;
    const uint64_t elements = sl_graph_elements(x, 0, x->rank);
    struct sl_graph_value *output = infer->outputs[0];
    if (shape->kind != SL_GRAPH_CONSTANT || shape->type != SL_OBJECT_I64 || shape->rank != 1 ||
        shape->shape[0] > SL_GRAPH_RANK_MAX) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s, the shape, must be a constant list of at most %d int64",
                             shape->name, SL_GRAPH_RANK_MAX);
    }
    (void)infer_copy(infer);
    output->rank = (uint32_t)shape->shape[0];
    uint64_t product = 1; /* of the dimensions but one of -1, whose index is `open` */
    uint32_t open = output->rank;
    for (uint32_t i = 0; i < output->rank; i++) {
        const int64_t given = ((const int64_t *)shape->data)[i], rows = infer->graph->fixed_rows;
        const uint64_t times = sl_graph_rows_times(given);
        int64_t size = given;
        if (given == -1 && open == output->rank) {
            open = i;
            size = 1;
        } else if (given == 0 && i < x->rank && !allows_zero) {
            size = (int64_t)x->shape[i];
        } else if (i == 0 && x->has_rows && times > 0) {
            size = (int64_t)times;
        } else if (i == 0 && x->has_rows) { /* a number is known if the model has fixed rows */
            size = rows > 0 && given % rows == 0 ? given / rows : 0;
        }
        if (size < 1 || (uint64_t)size > SL_GRAPH_ELEMENTS_MAX / product) {
            return sl_graph_fail(
                infer, SL_ERR_INVALID,
                "dimension %u of the shape is %" PRId64
                ", but must be a size, 0 as in the input, or once -1; dimension 0, "
                "if it counts rows, 0 or -1",
                i, given);
        }
        output->shape[i] = (uint64_t)size;
        product *= (uint64_t)size;
    }
    if (open < output->rank) {
        output->shape[open] = elements / product;
        product *= output->shape[open];
    }
    return product == elements
               ? 0
               : sl_graph_fail(infer, SL_ERR_INVALID,
                               "a shape of %" PRIu64 " elements for an input of %" PRIu64, product,
                               elements);
}

/* Squeeze and Unsqueeze: axes are those of the shape with more dimensions. */
static int infer_squeeze(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const bool adds = infer->node->op_type[0] == 'U';
    struct sl_graph_value *output = infer->outputs[0];
    struct sl_graph_list axes;
    const int err = sl_graph_ops_read_list(infer, 1, "axes", &axes);
    const uint32_t rank = err == 0 && adds ? x->rank + axes.count : x->rank;
    if (err != 0) {
        return err;
    }
    if ((axes.count == 0 && (adds || x->has_rows)) || axes.count > rank ||
        rank > SL_GRAPH_RANK_MAX) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "axes are needed, and at most %d dimensions are supported",
                             SL_GRAPH_RANK_MAX);
    }
    uint32_t chosen = 0; /* a bit for each axis */
    for (uint32_t i = 0, axis; i < axes.count; i++) {
        if (sl_graph_ops_resolve(infer, axes.numbers[i], rank, rank - 1, &axis) != 0) {
            return SL_ERR_INVALID;
        }
        if ((chosen >> axis & 1) != 0 || (axis == 0 && x->has_rows) ||
            (!adds && x->shape[axis] != 1)) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "axis %u is given twice, or counts rows, or is not of size 1",
                                 axis);
        }
        chosen |= 1U << axis;
    }
    sl_graph_ops_set_output(infer, x);
    output->rank = 0;
    for (uint32_t i = 0, from = 0; i < rank; i++) {
        const bool is_chosen = (chosen >> i & 1) != 0;
        const uint64_t size = adds && is_chosen ? 1 : x->shape[from++];
        if (adds || !(is_chosen || (axes.count == 0 && size == 1))) {
            output->shape[output->rank++] = size;
        }
    }
    return 0;
}

static int infer_concat(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_value *output = infer->outputs[0];
    uint32_t axis;
    if (x->rank == 0 || sl_graph_attribute_find(infer->node, "axis") == NULL) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "an axis is needed, and inputs that are no scalars");
    }
    int err = sl_graph_ops_axis(infer, 0, x->rank, x->rank - 1, &axis);
    if (err != 0) {
        return err;
    }
    sl_graph_ops_set_output(infer, x);
    output->shape[axis] = 0;
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        const struct sl_graph_value *part = infer->inputs[i];
        bool fits = part != NULL && part->rank == x->rank && part->type == x->type &&
                    part->has_rows == x->has_rows && !(x->has_rows && axis == 0);
        for (uint32_t j = 0; fits && j < x->rank; j++) {
            fits = j == axis || part->shape[j] == x->shape[j];
        }
        if (!fits) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "input %u must have the type, the rows and the shape of %s except "
                                 "in axis %u, which must not count rows",
                                 i, x->name, axis);
        }
        output->shape[axis] += part->shape[axis];
    }
    const uint64_t chunks = sl_graph_elements(x, 0, axis); /* of each input, in a block */
    sl_graph_ops_save(infer->node, &chunks, sizeof chunks);
    return 0;
}

static int run_concat(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const uint64_t *chunks = sl_graph_ops_params(node);
    uint8_t *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * *chunks; i++) {
        for (uint32_t part = 0; part < node->input_count; part++) {
            const uint64_t bytes = node->inputs[part]->bytes / *chunks;
            memcpy(out, (const uint8_t *)run->inputs[part] + i * bytes, bytes);
            out += bytes;
        }
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_layout[] = {
    SL_GRAPH_OPS_ENTRY("Identity", 1, 1, SL_GRAPH_OPS_COPY, infer_copy, run_copy),
    SL_GRAPH_OPS_ENTRY("Dropout", 1, 3, SL_GRAPH_OPS_COPY, infer_dropout, run_copy,
                       {"ratio", SL_GRAPH_FLOAT}, {"seed", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Flatten", 1, 1, SL_GRAPH_OPS_COPY, infer_flatten, run_copy,
                       {"axis", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Reshape", 2, 2, SL_GRAPH_OPS_COPY, infer_reshape, run_copy,
                       {"allowzero", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Squeeze", 1, 2, SL_GRAPH_OPS_COPY, infer_squeeze, run_copy,
                       {"axes", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("Unsqueeze", 1, 2, SL_GRAPH_OPS_COPY, infer_squeeze, run_copy,
                       {"axes", SL_GRAPH_INTS}),
    SL_GRAPH_OPS_ENTRY("Concat", 1, SL_GRAPH_OPERANDS_MAX, SL_GRAPH_ANY_TYPE, infer_concat,
                       run_concat, {"axis", SL_GRAPH_INT}),
    {.name = NULL},
};
