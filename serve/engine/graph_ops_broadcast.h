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

/* Sets type, shape and rows of output 0. Errors: INVALID, UNSUPPORTED, TOO_LARGE. */
int sl_graph_ops_broadcast_infer(const struct sl_graph_infer *infer,
                                 struct sl_graph_ops_broadcast *broadcast);

/* The element of each input at which line i begins: the elements of axis 0. */
static inline void sl_graph_ops_broadcast_locate(const struct sl_graph_ops_broadcast *broadcast,
                                                 uint64_t i, uint64_t at[2])
{
    at[0] = at[1] = 0;
    for (uint32_t axis = 1; axis < broadcast->rank; axis++) {
        const uint64_t index = i % broadcast->axes[axis].size;
        at[0] += index * broadcast->axes[axis].step[0];
        at[1] += index * broadcast->axes[axis].step[1];
        i /= broadcast->axes[axis].size;
    }
}

#endif
