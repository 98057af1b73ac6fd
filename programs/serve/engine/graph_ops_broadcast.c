/* Operators of two or three inputs, which are broadcast to the shape of the output as in NumPy:
 * shapes are compared from their last dimensions, and a dimension of 1 is repeated. Inputs with
 * rows count them in the same dimension, from the last one, and those without have 1 there. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

#define INPUTS_MAX 3

/* Steps are in elements, 0 where the input is repeated. Neighbours that step alike are one axis. */
struct broadcast {
    uint32_t rank;                 /* at least 1 */
    uint32_t out_row;              /* elements of a row, or of all if there are no rows */
    uint32_t row_step[INPUTS_MAX]; /* of each input */
    struct {
        uint32_t size, step[INPUTS_MAX]; /* the step of axis 0 is 0 or 1 */
    } axes[SL_GRAPH_RANK_MAX];           /* from the last dimension */
};

/* Dimension `axis`, from the last; 1 in front of the first. */
static uint64_t dimension(const struct sl_graph_value *value, uint32_t axis)
{
    return axis < value->rank ? value->shape[value->rank - axis - 1] : 1;
}

/* Sets the rows of the output, whose shape is known. */
static int infer_rows(const struct sl_graph_infer *infer, uint32_t count)
{
    struct sl_graph_value *output = infer->outputs[0];
    const struct sl_graph_value *first = NULL; /* that has rows */
    for (uint32_t i = 0; i < count; i++) {
        first = first == NULL && infer->inputs[i]->has_rows ? infer->inputs[i] : first;
    }
    output->has_rows = first != NULL;
    output->row_axis = first != NULL ? output->rank - first->rank + first->row_axis : 0;
    output->row_outer = first != NULL ? first->row_outer : 0;
    for (uint32_t i = 0; output->has_rows && i < count; i++) {
        const struct sl_graph_value *x = infer->inputs[i];
        const uint32_t axis = output->rank - 1 - output->row_axis; /* from the last */
        const bool is_alike = x->has_rows && x->rank - 1 - x->row_axis == axis &&
                              dimension(x, axis) == output->shape[output->row_axis] &&
                              x->row_outer == output->row_outer;
        if (x->has_rows ? !is_alike : dimension(x, axis) != 1) {
            return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                 "dimension %u of the output counts rows, but that of %s neither "
                                 "counts as many rows nor is 1",
                                 output->row_axis, x->name);
        }
    }
    return 0;
}

/* Appends an axis, or makes the last one longer. */
static void add_axis(struct broadcast *to, uint64_t size, const uint64_t step[INPUTS_MAX])
{
    const uint32_t last = to->rank - 1;
    bool is_alike = to->rank > 0;
    for (uint32_t i = 0; is_alike && i < INPUTS_MAX; i++) {
        is_alike = step[i] == (uint64_t)to->axes[last].step[i] * to->axes[last].size;
    }
    if (is_alike) {
        to->axes[last].size *= (uint32_t)size;
    } else if (size > 1) {
        to->axes[to->rank].size = (uint32_t)size;
        for (uint32_t i = 0; i < INPUTS_MAX; i++) {
            to->axes[to->rank].step[i] = (uint32_t)step[i];
        }
        to->rank++;
    }
}

