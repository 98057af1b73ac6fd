/* A graph is an ONNX model in memory: values, and nodes, each of which computes values with one
 * operator. The reader (onnx.h) fills it, the plan (graph_plan.h) checks it, infers shapes and
 * gives each computed value its place in the scratch; the operators (graph_ops.c) compute.
 *
 * The first dimension of inputs and outputs counts rows. If their number is free, a value with
 * has_rows has one block of memory per row, one after another; its shape is that of one row. The
 * dimension row_axis counts rows: usually the first one, with shape[0] = 1. A Transpose moves it,
 * but not the rows in memory. After a Reshape of [N, 7, 64] to [-1, 64] the value has shape [7,
 * 64], and the tensor's first dimension is rows * 7; of [7, N, 64] to [-1, 64] also, and row_outer
 * is 7: the dimension counts 7 times all rows. Weights, constants and what is computed of them
 * alone have no rows. If the number of rows is fixed, no value has rows: shapes are those of ONNX.
 *
 * Pure, without I/O. A graph has one owner; after the plan it does not change. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_GRAPH_H
#define SL_PROGRAMS_SERVE_ENGINE_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <starling_objects.h>

#include "core/reason.h"

#define SL_GRAPH_NODES_MAX    65536
#define SL_GRAPH_VALUES_MAX   262144
#define SL_GRAPH_OPERANDS_MAX 256 /* inputs or outputs of a node */
#define SL_GRAPH_ELEMENTS_MAX                                                                      \
    (1ULL << 31) /* of a value, or of its row: also each dimension, so the                         \
                    product of two cannot overflow */
#define SL_GRAPH_RANK_MAX     SL_OBJECTS_RANK_MAX
#define SL_GRAPH_PARAMS_BYTES 160

enum sl_graph_kind {
    SL_GRAPH_INPUT,    /* in the scratch, written by the caller */
    SL_GRAPH_COMPUTED, /* in the scratch */
    SL_GRAPH_WEIGHT,   /* in the view: its bytes are valid during `run`, not yet during `infer` */
    SL_GRAPH_CONSTANT  /* small, in the graph: valid during `infer` too. All of i64 are constants */
};

struct sl_graph_node;

struct sl_graph_value {
    const char *name;
    enum sl_graph_kind kind;
    uint32_t type; /* SL_OBJECT_F32, SL_OBJECT_I64 or SL_OBJECT_BOOL */
    uint32_t rank;
    uint64_t shape[SL_GRAPH_RANK_MAX]; /* of one row if has_rows */
    bool has_rows;
    uint32_t row_axis, row_outer; /* if has_rows: 0 to rank - 1; 1 or more */
    uint64_t bytes;               /* of one row if has_rows; set by the reader or the plan */
    const void *data;             /* of weights and constants */
    uint64_t image_end; /* of weights: where their bytes end in the images; 0: not known */
    struct sl_graph_node *producer; /* computes it; NULL: none. Valid until folding has ended */
    uint32_t uses;                  /* operands that are this value, and outputs of the model */
    bool is_output;                 /* of the model */
    /* Set by the plan, for inputs and computed values. */
    uint64_t scratch_offset;
    uint64_t scratch_bytes;       /* of all rows; 0: it has the place of another value */
    struct sl_graph_value *place; /* the value in whose place it lies: usually itself */
    uint32_t first, last;         /* nodes during which the bytes at its place are needed */
};

/* These are ONNX's numbers. */
enum sl_graph_attribute_type {
    SL_GRAPH_FLOAT = 1,
    SL_GRAPH_INT = 2,
    SL_GRAPH_STRING = 3,
    SL_GRAPH_TENSOR = 4, /* read for ConstantOfShape only */
    SL_GRAPH_INTS = 7
};

struct sl_graph_attribute {
    const char *name;
    enum sl_graph_attribute_type type;
    float f;
    int64_t i;
    const char *text;
    const int64_t *ints; /* [count] */
    uint32_t count;
    const struct sl_graph_value *tensor; /* stored; without name */
};

struct sl_graph_op;

struct sl_graph_node {
    const char *name; /* if the model gives none, that of its first output */
    const char *op_type;
    const struct sl_graph_op *op;              /* set by the plan */
    struct sl_graph_value **inputs, **outputs; /* NULL: an optional one that is absent */
    uint32_t input_count, output_count;
    const struct sl_graph_attribute *attributes;
    uint32_t attribute_count;
    void *source;   /* the message that it was read from, for sl_onnx_write */
    bool is_folded; /* into others: folding removes it */
    /* Set by the plan. */
    double flops; /* of one row */
    union {
        uint64_t words[SL_GRAPH_PARAMS_BYTES / 8]; /* zero before infer */
        uint8_t bytes[SL_GRAPH_PARAMS_BYTES];
    } params; /* a struct of the operator, which infer fills, so that run need not look at
                 attributes again */
};

