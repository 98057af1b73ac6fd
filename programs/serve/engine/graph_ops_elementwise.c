/* Operators that compute element i of the output from element i of each input. `omp simd` says that
 * the iterations of a loop are independent, also if the output takes the place of input 0. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

/* out[i] = value, of the operands that it declares. */
#define LOOP(operands, value)                                                                      \
    _Pragma("omp simd") for (uint64_t i = 0; i < count; i++)                                       \
    {                                                                                              \
        operands;                                                                                  \
        out[i] = (value);                                                                          \
    }

/* One input */

static int infer_unary(struct sl_graph_infer *infer)
{
    sl_graph_ops_set_output(infer, infer->inputs[0]);
    infer->flops = (double)infer->inputs[0]->bytes / sizeof(float);
    return 0;
}

#define UNARY(name, value)                                                                         \
    static int name(const struct sl_graph_node *node, const struct sl_graph_run *run)              \
    {                                                                                              \
        const uint64_t count = sl_graph_ops_bytes(node, run, 0) / sizeof(float);                   \
        const float *in = run->inputs[0];                                                          \
        float *out = run->outputs[0];                                                              \
        LOOP(const float x = in[i], value)                                                         \
        return 0;                                                                                  \
    }

/* A comparison with NaN is false, so NaN stays. */
UNARY(run_relu, x < 0 ? 0 : x)
UNARY(run_sigmoid, 1 / (1 + expf(-x)))
UNARY(run_tanh, tanhf(x))
UNARY(run_sqrt, sqrtf(x))
UNARY(run_exp, expf(x))
UNARY(run_erf, erff(x))
UNARY(run_abs, fabsf(x))
UNARY(run_neg, -x)
UNARY(run_softplus, x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x)))
UNARY(run_hard_swish, x *(x<-3 ? 0 : x> 3 ? 6 : x + 3) / 6)

/* With the attributes alpha and beta. */
struct scaled {
    float alpha, beta;
};

static int infer_scaled(struct sl_graph_infer *infer)
{
    const float absent = infer->node->op_type[0] == 'L'   ? 0.01F
                         : infer->node->op_type[0] == 'E' ? 1
                                                          : 0.2F; /* LeakyRelu, Elu, HardSigmoid */
    const struct scaled p = {.alpha = sl_graph_attribute_float(infer->node, "alpha", absent),
                             .beta = sl_graph_attribute_float(infer->node, "beta", 0.5F)};
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return infer_unary(infer);
}

#define SCALED(name, value)                                                                        \
    static int name(const struct sl_graph_node *node, const struct sl_graph_run *run)              \
    {                                                                                              \
        const uint64_t count = sl_graph_ops_bytes(node, run, 0) / sizeof(float);                   \
        const struct scaled p = *(const struct scaled *)sl_graph_ops_params(node);                 \
        const float *in = run->inputs[0];                                                          \
        float *out = run->outputs[0];                                                              \
        LOOP(const float x = in[i], value)                                                         \
        return 0;                                                                                  \
    }

SCALED(run_leaky_relu, x < 0 ? p.alpha * x : x)
SCALED(run_elu, x < 0 ? p.alpha * expm1f(x) : x)
SCALED(run_hard_sigmoid, fminf(1, fmaxf(0, p.alpha *x + p.beta)))

/* Bounds are inputs, or attributes before opset 11. */
struct clip {
    float least, most;
};

static int infer_clip(struct sl_graph_infer *infer)
{
    const struct clip p = {.least = sl_graph_attribute_float(infer->node, "min", -INFINITY),
                           .most = sl_graph_attribute_float(infer->node, "max", INFINITY)};
    if (infer->node->attribute_count > 0 && infer->node->input_count > 1) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "bounds are inputs or attributes, not both");
    }
    sl_graph_ops_save(infer->node, &p, sizeof p);
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct sl_graph_value *bound = infer->inputs[i];
        if (bound != NULL && (bound->has_rows || sl_graph_elements(bound, 0, bound->rank) != 1)) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "%s, a bound, must be a scalar",
                                 bound->name);
        }
    }
    return infer_unary(infer);
}

