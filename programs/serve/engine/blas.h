/* Products of matrices, by OpenBLAS on the calling thread. Matrices are f32 and row-major, without
 * gaps unless a stride is given. */
#ifndef SL_PROGRAMS_SERVE_ENGINE_BLAS_H
#define SL_PROGRAMS_SERVE_ENGINE_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes OpenBLAS use the calling thread alone and the kernels for this processor, and ends threads
 * that it has started. Before start: while the program has no other thread. */
void sl_blas_init(void);

/* c[m][n] = alpha a[m][k] b[k][n] + beta c. Dimensions are 1 to INT32_MAX. */
struct sl_blas_product {
    uint64_t m, n, k;
    float alpha, beta; /* beta 0: c is not read */
    bool a_transposed; /* a is [k][m] */
    bool b_transposed; /* b is [n][k] */
    uint64_t b_stride; /* elements from a row of b to the next; 0: no gaps */
    uint64_t c_stride;
};

/* Reads each byte of b from memory once, also if `a` has few rows. Any thread. */
void sl_blas_multiply(const struct sl_blas_product *product, const float *a, const float *b,
                      float *c);

/* For sl_blas_init: the part that depends on the processor family. */
void sl_blas_choose_kernels(void);

#endif
