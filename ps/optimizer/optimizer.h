/* An optimizer is a const type object: the layout of its slots and the kernels that update rows and
 * slots. Each optimizer has one file, opt_<name>.c, with its formula and source. Kernels are pure
 * and take plain pointers; their specification has passed sl_message_check_spec. Any thread.
 * Nothing allocates.
 *
 * Each kernel file is compiled once per SIMD variant (scalar and the processor's vector units);
 * sl_optimizer_find chooses at run time. All variants give bit-identical results: the compiler
 * contracts no multiply-add, and sums over a row have a fixed order. In a dense table the row is
 * the part of a block that a push names. */
#ifndef SL_PS_OPTIMIZER_OPTIMIZER_H
#define SL_PS_OPTIMIZER_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "ps/optimizer/row.h"

/* Optimizer state of a whole table: AdamAsync's beta powers. They start as beta1 and beta2;
 * end_push multiplies them by beta1 and beta2 after each push. */
struct sl_optimizer_state {
    float beta1_power, beta2_power;
};

/* Values that all visits of a push share. */
struct sl_optimizer_push {
    struct sl_optimizer_state state; /* of the table when the push began */
    uint64_t step;                   /* global step of the table, with this push */
    float rate;                      /* multiplies the learning rate; finite, above 0 */
};

/* One visit: the update of one row, or of adjacent elements of a dense block. */
struct sl_optimizer_visit {
    const struct sl_optimizer_spec *spec;
    const struct sl_optimizer_state *state;
    float lr;             /* of this push: kernels use it in place of spec->lr */
    uint32_t dim;         /* values visited */
    uint32_t slot_stride; /* floats between slots: dim of the row, or elements of the block */
    uint32_t count;       /* earlier visits of this row: Adam's t - 1 */
    uint64_t step;        /* global step of the table, for AdagradDecay */
};

/* Rows of one table, visited in order. A row may occur more than once. */
struct sl_optimizer_rows {
    uint32_t count;
    struct sl_row *const *records; /* [count]: dim values each, followed by their slots */
    const float *gradients;        /* [count][dim] */
};

struct sl_optimizer {
    const char *name;         /* as in flags and logs: "adagrad_decay" */
    uint32_t slots_per_value; /* floats stored beside each value */
    uint32_t slots_per_row;   /* floats stored beside each row or dense block */
    /* Writes the initial values of slot 0 of `dim` values. NULL: zeros. The other slots start as
     * zeros (slot-major: all of slot 0, then all of slot 1). */
    void (*init)(const struct sl_optimizer_spec *spec, uint32_t dim, float *slots);
    /* Writes the initial values of the slots_per_row single floats behind them. NULL: zeros. */
    void (*init_row)(const struct sl_optimizer_spec *spec, float *row_slots);
    /* Advances the table's state. The caller calls it once per push and table, after the last row
     * or slice of the push (TensorFlow's order: the first push uses beta1 and beta2 unchanged).
     * NULL: no effect. */
    void (*end_push)(const struct sl_optimizer_spec *spec, struct sl_optimizer_state *state);
    /* Updates values w[dim] with gradients g[dim]. Slot k of value i is s[k * slot_stride + i];
     * r[slots_per_row] are the row's own slots. The arrays do not overlap and need only the
     * alignment of a float. When the optimizer has no such slots, s and r are not read. */
    void (*apply)(const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                  float *restrict r, const float *restrict g);
    /* Applies `apply` to each row in order, with the same bits, and counts the visit in the row's
     * record. Ignores slot_stride and count of `visit`. The rows need not be cached. */
    void (*apply_rows)(const struct sl_optimizer_visit *visit,
                       const struct sl_optimizer_rows *rows);
};

enum sl_optimizer_simd {
    SL_OPTIMIZER_SIMD_BEST,   /* the fastest that this processor supports */
    SL_OPTIMIZER_SIMD_SCALAR, /* the reference */
    SL_OPTIMIZER_SIMD_AVX2,
    SL_OPTIMIZER_SIMD_AVX512,
    SL_OPTIMIZER_SIMD_NATIVE, /* compiled for the baseline instructions of a processor other than
                                 x86-64 */
};
#define SL_OPTIMIZER_SIMD_COUNT 5

/* Returns the optimizer of this kind. NULL: no such kind, or this build or processor does not
 * support the SIMD variant. BEST and SCALAR exist for every kind. Any thread. */
const struct sl_optimizer *sl_optimizer_find(enum sl_optimizer_kind kind,
                                             enum sl_optimizer_simd form);

/* Copies the rows of the records to values[count][dim]. The rows need not be cached. */
typedef void (*sl_optimizer_gather_fn)(struct sl_row *const *records, uint32_t count, uint32_t dim,
                                       float *values);

/* Returns the gather function, the same for all optimizers; NULL as above. Any thread. */
sl_optimizer_gather_fn sl_optimizer_find_gather(enum sl_optimizer_simd form);

/* Returns the name of the variant that BEST selects on this processor, for example "avx2". */
const char *sl_optimizer_best_form_name(void);

/* Finds the kind of a name such as "adagrad". Errors: NOT_FOUND. */
int sl_optimizer_kind_from_name(const char *name, enum sl_optimizer_kind *out);

void sl_optimizer_state_init(const struct sl_optimizer_spec *spec,
                             struct sl_optimizer_state *state);

/* Returns what the visits of a push have in common; the caller sets the rest. */
static inline struct sl_optimizer_visit sl_optimizer_visit_of(const struct sl_optimizer_spec *spec,
                                                              const struct sl_optimizer_push *push)
{
    return (struct sl_optimizer_visit){
        .spec = spec, .state = &push->state, .lr = spec->lr * push->rate, .step = push->step};
}

static inline size_t sl_optimizer_slot_floats(const struct sl_optimizer *optimizer, uint32_t dim)
{
    return (size_t)optimizer->slots_per_value * dim + optimizer->slots_per_row;
}

/* Writes the initial values of all slots of a row, which are zeros before. */
static inline void sl_optimizer_init_slots(const struct sl_optimizer *optimizer,
                                           const struct sl_optimizer_spec *spec, uint32_t dim,
                                           float *slots)
{
    if (optimizer->init != NULL) {
        optimizer->init(spec, dim, slots);
    }
    if (optimizer->init_row != NULL) {
        optimizer->init_row(spec, slots + (size_t)optimizer->slots_per_value * dim);
    }
}

#endif