static int run_clip(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const uint64_t count = sl_graph_ops_bytes(node, run, 0) / sizeof(float);
    const struct clip *p = sl_graph_ops_params(node);
    const float *in = run->inputs[0];
    const float *low = node->input_count > 1 ? run->inputs[1] : NULL;
    const float *high = node->input_count > 2 ? run->inputs[2] : NULL;
    const float least = low != NULL ? *low : p->least, most = high != NULL ? *high : p->most;
    float *out = run->outputs[0];
    LOOP(const float x = in[i] < least ? least : in[i], x > most ? most : x)
    return 0;
}

/* Two inputs, which are broadcast to the shape of the output as in NumPy: shapes are compared from
 * their last dimensions, and a dimension of 1 is repeated. Rows are the first dimension of the
 * output: an input with rows has as many dimensions. */

/* Steps are in elements, 0 where the input is repeated. Neighbours that step alike are one axis. */
struct broadcast {
    uint32_t rank;        /* at least 1 */
    uint32_t out_row;     /* elements of a row, or of all if there are no rows */
    uint32_t row_step[2]; /* of each input */
    struct {
        uint32_t size, step[2]; /* the step of axis 0 is 0 or 1 */
    } axes[SL_GRAPH_RANK_MAX];  /* from the last dimension */
};

/* Dimension `axis`, from the last; 1 in front of the first. */
static uint64_t dimension(const struct sl_graph_value *value, uint32_t axis)
{
    return axis < value->rank ? value->shape[value->rank - axis - 1] : 1;
}

/* The first dimension of the output counts rows: so does that of an input, or it is repeated. */
static int check_rows(const struct sl_graph_infer *infer)
{
    const struct sl_graph_value *output = infer->outputs[0];
    for (uint32_t i = 0; output->has_rows && i < 2; i++) {
        const struct sl_graph_value *x = infer->inputs[i];
        const uint64_t first = dimension(x, output->rank - 1);
        if (x->has_rows ? x->rank != output->rank || first != output->shape[0] : first != 1) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "the first dimension of the output counts rows, but that of %s "
                                 "neither counts as many nor is 1",
                                 x->name);
        }
    }
    return 0;
}

/* Appends an axis, or makes the last one longer. */
static void add_axis(struct broadcast *to, uint64_t size, const uint64_t step[2])
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

static int infer_binary(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    struct sl_graph_value *output = infer->outputs[0];
    const uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    uint64_t elements[3] = {1, 1, 1}; /* of a, b and the output */
    struct broadcast p = {0};
    if (a->type != b->type || (a->type != SL_OBJECT_F32 && a->type != SL_OBJECT_I64)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s and %s must both be of float32, or of int64", a->name, b->name);
    }
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
            &p, size,
            (const uint64_t[2]){sizes[0] == 1 ? 0 : elements[0], sizes[1] == 1 ? 0 : elements[1]});
        elements[0] *= sizes[0];
        elements[1] *= sizes[1];
        output->shape[rank - axis - 1] = size;
    }
    if (p.rank == 0) {
        p.axes[p.rank++].size = 1;
    }
    p.out_row = (uint32_t)elements[2];
    p.row_step[0] = a->has_rows ? (uint32_t)elements[0] : 0;
    p.row_step[1] = b->has_rows ? (uint32_t)elements[1] : 0;
    output->type = a->type;
    output->rank = rank;
    output->has_rows = a->has_rows || b->has_rows;
    infer->flops = (double)p.out_row;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return check_rows(infer);
}

/* steps: 0 for an operand that is one element for the whole loop. */
typedef void loop_fn(float *out, const float *a, const float *b, const uint32_t steps[2],
                     uint64_t count);

