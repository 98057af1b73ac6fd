/* The plan of a graph for at most rows_max rows: each node has been checked by its operator, each
 * value has type and shape, and each input and computed value has its place in the scratch, which
 * values share that are not alive at the same time. Layers are sequences of nodes: a node that
 * reads weights behind those read before begins one; another node joins the layer before, since it
 * needs no more bytes, so to wait before it gains nothing. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_PLAN_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_PLAN_H

#include "programs/serve/engine/engine.h"
#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_memory.h"

#define SL_GRAPH_PLAN_ROWS_MAX    65536U
#define SL_GRAPH_PLAN_SCRATCH_MAX (16ULL << 30)

struct sl_graph_plan {
    struct sl_engine_layer *layers; /* [layer_count] */
    uint32_t *layer_ends;           /* [layer_count]: the node after the layer's last one */
    uint32_t layer_count;
    uint64_t node_bytes; /* the first ones of the scratch: of the node that runs */
    uint64_t scratch_bytes;
};

/* Fills what the graph's fields say is set by the plan. Weights have their image_end; graph_end is
 * where the bytes of the model itself end. The arrays lie in the memory. Errors, with the node or
 * value: UNSUPPORTED, INVALID, TOO_LARGE, NO_MEMORY. */
int sl_graph_plan_make(struct sl_graph *graph, uint32_t rows_max, uint64_t graph_end,
                       struct sl_graph_memory *memory, struct sl_graph_plan *out,
                       struct sl_reason *reason);

#endif
