/* MatMul and Gemm. Rows that are multiplied with the same matrix are one product. */
#include <inttypes.h>

#include "serve/engine/blas.h"
#include "serve/engine/graph_ops.h"
#include "serve/engine/graph_ops_broadcast.h"

/* OpenBLAS counts with int. */
static int check_sizes(const struct sl_graph_infer *infer, uint64_t m, uint64_t n, uint64_t k)
{
    if (m > INT32_MAX / infer->rows_max || n > INT32_MAX || k > INT32_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "a product of %" PRIu64 " x %" PRIu64 " x %" PRIu64
                             " elements: a dimension has more than %d",
                             m * infer->rows_max, k, n, INT32_MAX);
    }
    return 0;
}

struct matmul {
    struct sl_graph_ops_broadcast batch; /* its items are matrices */
    uint32_t m, n, k;
    bool is_shared; /* all of `a` is multiplied with one matrix; m: rows of `a` in a block */
};

static int infer_matmul(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    struct sl_graph_value *output = infer->outputs[0];
    struct matmul p;
    if (a->rank == 0 || b->rank == 0) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "the inputs must have a dimension or more");
    }
    if ((a->has_rows && a->rank == 1) || (b->has_rows && b->rank < 3)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the sums would be over rows of requests");
    }
    const uint64_t m = a->rank > 1 ? a->shape[a->rank - 2] : 1;
    const uint64_t n = b->rank > 1 ? b->shape[b->rank - 1] : 1;
    const uint64_t k = a->shape[a->rank - 1], b_k = b->shape[b->rank > 1 ? b->rank - 2 : 0];
    if (k != b_k) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%s has %" PRIu64 " columns, %s has %" PRIu64 " rows: must be equal",
                             a->name, k, b->name, b_k);
    }
    int err = sl_graph_ops_check_f32(infer);
    err = err != 0 ? err : sl_graph_ops_broadcast_infer(infer, 2, &p.batch);
    if (err != 0) {
        return err;
    }
    const uint64_t a_rows = sl_graph_elements(a, 0, a->rank) / k;
    p.is_shared = !b->has_rows && sl_graph_elements(b, 0, b->rank) == k * n;
    p.m = (uint32_t)(p.is_shared ? a_rows : m);
    p.n = (uint32_t)n;
    p.k = (uint32_t)k;
    if (a->rank > 1) {
        output->shape[output->rank++] = m;
    }
    if (b->rank > 1) {
        output->shape[output->rank++] = n;
    }
    sl_graph_ops_save(infer->node, &p, sizeof p);
    infer->flops = 2.0 * (double)p.batch.out_row * (double)m * (double)n * (double)k;
    return check_sizes(infer, p.m, n, k);
}

static int run_matmul(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct matmul p;
    sl_graph_ops_load(node, &p, sizeof p);
    const float *a = run->inputs[0], *b = run->inputs[1];
    float *out = run->outputs[0];
    const uint32_t *step = p.batch.row_step;
    const uint64_t rows = step[0] + step[1] > 0 ? run->rows : 1;
    struct sl_blas_product product = {.m = p.m, .n = p.n, .k = p.k, .alpha = 1};
    if (p.is_shared) {
        product.m *= rows;
        sl_blas_multiply(&product, a, b, out);
        return 0;
    }
    const uint64_t a_matrix = (uint64_t)p.m * p.k, b_matrix = (uint64_t)p.k * p.n;
    for (uint64_t i = 0; i < rows * p.batch.out_row; i++) {
        const uint64_t row = i / p.batch.out_row;
        uint64_t at[2];
        sl_graph_ops_broadcast_locate(&p.batch, 0, i % p.batch.out_row, at);
        sl_blas_multiply(&product, a + (row * step[0] + at[0]) * a_matrix,
                         b + (row * step[1] + at[1]) * b_matrix, out + i * p.m * p.n);
    }
    return 0;
}

struct gemm {
    struct sl_blas_product product; /* m: of a row if `a` has rows */
    float beta;
    bool has_rows, c_has_rows, c_has_columns; /* c repeats what it does not have */
};

