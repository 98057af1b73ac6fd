#include "programs/serve/engine/blas.h"

#include <cblas.h>

/* Up to so many rows of `a`, a product of b and each row is faster than one product of matrices,
 * which first copies b: one row takes a third of the time (b of 16 MiB, AVX-512), 8 rows 0.7. */
#define ROWS_FEW     8

/* A block of b that stays in the cache while each row of `a` is multiplied with it. */
#define BLOCK_FLOATS (256U * 1024 / sizeof(float))

/* Exported by the variant that starts threads when it is loaded. They do not block signals, so one
 * of them would receive a SIGTERM that the program reads from a signalfd. */
int blas_thread_shutdown_(void) __attribute__((weak));

void sl_blas_init(void)
{
    openblas_set_num_threads(1);
    if (blas_thread_shutdown_ != NULL) {
        (void)blas_thread_shutdown_();
    }
    sl_blas_choose_kernels(); /* changes the environment, which the threads read when they start */
}

/* A block is some rows of b: of all columns if b is transposed, else a part of the sum. */
static void multiply_rows(const struct sl_blas_product *p, const float *a, const float *b,
                          uint64_t b_stride, float *c, uint64_t c_stride)
{
    const uint64_t rows = p->b_transposed ? p->n : p->k;
    const uint64_t columns = p->b_transposed ? p->k : p->n;
    const uint64_t step = BLOCK_FLOATS / columns + 1;
    for (uint64_t at = 0; at < rows; at += step) {
        const uint64_t count = rows - at < step ? rows - at : step;
        for (uint64_t i = 0; i < p->m; i++) {
            if (p->b_transposed) {
                cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)count, (blasint)columns, p->alpha,
                            b + at * b_stride, (blasint)b_stride, a + i * p->k, 1, p->beta,
                            c + i * c_stride + at, 1);
            } else {
                cblas_sgemv(CblasRowMajor, CblasTrans, (blasint)count, (blasint)columns, p->alpha,
                            b + at * b_stride, (blasint)b_stride, a + i * p->k + at, 1,
                            at == 0 ? p->beta : 1, c + i * c_stride, 1);
            }
        }
    }
}

void sl_blas_multiply(const struct sl_blas_product *p, const float *a, const float *b, float *c)
{
    const uint64_t b_stride = p->b_stride != 0 ? p->b_stride : p->b_transposed ? p->k : p->n;
    const uint64_t c_stride = p->c_stride != 0 ? p->c_stride : p->n;
    if (p->m <= ROWS_FEW && !p->a_transposed) {
        multiply_rows(p, a, b, b_stride, c, c_stride);
        return;
    }
    cblas_sgemm(CblasRowMajor, p->a_transposed ? CblasTrans : CblasNoTrans,
                p->b_transposed ? CblasTrans : CblasNoTrans, (blasint)p->m, (blasint)p->n,
                (blasint)p->k, p->alpha, a, (blasint)(p->a_transposed ? p->m : p->k), b,
                (blasint)b_stride, p->beta, c, (blasint)c_stride);
}
