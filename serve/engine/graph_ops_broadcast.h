/* Broadcasting of two inputs to the shape of the output, as in NumPy: shapes are compared from
 * their last dimensions, and a dimension of 1 is repeated. Rows are the first dimension of the
 * output, and are not repeated: an input with rows has as many dimensions as the output. Pure. */
#ifndef SL_SERVE_ENGINE_GRAPH_OPS_BROADCAST_H
#define SL_SERVE_ENGINE_GRAPH_OPS_BROADCAST_H

#include "serve/engine/graph.h"

/* Steps are in elements, 0 where the input is repeated. Neighbours that step alike are one axis. */
struct sl_graph_ops_broadcast {
    uint32_t rank;        /* at least 1 */
    uint32_t out_row;     /* elements of a row, or of all if there are no rows */
    uint32_t row_step[2]; /* of each input */
    struct {
        uint32_t size, step[2]; /* the step of axis 0 is 0 or 1 */
    } axes[SL_GRAPH_RANK_MAX];  /* from the last dimension */
};

/* Sets type, shape and rows of output 0, but for the last `kept` dimensions of both inputs, which
 * take no part: the caller appends those of the output. Errors: INVALID, UNSUPPORTED. */
int sl_graph_ops_broadcast_infer(const struct sl_graph_infer *infer, uint32_t kept,
                                 struct sl_graph_ops_broadcast *broadcast);

/* Element of each input at which item i of the axes from `first_axis` on begins. */
static inline void sl_graph_ops_broadcast_locate(const struct sl_graph_ops_broadcast *broadcast,
                                                 uint32_t first_axis, uint64_t i, uint64_t at[2])
{
    at[0] = at[1] = 0;
    for (uint32_t axis = first_axis; axis < broadcast->rank; axis++) {
        const uint64_t index = i % broadcast->axes[axis].size;
        at[0] += index * broadcast->axes[axis].step[0];
        at[1] += index * broadcast->axes[axis].step[1];
        i /= broadcast->axes[axis].size;
    }
}

#endif
