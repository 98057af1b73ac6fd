/* Optimizers: one file each, opt_<name>.c, with its formula and source. A const type object gives
 * the shape of the state beside a row and the kernel that visits row and state together. Kernels
 * are pure and take plain pointers; their specification is one that sl_message_check_spec accepts.
 * Any thread.
 *
 * Every kernel file is compiled once for each form (scalar, and what vector units the machine has);
 * sl_optimizer_find chooses at run time. All forms give bit-identical results: no multiply-add is
 * contracted, and the one sum over a row (FTRL by groups) is taken in a fixed order. */
#ifndef SL_PS_OPTIMIZER_OPTIMIZER_H
#define SL_PS_OPTIMIZER_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/optimizer/row.h"

/* State of a table that is not per row: AdamAsync's beta powers. They begin as beta1 and beta2 and
 * are multiplied by them once after each push (end_push). */
struct sl_optimizer_state {
    float beta1_power, beta2_power;
};

/* One visit of one row, or of adjoining elements of a dense block. */
struct sl_optimizer_visit {
    const struct sl_optimizer_spec *spec;
    const struct sl_optimizer_state *state;
    uint32_t dim;         /* values visited */
    uint32_t slot_stride; /* floats from one slot to the next: dim of the row or of the block */
    uint32_t count;       /* visits of this row before this one: Adam's t - 1 */
    uint64_t step;        /* the table's global step: AdagradDecay */
};

/* Rows of a table that are visited one after the other. A row may come more than once. */
struct sl_optimizer_rows {
    uint32_t count;
    struct sl_row *const *records; /* [count]: dim values each, behind them their slots */
    const float *gradients;        /* [count][dim] */
};

struct sl_optimizer {
    const char *name;         /* "adagrad_decay": flags, logs */
    uint32_t slots_per_value; /* floats beside each value */
    uint32_t slots_per_row;   /* floats beside each row, or each dense block */
    /* First contents of a row's slots: slots_per_value * dim floats, slot-major (all of slot 0,
     * then all of slot 1), then slots_per_row single floats. NULL: zeros. */
    void (*init)(const struct sl_optimizer_spec *spec, uint32_t dim, float *slots);
    /* Once per push and table, after all its rows have been visited (TensorFlow's order: the first
     * push sees beta1 and beta2 themselves). Who applies a push in slices calls it after the last.
     * NULL: nothing. */
    void (*end_push)(const struct sl_optimizer_spec *spec, struct sl_optimizer_state *state);
    /* Updates values w[dim]; slot k of value i is s[k * slot_stride + i]; r[slots_per_row] are the
     * row's own slots; gradients g[dim]. No two overlap; alignment of a float suffices. s and r are
     * not read where there are no such slots. */
    void (*apply)(const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                  float *restrict r, const float *restrict g);
    /* `apply` for each of the rows in order, with the same bits, its visit counted in its record;
     * of `visit`, slot_stride and count are not read. The rows need not be in the cache. */
    void (*apply_rows)(const struct sl_optimizer_visit *visit,
                       const struct sl_optimizer_rows *rows);
};

enum sl_optimizer_simd {
    SL_OPTIMIZER_SIMD_BEST,   /* what this processor runs fastest */
    SL_OPTIMIZER_SIMD_SCALAR, /* the reference */
    SL_OPTIMIZER_SIMD_AVX2,
    SL_OPTIMIZER_SIMD_AVX512,
    SL_OPTIMIZER_SIMD_NATIVE, /* what the compiler makes of the baseline of other machines */
};
#define SL_OPTIMIZER_SIMD_COUNT 5

/* The type object of a kind; NULL when there is no such kind, or when this build or this processor
 * has not that form. BEST and SCALAR are there for every kind. Any thread. */
const struct sl_optimizer *sl_optimizer_find(enum sl_optimizer_kind kind,
                                             enum sl_optimizer_simd form);

/* values[count][dim] := the rows of the records, which need not be in the cache. */
typedef void (*sl_optimizer_gather_fn)(struct sl_row *const *records, uint32_t count, uint32_t dim,
                                       float *values);

/* That copy, whatever the optimizer; NULL as above. Any thread. */
sl_optimizer_gather_fn sl_optimizer_find_gather(enum sl_optimizer_simd form);

/* The name of the form that BEST stands for on this processor: "avx2". */
const char *sl_optimizer_best_form_name(void);

/* "adagrad" -> kind; errors: NOT_FOUND. */
int sl_optimizer_kind_from_name(const char *name, enum sl_optimizer_kind *out);

void sl_optimizer_state_init(const struct sl_optimizer_spec *spec,
                             struct sl_optimizer_state *state);

static inline size_t sl_optimizer_slot_floats(const struct sl_optimizer *optimizer, uint32_t dim)
{
    return (size_t)optimizer->slots_per_value * dim + optimizer->slots_per_row;
}

#endif
