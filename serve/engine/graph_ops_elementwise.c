/* Operators that compute element i of the output from element i of each input. `omp simd` says that
 * the iterations of a loop are independent, also if the output takes the place of input 0. */
#include <inttypes.h>
#include <math.h>

#include "serve/engine/graph_ops.h"
#include "serve/engine/graph_ops_broadcast.h"

/* out[i] = value, of the operands that it declares. */
#define LOOP(operands, value)                                                                      \
    _Pragma("omp simd") for (uint64_t i = 0; i < count; i++)                                       \
    {                                                                                              \
        operands;                                                                                  \
        out[i] = (value);                                                                          \
    }

/* One input */

struct unary {
    uint64_t elements; /* of a row if there are rows */
    bool has_rows;
};

static int infer_unary(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct unary p = {sl_graph_elements(x, 0, x->rank), x->has_rows};
    sl_graph_ops_save(infer->node, &p, sizeof p);
    sl_graph_ops_set_output(infer, x);
    infer->flops = (double)p.elements;
    return sl_graph_ops_check_f32(infer);
}

static uint64_t unary_count(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct unary p;
    sl_graph_ops_load(node, &p, sizeof p);
    return p.elements * sl_graph_ops_blocks(run, p.has_rows);
}

#define UNARY(name, value)                                                                         \
    static int name(const struct sl_graph_node *node, const struct sl_graph_run *run)              \
    {                                                                                              \
        const uint64_t count = unary_count(node, run);                                             \
        const float *in = run->inputs[0];                                                          \
        float *out = run->outputs[0];                                                              \
        LOOP(const float x = in[i], value)                                                         \
        return 0;                                                                                  \
    }

/* A comparison with NaN is false, so NaN stays. */
UNARY(run_relu, x < 0 ? 0 : x)
UNARY(run_sigmoid, 1 / (1 + expf(-x)))
UNARY(run_tanh, tanhf(x))

static int infer_clip(struct sl_graph_infer *infer)
{
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
    const uint64_t count = unary_count(node, run);
    const float *in = run->inputs[0];
    const float *low = node->input_count > 1 ? run->inputs[1] : NULL;
    const float *high = node->input_count > 2 ? run->inputs[2] : NULL;
    const float least = low != NULL ? *low : -INFINITY, most = high != NULL ? *high : INFINITY;
    float *out = run->outputs[0];
    LOOP(const float x = in[i] < least ? least : in[i], x > most ? most : x)
    return 0;
}

/* Two inputs */

static int infer_binary(struct sl_graph_infer *infer)
{
    struct sl_graph_ops_broadcast p;
    int err = sl_graph_ops_check_f32(infer);
    err = err != 0 ? err : sl_graph_ops_broadcast_infer(infer, &p);
    if (err == 0) {
        sl_graph_ops_save(infer->node, &p, sizeof p);
        infer->flops = (double)p.out_row;
    }
    return err;
}

/* steps: 0 for an operand that is one element for the whole loop. */
typedef void loop_fn(float *out, const float *a, const float *b, const uint32_t steps[2],
                     uint64_t count);

static int run_binary(const struct sl_graph_node *node, const struct sl_graph_run *run,
                      loop_fn *loop)
{
    struct sl_graph_ops_broadcast p;
    sl_graph_ops_load(node, &p, sizeof p);
    const uint64_t rows = p.row_step[0] + p.row_step[1] > 0 ? run->rows : 1;
    const uint64_t size = p.axes[0].size;
    const float *a = run->inputs[0], *b = run->inputs[1];
    float *out = run->outputs[0];
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t i = 0; i < p.out_row / size; i++) {
            uint64_t at[2];
            sl_graph_ops_broadcast_locate(&p, i, at);
            loop(out, a + row * p.row_step[0] + at[0], b + row * p.row_step[1] + at[1],
                 p.axes[0].step, size);
            out += size;
        }
    }
    return 0;
}

#define BINARY(name, value)                                                                        \
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
        return run_binary(node, run, name##_loop);                                                 \
    }

BINARY(run_add, x + y)
BINARY(run_sub, x - y)
BINARY(run_mul, x *y)
BINARY(run_div, x / y)

const struct sl_graph_op sl_graph_ops_elementwise[] = {
    SL_GRAPH_OPS_ENTRY("Relu", 1, 1, true, infer_unary, run_relu),
    SL_GRAPH_OPS_ENTRY("Sigmoid", 1, 1, true, infer_unary, run_sigmoid),
    SL_GRAPH_OPS_ENTRY("Tanh", 1, 1, true, infer_unary, run_tanh),
    SL_GRAPH_OPS_ENTRY("Clip", 1, 3, true, infer_clip, run_clip),
    SL_GRAPH_OPS_ENTRY("Add", 2, 2, true, infer_binary, run_add),
    SL_GRAPH_OPS_ENTRY("Sub", 2, 2, true, infer_binary, run_sub),
    SL_GRAPH_OPS_ENTRY("Mul", 2, 2, true, infer_binary, run_mul),
    SL_GRAPH_OPS_ENTRY("Div", 2, 2, true, infer_binary, run_div),
    {.name = NULL},
};
