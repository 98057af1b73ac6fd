/* The check of a node before it is folded or planned: its operator, operands, attributes and
 * shapes. One thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_CHECK_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_CHECK_H

#include "programs/serve/engine/graph.h"

/* Of one row, as infer says. */
struct sl_graph_work {
    double flops;
    double operations; /* flops, or the elements of the output if they are more */
    uint64_t scratch_bytes;
};

/* Finds the operator of each node. Errors: UNSUPPORTED, with all operators and attributes that are
 * not supported, and the first node of each. */
int sl_graph_check_operators(struct sl_graph *graph, struct sl_reason *reason);

/* Checks a node with its operator, and infers its outputs; those before have been. Outputs that
 * nothing reads are removed from the node, beyond those that the operator computes. Errors, with
 * the node: UNSUPPORTED, INVALID, TOO_LARGE. */
int sl_graph_check_node(const struct sl_graph *graph, struct sl_graph_node *node, uint32_t rows_max,
                        struct sl_graph_work *out, struct sl_reason *reason);

#endif