/* Sets shape and rows of the output, and the params. */
static int infer_broadcast(struct sl_graph_infer *infer, uint32_t count)
{
    struct sl_graph_value *output = infer->outputs[0];
    uint64_t elements[INPUTS_MAX] = {1, 1, 1}, out_elements = 1;
    struct broadcast p = {0};
    output->rank = 0;
    for (uint32_t i = 0; i < count; i++) {
        output->rank =
            infer->inputs[i]->rank > output->rank ? infer->inputs[i]->rank : output->rank;
    }
    for (uint32_t axis = 0; axis < output->rank; axis++) {
        uint64_t size = 1, step[INPUTS_MAX] = {0};
        for (uint32_t i = 0; i < count; i++) {
            const uint64_t its = dimension(infer->inputs[i], axis);
            if (size != 1 && its != 1 && its != size) {
                return sl_graph_fail(infer, SL_ERR_INVALID,
                                     "%s has %" PRIu64 " elements where another input has %" PRIu64
                                     ": they must be equal, or one of them 1",
                                     infer->inputs[i]->name, its, size);
            }
            size = its != 1 ? its : size;
            step[i] = its != 1 ? elements[i] : 0;
            elements[i] *= its;
        }
        out_elements *= size;
        if (out_elements > SL_GRAPH_ELEMENTS_MAX) {
            return sl_graph_fail(infer, SL_ERR_TOO_LARGE, "the output has more than %llu elements",
                                 SL_GRAPH_ELEMENTS_MAX);
        }
        add_axis(&p, size, step);
        output->shape[output->rank - axis - 1] = size;
    }
    if (p.rank == 0) {
        p.axes[p.rank++].size = 1;
    }
    p.out_row = (uint32_t)out_elements;
    for (uint32_t i = 0; i < count; i++) {
        p.row_step[i] = infer->inputs[i]->has_rows ? (uint32_t)elements[i] : 0;
    }
    infer->flops = (double)p.out_row;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return infer_rows(infer, count);
}

/* A line of the output: its last axis. */
struct line {
    void *out;
    const void *in[INPUTS_MAX]; /* the elements for the first one of the output */
    const uint32_t *step;       /* [INPUTS_MAX]: 0 for an operand that is one element for all */
    uint64_t count;
    uint64_t item_bytes; /* of the output */
};

/* Errors: INVALID; without a reason. */
typedef int line_fn(const struct line *line);

static int run_lines(const struct sl_graph_node *node, const struct sl_graph_run *run,
                     uint32_t count, line_fn *compute)
{
    const struct broadcast *p = sl_graph_ops_params(node);
    const uint64_t rows = node->outputs[0]->has_rows ? run->rows : 1;
    const uint64_t size = p->axes[0].size, lines = p->out_row / size;
    struct line line = {.out = run->outputs[0],
                        .step = p->axes[0].step,
                        .count = size,
                        .item_bytes = sl_graph_item_bytes(node->outputs[0])};
    for (uint64_t i = 0; i < rows * lines; i++) {
        for (uint32_t k = 0; k < count; k++) {
            uint64_t at = i / lines * p->row_step[k];
            for (uint64_t axis = 1, left = i % lines; axis < p->rank; axis++) {
                at += left % p->axes[axis].size * p->axes[axis].step[k];
                left /= p->axes[axis].size;
            }
            line.in[k] =
                (const uint8_t *)run->inputs[k] + at * sl_graph_item_bytes(node->inputs[k]);
        }
        if (compute(&line) != 0) {
            return sl_reason_fail(
                run->reason, SL_ERR_INVALID,
                "node \"%s\" (%s): the result is no int64, or is not known, since "
                "an operand is the number of rows",
                node->name, node->op_type);
        }
        line.out = (uint8_t *)line.out + size * line.item_bytes;
    }
    return 0;
}

/* ---- Arithmetic ------------------------------------------------------------------------------ */

/* Both inputs are of one type. */
static int infer_pair(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    if (a->type != b->type) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "%s and %s must be of one type", a->name,
                             b->name);
    }
    infer->outputs[0]->type = a->type;
    return infer_broadcast(infer, 2);
}

static int infer_arithmetic(struct sl_graph_infer *infer)
{
    if (infer->inputs[0]->type == SL_OBJECT_BOOL) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "%s must be of float32 or int64",
                             infer->inputs[0]->name);
    }
    return infer_pair(infer);
}

