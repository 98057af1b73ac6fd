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

/* Makes the dimension `axis` of the output count the rows of x: elements stay where they are, so
 * what lies before the rows does too. False: it would be in another order. */
static bool keep_rows(const struct sl_graph_value *x, uint32_t axis, struct sl_graph_value *output)
{
    const uint64_t before = sl_graph_elements(x, 0, x->row_axis) * x->row_outer;
    const uint64_t outside = sl_graph_elements(output, 0, axis);
    output->row_axis = axis;
    output->row_outer = (uint32_t)(before / outside);
    return before % outside == 0 && output->shape[axis] % (before / outside) == 0;
}

static int infer_flatten(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_value *output = infer->outputs[0];
    uint32_t axis;
    int err = sl_graph_ops_axis(infer, 1, x->rank, x->rank, &axis);
    if (err != 0) {
        return err;
    }
    (void)infer_copy(infer);
    output->rank = 2;
    output->shape[0] = sl_graph_elements(x, 0, axis);
    output->shape[1] = sl_graph_elements(x, axis, x->rank);
    return !x->has_rows || keep_rows(x, axis <= x->row_axis, output)
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the rows of requests would be mixed");
}

/* The sizes that a Reshape is given. */
struct sizes {
    uint32_t open;    /* the dimension of -1; the rank: none */
    uint32_t rows;    /* the dimension that is given as number of rows; the rank: none */
    uint64_t product; /* of all but that of -1 */
};

/* Fills the output's shape, but for that of -1. */
static int read_sizes(const struct sl_graph_infer *infer, struct sizes *sizes)
{
    const struct sl_graph_value *x = infer->inputs[0], *shape = infer->inputs[1];
    const bool allows_zero = sl_graph_attribute_int(infer->node, "allowzero", 0) != 0;
    struct sl_graph_value *output = infer->outputs[0];
    output->rank = (uint32_t)shape->shape[0];
    *sizes = (struct sizes){.open = output->rank, .rows = output->rank, .product = 1};
    for (uint32_t i = 0; i < output->rank; i++) {
        const int64_t given = ((const int64_t *)shape->data)[i];
        const uint64_t times = sl_graph_rows_times(given);
        const bool is_copied = given == 0 && i < x->rank && !allows_zero;
        int64_t size = is_copied ? (int64_t)x->shape[i] : times > 0 ? (int64_t)times : given;
        if (given == -1 && sizes->open == output->rank) {
            sizes->open = i;
            size = 1;
        } else if (times > 0 || (is_copied && sl_graph_ops_is_rows(x, i))) {
            size = sizes->rows == output->rank && x->has_rows ? size : 0;
            sizes->rows = i;
        }
        if (size < 1 || (uint64_t)size > SL_GRAPH_ELEMENTS_MAX / sizes->product) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "dimension %u of the shape is %" PRId64
                                 ", but must be a size, 0 as in the input, once -1, or once, of an "
                                 "input with rows, their number",
                                 i, given);
        }
        output->shape[i] = (uint64_t)size;
        sizes->product *= (uint64_t)size;
    }
    return 0;
}

