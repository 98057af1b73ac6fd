/* Operators that relate elements to others of the same row: BatchNormalization, Softmax,
 * LayerNormalization, GlobalAveragePool. A block of the input is [outer][count][inner]. */
#include <inttypes.h>
#include <math.h>

#include "programs/serve/engine/graph_ops.h"

struct block {
    uint64_t outer, count, inner;
    float epsilon;
};

static int infer_block(struct sl_graph_infer *infer, uint32_t begin, uint32_t end)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const struct block p = {
        .outer = sl_graph_elements(x, 0, begin),
        .count = sl_graph_elements(x, begin, end),
        .inner = sl_graph_elements(x, end, x->rank),
        .epsilon = sl_graph_attribute_float(infer->node, "epsilon", 1e-5F),
    };
    sl_graph_ops_save(infer->node, &p, sizeof p);
    infer->flops = 3.0 * (double)sl_graph_elements(x, 0, x->rank);
    sl_graph_ops_set_output(infer, x);
    return 0;
}

static int infer_batch_normalization(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const int rows_err = sl_graph_ops_check_rows_first(infer, x);
    if (rows_err != 0) {
        return rows_err;
    }
    if (x->rank < 2 || sl_graph_attribute_int(infer->node, "training_mode", 0) != 0 ||
        sl_graph_attribute_int(infer->node, "spatial", 1) != 1) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "the input must be [N, C, ...], training_mode 0, and spatial 1");
    }
    for (uint32_t i = 1; i < infer->node->input_count; i++) {
        const struct sl_graph_value *value = infer->inputs[i];
        if (value->rank != 1 || value->shape[0] != x->shape[1] || value->has_rows) {
            return sl_graph_fail(infer, SL_ERR_INVALID, "%s must be [%" PRIu64 "]", value->name,
                                 x->shape[1]);
        }
    }
    return infer_block(infer, 1, 2);
}

static int run_batch_normalization(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct block *p = sl_graph_ops_params(node);
    const float *in = run->inputs[0], *scale = run->inputs[1], *bias = run->inputs[2];
    const float *mean = run->inputs[3], *variance = run->inputs[4];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->outer * p->count; i++) {
        const uint64_t channel = i % p->count;
        const float factor = scale[channel] / sqrtf(variance[channel] + p->epsilon);
        const float rest = bias[channel] - mean[channel] * factor;
#pragma omp simd
        for (uint64_t j = 0; j < p->inner; j++) {
            out[j] = in[j] * factor + rest;
        }
        in += p->inner;
        out += p->inner;
    }
    return 0;
}

/* Before opset 13 all dimensions from the axis on are one. */
static int infer_softmax(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    const bool is_old = infer->graph->opset < 13;
    uint32_t axis;
    if (x->rank == 0) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "the input must have a dimension or more");
    }
    int err = sl_graph_ops_axis(infer, is_old ? 1 : -1, x->rank, x->rank - 1, &axis);
    if (err == 0 && (is_old ? x->has_rows && axis <= x->row_axis : sl_graph_ops_is_rows(x, axis))) {
        err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the sums would be over rows of requests");
    }
    return err != 0 ? err : infer_block(infer, axis, is_old ? x->rank : axis + 1);
}

static void softmax(const float *in, float *out, uint64_t count, uint64_t stride)
{
    float most = -INFINITY, sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        most = in[i * stride] > most ? in[i * stride] : most;
    }
    for (uint64_t i = 0; i < count; i++) {
        out[i * stride] = expf(in[i * stride] - most);
        sum += out[i * stride];
    }
    for (uint64_t i = 0; i < count; i++) {
        out[i * stride] /= sum;
    }
}

static int run_softmax(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct block *p = sl_graph_ops_params(node);
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->outer; i++) {
        const uint64_t begin = i * p->count * p->inner;
        for (uint64_t j = 0; j < p->inner; j++) {
            softmax((const float *)run->inputs[0] + begin + j, (float *)run->outputs[0] + begin + j,
                    p->count, p->inner);
        }
    }
    return 0;
}