/* Numbers of rows multiply and divide by numbers. False: the result is not known. */
static bool compute_rows(char sign, int64_t x, int64_t y, int64_t *out)
{
    const uint64_t a = sl_graph_rows_times(x), b = sl_graph_rows_times(y);
    const uint64_t times = a > 0 ? a : b;
    const int64_t other = a > 0 ? y : x;
    if ((a > 0 && b > 0) || other < 1) {
        return false;
    }
    if (sign == '*' && (uint64_t)other <= SL_GRAPH_ELEMENTS_MAX / times) {
        *out = sl_graph_rows(times * (uint64_t)other);
        return true;
    }
    if (sign == '/' && a > 0 && a % (uint64_t)other == 0) {
        *out = sl_graph_rows(a / (uint64_t)other);
        return true;
    }
    return false;
}

/* Arithmetic of i64: keys, and the sizes of shapes, which exporters compute with it. */
static int compute_whole(const struct line *line, char sign)
{
    int64_t *out = line->out;
    for (uint64_t i = 0; i < line->count; i++) {
        const int64_t x = ((const int64_t *)line->in[0])[i * line->step[0]];
        const int64_t y = ((const int64_t *)line->in[1])[i * line->step[1]];
        bool fails;
        if (sl_graph_rows_times(x) > 0 || sl_graph_rows_times(y) > 0) {
            fails = !compute_rows(sign, x, y, &out[i]);
        } else if (sign == '/') {
            fails = y == 0 || (y == -1 && x == INT64_MIN);
            out[i] = fails ? 0 : x / y;
        } else {
            fails = sign == '+'   ? __builtin_add_overflow(x, y, &out[i])
                    : sign == '-' ? __builtin_sub_overflow(x, y, &out[i])
                                  : __builtin_mul_overflow(x, y, &out[i]);
        }
        if (fails) {
            return SL_ERR_INVALID;
        }
    }
    return 0;
}

/* The iterations are independent, also if the output takes the place of input 0. */
#define LOOP(operands, value)                                                                      \
    _Pragma("omp simd") for (uint64_t i = 0; i < line->count; i++)                                 \
    {                                                                                              \
        operands;                                                                                  \
        out[i] = (value);                                                                          \
    }

#define ARITHMETIC(name, sign, value)                                                              \
    static int name##_line(const struct line *line)                                                \
    {                                                                                              \
        const float *a = line->in[0], *b = line->in[1];                                            \
        float *out = line->out;                                                                    \
        if (line->step[0] == 0) {                                                                  \
            const float x = *a;                                                                    \
            LOOP(const float y = b[i], value)                                                      \
        } else if (line->step[1] == 0) {                                                           \
            const float y = *b;                                                                    \
            LOOP(const float x = a[i], value)                                                      \
        } else {                                                                                   \
            LOOP(const float x = a[i]; const float y = b[i], value)                                \
        }                                                                                          \
        return 0;                                                                                  \
    }                                                                                              \
    static int name##_whole_line(const struct line *line)                                          \
    {                                                                                              \
        return compute_whole(line, sign);                                                          \
    }                                                                                              \
    static int name(const struct sl_graph_node *node, const struct sl_graph_run *run)              \
    {                                                                                              \
        const bool is_whole = node->inputs[0]->type == SL_OBJECT_I64;                              \
        return run_lines(node, run, 2, is_whole ? name##_whole_line : name##_line);                \
    }

ARITHMETIC(run_add, '+', x + y)
ARITHMETIC(run_sub, '-', x - y)
ARITHMETIC(run_mul, '*', x *y)
ARITHMETIC(run_div, '/', x / y)

static int run_pow_line(const struct line *line)
{
    const float *a = line->in[0], *b = line->in[1];
    float *out = line->out;
    if (line->step[1] == 0 && *b == 2) { /* LayerNorm's squares */
        LOOP(const float x = a[i * line->step[0]], x * x)
        return 0;
    }
    for (uint64_t i = 0; i < line->count; i++) {
        out[i] = powf(a[i * line->step[0]], b[i * line->step[1]]);
    }
    return 0;
}

static int run_pow(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 2, run_pow_line);
}

/* ---- Comparisons, logic, choice -------------------------------------------------------------- */

static int infer_compare(struct sl_graph_infer *infer)
{
    const int err = infer_pair(infer);
    infer->outputs[0]->type = SL_OBJECT_BOOL;
    return err;
}

