/* MatMul and Gemm: rows of requests times a matrix of the model, all rows in one product; and
 * products of computed matrices, one after the other. */
#include <inttypes.h>

#include "programs/serve/engine/blas.h"
#include "programs/serve/engine/graph_ops.h"

/* out[m][n] = alpha x[m][k] matrix[k][n] + beta c */
struct gemm {
    struct sl_blas_product product; /* m: in a block */
    float beta;
    bool c_has_rows, c_has_columns; /* c repeats what it does not have */
    bool is_pairs;                  /* of matrices; else all rows times one matrix */
};

/* c is broadcast to the output. */
static int infer_c(const struct sl_graph_infer *infer, struct gemm *p)
{
    const struct sl_graph_value *x = infer->inputs[0], *c = infer->inputs[2];
    const uint64_t columns = c->rank > 0 ? c->shape[c->rank - 1] : 1;
    const uint64_t rows = c->rank == 2 ? c->shape[0] : 1;
    const bool is_row = !c->has_rows && rows == 1;
    const bool is_whole = c->rank == 2 && c->has_rows == x->has_rows && c->row_axis == 0 &&
                          c->row_outer == x->row_outer && rows == p->product.m;
    if (c->rank > 2 || (columns != 1 && columns != p->product.n) || !(is_row || is_whole)) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%s must be a scalar, a row of %" PRIu64 ", or as the output", c->name,
                             p->product.n);
    }
    p->c_has_rows = !is_row;
    p->c_has_columns = columns > 1;
    p->beta = sl_graph_attribute_float(infer->node, "beta", 1);
    p->product.beta = 1; /* the output holds beta c before the product is added */
    return 0;
}

/* Shared by both: x [..., k] and the matrix [k, n], or [n, k] if it is transposed. */
static int infer_product(struct sl_graph_infer *infer, bool is_transposed, float alpha)
{
    const struct sl_graph_value *x = infer->inputs[0], *matrix = infer->inputs[1];
    if (x->rank < 2 || matrix->rank != 2 || matrix->has_rows ||
        sl_graph_ops_is_rows(x, x->rank - 1)) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s must have 2 dimensions or more, of which the last does not count "
                             "rows, and %s 2 that do not",
                             x->name, matrix->name);
    }
    const uint64_t k = x->shape[x->rank - 1], n = matrix->shape[is_transposed ? 0 : 1];
    const uint64_t m = sl_graph_elements(x, 0, x->rank - 1);
    if (k != matrix->shape[is_transposed ? 1 : 0]) {
        return sl_graph_fail(infer, SL_ERR_INVALID,
                             "%s has %" PRIu64 " columns, but %s %" PRIu64 " %s", x->name, k,
                             matrix->name, matrix->shape[is_transposed ? 1 : 0],
                             is_transposed ? "columns (transB)" : "rows");
    }
    if (m > INT32_MAX / infer->rows_max || n > INT32_MAX || k > INT32_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE,
                             "%" PRIu64 " x %" PRIu64 " times %" PRIu64 " x %" PRIu64
                             ": each must be below 2^31 / %u",
                             m, k, k, n, infer->rows_max);
    }
    struct gemm p = {
        .product = {.m = m, .n = n, .k = k, .alpha = alpha, .b_transposed = is_transposed}};
    int err = sl_graph_ops_has(infer, 2) ? infer_c(infer, &p) : 0;
    sl_graph_ops_set_output(infer, x);
    infer->outputs[0]->shape[x->rank - 1] = n;
    infer->flops = 2.0 * (double)m * (double)n * (double)k;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return err;
}

/* The size of dimension `axis`, from the last, of the output of pairs. */
static uint64_t pair_dimension(const struct sl_graph_value *value, uint32_t axis)
{
    return axis < value->rank ? value->shape[value->rank - 1 - axis] : 1;
}

/* x [..., m, k] and y [..., k, n]; the dimensions before are broadcast. Rows of both are one of
 * them; if only one has rows, it may be another dimension, but not k. */
