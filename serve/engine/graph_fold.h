/* Makes a graph smaller that has its weights, without a change of what it computes in inference:
 * removes Identity and Dropout, multiplies a BatchNormalization into the Conv before it, and drops
 * values that no node reads. One thread. */
#ifndef SL_SERVE_ENGINE_GRAPH_FOLD_H
#define SL_SERVE_ENGINE_GRAPH_FOLD_H

#include "serve/engine/graph.h"
#include "serve/engine/graph_memory.h"

/* Before the plan. A node that is not as expected stays as it is. Errors: NO_MEMORY. */
int sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory, struct sl_reason *reason);

#endif