static int infer_reshape(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *shape = infer->inputs[1];
    const uint64_t elements = sl_graph_elements(x, 0, x->rank);
    struct sl_graph_value *output = infer->outputs[0];
    struct sizes sizes;
    if (shape->kind != SL_GRAPH_CONSTANT || shape->type != SL_OBJECT_I64 || shape->rank != 1 ||
        shape->shape[0] > SL_GRAPH_RANK_MAX) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s, the shape, must be a constant list of at most %d int64",
                             shape->name, SL_GRAPH_RANK_MAX);
    }
    (void)infer_copy(infer);
    const int err = read_sizes(infer, &sizes);
    if (err != 0) {
        return err;
    }
    if (sizes.open < output->rank) {
        output->shape[sizes.open] = elements / sizes.product;
        sizes.product *= output->shape[sizes.open];
    }
    if (sizes.product != elements) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "a shape of %" PRIu64 " elements for an input of %" PRIu64,
                             sizes.product, elements);
    }
    const uint32_t rows = sizes.rows < output->rank ? sizes.rows : sizes.open;
    return !x->has_rows || (rows < output->rank && keep_rows(x, rows, output))
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "no dimension of the shape counts rows (0, -1 or the number of "
                               "rows), or rows of requests would be mixed");
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
        if ((chosen >> axis & 1) != 0 ||
            (!adds && (sl_graph_ops_is_rows(x, axis) || x->shape[axis] != 1))) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "axis %u is given twice, counts rows, or is not of size 1", axis);
        }
        chosen |= 1U << axis;
    }
    sl_graph_ops_set_output(infer, x);
    output->rank = 0;
    for (uint32_t i = 0, from = 0; i < rank; i++) {
        const bool is_chosen = (chosen >> i & 1) != 0;
        const uint64_t size = adds && is_chosen ? 1 : x->shape[from++];
        if (!(adds && is_chosen) && sl_graph_ops_is_rows(x, from - 1)) {
            output->row_axis = output->rank;
        }
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
                    part->has_rows == x->has_rows && part->row_axis == x->row_axis &&
                    part->row_outer == x->row_outer && !sl_graph_ops_is_rows(x, axis);
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

/* Split: the reverse of Concat. */

/* The part of output i is the constant list, or, without one, an equal part; the last may be
 * smaller. */
static int infer_split(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const uint32_t count = infer->node->output_count;
    struct sl_graph_list list;
    uint32_t axis = 0;
    int err = sl_graph_ops_read_list(infer, 1, "split", &list);
    if (err == 0 && x->rank > 0) {
        err = sl_graph_ops_axis(infer, 0, x->rank, x->rank - 1, &axis);
    }
    if (err != 0) {
        return err;
    }
    if (x->rank == 0 || sl_graph_ops_is_rows(x, axis) || count == 0 ||
        (list.count != 0 && list.count != count) ||
        sl_graph_attribute_int(infer->node, "num_outputs", count) != count) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "the axis must not count rows, and each part be an output");
    }
    uint64_t left = x->shape[axis];
    const uint64_t equal = (left + count - 1) / count;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t last = left < equal ? left : equal;
        const uint64_t size = list.count == 0       ? last
                              : list.numbers[i] < 1 ? 0
                                                    : (uint64_t)list.numbers[i];
        if (size == 0 || size > left || infer->outputs[i] == NULL ||
            (i == count - 1 && size < left)) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "part %u must have 1 or more of the %" PRIu64
                                 " elements of the axis, and the parts all of them",
                                 i, x->shape[axis]);
        }
        struct sl_graph_infer part = *infer;
        part.outputs = &infer->outputs[i];
        sl_graph_ops_set_output(&part, x);
        infer->outputs[i]->shape[axis] = size;
        left -= size;
    }
    const uint64_t chunks = sl_graph_elements(x, 0, axis);
    sl_graph_ops_save(infer->node, &chunks, sizeof chunks);
    return 0;
}

static int run_split(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const uint64_t *chunks = sl_graph_ops_params(node);
    const uint8_t *in = run->inputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * *chunks; i++) {
        for (uint32_t part = 0; part < node->output_count; part++) {
            const uint64_t bytes = node->outputs[part]->bytes / *chunks;
            memcpy((uint8_t *)run->outputs[part] + i * bytes, in, bytes);
            in += bytes;
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
    {.name = "Split",
     .inputs_min = 1,
     .inputs_max = 2,
     .outputs_max = SL_GRAPH_OPERANDS_MAX,
     .flags = SL_GRAPH_ANY_TYPE,
     .attributes = {{"axis", SL_GRAPH_INT},
                    {"num_outputs", SL_GRAPH_INT},
                    {"split", SL_GRAPH_INTS}},
     .infer = infer_split,
     .run = run_split},
    {.name = NULL},
};
