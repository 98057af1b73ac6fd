/* One record of a sparse table, as the table keeps it and the optimizers' kernels visit it. */
#ifndef SL_PS_OPTIMIZER_ROW_H
#define SL_PS_OPTIMIZER_ROW_H

#include <stdint.h>

/* What a record begins with; dim f32 of the row follow, then the slots. */
struct sl_row {
    uint64_t key;
    uint32_t last_step; /* of the last push that visited it, modulo 2^32; 0 before the first */
    uint32_t count;     /* visits by pushes, saturating */
    float values[];
};

#endif
