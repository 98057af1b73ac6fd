/* Which forms of the kernels this build has, and which of them this processor can run: one file of
 * select_*.c for each family of processors, chosen by CMake. */
#ifndef SL_PS_OPTIMIZER_SELECT_H
#define SL_PS_OPTIMIZER_SELECT_H

#include "ps/optimizer/optimizer.h"

struct sl_select_kernels {
    const struct sl_optimizer *optimizers[SL_OPTIMIZER_KIND_COUNT];
    const sl_optimizer_gather_fn *gather;
};

/* The kernels of the form; NULL when the build has no such form or this processor cannot
 * run it. SCALAR is always there. BEST is resolved by the caller through sl_select_best. */
const struct sl_select_kernels *sl_select_simd(enum sl_optimizer_simd form);

/* What this processor runs fastest; its sl_select_simd is not NULL. */
enum sl_optimizer_simd sl_select_best(void);

#endif
