/* Optimizers: one file each, opt_<name>.c, with its formula and source. A const type object gives
 * the shape of the state beside a row and the kernel that visits row and state together. Kernels
 * are pure and take plain pointers. Any thread. */
#ifndef SL_PS_OPTIMIZER_OPTIMIZER_H
#define SL_PS_OPTIMIZER_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* State of a table that is not per row: AdamAsync's beta powers, advanced once per push. */
struct sl_optimizer_state {
    float beta1_power, beta2_power;
};

/* One visit: dim values `w`, their slots `s` (slots_per_value * dim floats, slot-major: all of slot
 * 0, then all of slot 1, then slots_per_row single floats), gradients `g`. */
struct sl_optimizer_visit {
    const struct sl_optimizer_spec *spec;
    const struct sl_optimizer_state *state;
    uint32_t dim;
    uint32_t count; /* visits of this row before this one: Adam's t - 1 */
    uint64_t step;  /* the table's global step: AdagradDecay */
};

struct sl_optimizer {
    const char *name;         /* "adagrad_decay": flags, logs */
    uint32_t slots_per_value; /* floats beside each value */
    uint32_t slots_per_row;   /* floats beside each row */
    /* First contents of a row's slots, dim as in the visit. NULL: zeros. */
    void (*init)(const struct sl_optimizer_spec *spec, uint32_t dim, float *s);
    /* Once per push and table, before its rows. NULL: nothing. */
    void (*begin_push)(const struct sl_optimizer_spec *spec, struct sl_optimizer_state *state);
    void (*apply)(const struct sl_optimizer_visit *visit, float *restrict w, float *restrict s,
                  const float *restrict g);
};

enum sl_optimizer_form {
    SL_OPTIMIZER_FORM_BEST,   /* what this processor runs fastest */
    SL_OPTIMIZER_FORM_SCALAR, /* the reference */
};

/* The type object of a kind; NULL when there is none. The vector forms give bit-identical results
 * to the scalar ones wherever no sum over a row is involved. Any thread. */
const struct sl_optimizer *sl_optimizer_find(enum sl_optimizer_kind kind,
                                             enum sl_optimizer_form form);

/* "adagrad" -> kind; errors: NOT_FOUND. */
int sl_optimizer_kind_from_name(const char *name, enum sl_optimizer_kind *out);

void sl_optimizer_state_init(const struct sl_optimizer_spec *spec,
                             struct sl_optimizer_state *state);

static inline size_t sl_optimizer_slot_floats(const struct sl_optimizer *optimizer, uint32_t dim)
{
    return (size_t)optimizer->slots_per_value * dim + optimizer->slots_per_row;
}

#endif