static int infer_order(struct sl_graph_infer *infer)
{
    const int err = infer_arithmetic(infer);
    infer->outputs[0]->type = SL_OBJECT_BOOL;
    return err;
}

static int infer_logic(struct sl_graph_infer *infer)
{
    for (uint32_t i = 0; i < infer->node->input_count; i++) {
        if (infer->inputs[i]->type != SL_OBJECT_BOOL) {
            return sl_graph_fail(infer, SL_ERR_INVALID, "%s must be of bool",
                                 infer->inputs[i]->name);
        }
    }
    infer->outputs[0]->type = SL_OBJECT_BOOL;
    return infer_broadcast(infer, infer->node->input_count);
}

/* The number of rows, which is 1 or more, differs from numbers below. */
static int compute_equal(int64_t x, int64_t y, uint8_t *out)
{
    const uint64_t a = sl_graph_rows_times(x), b = sl_graph_rows_times(y);
    const bool is_known = (a > 0) == (b > 0) || (a > 0 ? y : x) < 1;
    *out = x == y;
    return is_known ? 0 : SL_ERR_INVALID;
}

#define LOGIC(name, of, value)                                                                     \
    static int name(const struct line *line)                                                       \
    {                                                                                              \
        const of *a = line->in[0], *b = line->in[1];                                               \
        uint8_t *out = line->out;                                                                  \
        for (uint64_t i = 0; i < line->count; i++) {                                               \
            const of x = a[i * line->step[0]], y = b[i * line->step[1]];                           \
            out[i] = (value);                                                                      \
        }                                                                                          \
        return 0;                                                                                  \
    }

LOGIC(equal_f32_line, float, x == y)
LOGIC(equal_bool_line, uint8_t, (x != 0) == (y != 0))
LOGIC(greater_f32_line, float, x > y)
LOGIC(greater_i64_line, int64_t, x > y)
LOGIC(less_f32_line, float, x < y)
LOGIC(less_i64_line, int64_t, x < y)
LOGIC(and_line, uint8_t, x != 0 && y != 0)
LOGIC(or_line, uint8_t, x != 0 || y != 0)

static int equal_i64_line(const struct line *line)
{
    int err = 0;
    for (uint64_t i = 0; err == 0 && i < line->count; i++) {
        err = compute_equal(((const int64_t *)line->in[0])[i * line->step[0]],
                            ((const int64_t *)line->in[1])[i * line->step[1]],
                            (uint8_t *)line->out + i);
    }
    return err;
}

static int run_equal(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const uint32_t type = node->inputs[0]->type;
    return run_lines(node, run, 2,
                     type == SL_OBJECT_F32   ? equal_f32_line
                     : type == SL_OBJECT_I64 ? equal_i64_line
                                             : equal_bool_line);
}

static int run_greater(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 2,
                     node->inputs[0]->type == SL_OBJECT_F32 ? greater_f32_line : greater_i64_line);
}

static int run_less(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 2,
                     node->inputs[0]->type == SL_OBJECT_F32 ? less_f32_line : less_i64_line);
}

static int run_and(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 2, and_line);
}

static int run_or(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 2, or_line);
}

static int not_line(const struct line *line)
{
    for (uint64_t i = 0; i < line->count; i++) {
        ((uint8_t *)line->out)[i] = ((const uint8_t *)line->in[0])[i * line->step[0]] == 0;
    }
    return 0;
}

static int run_not(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 1, not_line);
}

static int infer_where(struct sl_graph_infer *infer)
{
    if (infer->inputs[0]->type != SL_OBJECT_BOOL ||
        infer->inputs[1]->type != infer->inputs[2]->type) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "%s must be of bool, %s and %s of one type",
                             infer->inputs[0]->name, infer->inputs[1]->name,
                             infer->inputs[2]->name);
    }
    infer->outputs[0]->type = infer->inputs[1]->type;
    return infer_broadcast(infer, 3);
}