/* Over all dimensions from the axis on. */
static int infer_layer_normalization(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    uint32_t axis = 0;
    int err =
        x->rank == 0 ? SL_ERR_INVALID : sl_graph_ops_axis(infer, -1, x->rank, x->rank - 1, &axis);
    if (x->rank == 0 || (err == 0 && x->has_rows && axis <= x->row_axis)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the mean would be over rows of requests");
    }
    for (uint32_t i = 1; err == 0 && i < infer->node->input_count; i++) {
        const struct sl_graph_value *value = infer->inputs[i];
        if (value != NULL &&
            (value->has_rows || value->rank > x->rank ||
             sl_graph_elements(value, 0, value->rank) != sl_graph_elements(x, axis, x->rank))) {
            err = sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                                "%s must have no rows, and %" PRIu64 " elements", value->name,
                                sl_graph_elements(x, axis, x->rank));
        }
    }
    err = err != 0 ? err : infer_block(infer, axis, x->rank);
    infer->flops *= 2;
    return err;
}

static int run_layer_normalization(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct block *p = sl_graph_ops_params(node);
    const float *in = run->inputs[0], *scale = run->inputs[1];
    const float *bias = node->input_count > 2 ? run->inputs[2] : NULL;
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->outer; i++) {
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (uint64_t j = 0; j < p->count; j++) {
            sum += in[j];
        }
        const float mean = sum / (float)p->count;
#pragma omp simd reduction(+ : squares)
        for (uint64_t j = 0; j < p->count; j++) {
            squares += (in[j] - mean) * (in[j] - mean);
        }
        const float factor = 1 / sqrtf(squares / (float)p->count + p->epsilon);
#pragma omp simd
        for (uint64_t j = 0; j < p->count; j++) {
            out[j] = (in[j] - mean) * factor * scale[j] + (bias != NULL ? bias[j] : 0);
        }
        in += p->count;
        out += p->count;
    }
    return 0;
}

static int infer_global_average_pool(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0];
    if (x->rank < 3) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "the input must be [N, C, ...]");
    }
    int err = sl_graph_ops_check_rows_first(infer, x);
    err = err != 0 ? err : infer_block(infer, 2, x->rank);
    for (uint32_t i = 2; i < x->rank; i++) {
        infer->outputs[0]->shape[i] = 1;
    }
    return err;
}

static int run_global_average_pool(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct block *p = sl_graph_ops_params(node);
    const float *in = run->inputs[0];
    float *out = run->outputs[0];
    for (uint64_t i = 0; i < sl_graph_ops_blocks(node, run, 0) * p->outer; i++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (uint64_t j = 0; j < p->count; j++) {
            sum += in[j];
        }
        out[i] = sum / (float)p->count;
        in += p->count;
    }
    return 0;
}

const struct sl_graph_op sl_graph_ops_normalize[] = {
    SL_GRAPH_OPS_ENTRY("BatchNormalization", 5, 5, SL_GRAPH_IN_PLACE, infer_batch_normalization,
                       run_batch_normalization, {"epsilon", SL_GRAPH_FLOAT},
                       {"momentum", SL_GRAPH_FLOAT}, {"spatial", SL_GRAPH_INT},
                       {"training_mode", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("Softmax", 1, 1, SL_GRAPH_IN_PLACE, infer_softmax, run_softmax,
                       {"axis", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("LayerNormalization", 2, 3, SL_GRAPH_IN_PLACE, infer_layer_normalization,
                       run_layer_normalization, {"axis", SL_GRAPH_INT}, {"epsilon", SL_GRAPH_FLOAT},
                       {"stash_type", SL_GRAPH_INT}),
    SL_GRAPH_OPS_ENTRY("GlobalAveragePool", 1, 1, 0, infer_global_average_pool,
                       run_global_average_pool),
    {.name = NULL},
};