/* Arithmetic of i64: keys, and the sizes of shapes, which exporters compute with it. */
static int run_whole(const struct sl_graph_node *node, const struct sl_graph_run *run, char sign)
{
    const struct broadcast *p = sl_graph_ops_params(node);
    const uint64_t rows = node->outputs[0]->has_rows ? run->rows : 1;
    int64_t *out = run->outputs[0];
    for (uint64_t i = 0; i < rows * p->out_row; i++) {
        const uint64_t row = i / p->out_row;
        uint64_t at[2] = {row * p->row_step[0], row * p->row_step[1]}, left = i % p->out_row;
        for (uint32_t axis = 0; axis < p->rank; left /= p->axes[axis++].size) {
            at[0] += left % p->axes[axis].size * p->axes[axis].step[0];
            at[1] += left % p->axes[axis].size * p->axes[axis].step[1];
        }
        const int64_t x = ((const int64_t *)run->inputs[0])[at[0]];
        const int64_t y = ((const int64_t *)run->inputs[1])[at[1]];
        const bool fails = sign == '+'   ? __builtin_add_overflow(x, y, &out[i])
                           : sign == '-' ? __builtin_sub_overflow(x, y, &out[i])
                           : sign == '*' ? __builtin_mul_overflow(x, y, &out[i])
                                         : y == 0 || y == -1;
        if (fails || sl_graph_rows_times(x) > 0 || sl_graph_rows_times(y) > 0) {
            return sl_reason_fail(run->reason, SL_ERR_INVALID,
                                  "node \"%s\" (%s): the result is no int64, or an operand is the "
                                  "number of rows",
                                  node->name, node->op_type);
        }
        out[i] = sign == '/' ? x / y : out[i];
    }
    return 0;
}

static int run_binary(const struct sl_graph_node *node, const struct sl_graph_run *run,
                      loop_fn *loop, char sign)
{
    if (node->outputs[0]->type == SL_OBJECT_I64) {
        return run_whole(node, run, sign);
    }
    const struct broadcast *p = sl_graph_ops_params(node);
    const uint64_t rows = p->row_step[0] + p->row_step[1] > 0 ? run->rows : 1;
    const uint64_t size = p->axes[0].size, lines = p->out_row / size;
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < rows * lines; i++) {
        const float *a = (const float *)run->inputs[0] + i / lines * p->row_step[0];
        const float *b = (const float *)run->inputs[1] + i / lines * p->row_step[1];
        for (uint64_t axis = 1, left = i % lines; axis < p->rank; axis++) {
            a += left % p->axes[axis].size * p->axes[axis].step[0];
            b += left % p->axes[axis].size * p->axes[axis].step[1];
            left /= p->axes[axis].size;
        }
        loop(out, a, b, p->axes[0].step, size);
        out += size;
    }
    return 0;
}

#define BINARY(name, sign, value)                                                                  \
    static void name##_loop(float *out, const float *a, const float *b, const uint32_t steps[2],   \
                            uint64_t count)                                                        \
    {                                                                                              \
        if (steps[0] == 0) {                                                                       \
            const float x = *a;                                                                    \
            LOOP(const float y = b[i], value)                                                      \
        } else if (steps[1] == 0) {                                                                \
            const float y = *b;                                                                    \
            LOOP(const float x = a[i], value)                                                      \
        } else {                                                                                   \
            LOOP(const float x = a[i]; const float y = b[i], value)                                \
        }                                                                                          \
    }                                                                                              \
    static int name(const struct sl_graph_node *node, const struct sl_graph_run *run)              \
    {                                                                                              \
        return run_binary(node, run, name##_loop, sign);                                           \
    }

BINARY(run_add, '+', x + y)
BINARY(run_sub, '-', x - y)
BINARY(run_mul, '*', x *y)
BINARY(run_div, '/', x / y)
BINARY(run_pow, '^', powf(x, y))

/* Expand: broadcasting to a shape, as if a tensor of this shape was the second input. */

static int infer_expand(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    struct sl_graph_value shape = {.name = infer->inputs[1]->name, .type = SL_OBJECT_F32};
    struct sl_graph_list list;
    int err = sl_graph_ops_read_list(infer, 1, "shape", &list);
    if (err == 0 && (x->type != SL_OBJECT_F32 || list.count > SL_GRAPH_RANK_MAX)) {
        err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                            "%s must be of float32, with at most %d "
                            "dimensions",
                            x->name, SL_GRAPH_RANK_MAX);
    }
    for (uint32_t i = 0; err == 0 && i < list.count; i++) {
        const bool is_rows = i == 0 && x->has_rows && list.count >= x->rank;
        const int64_t given = list.numbers[i], rows = infer->graph->fixed_rows;
        const uint64_t times = sl_graph_rows_times(given);
        const bool is_same =
            times > 0 ? times == x->shape[0] : rows > 0 && given == (int64_t)x->shape[0] * rows;
        const bool is_size = given >= 1 && given <= (int64_t)SL_GRAPH_ELEMENTS_MAX;
        if (is_rows ? !is_same && given != 1 : !is_size) {
            err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                "dimension %u of the shape is %" PRId64
                                ", but must be a size, or, if it counts rows, their number or 1",
                                i, given);
        }
        shape.shape[i] = is_rows ? 1 : (uint64_t)given;
    }
    if (err != 0) {
        return err;
    }
    shape.rank = list.count;
    struct sl_graph_value *const inputs[] = {infer->inputs[0], &shape};
    struct sl_graph_infer both = *infer;
    both.inputs = inputs;
    err = infer_binary(&both);
    infer->flops = both.flops;
    return err;
}

