/* The loops over rows, compiled once for each form of vector unit (SL_FORM), as the optimizers'
 * kernels are and with their flags. */
#ifndef SL_BENCH_BARE_ROWS_LOOPS_H
#define SL_BENCH_BARE_ROWS_LOOPS_H

#include <stddef.h>
#include <stdint.h>

/* Row i: dim f32 at values + i * stride_bytes, then as many of its accumulator. */
struct sl_bench_bare_rows_view {
    uint8_t *values;
    size_t stride_bytes;
    uint32_t dim;
};

struct sl_bench_bare_rows_loops {
    /* rows[count][dim] := those at `places`. */
    void (*gather)(const struct sl_bench_bare_rows_view *view, const uint32_t *places,
                   uint32_t count, float *rows);
    /* Adagrad's step of each with gradients[count][dim]; a place may come twice. */
    void (*update)(const struct sl_bench_bare_rows_view *view, const uint32_t *places,
                   uint32_t count, const float *gradients);
};

/* The form that this processor runs fastest. */
const struct sl_bench_bare_rows_loops *sl_bench_bare_rows_select(void);

#endif
