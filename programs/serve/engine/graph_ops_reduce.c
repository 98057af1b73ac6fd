/* Operators that compute a value from elements along some axes, but not that of rows:
 * ReduceSum, ReduceMean, ReduceL2. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

struct reduce {
    uint64_t outer, size, inner; /* of a block: [outer][size][inner] becomes [outer][inner] */
    char kind;                   /* of the operator's name: S, M or L */
};

/* Axes follow each other: those from `first` to before `end`. */
static int find_axes(struct sl_graph_infer *infer, uint32_t *first, uint32_t *end)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_list axes;
    uint32_t chosen = 0; /* a bit for each axis */
    const int err = sl_graph_ops_read_list(infer, 1, "axes", &axes);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0, axis; i < axes.count; i++) {
        if (x->rank == 0 ||
            sl_graph_ops_resolve(infer, axes.numbers[i], x->rank, x->rank - 1, &axis) != 0) {
            return SL_ERR_INVALID;
        }
        chosen |= 1U << axis;
    }
    *first = chosen != 0 ? (uint32_t)__builtin_ctz(chosen) : 0;
    *end = chosen != 0 ? 32 - (uint32_t)__builtin_clz(chosen) : x->rank;
    const bool is_range = chosen == 0 || *end - *first == (uint32_t)__builtin_popcount(chosen);
    const bool is_noop =
        axes.count == 0 && sl_graph_attribute_int(infer->node, "noop_with_empty_axes", 0) != 0;
    const bool has_rows = x->has_rows && *first <= x->row_axis && x->row_axis < *end;
    return is_range && !is_noop && !has_rows
               ? 0
               : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                               "axes must follow each other, and not count rows");
}

static int infer_reduce(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_value *output = infer->outputs[0];
    uint32_t first = 0, end = 0;
    const int err = x->type == SL_OBJECT_F32 ? find_axes(infer, &first, &end)
                                             : sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                                             "%s must be of float32", x->name);
    if (err != 0) {
        return err;
    }
    const struct reduce p = {.outer = sl_graph_elements(x, 0, first),
                             .size = sl_graph_elements(x, first, end),
                             .inner = sl_graph_elements(x, end, x->rank),
                             .kind = infer->node->op_type[strlen("Reduce")]};
    sl_graph_ops_set_output(infer, x);
    output->rank = first;
    output->row_axis -=
        end <= x->row_axis && x->has_rows && sl_graph_attribute_int(infer->node, "keepdims", 1) == 0
            ? end - first
            : 0;
    for (uint32_t i = first; i < x->rank; i++) {
        if (i >= end || sl_graph_attribute_int(infer->node, "keepdims", 1) != 0) {
            output->shape[output->rank++] = i >= end ? x->shape[i] : 1;
        }
    }
    infer->flops = (double)(p.outer * p.size * p.inner);
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

static int run_reduce(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct reduce *p = sl_graph_ops_params(node);
    const bool is_squared = p->kind == 'L';
    const float factor = p->kind == 'M' ? 1 / (float)p->size : 1;
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->outer; i++, out += p->inner) {
        memset(out, 0, p->inner * sizeof *out);
        for (uint64_t k = 0; k < p->size; k++, in += p->inner) {
            for (uint64_t j = 0; j < p->inner; j++) {
                out[j] += is_squared ? in[j] * in[j] : in[j];
            }
        }
        for (uint64_t j = 0; j < p->inner; j++) {
            out[j] = is_squared ? sqrtf(out[j]) : out[j] * factor;
        }
    }
    return 0;
}

#define REDUCE(name)                                                                               \
    SL_GRAPH_OPS_ENTRY(name, 1, 2, SL_GRAPH_ANY_TYPE, infer_reduce, run_reduce,                    \
                       {"axes", SL_GRAPH_INTS}, {"keepdims", SL_GRAPH_INT},                        \
                       {"noop_with_empty_axes", SL_GRAPH_INT})

const struct sl_graph_op sl_graph_ops_reduce[] = {
    REDUCE("ReduceSum"),
    REDUCE("ReduceMean"),
    REDUCE("ReduceL2"),
    {.name = NULL},
};
