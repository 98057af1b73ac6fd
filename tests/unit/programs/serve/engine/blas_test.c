#include "programs/serve/engine/blas.h"

#include <math.h>

#include "core/hash.h"
#include "tests/support/unit.h"

/* Rows of `a` below and above those that are multiplied one by one; b of one block and of many. */
enum { M_MAX = 11, K_MAX = 700, N_MAX = 300, GAP = 3 };

static float a[M_MAX * K_MAX], b[K_MAX * (N_MAX + GAP)], c[M_MAX * (N_MAX + GAP)];

static float draw(uint64_t *seed)
{
    return (float)((double)(sl_hash_random(seed) >> 11) * 0x1p-53 - 0.5);
}

static void fill(float *values, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = draw(&seed);
    }
}

static double element(const struct sl_blas_product *p, uint64_t b_stride, uint64_t i, uint64_t j)
{
    double sum = 0;
    for (uint64_t k = 0; k < p->k; k++) {
        const float right = p->b_transposed ? b[j * b_stride + k] : b[k * b_stride + j];
        sum += (double)a[i * p->k + k] * (double)right;
    }
    return p->alpha * sum;
}

static void check(const struct sl_blas_product *p)
{
    const uint64_t columns = p->b_transposed ? p->k : p->n;
    const uint64_t b_stride = p->b_stride != 0 ? p->b_stride : columns;
    const uint64_t c_stride = p->c_stride != 0 ? p->c_stride : p->n;
    fill(a, sizeof a / sizeof *a, 1);
    fill(b, sizeof b / sizeof *b, 2);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        c[i] = p->beta != 0 ? (float)(i % 7) : NAN; /* not read */
    }
    sl_blas_multiply(p, a, b, c);
    for (uint64_t i = 0; i < p->m; i++) {
        for (uint64_t j = 0; j < c_stride; j++) {
            const uint64_t at = i * c_stride + j;
            const double before = p->beta != 0 ? (double)(at % 7) : 0;
            if (j < p->n) {
                const double want = element(p, b_stride, i, j) + p->beta * before;
                assert_true(fabs((double)c[at] - want) < 1e-4);
            } else if (i + 1 < p->m) {
                assert_true(p->beta == 0 ? isnan(c[at]) : (double)c[at] == before); /* a gap */
            }
        }
    }
}

static void check_all(bool b_transposed)
{
    for (uint64_t m = 1; m <= M_MAX; m += m < 3 ? 1 : 2) {
        for (uint32_t i = 0; i < 8; i++) {
            const bool is_large = i & 1, has_gaps = i & 2;
            struct sl_blas_product p = {.m = m,
                                        .n = is_large ? N_MAX : 5,
                                        .k = is_large ? K_MAX : 1 + m,
                                        .alpha = i & 1 ? 1 : 0.5F,
                                        .beta = i & 4 ? 2.0F : 0,
                                        .b_transposed = b_transposed};
            p.b_stride = has_gaps && !b_transposed ? p.n + GAP : 0;
            p.c_stride = has_gaps ? p.n + GAP : 0;
            check(&p);
        }
    }
}

SL_UNIT_SETUP()
{
    sl_blas_init();
}

SL_CASE(multiply__adds_to_c_what_a_plain_loop_computes)
{
    check_all(false);
}

SL_CASE(multiply__takes_a_transposed_matrix)
{
    check_all(true);
}
