/* Checks the nodes of a graph that has its weights, and makes it smaller, without a change of what
 * it computes in inference: computes nodes whose inputs are constants, and sizes; removes nodes
 * that only copy, as Identity and Dropout; multiplies a BatchNormalization into the Conv before it;
 * and drops values that no node reads. One thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_FOLD_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_FOLD_H

#include "programs/serve/engine/graph.h"
#include "programs/serve/engine/graph_memory.h"

/* Once, before the plan, after sl_blas_init. A node for which there is no memory stays as it is.
 * Errors, with the node: those of its check, and of the operator that computes constants. */
int sl_graph_fold(struct sl_graph *graph, struct sl_graph_memory *memory, struct sl_reason *reason);

#endif