/* c is broadcast to the output. */
static int infer_c(const struct sl_graph_infer *infer, struct gemm *p)
{
    const struct sl_graph_value *c = infer->inputs[2], *output = infer->outputs[0];
    const uint64_t columns = c->rank > 0 ? c->shape[c->rank - 1] : 1;
    const uint64_t rows = c->rank > 1 ? c->shape[0] : 1;
    p->c_has_columns = columns > 1;
    p->c_has_rows = c->has_rows || rows > 1;
    if (c->rank > 2 || (columns != 1 && columns != p->product.n) ||
        (p->c_has_rows && (rows != p->product.m || c->has_rows != output->has_rows)) ||
        (c->has_rows && c->rank != 2)) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%s must be a scalar, a row of %" PRIu64 ", or as the output", c->name,
                             p->product.n);
    }
    return 0;
}

static int infer_gemm(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *a = infer->inputs[0], *b = infer->inputs[1];
    const bool a_transposed = sl_graph_attribute_int(infer->node, "transA", 0) != 0;
    const bool b_transposed = sl_graph_attribute_int(infer->node, "transB", 0) != 0;
    if (a->rank != 2 || b->rank != 2) {
        return sl_graph_fail(infer, SL_ERR_INVALID, "the inputs A and B must be matrices");
    }
    const uint64_t k = a->shape[a_transposed ? 0 : 1], b_k = b->shape[b_transposed ? 1 : 0];
    if (b->has_rows || (a->has_rows && a_transposed)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "the sums would be over rows of requests");
    }
    if (k != b_k) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%s has %" PRIu64 " columns, %s has %" PRIu64
                             " rows (after transA and transB): must be equal",
                             a->name, k, b->name, b_k);
    }
    struct gemm p = {
        .product = {.m = a->shape[a_transposed ? 1 : 0],
                    .n = b->shape[b_transposed ? 0 : 1],
                    .k = k,
                    .alpha = sl_graph_attribute_float(infer->node, "alpha", 1),
                    .a_transposed = a_transposed,
                    .b_transposed = b_transposed},
        .has_rows = a->has_rows,
    };
    sl_graph_ops_set_output(infer, a);
    infer->outputs[0]->shape[0] = p.product.m;
    infer->outputs[0]->shape[1] = p.product.n;
    infer->flops = 2.0 * (double)p.product.m * (double)p.product.n * (double)k;
    int err = sl_graph_ops_check_f32(infer);
    err = err != 0 ? err : check_sizes(infer, p.product.m, p.product.n, k);
    if (err == 0 && sl_graph_ops_has(infer, 2)) {
        p.beta = sl_graph_attribute_float(infer->node, "beta", 1);
        p.product.beta = 1;
        err = infer_c(infer, &p);
    }
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return err;
}

static int run_gemm(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    struct gemm p;
    sl_graph_ops_load(node, &p, sizeof p);
    p.product.m *= sl_graph_ops_blocks(run, p.has_rows);
    const uint64_t n = p.product.n, c_columns = p.c_has_columns ? n : 1;
    float *out = run->outputs[0];
    for (uint64_t i = 0; p.product.beta != 0 && i < p.product.m; i++) {
        const float *c = (const float *)run->inputs[2] + (p.c_has_rows ? i * c_columns : 0);
        for (uint64_t j = 0; j < n; j++) {
            out[i * n + j] = p.beta * c[p.c_has_columns ? j : 0];
        }
    }
    sl_blas_multiply(&p.product, run->inputs[0], run->inputs[1], out);
    return 0;
}

const struct sl_graph_op sl_graph_ops_matrix[] = {
    SL_GRAPH_OPS_ENTRY("MatMul", 2, 2, false, infer_matmul, run_matmul),
    SL_GRAPH_OPS_ENTRY("Gemm", 2, 3, false, infer_gemm, run_gemm, {"alpha", SL_GRAPH_FLOAT},
                       {"beta", SL_GRAPH_FLOAT}, {"transA", SL_GRAPH_INT},
                       {"transB", SL_GRAPH_INT}),
    {.name = NULL},
};