/* Reads no second operand: its shape alone counts. */
static void expand_loop(float *out, const float *a, const float *b, const uint32_t steps[2],
                        uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        out[i] = a[i * steps[0]];
    }
}

static int run_expand(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_binary(node, run, expand_loop, ' ');
}

#define BINARY_FLAGS (SL_GRAPH_IN_PLACE | SL_GRAPH_ANY_TYPE)

const struct sl_graph_op sl_graph_ops_elementwise[] = {
    SL_GRAPH_OPS_ENTRY("Relu", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_relu),
    SL_GRAPH_OPS_ENTRY("Sigmoid", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_sigmoid),
    SL_GRAPH_OPS_ENTRY("Tanh", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_tanh),
    SL_GRAPH_OPS_ENTRY("Clip", 1, 3, SL_GRAPH_IN_PLACE, infer_clip, run_clip,
                       {"min", SL_GRAPH_FLOAT}, {"max", SL_GRAPH_FLOAT}),
    SL_GRAPH_OPS_ENTRY("Add", 2, 2, BINARY_FLAGS, infer_binary, run_add),
    SL_GRAPH_OPS_ENTRY("Sub", 2, 2, BINARY_FLAGS, infer_binary, run_sub),
    SL_GRAPH_OPS_ENTRY("Mul", 2, 2, BINARY_FLAGS, infer_binary, run_mul),
    SL_GRAPH_OPS_ENTRY("Div", 2, 2, BINARY_FLAGS, infer_binary, run_div),
    SL_GRAPH_OPS_ENTRY("Pow", 2, 2, SL_GRAPH_IN_PLACE, infer_binary, run_pow),
    SL_GRAPH_OPS_ENTRY("Expand", 2, 2, SL_GRAPH_ANY_TYPE, infer_expand, run_expand),
    SL_GRAPH_OPS_ENTRY("Sqrt", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_sqrt),
    SL_GRAPH_OPS_ENTRY("Exp", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_exp),
    SL_GRAPH_OPS_ENTRY("Erf", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_erf),
    SL_GRAPH_OPS_ENTRY("Abs", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_abs),
    SL_GRAPH_OPS_ENTRY("Neg", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_neg),
    SL_GRAPH_OPS_ENTRY("Softplus", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_softplus),
    SL_GRAPH_OPS_ENTRY("HardSwish", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_hard_swish),
    SL_GRAPH_OPS_ENTRY("LeakyRelu", 1, 1, SL_GRAPH_IN_PLACE, infer_scaled, run_leaky_relu,
                       {"alpha", SL_GRAPH_FLOAT}),
    SL_GRAPH_OPS_ENTRY("Elu", 1, 1, SL_GRAPH_IN_PLACE, infer_scaled, run_elu,
                       {"alpha", SL_GRAPH_FLOAT}),
    SL_GRAPH_OPS_ENTRY("HardSigmoid", 1, 1, SL_GRAPH_IN_PLACE, infer_scaled, run_hard_sigmoid,
                       {"alpha", SL_GRAPH_FLOAT}, {"beta", SL_GRAPH_FLOAT}),
    {.name = NULL},
};
