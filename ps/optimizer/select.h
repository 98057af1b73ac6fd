/* Selects the SIMD variant of the kernels: those in this build that the processor can run. CMake
 * picks one select_*.c per processor family. */
#ifndef SL_PS_OPTIMIZER_SELECT_H
#define SL_PS_OPTIMIZER_SELECT_H

#include "ps/optimizer/optimizer.h"

struct sl_select_kernels {
    const struct sl_optimizer *optimizers[SL_OPTIMIZER_KIND_COUNT];
    const sl_optimizer_gather_fn *gather;
};

/* Returns the kernels of a variant; NULL when this build or processor does not support it. SCALAR
 * always exists. Callers resolve BEST through sl_select_best first. */
const struct sl_select_kernels *sl_select_simd(enum sl_optimizer_simd form);

/* Returns the fastest variant of this processor, for which sl_select_simd is not NULL. */
enum sl_optimizer_simd sl_select_best(void);

#endif
