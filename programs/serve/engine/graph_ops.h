/* The operators of a graph: a table per file, each ended by an entry without name; and what their
 * checks have in common. A value with rows is one tensor in memory, whose first dimension is rows *
 * shape[0]. Pure; any thread. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_OPS_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_OPS_H

#include <string.h>

#include "core/assert.h"
#include "programs/serve/engine/graph.h"

extern const struct sl_graph_op sl_graph_ops_broadcast[];
extern const struct sl_graph_op sl_graph_ops_elementwise[];
extern const struct sl_graph_op sl_graph_ops_layout[];
extern const struct sl_graph_op sl_graph_ops_matrix[];
extern const struct sl_graph_op sl_graph_ops_move[];
extern const struct sl_graph_op sl_graph_ops_normalize[];
extern const struct sl_graph_op sl_graph_ops_recurrent[];
extern const struct sl_graph_op sl_graph_ops_reduce[];
extern const struct sl_graph_op sl_graph_ops_resize[];
extern const struct sl_graph_op sl_graph_ops_shape[];
extern const struct sl_graph_op sl_graph_ops_window[];

/* An entry of an operator with one output; the attributes that it accepts come last. */
#define SL_GRAPH_OPS_ENTRY(op_type, least, most, op_flags, check, compute, ...)                    \
    {                                                                                              \
        .name = (op_type), .inputs_min = (least), .inputs_max = (most), .outputs_max = 1,          \
        .flags = (op_flags), .attributes = {__VA_ARGS__}, .infer = (check), .run = (compute)       \
    }

/* Flags of an operator that copies its input, with another shape or type. */
#define SL_GRAPH_OPS_COPY (SL_GRAPH_IN_PLACE | SL_GRAPH_ANY_TYPE | SL_GRAPH_COPIES)

/* Keep a struct from infer to run. */
static inline void sl_graph_ops_save(struct sl_graph_node *node, const void *params, size_t bytes)
{
    sl_assert(bytes <= sizeof node->params);
    memcpy(node->params.bytes, params, bytes);
}
static inline const void *sl_graph_ops_params(const struct sl_graph_node *node)
{
    return node->params.bytes;
}

/* How often a run computes the block of an input: for each row, or once. */
static inline uint64_t sl_graph_ops_blocks(const struct sl_graph_node *node,
                                           const struct sl_graph_run *run, uint32_t input)
{
    return node->inputs[input]->has_rows ? run->rows : 1;
}

/* The bytes of an input in all rows. */
static inline uint64_t sl_graph_ops_bytes(const struct sl_graph_node *node,
                                          const struct sl_graph_run *run, uint32_t input)
{
    return node->inputs[input]->bytes * sl_graph_ops_blocks(node, run, input);
}

/* Whether the node has the optional input. */
static inline bool sl_graph_ops_has(const struct sl_graph_infer *infer, uint32_t input)
{
    return input < infer->node->input_count && infer->inputs[input] != NULL;
}

/* Type, shape and rows of output 0 are those of the value. */
void sl_graph_ops_set_output(const struct sl_graph_infer *infer,
                             const struct sl_graph_value *value);

/* Whether the axis counts rows. */
static inline bool sl_graph_ops_is_rows(const struct sl_graph_value *value, uint32_t axis)
{
    return value->has_rows && value->row_axis == axis;
}

/* Fails if another axis than the first one counts rows. */
int sl_graph_ops_check_rows_first(const struct sl_graph_infer *infer,
                                  const struct sl_graph_value *value);

struct sl_graph_list {
    const int64_t *numbers; /* [count] */
    uint32_t count;
};

/* A list of numbers: a constant input, or, as in older opsets, an attribute. Absent: none. */
int sl_graph_ops_read_list(const struct sl_graph_infer *infer, uint32_t input, const char *name,
                           struct sl_graph_list *out);

/* Makes a shape of the constant list that is an input: each number is a size, or stands for rows,
 * once. */
int sl_graph_ops_read_shape(const struct sl_graph_infer *infer, uint32_t input,
                            struct sl_graph_value *out);

/* An axis of -rank to limit, counted from the end if it is negative. */
int sl_graph_ops_resolve(const struct sl_graph_infer *infer, int64_t given, uint32_t rank,
                         uint32_t limit, uint32_t *axis);

/* The same of the attribute "axis". */
int sl_graph_ops_axis(const struct sl_graph_infer *infer, int64_t absent, uint32_t rank,
                      uint32_t limit, uint32_t *axis);

#endif
