/* The loops over rows, compiled once for each form of vector unit (SL_SIMD), as the optimizers'
 * kernels are and with their flags. */
#ifndef SL_BENCH_BARE_ROWS_LOOPS_H
#define SL_BENCH_BARE_ROWS_LOOPS_H

#include <stdint.h>

struct sl_bench_bare_rows_loops {
    /* values[count][dim] := the first dim floats at each address. */
    void (*gather)(float *const *rows, uint32_t count, uint32_t dim, float *values);
    /* Adagrad's step of each with gradients[count][dim]; an address may come twice. Behind a row's
     * dim values stand as many of its accumulator. */
    void (*update)(float *const *rows, uint32_t count, uint32_t dim, const float *gradients);
};

/* The form that this processor runs fastest. */
const struct sl_bench_bare_rows_loops *sl_bench_bare_rows_select(void);

#endif
