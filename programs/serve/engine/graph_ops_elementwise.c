/* Operators that compute element i of the output from element i of the input. `omp simd` says that
 * the iterations of a loop are independent, also if the output takes the place of input 0. */
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

/* out[i] = value, of the operands that it declares. */
#define LOOP(operands, value)                                                                      \
    _Pragma("omp simd") for (uint64_t i = 0; i < count; i++)                                       \
    {                                                                                              \
        operands;                                                                                  \
        out[i] = (value);                                                                          \
    }

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

const struct sl_graph_op sl_graph_ops_elementwise[] = {
    SL_GRAPH_OPS_ENTRY("Relu", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_relu),
    SL_GRAPH_OPS_ENTRY("Sigmoid", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_sigmoid),
    SL_GRAPH_OPS_ENTRY("Tanh", 1, 1, SL_GRAPH_IN_PLACE, infer_unary, run_tanh),
    SL_GRAPH_OPS_ENTRY("Clip", 1, 3, SL_GRAPH_IN_PLACE, infer_clip, run_clip,
                       {"min", SL_GRAPH_FLOAT}, {"max", SL_GRAPH_FLOAT}),
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