static int where_line(const struct line *line)
{
    const uint8_t *condition = line->in[0], *x = line->in[1], *y = line->in[2];
    const uint64_t bytes = line->item_bytes;
    const uint32_t *step = line->step;
    for (uint64_t i = 0; bytes == sizeof(float) && i < line->count; i++) {
        const float a = ((const float *)line->in[1])[i * step[1]];
        const float b = ((const float *)line->in[2])[i * step[2]];
        ((float *)line->out)[i] = condition[i * step[0]] != 0 ? a : b;
    }
    for (uint64_t i = 0; bytes != sizeof(float) && i < line->count; i++) {
        memcpy((uint8_t *)line->out + i * bytes,
               condition[i * step[0]] != 0 ? x + i * step[1] * bytes : y + i * step[2] * bytes,
               bytes);
    }
    return 0;
}

static int run_where(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 3, where_line);
}

/* ---- Expand: broadcasting to a shape, as if a tensor of this shape was the second input ------ */

static int infer_expand(struct sl_graph_infer *infer)
{
    struct sl_graph_value shape;
    const int err = sl_graph_ops_read_shape(infer, 1, &shape);
    if (err != 0) {
        return err;
    }
    struct sl_graph_value *const inputs[] = {infer->inputs[0], &shape};
    struct sl_graph_infer both = *infer;
    both.inputs = inputs;
    infer->outputs[0]->type = infer->inputs[0]->type;
    infer->flops = 0;
    return infer_broadcast(&both, 2);
}

/* Reads no second operand: its shape alone counts. */
static int expand_line(const struct line *line)
{
    const uint8_t *in = line->in[0];
    const uint64_t bytes = line->item_bytes;
    if (line->step[0] == 1) {
        memcpy(line->out, in, line->count * bytes);
        return 0;
    }
    for (uint64_t i = 0; i < line->count; i++) {
        memcpy((uint8_t *)line->out + i * bytes, in, bytes);
    }
    return 0;
}

static int run_expand(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    return run_lines(node, run, 1, expand_line);
}

#define FLAGS (SL_GRAPH_IN_PLACE | SL_GRAPH_ANY_TYPE)

const struct sl_graph_op sl_graph_ops_broadcast[] = {
    SL_GRAPH_OPS_ENTRY("Add", 2, 2, FLAGS, infer_arithmetic, run_add),
    SL_GRAPH_OPS_ENTRY("Sub", 2, 2, FLAGS, infer_arithmetic, run_sub),
    SL_GRAPH_OPS_ENTRY("Mul", 2, 2, FLAGS, infer_arithmetic, run_mul),
    SL_GRAPH_OPS_ENTRY("Div", 2, 2, FLAGS, infer_arithmetic, run_div),
    SL_GRAPH_OPS_ENTRY("Pow", 2, 2, SL_GRAPH_IN_PLACE, infer_pair, run_pow),
    SL_GRAPH_OPS_ENTRY("Equal", 2, 2, SL_GRAPH_ANY_TYPE, infer_compare, run_equal),
    SL_GRAPH_OPS_ENTRY("Greater", 2, 2, SL_GRAPH_ANY_TYPE, infer_order, run_greater),
    SL_GRAPH_OPS_ENTRY("Less", 2, 2, SL_GRAPH_ANY_TYPE, infer_order, run_less),
    SL_GRAPH_OPS_ENTRY("And", 2, 2, SL_GRAPH_ANY_TYPE, infer_logic, run_and),
    SL_GRAPH_OPS_ENTRY("Or", 2, 2, SL_GRAPH_ANY_TYPE, infer_logic, run_or),
    SL_GRAPH_OPS_ENTRY("Not", 1, 1, SL_GRAPH_ANY_TYPE, infer_logic, run_not),
    SL_GRAPH_OPS_ENTRY("Where", 3, 3, SL_GRAPH_ANY_TYPE, infer_where, run_where),
    SL_GRAPH_OPS_ENTRY("Expand", 2, 2, SL_GRAPH_ANY_TYPE | SL_GRAPH_COPIES, infer_expand,
                       run_expand),
    {.name = NULL},
};
