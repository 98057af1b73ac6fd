#include "serve/engine/graph_ops_broadcast.h"

#include <inttypes.h>

#include "serve/engine/graph_ops.h"

/* Dimension `axis`, from the last; 1 in front of the first. */
static uint64_t dimension(const struct sl_graph_value *value, uint32_t axis)
{
    return axis < value->rank ? value->shape[value->rank - axis - 1] : 1;
}

static int check_rows(const struct sl_graph_infer *infer, uint32_t rank)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    for (uint32_t i = 0; i < 2; i++) {
        const struct sl_graph_value *rows = i == 0 ? a : b, *other = i == 0 ? b : a;
        const bool fits =
            rows->rank == rank && (other->has_rows ? other->shape[0] == rows->shape[0]
                                                   : other->rank < rank || other->shape[0] == 1);
        if (rows->has_rows && !fits) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "the rows of %s are not the first dimension of the output, or %s "
                                 "has another number of them",
                                 rows->name, other->name);
        }
    }
    return 0;
}

/* Appends an axis, or makes the last one longer. */
static void add_axis(struct sl_graph_ops_broadcast *to, uint64_t size, const uint64_t step[2])
{
    const uint32_t last = to->rank - 1;
    if (size == 1) {
        return;
    }
    if (to->rank > 0 && step[0] == (uint64_t)to->axes[last].step[0] * to->axes[last].size &&
        step[1] == (uint64_t)to->axes[last].step[1] * to->axes[last].size) {
        to->axes[last].size *= (uint32_t)size;
        return;
    }
    to->axes[to->rank].size = (uint32_t)size;
    to->axes[to->rank].step[0] = (uint32_t)step[0];
    to->axes[to->rank++].step[1] = (uint32_t)step[1];
}

int sl_graph_ops_broadcast_infer(const struct sl_graph_infer *infer,
                                 struct sl_graph_ops_broadcast *out)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    struct sl_graph_value *output = infer->outputs[0];
    const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    uint64_t elements[3] = {1, 1, 1}; /* of a, b and the output */
    *out = (struct sl_graph_ops_broadcast){0};
    for (uint32_t axis = 0; axis < rank; axis++) {
        const uint64_t sizes[2] = {dimension(a, axis), dimension(b, axis)};
        const uint64_t size = sizes[0] == 1 ? sizes[1] : sizes[0];
        if (sizes[1] != 1 && sizes[1] != size) {
            return sl_graph_fail(infer, SL_ERR_INVALID,
                                 "%s has %" PRIu64 " elements where %s has %" PRIu64
                                 ": they must be equal, or one of them 1",
                                 a->name, sizes[0], b->name, sizes[1]);
        }
        elements[2] *= size;
        if (elements[2] > SL_GRAPH_ELEMENTS_MAX) {
            return sl_graph_fail(infer, SL_ERR_TOO_LARGE, "the output has more than %llu elements",
                                 SL_GRAPH_ELEMENTS_MAX);
        }
        add_axis(
            out, size,
            (const uint64_t[2]){sizes[0] == 1 ? 0 : elements[0], sizes[1] == 1 ? 0 : elements[1]});
        elements[0] *= sizes[0];
        elements[1] *= sizes[1];
        output->shape[rank - axis - 1] = size;
    }
    if (out->rank == 0) {
        out->axes[out->rank++].size = 1;
    }
    out->out_row = (uint32_t)elements[2];
    out->row_step[0] = a->has_rows ? (uint32_t)elements[0] : 0;
    out->row_step[1] = b->has_rows ? (uint32_t)elements[1] : 0;
    output->type = SL_OBJECT_F32;
    output->rank = rank;
    output->has_rows = a->has_rows || b->has_rows;
    return check_rows(infer, rank);
}
