/* Makes a graph smaller that has its weights, without a change of what it computes in inference:
 * removes Identity and Dropout, multiplies a BatchNormalization into the Conv before it, and drops
 * values that no node reads. One thread. */
#ifndef SL_SERVE_ENGINE_GRAPH_FOLD_H
#define SL_SERVE_ENGINE_GRAPH_FOLD_H

#include "serve/engine/graph.h"
#include "serve/engine/graph_memory.h"

/* Once, before the plan. A node that is not as expected stays as it is, and one for which there is
 * no memory. */
void sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory);

#endif