static int infer_pairs(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *x = infer->inputs[0], *y = infer->inputs[1];
    const struct sl_graph_value *of = x->has_rows ? x : y; /* the rows of the output */
    struct sl_graph_value *output = infer->outputs[0];
    const uint32_t rank = x->rank > y->rank ? x->rank : y->rank;
    const uint32_t row_axis = of->rank - 1 - of->row_axis; /* from the last */
    bool fits = x->rank >= 2 && y->rank >= 2 && x->shape[x->rank - 1] == y->shape[y->rank - 2];
    if (fits && x->has_rows && y->has_rows) {
        fits = row_axis >= 2 && y->rank - 1 - y->row_axis == row_axis &&
               x->row_outer == y->row_outer && x->shape[x->row_axis] == y->shape[y->row_axis];
    } else if (fits && of->has_rows) {
        const uint32_t of_k = of == x ? 0 : 1;
        fits = row_axis != of_k && (row_axis < 2 || pair_dimension(of == x ? y : x, row_axis) == 1);
    }
    sl_graph_ops_set_output(infer, of);
    output->rank = rank;
    output->row_axis = of->has_rows ? rank - 1 - row_axis : 0;
    double pairs = 1;
    for (uint32_t axis = rank; fits && axis-- > 2;) {
        const uint64_t a = pair_dimension(x, axis), b = pair_dimension(y, axis);
        fits = a == b || a == 1 || b == 1;
        output->shape[rank - 1 - axis] = a == 1 ? b : a;
        pairs *= (double)(a == 1 ? b : a);
    }
    if (!fits) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED,
                             "%s and %s must be [..., m, k] and [..., k, n], with the same "
                             "dimensions before or 1, which count the same rows",
                             x->name, y->name);
    }
    const struct gemm p = {.product = {.m = x->shape[x->rank - 2],
                                       .n = y->shape[y->rank - 1],
                                       .k = x->shape[x->rank - 1],
                                       .alpha = 1},
                           .is_pairs = true};
    if (p.product.m > INT32_MAX || p.product.n > INT32_MAX || p.product.k > INT32_MAX) {
        return sl_graph_fail(infer, SL_ERR_TOO_LARGE, "each dimension must be below 2^31");
    }
    output->shape[rank - 2] = p.product.m;
    output->shape[rank - 1] = p.product.n;
    infer->flops = 2.0 * pairs * (double)p.product.m * (double)p.product.n * (double)p.product.k;
    sl_graph_ops_save(infer->node, &p, sizeof p);
    return 0;
}

/* Which matrix of the value a pair has: pairs are counted as those of the output. */
static uint64_t find_matrix(const struct sl_graph_value *value, const struct sl_graph_value *output,
                            uint64_t pair)
{
    uint64_t at = 0, step = 1;
    for (uint32_t axis = 2; axis < output->rank; axis++) {
        const uint64_t size = pair_dimension(output, axis), its = pair_dimension(value, axis);
        at += its == 1 ? 0 : pair % size * step;
        step *= its;
        pair /= size;
    }
    return at;
}

static void run_pairs(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct gemm *p = sl_graph_ops_params(node);
    const struct sl_graph_value *x = node->inputs[0], *y = node->inputs[1], *out = node->outputs[0];
    const uint64_t m = p->product.m, n = p->product.n, k = p->product.k;
    const uint64_t pairs = sl_graph_elements(out, 0, out->rank - 2);
    for (uint64_t row = 0; row < (out->has_rows ? run->rows : 1); row++) {
        const float *a = (const float *)run->inputs[0] + (x->has_rows ? row * x->bytes / 4 : 0);
        const float *b = (const float *)run->inputs[1] + (y->has_rows ? row * y->bytes / 4 : 0);
        float *c = (float *)run->outputs[0] + row * pairs * m * n;
        for (uint64_t i = 0; i < pairs; i++) {
            sl_blas_multiply(&p->product, a + find_matrix(x, out, i) * m * k,
                             b + find_matrix(y, out, i) * k * n, c + i * m * n);
        }
    }
}

static int infer_matmul(struct sl_graph_infer *infer)
{
    const struct sl_graph_value *matrix = infer->inputs[1];
    return infer->inputs[0]->rank >= 2 && matrix->rank == 2 && !matrix->has_rows
               ? infer_product(infer, false, 1)
               : infer_pairs(infer);
}

static int infer_gemm(struct sl_graph_infer *infer)
{
    const int err = sl_graph_ops_check_rows_first(infer, infer->inputs[0]);
    if (err != 0) {
        return err;
    }
    if (infer->inputs[0]->rank != 2 || sl_graph_attribute_int(infer->node, "transA", 0) != 0) {
        return sl_graph_fail(infer, SL_ERR_UNSUPPORTED, "%s must be a matrix, and transA 0",
                             infer->inputs[0]->name);
    }
    return infer_product(infer, sl_graph_attribute_int(infer->node, "transB", 0) != 0,
                         sl_graph_attribute_float(infer->node, "alpha", 1));
}

static int run_gemm(const struct sl_graph_node *node, const struct sl_graph_run *run)
{
    const struct gemm *p = sl_graph_ops_params(node);
    struct sl_blas_product product = p->product;
    if (p->is_pairs) {
        run_pairs(node, run);
        return 0;
    }
    product.m *= sl_graph_ops_blocks(node, run, 0);
    const uint64_t n = product.n, c_columns = p->c_has_columns ? n : 1;
    float *out = run->outputs[0];
    for (uint64_t i = 0; product.beta != 0 && i < product.m; i++) {
        const float *c = (const float *)run->inputs[2] + (p->c_has_rows ? i * c_columns : 0);
        for (uint64_t j = 0; j < n; j++) {
            out[i * n + j] = p->beta * c[p->c_has_columns ? j : 0];
        }
    }
    sl_blas_multiply(&product, run->inputs[0], run->inputs[1], out);
    return 0;
}

const struct sl_graph_op sl_graph_ops_matrix[] = {
    SL_GRAPH_OPS_ENTRY("MatMul", 2, 2, 0, infer_matmul, run_gemm),
    SL_GRAPH_OPS_ENTRY("Gemm", 2, 3, 0, infer_gemm, run_gemm, {"alpha", SL_GRAPH_FLOAT},
                       {"beta", SL_GRAPH_FLOAT}, {"transA", SL_GRAPH_INT},
                       {"transB", SL_GRAPH_INT}),
    {.name = NULL},
};