struct sl_graph {
    uint32_t opset;      /* 7 to 25 */
    uint32_t fixed_rows; /* the only number of rows; 0: any */
    struct sl_graph_value *values;
    struct sl_graph_node *nodes; /* in topological order */
    uint32_t value_count, node_count;
    struct sl_graph_value **inputs, **outputs;
    uint32_t input_count, output_count;
    void *source; /* the message that it was read from, for sl_onnx_write */
};

/* What an operator gets to check a node. */
struct sl_graph_infer {
    const struct sl_graph *graph;
    struct sl_graph_node *node;                            /* infer sets its params */
    struct sl_graph_value *const *inputs, *const *outputs; /* the node's; inputs are checked: each
                                                              dimension is 1 or more, elements are
                                                              within the limit */
    uint32_t rows_max;                                     /* of a run */
    double flops;           /* set by infer: of one row, a multiplication and an addition are two */
    uint64_t scratch_bytes; /* set by infer if the node needs memory of its own for a run */
    struct sl_reason *reason;
};

/* What an operator gets to compute a node: addresses of the values, at multiples of 64 but for
 * constants; absent ones are NULL. */
struct sl_graph_run {
    const void *const *inputs;
    void *const *outputs;
    void *scratch; /* infer's scratch_bytes */
    uint32_t rows; /* 1 to rows_max */
    struct sl_reason *reason;
};

enum sl_graph_op_flags {
    SL_GRAPH_IN_PLACE = 1, /* output 0 may lie where input 0 lies if both have the same bytes:
                              element i depends on element i only */
    SL_GRAPH_ANY_TYPE = 2, /* else inputs are f32 */
    SL_GRAPH_COPIES = 4,   /* output 0 is input 0 if it has its type and shape */
    SL_GRAPH_OF_SHAPE = 8  /* run reads no input: the output depends on shapes alone */
};

struct sl_graph_op {
    const char *name;                /* op_type */
    uint32_t inputs_min, inputs_max; /* those up to inputs_min are never absent */
    uint32_t outputs_max; /* if it is 1, that one is never absent; else any may be unused */
    uint32_t flags;       /* enum sl_graph_op_flags */
    /* The attributes that are accepted, all optional, up to one without name. The plan refuses
     * others, and those of another type. */
    struct {
        const char *name;
        enum sl_graph_attribute_type type;
    } attributes[8];
    /* Checks attributes, and shapes of the inputs; sets type, rank, shape and has_rows of
     * each output (the plan checks its size), flops, scratch_bytes and params. Errors, by
     * sl_graph_fail: INVALID (not ONNX), UNSUPPORTED (not here). */
    int (*infer)(struct sl_graph_infer *infer);
    /* Errors: INVALID (a value of an input). */
    int (*run)(const struct sl_graph_node *node, const struct sl_graph_run *run);
};

/* NULL: there is none. Any thread. */
const struct sl_graph_op *sl_graph_op_find(const char *op_type);

/* The attribute, or `absent`. Any thread. */
int64_t sl_graph_attribute_int(const struct sl_graph_node *node, const char *name, int64_t absent);
float sl_graph_attribute_float(const struct sl_graph_node *node, const char *name, float absent);
/* NULL: absent. */
const struct sl_graph_attribute *sl_graph_attribute_find(const struct sl_graph_node *node,
                                                         const char *name);

/* A constant of i64 that stands for `times` times the rows of a run, if their number is free. Shape
 * makes it; operators that move elements keep it; Mul, Div and Equal compute with it as far as the
 * result is known; operators that read a shape take it; others fail. */
static inline int64_t sl_graph_rows(uint64_t times)
{
    return INT64_MIN / 2 + (int64_t)times;
}
/* 0: the number stands for itself. */
static inline uint64_t sl_graph_rows_times(int64_t number)
{
    const int64_t times = number < 0 ? number - INT64_MIN / 2 : 0;
    return times > 0 && times <= (int64_t)SL_GRAPH_ELEMENTS_MAX ? (uint64_t)times : 0;
}

/* Its bytes lie in the view or the graph, not in the scratch. */
static inline bool sl_graph_is_stored(const struct sl_graph_value *value)
{
    return value->kind == SL_GRAPH_WEIGHT || value->kind == SL_GRAPH_CONSTANT;
}

/* Of an element. */
static inline uint64_t sl_graph_item_bytes(const struct sl_graph_value *value)
{
    return value->type == SL_OBJECT_F32 ? 4 : value->type == SL_OBJECT_I64 ? 8 : 1;
}

/* Sets the bytes of a value by its type and shape. False: it has no element, or more than
 * SL_GRAPH_ELEMENTS_MAX. Any thread. */
bool sl_graph_measure(struct sl_graph_value *value);

/* The product of the dimensions from `begin` to before `end`: of a checked value within
 * SL_GRAPH_ELEMENTS_MAX. */
static inline uint64_t sl_graph_elements(const struct sl_graph_value *value, uint32_t begin,
                                         uint32_t end)
{
    uint64_t product = 1;
    for (uint32_t i = begin; i < end; i++) {
        product *= value->shape[i];
    }
    return product;
}

/* Writes the text, after the node's name and operator; its value is err. */
int sl_graph_fail(const struct sl_graph_infer *infer, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
